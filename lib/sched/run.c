/* The operations on an epoch's state; see run.h. Nothing here recurses,
   allocates or asks the time. */
#include "sched/run.h"

#include <string.h>

/* The allowed changes of the phase, from the row's phase to the column's. The
   order is: idle, running, draining, failed, recovering. */
static const bool legal[BATON__RUN_STATE_COUNT][BATON__RUN_STATE_COUNT] = {
    [BATON__RUN_IDLE] = {false, true, true, false, true},
    [BATON__RUN_RUNNING] = {true, false, true, false, false},
    [BATON__RUN_DRAINING] = {true, false, false, true, false},
    [BATON__RUN_FAILED] = {false, false, false, false, true},
    [BATON__RUN_RECOVERING] = {true, false, false, true, false},
};

void baton__run_set_phase(baton__run_t *run, baton__run_state_t phase)
{
    assert(legal[run->phase][phase]);
    (void)legal; /* without assertions nothing else uses `legal` */
    run->phase = phase;
}

static void sched_run_push(baton__run_t *run, uint32_t node)
{
    run->ready[run->tail++] = node;
}

void baton__run_begin(baton__run_t *run)
{
    const baton__plan_t *plan = run->plan;
    baton__run_set_phase(run, BATON__RUN_RUNNING);
    run->epoch++;
    run->started = false;
    run->head = 0;
    run->tail = plan->root_count;
    run->waited = 0;
    run->optional_waiting = 0;
    run->unarmed = 0;
    run->required_left = plan->required;
    /* Without nodes there is no array of needs to copy from. */
    if (plan->count > 0) {
        memcpy(run->left, plan->needs, plan->count * sizeof *run->left);
        memcpy(run->ready, plan->roots, plan->root_count * sizeof *run->ready);
        memset(run->state, BATON__NODE_IDLE, plan->count);
    }
    for (uint32_t i = 0; i < plan->length_count; i++) {
        run->lengths[i] = BATON__LENGTH_UNSET;
    }
    /* The activation that an activate sends has this rank as its origin, unless
       another rank's activation makes the activate fire
       (baton__run_activate). */
    for (uint32_t i = 0; i < plan->slot_count; i++) {
        run->activations[i] = (baton__activation_t){.origin = plan->rank};
    }
}

void baton__run_started(baton__run_t *run)
{
    if (run->started) {
        return;
    }
    run->started = true;
    for (uint32_t i = 0; i < run->plan->on_start_count; i++) {
        sched_run_push(run, run->plan->on_starts[i]);
    }
}

/* ---- nodes ------------------------------------------------------------ */

/* Returns the address of the count to which the node belongs in this state;
   NULL if nodes in this state are not counted. */
static uint32_t *sched_run_count_of(baton__run_t *run, uint32_t node,
                                    baton__node_state_t state)
{
    switch (state) {
    case BATON__NODE_HELD:
    case BATON__NODE_MOVING:
    case BATON__NODE_BEGUN:
    case BATON__NODE_QUEUED:
        return &run->waited;
    case BATON__NODE_WAITING:
        return (run->plan->ops[node].flags & BATON__OPTIONAL) != 0
                   ? &run->optional_waiting
                   : &run->waited;
    case BATON__NODE_IDLE:
    case BATON__NODE_SKIPPED:
    case BATON__NODE_COMPLETED:
        break;
    }
    return NULL;
}

void baton__run_enter(baton__run_t *run, uint32_t node,
                      baton__node_state_t state)
{
    uint32_t *before =
        sched_run_count_of(run, node, (baton__node_state_t)run->state[node]);
    uint32_t *after = sched_run_count_of(run, node, state);
    uint32_t waited = run->waited;
    if (before != NULL) {
        --*before;
    }
    if (after != NULL) {
        ++*after;
    }
    if (run->waited_by_all != NULL) {
        *run->waited_by_all += run->waited - waited;
    }
    run->state[node] = (uint8_t)state;
}

/* `left` of a node that has reached zero wraps to 2^32 - 1 at the next
   satisfied edge, so it does not reach zero again, and a node fires only once.
   (It would reach zero again after 2^32 satisfied edges.) */
static inline void satisfy(baton__run_t *run, uint32_t node)
{
    if (--run->left[node] == 0) {
        sched_run_push(run, node);
    }
}

static inline void sched_run_finish(baton__run_t *run, uint32_t node,
                                    baton__node_state_t state)
{
    if (run->state[node] != BATON__NODE_IDLE) {
        baton__run_enter(run, node, BATON__NODE_IDLE);
    }
    run->state[node] = (uint8_t)state;
    run->progress_count++;
    if ((run->plan->ops[node].flags & BATON__OPTIONAL) == 0) {
        run->required_left--;
    }
}

void baton__run_complete(baton__run_t *run, uint32_t node)
{
    const baton__op_t *op = &run->plan->ops[node];
    const uint32_t *successors = run->plan->successors;
    uint32_t end = op[1].first_successor;
    sched_run_finish(run, node, BATON__NODE_COMPLETED);
    for (uint32_t i = op->first_successor; i < end; i++) {
        satisfy(run, successors[i]);
    }
}

void baton__run_skip(baton__run_t *run, uint32_t node)
{
    sched_run_finish(run, node, BATON__NODE_SKIPPED);
}

/* Satisfies the edges to those successors that the device executes
   (`on_device`), or to those that it does not. */
