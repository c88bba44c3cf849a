/* Describes in words why an epoch can't end. */

#include "base/error.h"
#include "progress/membership/notice.h"
#include "sim/wait_graph.h"

/* The most edges of the wait-for graph that one error message shows. */
enum { SHOWN = 8 };

static void print_edge(const baton_sim_t *sim,
                       const baton__sim_wait_edge_t *edge, baton__text_t *text)
{
    const baton_schedule_t *schedule = edge->from.schedule;
    const baton_schedule_t *peer = edge->peer;
    const baton__op_t *op = &schedule->ops[edge->from.node];
    baton__text_add(text, "\n    rank %d: %s waits for ", schedule->group->rank,
                    baton__node_name(schedule, edge->from.node));
    if (peer == NULL) {
        const baton_group_t *there =
            &sim->ranks[baton__peer_of(schedule, op)].member.group;
        bool may_commit =
            baton__notice_may_commit(there, baton__task_of(schedule)->identity);
        baton__text_add(text, "rank %d, which has %s the schedule",
                        baton__peer_of(schedule, op),
                        may_commit ? "not committed" : "destroyed");
        return;
    }
    baton__text_add(text, "%s of rank %d", baton__node_name(peer, edge->other),
                    peer->group->rank);
    if (!edge->continues) {
        return;
    }
    if (peer->run.epoch < schedule->run.epoch) {
        baton__text_add(text, ", still in epoch %llu",
                        (unsigned long long)peer->run.epoch);
    }
    baton__text_add(text, ", which comes after %s",
                    baton__node_name(peer, edge->node));
    if (edge->choice != BATON__NO_NODE) {
        uint32_t edges;
        (void)baton__sim_wait_predecessor(peer, edge->choice, &edges);
        baton__text_add(text, " (%s needs %u of %u)",
                        baton__node_name(peer, edge->choice),
                        peer->run.plan->needs[edge->choice], edges);
    }
}

/* Prints the `count` edges of the path from a node on. Returns the last of
   them. */
static baton__sim_wait_edge_t print_path(const baton_sim_t *sim,
                                         baton__sim_wait_node_t first,
                                         size_t count, baton__text_t *text)
{
    baton__sim_wait_edge_t edge = {0};
    baton__sim_wait_node_t at = first;
    for (size_t i = 0; i < count; i++) {
        edge = baton__sim_wait_edge(sim, at);
        at = baton__sim_wait_target(&edge);
        if (count <= SHOWN || i < SHOWN - 2 || i == count - 1) {
            print_edge(sim, &edge, text);
        } else if (i == SHOWN - 2) {
            baton__text_add(text, "\n    ... %zu more", count - i - 1);
        }
    }
    return edge;
}

/* Prints why a node of a running epoch does not fire. The node is not the end
   of a message. */
static void print_node(const baton__sim_wait_edge_t *edge, baton__text_t *text)
{
    const baton_schedule_t *schedule = edge->peer;
    uint8_t kind = schedule->ops[edge->node].kind;
    baton__text_add(text, ": %s", baton__node_name(schedule, edge->blocked));
    if (edge->node != edge->blocked) {
        baton__text_add(text, " comes after %s",
                        baton__node_name(schedule, edge->node));
    }
    if (kind == BATON__ON_START) {
        baton__text_add(text, ", and epoch %llu was not started there",
                        (unsigned long long)schedule->run.epoch);
    } else if (kind == BATON__ARMED_RECV) {
        baton__text_add(text, ", and no rank activates it");
    } else {
        bool begun = schedule->run.state[edge->node] == BATON__NODE_BEGUN;
        uint32_t skip = baton__sim_wait_find_skip(schedule, edge->node);
        baton__text_add(text, "%s %s",
                        edge->node != edge->blocked ? ", which" : "",
                        begun ? "has not completed" : "will not fire");
        if (!begun && skip != BATON__NO_NODE) {
            baton__text_add(text, ": %s skipped",
                            baton__node_name(schedule, skip));
        }
    }
}

/* Prints why edge->peer sends no message in `epoch`. The path in the wait-for
   graph (wait_graph.h) ends at edge->peer. */
static void print_blame(const baton_sim_t *sim,
                        const baton__sim_wait_edge_t *edge, uint64_t epoch,
                        baton__text_t *text)
{
    const baton_schedule_t *schedule = edge->peer;
    const baton__run_t *run = &schedule->run;
    uint64_t limit = atomic_load_explicit(&baton__task_of(schedule)->limit,
                                          memory_order_relaxed);
    int rank = schedule->group->rank;
    baton__text_add(text, "\n    rank %d", rank);
    if (baton__sim_port(sim, rank)->dead) {
        baton__text_add(text, " is dead");
    } else if (run->phase == BATON__RUN_FAILED ||
               run->phase == BATON__RUN_DRAINING) {
        baton__text_add(text, " has failed: %s",
                        baton__schedule_sentence(schedule));
    } else if (run->epoch > epoch ||
               (run->epoch == epoch && run->phase == BATON__RUN_IDLE)) {
        baton__text_add(text, " has ended epoch %llu without %s",
                        (unsigned long long)epoch,
                        baton__node_name(schedule, edge->other));
    } else if (run->phase == BATON__RUN_RUNNING) {
        print_node(edge, text);
    } else {
        baton__text_add(text, " has not started epoch %llu",
                        (unsigned long long)run->epoch + 1);
        if (run->epoch >= limit) {
            baton__text_add(text, ", which is beyond its limit");
        } else if (schedule->plan.armed_count > 0) {
            baton__text_add(text, ", and no rank activates it");
        }
    }
}

static void print_chain(const baton_sim_t *sim,
                        const baton_schedule_t *schedule, baton__text_t *text)
{
    baton__sim_wait_edge_t last = baton__sim_wait_begin(sim, schedule);
    if (!last.continues) {
        baton__text_add(text, ":");
        print_blame(sim, &last, schedule->run.epoch, text);
        return;
    }
    baton__sim_wait_node_t first = baton__sim_wait_target(&last);
    size_t count;
    bool cycle = baton__sim_wait_find_cycle(sim, &first, &count);
    baton__text_add(text, cycle ? ": ranks wait in a cycle" : ":");
    last = print_path(sim, first, count, text);
    if (!cycle && last.peer != NULL) {
        print_blame(sim, &last, last.from.schedule->run.epoch, text);
    }
}

baton_status_t baton__sim_explain(const baton_sim_t *sim,
                                  const baton_schedule_t *schedule)
{
    baton__text_t text = BATON__TEXT(BATON__MESSAGE_BYTES);
    baton__text_add(&text, "\"%s\" epoch %llu can't end on rank %d",
                    schedule->name, (unsigned long long)schedule->run.epoch,
                    schedule->group->rank);
    print_chain(sim, schedule, &text);
    return baton__error(BATON_ERR_DEADLOCK, "%s", text.data);
}
