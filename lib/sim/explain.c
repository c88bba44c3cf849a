/* Why nothing can happen any more, in words: the way from wait to wait
   (wait_graph.h), and who is to blame where it ends. */
#include "sim/wait_graph.h"

#include "base/error.h"

/* Hops that a message tells of. */
enum { SHOWN = 8 };

bool baton__sim_waits(const baton_sim_t *sim, const baton_schedule_t *schedule)
{
    return !baton__sim_port(sim, schedule->group->rank)->dead &&
           atomic_load_explicit(&schedule->shared.requested,
                                memory_order_relaxed) >
               atomic_load_explicit(&schedule->shared.retired,
                                    memory_order_relaxed) &&
           atomic_load_explicit(&schedule->shared.failed,
                                memory_order_relaxed) == 0;
}

/* ---- words ------------------------------------------------------------ */

/* Whether a rank has not committed a schedule, rather than no more. */
static bool is_to_come(const baton_sim_t *sim, const baton_schedule_t *schedule,
                       int rank)
{
    const baton_schedule_t *s = sim->ranks[rank].stepper.uncommitted;
    while (s != NULL && s->identity != schedule->identity) {
        s = s->notices.next;
    }
    return s != NULL ||
           !baton__group_has_made(&sim->ranks[rank].group, schedule->identity);
}

static void tell_hop(const baton_sim_t *sim, const baton__hop_t *hop,
                     baton__text_t *text)
{
    const baton_schedule_t *schedule = hop->from.schedule;
    const baton_schedule_t *peer = hop->peer;
    const baton__op_t *op = &schedule->ops[hop->from.node];
    baton__text_add(text, "\n    rank %d: %s waits for ", schedule->group->rank,
                    baton__node_name(schedule, hop->from.node));
    if (peer == NULL) {
        baton__text_add(
            text, "rank %d, which has %s the schedule", (int)op->peer,
            is_to_come(sim, schedule, (int)op->peer) ? "not committed"
                                                     : "destroyed");
        return;
    }
    baton__text_add(text, "%s of rank %d", baton__node_name(peer, hop->other),
                    peer->group->rank);
    if (!hop->goes_on) {
        return;
    }
    if (peer->run.epoch < schedule->run.epoch) {
        baton__text_add(text, ", which is still in epoch %llu,",
                        (unsigned long long)peer->run.epoch);
    } else {
        baton__text_add(text, ", which is");
    }
    baton__text_add(text, " behind %s", baton__node_name(peer, hop->node));
    if (hop->choice != BATON__NO_NODE) {
        uint32_t edges;
        (void)baton__way_before(peer, hop->choice, &edges);
        baton__text_add(text, " (%s needs %u of %u)",
                        baton__node_name(peer, hop->choice),
                        peer->run.plan->needs[hop->choice], edges);
    }
}

/* Returns the last one. */
static baton__hop_t tell_hops(const baton_sim_t *sim, baton__spot_t first,
                              size_t count, baton__text_t *text)
{
    baton__hop_t hop = {0};
    baton__spot_t at = first;
    for (size_t i = 0; i < count; i++) {
        hop = baton__way_hop(sim, at);
        at = baton__way_landing(&hop);
        if (count <= SHOWN || i < SHOWN - 2 || i == count - 1) {
            tell_hop(sim, &hop, text);
        } else if (i == SHOWN - 2) {
            baton__text_add(text, "\n    ... %zu more", count - i - 1);
        }
    }
    return hop;
}

/* Why a node of a running epoch does not fire, where that is no message. */
static void tell_node(const baton__hop_t *hop, baton__text_t *text)
{
    const baton_schedule_t *schedule = hop->peer;
    uint8_t kind = schedule->ops[hop->node].kind;
    baton__text_add(text, ": %s", baton__node_name(schedule, hop->held));
    if (hop->node != hop->held) {
        baton__text_add(text, " is behind %s",
                        baton__node_name(schedule, hop->node));
    }
    if (kind == BATON__ON_START) {
        baton__text_add(text, ", and epoch %llu was not started there",
                        (unsigned long long)schedule->run.epoch);
    } else if (kind == BATON__ARMED_RECV) {
        baton__text_add(text, ", and nobody activates it");
    } else if (schedule->run.state[hop->node] == BATON__NODE_BEGUN) {
        baton__text_add(text, hop->node != hop->held ? ", which" : "");
        baton__text_add(text, " has not completed");
    } else {
        uint32_t skip = baton__way_skip(schedule, hop->node);
        baton__text_add(text, hop->node != hop->held ? ", which" : "");
        baton__text_add(text, " will not fire");
        if (skip != BATON__NO_NODE) {
            baton__text_add(text, ": %s skipped",
                            baton__node_name(schedule, skip));
        }
    }
}

/* Where the way ends, on hop->peer: why nothing comes from there in `epoch`. */
static void tell_blame(const baton_sim_t *sim, const baton__hop_t *hop,
                       uint64_t epoch, baton__text_t *text)
{
    const baton_schedule_t *schedule = hop->peer;
    const baton__run_t *run = &schedule->run;
    uint64_t limit =
        atomic_load_explicit(&schedule->shared.limit, memory_order_relaxed);
    int rank = schedule->group->rank;
    baton__text_add(text, "\n    rank %d", rank);
    if (baton__sim_port(sim, rank)->dead) {
        baton__text_add(text, " is dead");
    } else if (run->phase == BATON__RUN_FAILED ||
               run->phase == BATON__RUN_DRAINING) {
        baton__text_add(text, " has failed: %s", schedule->sentence);
    } else if (run->epoch > epoch ||
               (run->epoch == epoch && run->phase == BATON__RUN_IDLE)) {
        baton__text_add(text, " has ended epoch %llu without %s",
                        (unsigned long long)epoch,
                        baton__node_name(schedule, hop->other));
    } else if (run->phase == BATON__RUN_RUNNING) {
        tell_node(hop, text);
    } else {
        baton__text_add(text, " has not started epoch %llu",
                        (unsigned long long)run->epoch + 1);
        if (run->epoch >= limit) {
            baton__text_add(text, ", which is beyond its limit");
        } else if (schedule->plan.armed_count > 0) {
            baton__text_add(text, ", and nobody activates it");
        }
    }
}

static void tell_way(const baton_sim_t *sim, const baton_schedule_t *schedule,
                     baton__text_t *text)
{
    baton__hop_t last = baton__way_begin(sim, schedule);
    if (!last.goes_on) {
        baton__text_add(text, ":");
        tell_blame(sim, &last, schedule->run.epoch, text);
        return;
    }
    baton__spot_t first = baton__way_landing(&last);
    size_t count;
    bool cycle = baton__way_is_cycle(sim, &first, &count);
    baton__text_add(text, cycle ? ": ranks wait in a cycle" : ":");
    last = tell_hops(sim, first, count, text);
    if (!cycle && last.peer != NULL) {
        tell_blame(sim, &last, last.from.schedule->run.epoch, text);
    }
}

baton_status_t baton__sim_explain(const baton_sim_t *sim,
                                  const baton_schedule_t *schedule)
{
    char memory[BATON__MESSAGE_BYTES];
    baton__text_t text = {memory, sizeof memory, 0};
    baton__text_add(&text, "\"%s\" epoch %llu can't end on rank %d",
                    schedule->name, (unsigned long long)schedule->run.epoch,
                    schedule->group->rank);
    tell_way(sim, schedule, &text);
    return baton__error(BATON_ERR_DEADLOCK, "%s", memory);
}
