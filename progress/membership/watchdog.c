/* The watchdog; see watchdog.h. A report, one for each stall, names the nodes
   that are awaited, their peers, and the nodes after them. */
#include "progress/membership/watchdog.h"

#include "base/clock.h"
#include "base/log.h"
#include "progress/membership/inquiry.h"
#include "progress/membership/notice.h"
#include "progress/membership/recovery.h"
#include "progress/membership/shrink.h"

enum {
    NODES_NAMED = 8,
    SUCCESSORS_NAMED = 4,
    LOOKS = 8, /* the least number of looks in a stall period */
    ROUNDS = 2 /* number of rounds of inquiries before a stall is reported */
};

/* Appends a message that the epoch waits for, and names the peer's host and
   process, unless the peer is *named, the peer of the message that was
   described before. */
static void describe_message(const baton_schedule_t *schedule, uint32_t node,
                             int *named, baton__text_t *text)
{
    const baton__op_t *op = &schedule->ops[node];
    const baton_group_t *group = schedule->group;
    const baton__member_t *member = baton__member_of(group);
    const int peer = baton__peer_of(schedule, op);
    uint8_t state = schedule->run.state[node];
    baton__text_add(text, "\n    waiting: %s %s ",
                    baton__node_name(schedule, node),
                    baton__op_sends(op) ? "to" : "from");
    if (peer == *named) {
        baton__text_add(text, "rank %d", peer);
    } else {
        baton__text_add(text, "%s", baton__group_rank_text(group, peer));
        *named = peer;
    }
    baton__text_add(text, ", %zu bytes, tag %u", op->bytes, op->message.tag);
    if (state == BATON__NODE_HELD) {
        baton__text_add(text, "; rank %d has not committed \"%s\"", peer,
                        schedule->name);
        if (member->unknown_peer == peer && member->unknown_name != NULL) {
            baton__text_add(
                text, "; it has committed \"%s\", which this rank has not",
                member->unknown_name);
        }
    } else if (state == BATON__NODE_MOVING && !baton__op_sends(op)) {
        baton__text_add(text,
                        "; it has arrived, and its data are being transferred");
    }
}

static void describe_node(const baton_schedule_t *schedule, uint32_t node,
                          int *named, baton__text_t *text)
{
    const baton__op_t *op = &schedule->ops[node];
    if (baton__kinds[op->kind].message) {
        describe_message(schedule, node, named, text);
    } else {
        baton__text_add(text, "\n    waiting: ");
        baton__describe_own(schedule, node, text);
    }
    uint32_t end = op[1].first_successor;
    for (uint32_t i = op->first_successor; i < end; i++) {
        uint32_t listed = i - op->first_successor;
        if (listed == SUCCESSORS_NAMED) {
            baton__text_add(text, " and %u more", end - i);
            break;
        }
        baton__text_add(
            text, "%s%s", listed == 0 ? "; after it: " : ", ",
            baton__node_name(schedule, schedule->plan.successors[i]));
    }
}

/* Describes the nodes that the epoch waits for; if `armed`, the epoch waits for
   an activation, and its armed receives are described instead. Returns the
   number of such nodes, including those that are not named because they are too
   many. */
static uint32_t describe_nodes(const baton_schedule_t *schedule, bool armed,
                               baton__text_t *text)
{
    uint32_t count = 0;
    int named = -1;
    for (uint32_t node = 0; node < schedule->count; node++) {
        bool awaited = armed ? schedule->run.state[node] == BATON__NODE_IDLE &&
                                   schedule->ops[node].kind == BATON__ARMED_RECV
                             : baton__node_is_awaited(schedule, node);
        if (awaited && count++ < NODES_NAMED) {
            describe_node(schedule, node, &named, text);
        }
    }
    if (count > NODES_NAMED) {
        baton__text_add(text, "\n    and %u more", count - NODES_NAMED);
    }
    return count;
}

/* Describes the messages and nodes that must end before the failure is
   published. */
static void describe_draining(const baton__task_t *task, baton__text_t *text)
{
    baton__text_add(text,
                    "\n    it has failed (%s); %u messages and %u async nodes "
                    "have not ended",
                    baton__schedule_sentence(&task->schedule), task->moving,
                    task->begun);
    if (task->queued > 0) {
        baton__text_add(text, ", and %u nodes that are queued on %s",
                        task->queued, task->schedule.group->device->port.name);
    }
}

void baton__describe_wait(const baton_schedule_t *schedule, baton__text_t *text)
{
    assert(baton__driven_here(schedule->group));
    const baton__task_t *task = baton__task_of(schedule);
    uint64_t since = task->seen_at_ns;
    /* In an idle schedule run.epoch is the last epoch. */
    uint64_t epoch =
        schedule->run.epoch + (schedule->run.phase == BATON__RUN_IDLE);
    baton__text_add(text, "\"%s\" epoch %llu has made no progress",
                    schedule->name, (unsigned long long)epoch);
    /* If `since` is 0 the watchdog has not looked yet, or time is virtual. */
    if (since != 0) {
        baton__text_add(text, " for %s",
                        baton__time_text(baton__clock_ns() - since));
    }
    baton__text_add(text, " on %s", baton__group_place(schedule->group));
    baton__inquiry_describe(schedule, text);
    if (schedule->run.phase == BATON__RUN_DRAINING) {
        describe_draining(task, text);
    } else if (schedule->run.phase != BATON__RUN_RUNNING) {
        baton__text_add(text, "\n    it has not begun here");
    } else if (task->held) {
        baton__text_add(
            text, "\n    the stream that it was started on has not reached it");
    } else if (describe_nodes(schedule, false, text) == 0 &&
               describe_nodes(schedule, true, text) == 0) {
        baton__text_add(text,
                        "\n    %u of its nodes have not fired, and nothing is "
                        "in progress: was a branch not taken?",
                        schedule->run.required_left);
    }
}

