/* What a hang is told by: the nodes in flight, their peers, and what is behind
   them. */
#include "progress/engine.h"

#include "base/log.h"

enum { NODES_NAMED = 8, BEHIND_NAMED = 4 };

static void describe_node(const baton_schedule_t *schedule, uint32_t node,
                          baton__text_t *text)
{
    const baton__op_t *op = &schedule->ops[node];
    bool sends = baton__op_sends(op);
    baton__text_add(text, "\n    waiting: %s %s rank %d, %zu bytes, tag %u",
                    baton__node_name(schedule, node), sends ? "to" : "from",
                    (int)op->peer, op->bytes, op->tag);
    uint32_t end = op[1].first_successor;
    for (uint32_t i = op->first_successor; i < end; i++) {
        uint32_t named = i - op->first_successor;
        if (named == BEHIND_NAMED) {
            baton__text_add(text, " and %u more", end - i);
            break;
        }
        baton__text_add(
            text, "%s%s", named == 0 ? "; behind it: " : ", ",
            baton__node_name(schedule, schedule->plan.successors[i]));
    }
}

/* Nodes in flight; an armed receive counts while nothing else is: then the
   epoch waits for an activation. */
static uint32_t describe_nodes(const baton_schedule_t *schedule, bool armed,
                               baton__text_t *text)
{
    uint32_t count = 0;
    for (uint32_t node = 0; node < schedule->count; node++) {
        bool is_armed = schedule->ops[node].kind == BATON__ARMED_RECV;
        uint8_t flight = schedule->run.flight[node];
        if (is_armed != armed ||
            (flight != BATON__IN_FLIGHT && flight != BATON__LATE_AGAIN)) {
            continue;
        }
        if (count++ < NODES_NAMED) {
            describe_node(schedule, node, text);
        }
    }
    if (count > NODES_NAMED) {
        baton__text_add(text, "\n    and %u more", count - NODES_NAMED);
    }
    return count;
}

void baton__describe_wait(const baton_schedule_t *schedule, baton__text_t *text)
{
    uint64_t since = schedule->notes.seen_at_ns;
    baton__text_add(text, "\"%s\" epoch %llu has made no progress",
                    schedule->name, (unsigned long long)schedule->run.epoch);
    if (since != 0) { /* else nobody has looked before, or time is virtual */
        baton__text_add(text, " for %.1f s",
                        (double)(baton__clock_ns() - since) / 1e9);
    }
    baton__text_add(text, " on rank %d of %d", schedule->group->rank,
                    schedule->group->size);
    if (schedule->run.state != BATON__RUN_RUNNING) {
        baton__text_add(text, "\n    it has not begun here");
        return;
    }
    if (describe_nodes(schedule, false, text) == 0 &&
        describe_nodes(schedule, true, text) == 0) {
        baton__text_add(text,
                        "\n    %u of its nodes have not fired, and nothing is "
                        "in flight: a branch that was not taken?",
                        schedule->run.required_left);
    }
}

static void report(baton_schedule_t *schedule)
{
    char memory[BATON__MESSAGE_BYTES];
    baton__text_t text = {memory, sizeof memory, 0};
    baton__describe_wait(schedule, &text);
    baton__log(BATON_LOG_WARN, "%s", memory);
}

void baton__watchdog(baton_engine_t *engine)
{
    if (engine->stepper.running == 0) {
        return;
    }
    uint64_t now = baton__clock_ns();
    uint64_t stall_ns = (uint64_t)engine->stall_ms * 1000000u;
    for (baton_schedule_t *s = engine->stepper.schedules; s != NULL;
         s = s->notes.next) {
        uint64_t pulse = s->run.moves + s->run.epoch;
        if (s->run.state != BATON__RUN_RUNNING ||
            pulse != s->notes.seen_moves) {
            s->notes.seen_moves = pulse;
            s->notes.seen_at_ns = now;
            s->notes.reported_ns = now;
        } else if (now - s->notes.reported_ns >= stall_ns) {
            s->notes.reported_ns = now;
            report(s);
        }
    }
}