static void satisfy_some(baton__run_t *run, uint32_t node, bool on_device)
{
    const baton__plan_t *plan = run->plan;
    const baton__op_t *op = &plan->ops[node];
    for (uint32_t i = op->first_successor; i < op[1].first_successor; i++) {
        uint32_t next = plan->successors[i];
        if (((plan->ops[next].flags & BATON__ON_DEVICE) != 0) == on_device) {
            satisfy(run, next);
        }
    }
}

void baton__run_queue(baton__run_t *run, uint32_t node)
{
    baton__run_enter(run, node, BATON__NODE_QUEUED);
    satisfy_some(run, node, true);
}

void baton__run_complete_queued(baton__run_t *run, uint32_t node)
{
    sched_run_finish(run, node, BATON__NODE_COMPLETED);
    satisfy_some(run, node, false);
}

/* ---- messages --------------------------------------------------------- */

/* Returns the place in the table `incoming` where the search for a receive
   begins. `peer` is the peer's number as it is in the node's record, that is,
   before the exclusive or with plan->flip. */
static uint32_t sched_run_place_of(const baton__plan_t *plan, int64_t peer,
                                   uint32_t tag, bool activates)
{
    uint64_t key = (uint64_t)(uint32_t)peer << 33 | (uint64_t)tag << 1 |
                   (activates ? 1 : 0);
    uint64_t hash = key * UINT64_C(0x9e3779b97f4a7c15);
    /* The upper bits are taken, because they depend on all bits of the key. */
    return (uint32_t)(hash >> 32) & plan->incoming_mask;
}

const uint32_t *baton__plan_place(const baton__plan_t *plan, int peer,
                                  uint32_t tag, bool activates)
{
    return &plan->incoming[sched_run_place_of(plan, peer ^ (int64_t)plan->flip,
                                              tag, activates)];
}

uint32_t baton__plan_receiver(const baton__plan_t *plan, int peer, uint32_t tag,
                              bool activates)
{
    int64_t named = peer ^ (int64_t)plan->flip;
    uint32_t at = sched_run_place_of(plan, named, tag, activates);
    for (;; at = (at + 1) & plan->incoming_mask) {
        uint32_t node = plan->incoming[at] - 1;
        if (node == BATON__NO_NODE) {
            return BATON__NO_NODE;
        }
        const baton__op_t *op = &plan->ops[node];
        if (op->message.tag == tag && op->peer == named &&
            baton__op_activates(op) == activates) {
            return node;
        }
    }
}

void baton__plan_add_receiver(baton__plan_t *plan, uint32_t node)
{
    const baton__op_t *op = &plan->ops[node];
    uint32_t at = sched_run_place_of(plan, op->peer, op->message.tag,
                                     baton__op_activates(op));
    while (plan->incoming[at] != 0) {
        at = (at + 1) & plan->incoming_mask;
    }
    plan->incoming[at] = node + 1;
}

baton__when_t baton__run_when_of(const baton__run_t *run, uint32_t node,
                                 uint64_t epoch)
{
    bool running = run->phase == BATON__RUN_RUNNING;
    if (epoch < run->epoch || (epoch == run->epoch && !running)) {
        return BATON__WHEN_PAST;
    }
    if (epoch > run->epoch) {
        return BATON__WHEN_LATER;
    }
    const baton__op_t *op = &run->plan->ops[node];
    if (op->kind == BATON__ARMED_RECV ||
        run->state[node] == BATON__NODE_WAITING) {
        return BATON__WHEN_NOW;
    }
    /* A receive gets only one message in an epoch. So if the receive already
       has one, this one is from a past epoch. */
    return run->state[node] == BATON__NODE_IDLE ? BATON__WHEN_LATER
                                                : BATON__WHEN_PAST;
}

/* Returns by how much `rank` is above `origin`, modulo the number of ranks. */
static int64_t distance(int64_t origin, int64_t rank, int size)
{
    return (rank - origin + size) % size;
}

void baton__run_activate(baton__run_t *run, uint32_t node,
                         baton__activation_t activation)
{
    const baton__plan_t *plan = run->plan;
    const baton__op_t *op = &plan->ops[node];
    int64_t origin = activation.origin;
    int64_t mine = distance(origin, plan->rank, plan->size);
    run->activations[op->message.slot] = activation;
    run->state[node] = BATON__NODE_COMPLETED;
    run->unarmed++;
    run->progress_count++;
    for (uint32_t i = op->first_successor; i < op[1].first_successor; i++) {
        uint32_t next = plan->successors[i];
        const baton__op_t *to = &plan->ops[next];
        if (to->kind == BATON__ACTIVATE) {
            int64_t peer = to->peer ^ plan->flip;
            if (distance(origin, peer, plan->size) <= mine) {
                continue;
            }
            if (run->left[next] == 1) {
                run->activations[to->message.slot].origin = origin;
            }
        }
        satisfy(run, next);
    }
}

/* ---- ends ------------------------------------------------------------- */

bool baton__run_is_stuck(const baton__run_t *run)
{
    const baton__plan_t *plan = run->plan;
    return run->required_left > 0 && run->waited == 0 &&
           run->optional_waiting == 0 && run->head == run->tail &&
           run->phase == BATON__RUN_RUNNING &&
           run->unarmed == plan->armed_count &&
           (run->started || plan->on_start_count == 0);
}
