/* baton_sparse_shrink: a sparse all-reduce continues in the group of the
   survivors.

       running step ends --> flags --> hand-over --> confirmation --> rebuild

   A step that any survivor has completed is completed on all of them, as in a
   recovery (handover.c). `flags` has a byte for each rank of the old group. The
   byte of a rank that has died meanwhile stays 0.

   Another rank may die at any moment. Then the survivors shrink the group
   again, and call baton_sparse_shrink again, though the first call may have
   succeeded on some of them. So a step that a rank has completed stays
   completed. And a rank takes part in the confirmation only when it has all
   results that it lacked, so no rank is ready before all have their results. */
#include "base/clock.h"
#include "base/error.h"
#include "coll/sparse/object/object.h"

/* Ends the running step, so that no epoch of the schedules is in progress
   afterwards. With options.partial a peer may have begun an epoch. So epochs
   are started and cancelled until the schedule has failed. */
static baton_status_t sparse_shrink_end_step(baton_sparse_t *sparse,
                                             uint64_t until)
{
    baton_status_t status = BATON_OK;
    bool partial = sparse->options.partial;
    if (!partial && sparse->phase == BATON__SPARSE_RUNNING) {
        status = baton__sparse_end_step(sparse, baton__left_ms(until));
        return sparse->phase == BATON__SPARSE_RUNNING ? status : BATON_OK;
    }
    while (status == BATON_OK && partial) {
        status = baton_schedule_start(sparse->schedule);
        if (status == BATON_OK || status == BATON_ERR_BUSY) {
            (void)!baton_schedule_cancel(sparse->schedule);
            status =
                baton_schedule_wait(sparse->schedule, baton__left_ms(until));
        }
    }
    return baton__goes_on(status) ? status : BATON_OK;
}

/* Replaces the schedule of the hand-over by one in the survivors' group. */
static baton_status_t open_handover(baton_sparse_t *sparse)
{
    baton__handover_t *handover = &sparse->handover;
    /* The epoch is cancelled so that destroy does not wait for it. */
    (void)!baton_schedule_cancel(handover->schedule);
    baton_status_t status = baton_schedule_destroy(handover->schedule);
    if (status == BATON_OK) {
        handover->schedule = NULL;
        status = baton_schedule_create(sparse->survivors, sparse->name,
                                       &handover->schedule);
    }
    if (status == BATON_OK) {
        handover->handed = 0;
        sparse->out_of_memory = false;
        baton__sparse_build_handover(sparse);
        status = sparse->out_of_memory
                     ? baton__sparse_no_memory(sparse)
                     : baton_schedule_commit(handover->schedule);
    }
    return status;
}

/* If the hand-over had failed before this rank started its next epoch, returns
   the cause of that failure. If a peer has destroyed the schedule, the cause is
   a loss: that peer knew of the loss before this rank, and has left for another
   group. */
static baton_status_t sparse_shrink_find_cause(const baton_sparse_t *sparse,
                                               baton_status_t status)
{
    baton_failure_t failure;
    if ((status != BATON_ERR_FAILED && status != BATON_ERR_STATE) ||
        baton_schedule_failure(sparse->handover.schedule, &failure) !=
            BATON_OK) {
        return status;
    }
    return baton__error_forward(failure.status == BATON_ERR_STATE
                                    ? BATON_ERR_TRANSPORT
                                    : failure.status,
                                failure.message);
}

/* Waits for an epoch of the hand-over. The epoch may have failed to start. */
static baton_status_t sparse_shrink_await(const baton_sparse_t *sparse,
                                          uint64_t until)
{
    const baton__handover_t *handover = &sparse->handover;
    baton_status_t status =
        baton_schedule_wait(handover->schedule, baton__left_ms(until));
    bool begun = baton_schedule_epoch(handover->schedule) >= handover->handed;
    return sparse_shrink_find_cause(
        sparse, status == BATON_OK && !begun ? BATON_ERR_FAILED : status);
}

static baton_status_t sparse_shrink_advance(baton_sparse_t *sparse,
                                            uint64_t until)
{
    baton_status_t status = BATON_OK;
    switch (sparse->stage) {
    case BATON__SPARSE_ENDS_STEP:
        status = sparse_shrink_end_step(sparse, until);
        if (status == BATON_OK) {
            status = open_handover(sparse);
        }
        break;
    case BATON__SPARSE_HANDS_OVER:
        while (status == BATON_OK && !sparse->backend->survive(sparse)) {
            status = sparse_shrink_await(sparse, until);
        }
        if (status == BATON_OK) {
            status = sparse_shrink_find_cause(
                sparse, baton_schedule_start(sparse->handover.schedule));
        }
        break;
    case BATON__SPARSE_CONFIRMS:
        status = sparse_shrink_await(sparse, until);
        break;
    case BATON__SPARSE_REBUILDS:
        status = baton__sparse_leave(sparse);
        if (status == BATON_OK) {
            status = baton__sparse_rebuild(sparse, sparse->survivors);
        }
        break;
    case BATON__SPARSE_MOVED:
        break;
    }
    return status;
}

/* Returns the reason why a shrink is not supported, or NULL. */
static const char *sparse_shrink_refusal(const baton_sparse_t *sparse)
{
    if (baton__sparse_goes_on(&sparse->options)) {
        return "it goes on by itself: on_loss is BATON_ON_LOSS_CONTINUE";
    }
    if (!sparse->payload) {
        return "the simulation is cost-only";
    }
    return sparse->backend->survive == NULL ? "gradients are on a device"
                                            : NULL;
}

static baton_status_t sparse_shrink_check(const baton_sparse_t *sparse,
                                          const baton_group_t *survivors)
{
    if (!baton__sparse_is_alive(sparse, "shrink")) {
        return baton__error_status();
    }
    if (baton_group_size(survivors) < 0) {
        return baton__sparse_error(sparse, BATON_ERR_INVALID, "shrink",
                                   "survivors is NULL, or was destroyed");
    }
    if (!sparse->connected) {
        return baton__sparse_check_connected(sparse, "shrink");
    }
    const char *unsupported = sparse_shrink_refusal(sparse);
    return unsupported == NULL
               ? BATON_OK
               : baton__sparse_error(sparse, BATON_ERR_UNSUPPORTED, "shrink",
                                     "%s", unsupported);
}

baton_status_t baton_sparse_shrink(baton_sparse_t *sparse,
                                   baton_group_t *survivors, int timeout_ms)
{
    baton_status_t status = sparse_shrink_check(sparse, survivors);
    if (status != BATON_OK) {
        return status;
    }
    if (survivors == sparse->group) {
        /* A rank that has failed to build its schedules can't build them again
           in the same group: peers count the schedules of a name, so they would
           not find the new ones. */
        return sparse->survivors == NULL
                   ? BATON_OK
                   : baton__error_forward(sparse->wrong.status,
                                          sparse->wrong.text);
    }
    if (sparse->survivors != survivors) {
        sparse->survivors = survivors;
        sparse->stage = BATON__SPARSE_ENDS_STEP;
    }
    uint64_t until = baton__deadline(timeout_ms);
    while (sparse->stage != BATON__SPARSE_MOVED) {
        status = sparse_shrink_advance(sparse, until);
        if (status != BATON_OK) {
            return status;
        }
        sparse->stage++;
    }
    sparse->survivors = NULL;
    sparse->learned = (baton__learned_t){0};
    sparse->base[false] = sparse->steps;
    sparse->base[true] = 0;
    sparse->recovered = true;
    return BATON_OK;
}