/* Logs a stall, unless the stall was logged at this level or a more severe
   one. */
static void watchdog_report(baton__task_t *task)
{
    baton__text_t text = BATON__TEXT(BATON__MESSAGE_BYTES);
    baton_log_level_t level =
        baton__inquiry_leaves_report(task) ? BATON_LOG_INFO : BATON_LOG_WARN;
    if (task->logged_level == 0 || task->logged_level > level) {
        task->logged_level = (uint8_t)level;
        baton__describe_wait(&task->schedule, &text);
        baton__log(level, "%s", text.data);
    }
}

/* ---- whether awaited ranks live ----------------------------------------- */

static void watchdog_ask(const baton_group_t *group, int peer)
{
    if (group->transport->ask != NULL &&
        baton__group_loss(group, peer) == NULL) {
        group->transport->ask(group->endpoint, peer);
    }
}

/* Has the transport check the peers that a running epoch waits for, or with
   which a failed epoch still has messages in motion. */
static void ask_peers(const baton_schedule_t *schedule)
{
    baton__rank_state_t state = {0};
    if (schedule->run.phase == BATON__RUN_RUNNING) {
        baton__inquiry_answer(schedule, &state);
    }
    for (uint32_t i = 0; i < state.await_count; i++) {
        watchdog_ask(schedule->group, state.awaits[i]);
    }
    for (uint32_t node = 0;
         schedule->run.phase == BATON__RUN_DRAINING && node < schedule->count;
         node++) {
        if (schedule->run.state[node] == BATON__NODE_MOVING) {
            watchdog_ask(schedule->group,
                         baton__peer_of(schedule, &schedule->ops[node]));
        }
    }
}

/* Has the transport check the ranks for which groups wait in a recovery, a
   shrink or a farewell. Except in a shrink, a rank of this host is checked only
   if the group waited for it at the last look, too: its death is noticed
   without a check, and all ranks of the host may wait for it at the same
   time. */
static void ask_members(const baton__stepper_t *stepper)
{
    for (baton_group_t *g = stepper->groups; g != NULL;
         g = baton__group_next(g)) {
        int peer = baton__recovery_awaits(g);
        if (peer >= 0 && (peer + 1 == baton__member_of(g)->awaited ||
                          !baton__group_is_local(g, peer))) {
            watchdog_ask(g, peer);
        }
        baton__member_of(g)->awaited = peer + 1;
        while (baton__shrink_state(g) == BATON__SHRINK_ASKING &&
               (peer = baton__shrink_awaits(g, peer + 1)) >= 0) {
            watchdog_ask(g, peer);
        }
    }
}

/* Looks at one schedule. An inquiry about a stall of which this rank has not
   warned begins only if *asks is true, and sets it to false. */
static void look_at(baton__task_t *t, uint64_t now, uint64_t stall_ns,
                    bool *asks)
{
    const baton_schedule_t *s = &t->schedule;
    const uint64_t progress = baton__progress_of(s);
    const bool warned = t->logged_level == BATON_LOG_WARN;
    if (progress == t->seen_progress) {
        ask_peers(s);
        /* The answers may show that ranks have started schedules in
           different orders; see fail_out_of_order. */
        if (t->in_order && t->inquiries == 0 &&
            now - t->seen_at_ns < stall_ns) {
            baton__notice_inquire(t);
        }
    }
    if (s->run.phase != BATON__RUN_RUNNING || progress != t->seen_progress ||
        (t->inquiries == ROUNDS && !warned && baton__inquiry_saw_progress(t))) {
        t->seen_progress = progress;
        t->seen_at_ns = now;
        t->asks_at_ns = now + stall_ns;
        t->inquiries = 0;
        t->logged_level = 0;
    } else if (t->inquiries == ROUNDS) {
        t->inquiries--;
        /* If the answers are older than that, this rank was stopped
           meanwhile. They may then be wrong by now, and another rank may
           have reported the stall. */
        if (now - t->asks_at_ns <= 2 * stall_ns) {
            watchdog_report(t);
            /* A rank that has warned asks again twice in each stall period
               (inquiry.h). Any other rank asks ever less often, so that
               each of many stalled schedules gets its turn. */
            t->asks_at_ns += t->logged_level == BATON_LOG_WARN
                                 ? stall_ns / 2
                                 : stall_ns + (now - t->seen_at_ns);
        }
    } else if (now >= t->asks_at_ns && (*asks || warned)) {
        *asks &= warned;
        t->inquiries++;
        t->asks_at_ns = now;
        baton__notice_inquire(t);
    }
}

void baton__watchdog_look(baton__stepper_t *stepper)
{
    assert(baton__stepper_driven_here(stepper));
    if (stepper->running + stepper->draining + stepper->recovering == 0) {
        return;
    }
    uint64_t now = baton__clock_ns();
    uint64_t stall_ns = (uint64_t)stepper->stall_ms * 1000000u;
    uint64_t ask_ns = (uint64_t)BATON__WATCHDOG_LOOK_MS * 1000000u;
    if (now - stepper->looked_ns <
        (stall_ns / LOOKS < ask_ns ? stall_ns / LOOKS : ask_ns)) {
        return;
    }
    stepper->looked_ns = now;
    if (stepper->recovering > 0) {
        ask_members(stepper);
    }
    bool asks = true;
    for (baton__task_t *t = stepper->tasks; t != NULL; t = t->next) {
        look_at(t, now, stall_ns, &asks);
    }
}
