#include "sim/wait_graph.h"

/* ---- one rank's DAG ----------------------------------------------------- */

/* Returns true for a message of the running epoch that has not completed, or
   for an armed receive. */
static bool in_flight(const baton_schedule_t *schedule, uint32_t node)
{
    uint8_t state = schedule->run.state[node];
    return state == BATON__NODE_WAITING || state == BATON__NODE_MOVING ||
           state == BATON__NODE_HELD ||
           (schedule->ops[node].kind == BATON__ARMED_RECV &&
            state == BATON__NODE_IDLE);
}

static bool done(const baton_schedule_t *schedule, uint32_t node)
{
    uint8_t state = schedule->run.state[node];
    return state == BATON__NODE_COMPLETED || state == BATON__NODE_SKIPPED;
}

static bool leads_to(const baton_schedule_t *schedule, uint32_t from,
                     uint32_t to)
{
    const baton__op_t *op = &schedule->ops[from];
    for (uint32_t e = op->first_successor; e < op[1].first_successor; e++) {
        if (schedule->plan.successors[e] == to) {
            return true;
        }
    }
    return false;
}

uint32_t baton__sim_wait_predecessor(const baton_schedule_t *schedule,
                                     uint32_t node, uint32_t *edges_out)
{
    uint32_t found = BATON__NO_NODE;
    uint32_t armed = BATON__NO_NODE;
    uint32_t edges = 0;
    for (uint32_t i = 0; i < schedule->count; i++) {
        if (!leads_to(schedule, i, node)) {
            continue;
        }
        edges++;
        if (schedule->ops[i].kind == BATON__ARMED_RECV) {
            armed = i;
        } else if (!done(schedule, i) &&
                   (found == BATON__NO_NODE ||
                    (!in_flight(schedule, found) && in_flight(schedule, i)))) {
            found = i;
        }
    }
    *edges_out = edges;
    return found != BATON__NO_NODE ? found : armed;
}

uint32_t baton__sim_wait_find_skip(const baton_schedule_t *schedule,
                                   uint32_t node)
{
    uint32_t call = 0;
    while (call < schedule->count &&
           (schedule->run.state[call] != BATON__NODE_SKIPPED ||
            !leads_to(schedule, call, node))) {
        call++;
    }
    return call < schedule->count ? call : BATON__NO_NODE;
}

/* Follows unfinished predecessors from `node` up to an awaited message or an
   armed receive, and returns the node of that message or receive. If there is
   neither, returns the last node on the way, which has no unfinished
   predecessor. If nodes on the way need only some of their predecessors, stores
   the last such node in *choice_out. */
static uint32_t find_blocker(const baton_schedule_t *schedule, uint32_t node,
                             uint32_t *choice_out)
{
    while (!in_flight(schedule, node)) {
        uint32_t edges;
        uint32_t before = baton__sim_wait_predecessor(schedule, node, &edges);
        if (before == BATON__NO_NODE) {
            break;
        }
        if (schedule->run.plan->needs[node] < edges) {
            *choice_out = node;
        }
        node = before;
    }
    return node;
}

/* Returns the node that an epoch waits for: an awaited message if there is one,
   or else a node that has not fired. */
static uint32_t find_blocked(const baton_schedule_t *schedule)
{
    uint32_t found = BATON__NO_NODE;
    for (uint32_t i = 0; i < schedule->count; i++) {
        const baton__op_t *op = &schedule->ops[i];
        bool optional = (op->flags & BATON__OPTIONAL) != 0;
        /* An epoch never waits for an optional receive, but it waits for an
           optional send that was posted. */
        if (in_flight(schedule, i) && op->kind != BATON__ARMED_RECV &&
            !(optional && op->kind == BATON__RECV)) {
            return i;
        }
        if (found == BATON__NO_NODE && !optional && !done(schedule, i)) {
            found = i;
        }
    }
    return found;
}

/* ---- edges -------------------------------------------------------------- */

static bool is_running(const baton_sim_t *sim, const baton_schedule_t *schedule)
{
    return schedule->run.phase == BATON__RUN_RUNNING &&
           !baton__sim_port(sim, schedule->group->rank)->dead;
}

/* Sets `node`, `choice` and `continues` of an edge whose `peer` and `blocked`
   are set. */
static void finish_edge(const baton_sim_t *sim, baton__sim_wait_edge_t *edge)
{
    edge->choice = BATON__NO_NODE;
    edge->node = edge->blocked;
    if (edge->blocked != BATON__NO_NODE && is_running(sim, edge->peer)) {
        edge->node = find_blocker(edge->peer, edge->blocked, &edge->choice);
        edge->continues = in_flight(edge->peer, edge->node) &&
                          edge->peer->ops[edge->node].kind != BATON__ARMED_RECV;
    }
}

baton__sim_wait_edge_t baton__sim_wait_edge(const baton_sim_t *sim,
                                            baton__sim_wait_node_t from)
{
    baton__sim_wait_edge_t edge = {.from = from};
    const baton__op_t *op = &from.schedule->ops[from.node];
    edge.other = baton__sim_find_match(sim, from.schedule, op, &edge.peer);
    if (edge.other == BATON__NO_NODE) {
        edge.peer = NULL;
        return edge;
    }
    edge.blocked = edge.other;
    uint64_t epoch = edge.peer->run.epoch;
    if (epoch < from.schedule->run.epoch && is_running(sim, edge.peer)) {
        /* The earlier epoch must end first. */
        edge.blocked = find_blocked(edge.peer);
    }
    if (epoch <= from.schedule->run.epoch) {
        finish_edge(sim, &edge);
    }
    return edge;
}

baton__sim_wait_edge_t baton__sim_wait_begin(const baton_sim_t *sim,
                                             const baton_schedule_t *schedule)
{
    baton__sim_wait_edge_t edge = {.peer = schedule,
                                   .blocked = find_blocked(schedule)};
    finish_edge(sim, &edge);
    return edge;
}

static bool same(baton__sim_wait_node_t a, baton__sim_wait_node_t b)
{
    return a.schedule == b.schedule && a.node == b.node;
}

/* Replaces *node by the node to which its edge leads. If the path ends here,
   returns false and leaves *node as it is. */
static bool wait_graph_follow(const baton_sim_t *sim,
                              baton__sim_wait_node_t *node)
{
    baton__sim_wait_edge_t edge = baton__sim_wait_edge(sim, *node);
    if (edge.peer == NULL || !edge.continues) {
        return false;
    }
    *node = baton__sim_wait_target(&edge);
    return true;
}

/* Floyd's algorithm: two walkers start together, and one takes two edges at a
   time. They meet on the cycle. From the node where they meet, the cycle's
   beginning is as many edges away as from the path's first node, apart from
   whole rounds of the cycle. */
bool baton__sim_wait_find_cycle(const baton_sim_t *sim,
                                baton__sim_wait_node_t *first, size_t *count)
{
    baton__sim_wait_node_t slow = *first, fast = *first;
    *count = 0;
    do {
        for (int i = 0; i < 2; i++) {
            ++*count;
            if (!wait_graph_follow(sim, &fast)) {
                return false;
            }
        }
        (void)wait_graph_follow(sim, &slow);
    } while (!same(slow, fast));
    while (!same(*first, slow)) {
        (void)wait_graph_follow(sim, first);
        (void)wait_graph_follow(sim, &slow);
    }
    *count = 0;
    do {
        (void)wait_graph_follow(sim, &slow);
        ++*count;
    } while (!same(slow, *first));
    return true;
}
