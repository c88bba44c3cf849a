/* The order of nodes in every execution; see happens_before.h. */
#include "sched/happens_before.h"

#include "base/alloc.h"

/* A chain that is shorter than this gets no clock (happens_before.h), since its
   clock would save too little. */
enum { LONG_CHAIN = 64 };

static uint32_t in_edges(const baton__happens_before_t *self, uint32_t node)
{
    return self->order->first[node + 1] - self->order->first[node];
}

/* Returns how many of a node's predecessors must be a node u, or happen after
   u, so that the node itself happens after u (happens_before.h). */
static uint32_t threshold(const baton__happens_before_t *self, uint32_t node)
{
    uint32_t need = self->schedule->needs[node];
    return need == BATON_NEED_ALL ? 1 : in_edges(self, node) - need + 1;
}

/* ---- chains ----------------------------------------------------------- */

/* Divides the nodes into chains, and returns the number of chains. A chain is a
   path in the graph. Each of its nodes, except the first, needs all its
   predecessors, so in every execution it happens after the previous node of the
   chain. */
static uint32_t make_chains(baton__happens_before_t *self)
{
    const baton__order_t *order = self->order;
    uint32_t chains = 0;
    for (uint32_t i = 0; i < self->schedule->count; i++) {
        uint32_t node = order->order[i];
        self->chain[node] = BATON__NO_NODE;
        if (in_edges(self, node) > 0 && threshold(self, node) == 1) {
            for (uint32_t e = order->first[node]; e < order->first[node + 1];
                 e++) {
                uint32_t chain = self->chain[order->preds[e]];
                if (self->tail[chain] == order->preds[e]) {
                    self->chain[node] = chain;
                    break;
                }
            }
        }
        if (self->chain[node] == BATON__NO_NODE) {
            self->chain[node] = chains++;
        }
        self->tail[self->chain[node]] = node;
    }
    return chains;
}

/* ---- clocks ----------------------------------------------------------- */

/* Gives clocks to the longest chains. From here on tail[] has, for each chain,
   the number of its clock, or BATON__CLOCKS if it has none. */
static void choose_clocks(baton__happens_before_t *self, uint32_t chains)
{
    /* This reuses the array `reach`, which holds nothing before the first
       walk. */
    uint32_t *length = self->reach;
    /* The longest chains so far, the longest first. The last entry only has a
       chain that is no longer among the BATON__CLOCKS longest. */
    uint32_t chosen[BATON__CLOCKS + 1] = {0};
    for (uint32_t chain = 0; chain < chains; chain++) {
        length[chain] = 0;
        self->tail[chain] = BATON__CLOCKS;
    }
    for (uint32_t node = 0; node < self->schedule->count; node++) {
        length[self->chain[node]]++;
    }
    for (uint32_t chain = 0; chain < chains; chain++) {
        uint32_t at = self->clocks;
        if (length[chain] < LONG_CHAIN) {
            continue;
        }
        for (; at > 0 && length[chosen[at - 1]] < length[chain]; at--) {
            chosen[at] = chosen[at - 1];
        }
        chosen[at] = chain;
        self->clocks += self->clocks < BATON__CLOCKS;
    }
    for (uint32_t at = 0; at < self->clocks; at++) {
        self->tail[chosen[at]] = at;
    }
    for (uint32_t node = 0; node < self->schedule->count; node++) {
        self->reach[node] = 0;
    }
}

/* Sets the clocks of all nodes. If a node needs all its predecessors, it
   happens after everything that any of them happens after. For a node that does
   not need all of them, the clocks of other chains than the node's own stay 0,
   and only a walk gives the answer. */
