/* How an epoch begins, takes turns, and ends; see epoch.h. */
#include "progress/epoch_parts.h"

#include "base/error.h"

baton__context_t baton__epoch_context(baton_schedule_t *schedule)
{
    return (baton__context_t){
        .transport = schedule->group->transport,
        .endpoint = schedule->group->endpoint,
        .owner = schedule,
        .address = schedule->addresses,
        .activations = schedule->run.activations,
        .asyncs = schedule->run.asyncs,
        .header = {.schedule = schedule->identity,
                   .epoch = schedule->run.epoch,
                   .incarnation = schedule->group->incarnation},
    };
}

/* ---- how an epoch begins ---------------------------------------------- */

/* Whether a peer has activated the epoch after the last one. */
static bool is_activated(const baton__run_t *run)
{
    const baton__plan_t *plan = run->plan;
    for (uint32_t i = 0; i < plan->armed_count && run->early_count > 0; i++) {
        const baton__op_t *op = &plan->ops[plan->armed[i]];
        const baton_message_t *message = run->early[op->message.ordinal];
        if (message != NULL && message->header.epoch == run->epoch + 1) {
            return true;
        }
    }
    return false;
}

/* Peers begin no epoch any more between the call to recover and the rank's
   coming. */
static bool is_called(const baton_group_t *group)
{
    return group->recovering && !group->came;
}

/* Delivers the activations that the epoch's begin has made current. */
static void deliver_activations(baton_schedule_t *schedule)
{
    baton__run_t *run = &schedule->run;
    for (uint32_t i = 0; i < schedule->plan.armed_count && run->early_count > 0;
         i++) {
        uint32_t node = schedule->plan.armed[i];
        baton_message_t *message =
            baton__epoch_find_early(run, schedule->ops[node].message.ordinal);
        if (message != NULL) {
            baton__epoch_activate(schedule, node, message);
        }
    }
}

void baton__epoch_begin_if_due(baton__stepper_t *stepper,
                               baton_schedule_t *schedule)
{
    baton__run_t *run = &schedule->run;
    /* Pairs with the store in baton_schedule_start. */
    uint64_t requested =
        atomic_load_explicit(&schedule->shared.requested, memory_order_acquire);
    if (run->phase == BATON__RUN_IDLE) {
        bool internal = requested > run->epoch;
        bool external =
            !internal && is_activated(run) && !is_called(schedule->group) &&
            run->epoch < atomic_load_explicit(&schedule->shared.limit,
                                              memory_order_acquire);
        if (!internal && !external) {
            return;
        }
        baton__run_begin(run);
        atomic_store_explicit(&schedule->shared.running, true,
                              memory_order_relaxed);
        stepper->running++;
        if (stepper->on_begin != NULL) {
            stepper->on_begin(schedule);
        }
        /* Start has looked already, but nobody has where peers begin it. */
        if (atomic_load_explicit(&schedule->rebound, memory_order_relaxed)) {
            baton_status_t status = baton__check_rebound(schedule);
            if (status != BATON_OK) {
                baton__epoch_fail_here(stepper, schedule, status);
            }
        }
        if (run->phase == BATON__RUN_RUNNING) {
            deliver_activations(schedule);
        }
    }
    if (run->phase == BATON__RUN_RUNNING) {
        if (requested >= run->epoch) {
            baton__run_started(run);
        }
        baton__stepper_add_runnable(stepper, schedule);
    }
}

/* ---- how an epoch ends ------------------------------------------------ */

/* Both stores pair with the loads in baton__epoch_ended(), epochs.c. */
static void publish(baton__stepper_t *stepper, baton_schedule_t *schedule,
                    uint64_t failed, uint64_t retired)
{
    if (failed != 0) {
        atomic_store_explicit(
            &schedule->shared.failures[failed % BATON__FAILURES],
            failed << 8 | (uint8_t)-schedule->failure.status,
            memory_order_relaxed);
        atomic_store_explicit(&schedule->shared.failed, failed,
                              memory_order_release);
    }
    atomic_store_explicit(&schedule->shared.running, false,
                          memory_order_release);
    atomic_store_explicit(&schedule->shared.retired, retired,
                          memory_order_seq_cst);
    if (stepper->on_end != NULL) {
        stepper->on_end(schedule);
    }
}

/* A failed schedule comes to rest once nothing of it moves: from here on its
   memory is the caller's. */
