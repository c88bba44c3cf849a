/* The way from wait to wait; see wait_graph.h. */
#include "sim/wait_graph.h"

/* ---- nodes, where nothing can happen ---------------------------------- */

/* A message that is awaited, of the running epoch; or an armed receive. */
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

uint32_t baton__way_before(const baton_schedule_t *schedule, uint32_t node,
                           uint32_t *edges_out)
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

uint32_t baton__way_skip(const baton_schedule_t *schedule, uint32_t node)
{
    uint32_t call = 0;
    while (call < schedule->count &&
           (schedule->run.state[call] != BATON__NODE_SKIPPED ||
            !leads_to(schedule, call, node))) {
        call++;
    }
    return call < schedule->count ? call : BATON__NO_NODE;
}

/* From a node back to the awaited message that it is behind; where there is
   none, to the node that has the reason. */
static uint32_t go_back(const baton_schedule_t *schedule, uint32_t node,
                        uint32_t *choice_out)
{
    while (!in_flight(schedule, node)) {
        uint32_t edges;
        uint32_t before = baton__way_before(schedule, node, &edges);
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

/* What an epoch waits for: a message, or else a node that has not fired. */
static uint32_t find_held(const baton_schedule_t *schedule)
{
    uint32_t found = BATON__NO_NODE;
    for (uint32_t i = 0; i < schedule->count; i++) {
        const baton__op_t *op = &schedule->ops[i];
        bool optional = (op->flags & BATON__OPTIONAL) != 0;
        /* No epoch waits for an optional receive. For an optional send it does,
           once it was posted. */
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

/* ---- the way ---------------------------------------------------------- */

static bool is_running(const baton_sim_t *sim, const baton_schedule_t *schedule)
{
    return schedule->run.phase == BATON__RUN_RUNNING &&
           !baton__sim_port(sim, schedule->group->rank)->dead;
}

/* Completes a hop that has come to `peer`, and there to `held`. */
static void look_behind(const baton_sim_t *sim, baton__hop_t *hop)
{
    hop->choice = BATON__NO_NODE;
    hop->node = hop->held;
    if (hop->held != BATON__NO_NODE && is_running(sim, hop->peer)) {
        hop->node = go_back(hop->peer, hop->held, &hop->choice);
        hop->goes_on = in_flight(hop->peer, hop->node) &&
                       hop->peer->ops[hop->node].kind != BATON__ARMED_RECV;
    }
}

baton__hop_t baton__way_hop(const baton_sim_t *sim, baton__spot_t from)
{
    baton__hop_t hop = {.from = from};
    const baton__op_t *op = &from.schedule->ops[from.node];
    const baton__op_t *other =
        baton__sim_find_match(sim, from.schedule, op, &hop.peer);
    if (other == NULL) {
        return hop;
    }
    hop.other = (uint32_t)(other - hop.peer->ops);
    hop.held = hop.other;
    uint64_t epoch = hop.peer->run.epoch;
    if (epoch < from.schedule->run.epoch && is_running(sim, hop.peer)) {
        hop.held = find_held(hop.peer); /* first this one has to end */
    }
    if (epoch <= from.schedule->run.epoch) {
        look_behind(sim, &hop);
    }
    return hop;
}

baton__hop_t baton__way_begin(const baton_sim_t *sim,
                              const baton_schedule_t *schedule)
{
    baton__hop_t hop = {.peer = schedule, .held = find_held(schedule)};
    look_behind(sim, &hop);
    return hop;
}

static bool same(baton__spot_t a, baton__spot_t b)
{
    return a.schedule == b.schedule && a.node == b.node;
}

/* Brent 1980: one walker, and a mark that is moved up to it after 1, 2, 4 ...
   hops. */
bool baton__way_is_cycle(const baton_sim_t *sim, baton__spot_t *first,
                         size_t *count)
{
    baton__spot_t mark = *first;
    size_t since = 0;
    size_t limit = 1;
    *count = 0;
    baton__hop_t hop;
    for (baton__spot_t at = *first;; at = baton__way_landing(&hop)) {
        if (since > 0 && same(at, mark)) {
            break;
        }
        if (since == limit) {
            mark = at;
            limit *= 2;
            since = 0;
        }
        hop = baton__way_hop(sim, at);
        since++;
        ++*count;
        if (!hop.goes_on) {
            return false;
        }
    }
    /* Two walkers, the cycle's length apart, meet where it begins. */
    baton__spot_t ahead = *first;
    for (size_t i = 0; i < since; i++) {
        hop = baton__way_hop(sim, ahead);
        ahead = baton__way_landing(&hop);
    }
    while (!same(*first, ahead)) {
        hop = baton__way_hop(sim, *first);
        *first = baton__way_landing(&hop);
        hop = baton__way_hop(sim, ahead);
        ahead = baton__way_landing(&hop);
    }
    *count = since;
    return true;
}