static void set_clocks(baton__happens_before_t *self)
{
    const baton__order_t *order = self->order;
    uint32_t clocks = self->clocks;
    for (uint32_t i = 0; i < self->schedule->count; i++) {
        uint32_t node = order->order[i];
        uint32_t *mine = &self->clock[(size_t)node * clocks];
        uint32_t end = threshold(self, node) == 1 ? order->first[node + 1]
                                                  : order->first[node];
        for (uint32_t e = order->first[node]; e < end; e++) {
            const uint32_t *other =
                &self->clock[(size_t)order->preds[e] * clocks];
            for (uint32_t k = 0; k < clocks; k++) {
                mine[k] = other[k] > mine[k] ? other[k] : mine[k];
            }
        }
        uint32_t own = self->tail[self->chain[node]];
        if (own < clocks) {
            mine[own] = i + 1;
        }
    }
}

/* ---- answers ---------------------------------------------------------- */

/* Finds out by a walk whether v happens after u: goes through the nodes from u
   to v in the topological order, and marks those that happen after u. */
static bool walk(baton__happens_before_t *self, uint32_t u, uint32_t v)
{
    const baton__order_t *order = self->order;
    uint32_t stamp = ++self->walk;
    self->reach[u] = stamp;
    for (uint32_t i = order->position[u] + 1; i <= order->position[v]; i++) {
        uint32_t node = order->order[i];
        uint32_t wanted = threshold(self, node);
        uint32_t end = order->first[node + 1];
        for (uint32_t e = order->first[node]; e < end; e++) {
            if (self->reach[order->preds[e]] == stamp && --wanted == 0) {
                self->reach[node] = stamp;
                break;
            }
        }
    }
    return self->reach[v] == stamp;
}

/* Returns true if an edge leads from u to v, and v needs all its predecessors.
   Callers ask several times about one v before they ask about the next, so the
   predecessors of a v are marked at the first question. */
static bool is_direct(baton__happens_before_t *self, uint32_t u, uint32_t v)
{
    const baton__order_t *order = self->order;
    if (self->stamped != v) {
        self->stamped = v;
        for (uint32_t e = order->first[v]; e < order->first[v + 1]; e++) {
            self->stamp[order->preds[e]] = v;
        }
    }
    return self->stamp[u] == v && threshold(self, v) == 1;
}

bool baton__happens_before(baton__happens_before_t *self, uint32_t u,
                           uint32_t v)
{
    if (u == v || (self->asked_u == u && self->asked_v == v)) {
        return true;
    }
    uint32_t k = self->tail[self->chain[u]];
    bool yes = self->chain[u] == self->chain[v] ||
               (k < self->clocks && self->clock[(size_t)v * self->clocks + k] >
                                        self->order->position[u]) ||
               is_direct(self, u, v) || walk(self, u, v);
    if (yes) {
        self->asked_u = u;
        self->asked_v = v;
    }
    return yes;
}

/* ---- life ------------------------------------------------------------- */

baton_status_t baton__happens_before_init(baton__happens_before_t *self,
                                          const baton_schedule_t *schedule,
                                          const baton__order_t *order)
{
    size_t count = schedule->count;
    uint32_t *work = baton__alloc(4 * count, sizeof *work);
    *self = (baton__happens_before_t){.schedule = schedule,
                                      .order = order,
                                      .chain = work,
                                      .tail = work + count,
                                      .reach = work + 2 * count,
                                      .stamp = work + 3 * count,
                                      .stamped = BATON__NO_NODE,
                                      .asked_u = BATON__NO_NODE,
                                      .asked_v = BATON__NO_NODE};
    if (work == NULL) {
        return BATON_ERR_NO_MEMORY;
    }
    for (size_t node = 0; node < count; node++) {
        self->stamp[node] = BATON__NO_NODE;
    }
    choose_clocks(self, make_chains(self));
    if (self->clocks == 0) {
        return BATON_OK;
    }
    self->clock = baton__alloc(count * self->clocks, sizeof *self->clock);
    if (self->clock == NULL) {
        return BATON_ERR_NO_MEMORY;
    }
    set_clocks(self);
    return BATON_OK;
}

void baton__happens_before_fini(baton__happens_before_t *self)
{
    baton__free(self->chain);
    baton__free(self->clock);
}