void baton__epoch_settle(baton__stepper_t *stepper, baton_schedule_t *schedule)
{
    baton__run_t *run = &schedule->run;
    if (run->phase != BATON__RUN_DRAINING || schedule->turn.moving > 0 ||
        schedule->turn.begun > 0) {
        return;
    }
    stepper->draining--;
    uint64_t failed = schedule->failing_from;
    uint64_t retired =
        atomic_load_explicit(&schedule->shared.retired, memory_order_relaxed);
    if (baton__schedule_stays_failed(schedule)) {
        baton__run_set_phase(run, BATON__RUN_FAILED);
    } else {
        baton__run_set_phase(run, BATON__RUN_IDLE);
        schedule->failing_from = 0;
        retired = run->epoch;
    }
    publish(stepper, schedule, failed, retired);
}

void baton__epoch_abandon(baton__stepper_t *stepper, baton_schedule_t *schedule)
{
    schedule->turn.abandoned = true;
    stepper->waited -= schedule->run.waited;
    for (uint32_t i = 0; i < schedule->plan.async_count; i++) {
        uint32_t node = schedule->plan.asyncs[i];
        /* Nobody asks those any more: they are never freed. */
        stepper->polled -= schedule->run.state[node] == BATON__NODE_BEGUN &&
                           schedule->ops[node].async_ops->poll != NULL;
    }
    publish(
        stepper, schedule, schedule->failing_from,
        atomic_load_explicit(&schedule->shared.retired, memory_order_relaxed));
}

/* Something of a failed schedule has come to its end. */
void baton__epoch_end_draining(baton__stepper_t *stepper,
                               baton_schedule_t *schedule, uint32_t node)
{
    if (!schedule->turn.abandoned) {
        baton__epoch_enter(stepper, schedule, node, BATON__NODE_IDLE);
        baton__epoch_settle(stepper, schedule);
    } else if (schedule->turn.moving == 0 && schedule->turn.begun == 0) {
        baton__schedule_free(schedule); /* it was destroyed before */
    }
}

/* Drops what came for epochs that are over. */
static void drop_past(baton_schedule_t *schedule)
{
    baton__run_t *run = &schedule->run;
    const baton_group_t *group = schedule->group;
    for (uint32_t i = 0; i < schedule->plan.receive_count && run->early_count;
         i++) {
        baton_message_t **link = &run->early[i];
        while (*link != NULL && (*link)->header.epoch <= run->epoch) {
            baton_message_t *message = *link;
            *link = message->next;
            run->early_count--;
            group->transport->drop(group->endpoint, message);
        }
    }
}

static void retire(baton__stepper_t *stepper, baton_schedule_t *schedule)
{
    baton__run_retire(&schedule->run);
    stepper->running--;
    if (schedule->run.early_count > 0) {
        drop_past(schedule);
    }
    publish(stepper, schedule, 0, schedule->run.epoch);
    baton__epoch_fail_if_due(stepper, schedule);
    baton__epoch_begin_if_due(stepper, schedule);
}

/* ---- turns ------------------------------------------------------------ */

/* The call that left out a branch with this node, or a node before it. */
static uint32_t find_skip(const baton_schedule_t *schedule)
{
    for (uint32_t node = 0; node < schedule->count; node++) {
        if (schedule->run.state[node] == BATON__NODE_SKIPPED) {
            return node;
        }
    }
    return BATON__NO_NODE;
}

static void fail_stuck(baton__stepper_t *stepper, baton_schedule_t *schedule)
{
    char memory[BATON__SENTENCE_BYTES];
    baton__text_t text = {memory, sizeof memory, 0};
    uint32_t node = 0;
    while ((schedule->ops[node].flags & BATON__OPTIONAL) != 0 ||
           schedule->run.state[node] != BATON__NODE_IDLE) {
        node++;
    }
    baton__text_add(&text,
                    "\"%s\" epoch %llu can't end on rank %d: %s will not fire",
                    schedule->name, (unsigned long long)schedule->run.epoch,
                    schedule->group->rank, baton__node_name(schedule, node));
    uint32_t call = find_skip(schedule);
    if (call != BATON__NO_NODE) {
        baton__text_add(&text,
                        ": %s skipped (is what lies behind it optional?)",
                        baton__node_name(schedule, call));
    }
    baton__epoch_fail_here(stepper, schedule,
                           baton__error(BATON_ERR_UNREACHABLE, "%s", memory));
}

void baton__epoch_turn(baton__stepper_t *stepper, baton_schedule_t *schedule,
                       uint32_t nodes)
{
    baton__run_t *run = &schedule->run;
    baton__epoch_issue(stepper, schedule, nodes);
    if (run->phase != BATON__RUN_RUNNING) {
        return;
    }
    bool through = baton__run_is_through(run);
    bool busy =
        through && stepper->is_busy != NULL && stepper->is_busy(schedule);
    if (baton__run_has_ready(run) || busy) {
        baton__stepper_add_runnable(stepper, schedule);
    } else if (through) {
        retire(stepper, schedule);
    } else if (baton__run_is_stuck(run)) {
        fail_stuck(stepper, schedule);
    }
}
