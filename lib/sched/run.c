/* The step of an epoch's state; see run.h. Nothing here recurses, allocates or
   asks the time. */
#include "sched/run.h"

#include <string.h>

/* From (row) to (column): idle, running, draining, failed. A schedule without
   messages goes back to idle after a failure. */
static const bool legal[BATON__RUN_STATE_COUNT][BATON__RUN_STATE_COUNT] = {
    [BATON__RUN_IDLE] = {false, true, true, false},
    [BATON__RUN_RUNNING] = {true, false, true, false},
    [BATON__RUN_DRAINING] = {true, false, false, true},
};

void baton__run_enter(baton__run_t *run, baton__run_state_t state)
{
    assert(legal[run->state][state]);
    (void)legal; /* without assertions */
    run->state = state;
}

static void push(baton__run_t *run, uint32_t node)
{
    run->ready[run->tail++] = node;
}

void baton__run_begin(baton__run_t *run)
{
    const baton__plan_t *plan = run->plan;
    baton__run_enter(run, BATON__RUN_RUNNING);
    run->epoch++;
    run->started = false;
    run->head = 0;
    run->tail = plan->root_count;
    run->waited = 0;
    run->required_left = plan->required;
    if (plan->count > 0) { /* without nodes there are no needs to copy from */
        memcpy(run->left, plan->needs, plan->count * sizeof *run->left);
        memcpy(run->ready, plan->roots, plan->root_count * sizeof *run->ready);
    }
    /* Until an arrival makes an activate fire, this rank is the origin. */
    for (uint32_t i = 0; i < plan->activate_count; i++) {
        run->headers[plan->ops[plan->activates[i]].header].origin = plan->rank;
    }
}

void baton__run_started(baton__run_t *run)
{
    if (run->started) {
        return;
    }
    run->started = true;
    for (uint32_t i = 0; i < run->plan->on_start_count; i++) {
        push(run, run->plan->on_starts[i]);
    }
}

/* Needs that reached zero before go on to wrap below it, and never meet it
   again: that is what makes a node consumable. (An epoch would have to satisfy
   2^32 edges of one node.) */
static inline void satisfy(baton__run_t *run, uint32_t node)
{
    if (--run->left[node] == 0) {
        push(run, node);
    }
}

static inline void done(baton__run_t *run, const baton__op_t *op)
{
    run->moves++;
    if ((op->flags & BATON__OPTIONAL) == 0) {
        run->required_left--;
    }
}

void baton__run_complete(baton__run_t *run, uint32_t node)
{
    const baton__op_t *op = &run->plan->ops[node];
    const uint32_t *successors = run->plan->successors;
    uint32_t end = op[1].first_successor;
    done(run, op);
    for (uint32_t i = op->first_successor; i < end; i++) {
        satisfy(run, successors[i]);
    }
}

void baton__run_skip(baton__run_t *run, uint32_t node)
{
    done(run, &run->plan->ops[node]);
}

void baton__run_posted(baton__run_t *run, uint32_t node)
{
    const baton__op_t *op = &run->plan->ops[node];
    /* What is LATE was posted once more for an epoch that has retired. */
    if (run->flight[node] == BATON__NOWHERE) {
        run->flight[node] = BATON__IN_FLIGHT;
    }
    /* An optional receive may be overtaken; an optional send may not, because
       the next epoch would write what it still reads. */
    if (op->kind != BATON__ARMED_RECV &&
        !(op->kind == BATON__RECV && (op->flags & BATON__OPTIONAL) != 0)) {
        run->waited++;
    }
}

bool baton__run_defer(baton__run_t *run, uint32_t node)
{
    if (run->flight[node] != BATON__LATE) {
        return false;
    }
    run->flight[node] = BATON__LATE_AGAIN;
    return true;
}

bool baton__run_landed(baton__run_t *run, uint32_t node, bool *again)
{
    const baton__op_t *op = &run->plan->ops[node];
    baton__flight_t was = (baton__flight_t)run->flight[node];
    if (was != BATON__IN_FLIGHT) {
        bool more = --run->owed[node] > 0;
        run->flight[node] = (uint8_t)(more ? was : BATON__NOWHERE);
        *again = more || was == BATON__LATE_AGAIN;
        return false;
    }
    run->flight[node] = BATON__NOWHERE;
    *again = false;
    if (!(op->kind == BATON__RECV && (op->flags & BATON__OPTIONAL) != 0)) {
        run->waited--;
    }
    return true;
}

baton__arrival_t baton__run_arrival(baton__run_t *run, uint32_t node)
{
    const baton__header_t *header = &run->headers[run->plan->ops[node].header];
    uint64_t retired =
        run->state == BATON__RUN_RUNNING ? run->epoch - 1 : run->epoch;
    if (header->epoch <= retired) {
        run->flight[node] = BATON__NOWHERE;
        return BATON__ARRIVAL_DROP;
    }
    if (header->epoch == run->epoch) {
        run->flight[node] = BATON__NOWHERE;
        return BATON__ARRIVAL_NOW;
    }
    run->flight[node] = BATON__HELD;
    return BATON__ARRIVAL_HOLD;
}

/* How far `rank` lies from `origin`, going up and round. */
static int64_t distance(int64_t origin, int64_t rank, int size)
{
    return (rank - origin + size) % size;
}

void baton__run_arrive(baton__run_t *run, uint32_t node)
{
    const baton__plan_t *plan = run->plan;
    const baton__op_t *op = &plan->ops[node];
    int64_t origin = run->headers[op->header].origin;
    int64_t mine = distance(origin, plan->rank, plan->size);
    run->moves++;
    for (uint32_t i = op->first_successor; i < op[1].first_successor; i++) {
        uint32_t next = plan->successors[i];
        const baton__op_t *to = &plan->ops[next];
        if (to->kind == BATON__ACTIVATE) {
            if (distance(origin, to->peer, plan->size) <= mine) {
                continue;
            }
            if (run->left[next] == 1) {
                run->headers[to->header].origin = origin;
            }
        }
        satisfy(run, next);
    }
}

bool baton__run_activated(const baton__run_t *run)
{
    const baton__plan_t *plan = run->plan;
    for (uint32_t i = 0; i < plan->armed_count; i++) {
        uint32_t node = plan->armed[i];
        if (run->flight[node] == BATON__HELD &&
            run->headers[plan->ops[node].header].epoch == run->epoch + 1) {
            return true;
        }
    }
    return false;
}

void baton__run_retire(baton__run_t *run)
{
    const baton__plan_t *plan = run->plan;
    for (uint32_t i = 0; i < plan->straggler_count; i++) {
        uint32_t node = plan->stragglers[i];
        if (run->flight[node] == BATON__IN_FLIGHT ||
            run->flight[node] == BATON__LATE_AGAIN) {
            run->flight[node] = BATON__LATE;
            run->owed[node]++;
        }
    }
    baton__run_enter(run, BATON__RUN_IDLE);
}
