/* The host backend: steps of gradients in main memory, which wait for every
   rank. */
#include "coll/sparse/backends/backends.h"

#include <string.h>

/* ---- steps' vectors ----------------------------------------------------- */

void baton__sparse_host_vectors(baton_sparse_t *sparse)
{
    if (sparse->residual != NULL) {
        return;
    }
    sparse->lasting = true;
    size_t count = sparse->options.count, size = sparse->element_bytes;
    sparse->residual = baton__sparse_room(sparse, count, size);
    sparse->work = sparse->options.in_place
                       ? sparse->residual
                       : baton__sparse_room(sparse, count, size);
    if (sparse->options.momentum > 0) {
        size = baton__velocity_bytes(sparse);
        sparse->velocity = baton__sparse_room(sparse, count, size);
    }
    if (sparse->options.momentum > 0 && !sparse->options.partial) {
        sparse->new_velocity = baton__sparse_room(sparse, count, size);
    }
    sparse->lasting = false;
}

/* ---- dense steps ------------------------------------------------------- */

/* Allocates `spare` if it is NULL. With in_place it has two vectors: the last
   result stays in one while a step writes into the other. */
static bool make_spare(baton_sparse_t *sparse)
{
    if (sparse->spare == NULL) {
        size_t vectors = sparse->options.in_place ? 2 : 1;
        sparse->lasting = true;
        sparse->spare = baton__sparse_room(
            sparse, vectors * sparse->options.count, sparse->element_bytes);
        sparse->lasting = false;
    }
    return sparse->spare != NULL || !sparse->payload;
}

/* Returns the vector of `spare` that does not have the last result. The other
   vector is kept, since peers that fail may still need that result. */
static char *other_than_last(const baton_sparse_t *sparse)
{
    return sparse->last.values != sparse->spare
               ? sparse->spare
               : sparse->spare + sparse->options.count * sparse->element_bytes;
}

/* Binds the buffers of a dense step. Its operand is the gradient itself, or the
   residual itself, if that is all that this rank contributes. Otherwise the
   operand is accumulated in `spare`. The result goes to `work`; with in_place
   that is a vector of `spare`. */
static baton_status_t sparse_host_bind_dense(baton_sparse_t *sparse)
{
    bool alone = sparse->gradient == NULL
                     ? !sparse->no_residual
                     : sparse->no_residual && sparse->velocity == NULL &&
                           sparse->options.clip == 0 &&
                           sparse->given_factor == 1;
    const char *source =
        sparse->gradient != NULL ? sparse->gradient : sparse->residual;
    if ((!alone || sparse->options.in_place) && !make_spare(sparse)) {
        return baton__sparse_no_memory(sparse);
    }
    sparse->sums_spare = !alone;
    if (sparse->options.in_place) {
        sparse->work = other_than_last(sparse);
    }
    const void *from = alone ? source : sparse->spare;
    baton_status_t status =
        baton_buffer_rebind(sparse->dense, sparse->dense_buffer, sparse->work);
    return status == BATON_OK
               ? baton_buffer_rebind(sparse->dense, sparse->dense_source,
                                     (void *)(uintptr_t)from)
               : status;
}

static baton_status_t sparse_host_begin_dense(void *arg, baton_call_t *call)
{
    baton_sparse_t *sparse = arg;
    (void)call;
    baton__sparse_begin(sparse);
    if (sparse->sums_spare) {
        baton__sparse_exchange(&sparse->work, &sparse->spare);
        baton__sparse_accumulate(sparse, 0, sparse->options.count);
        baton__sparse_exchange(&sparse->work, &sparse->spare);
    }
    return BATON_OK;
}

/* ---- steps ------------------------------------------------------------- */

/* Accumulates a part of a gradient as the step would do it. If the gradient is
   clipped, only copies the part, since the norm is not known yet. Also only
   copies it if the step is dense, since such a step may sum the gradient
   itself. */
static baton_status_t sparse_host_contribute(baton_sparse_t *sparse,
                                             size_t first, size_t count,
                                             const void *part)
{
    const size_t offset = first * sparse->element_bytes;
    bool dense = baton__sparse_is_dense(sparse, false, sparse->steps);
    if (dense && !make_spare(sparse)) {
        return baton__sparse_no_memory(sparse);
    }
    if (dense || sparse->options.clip > 0) {
        memcpy((dense ? sparse->spare : sparse->work) + offset, part,
               count * sparse->element_bytes);
        return BATON_OK;
    }
    sparse->gradient = (const char *)((uintptr_t)part - offset);
    sparse->clip_factor = 1;
    sparse->summed = false;
    baton__sparse_accumulate(sparse, first, count);
    return BATON_OK;
}

static baton_status_t sparse_host_start(baton_sparse_t *sparse, bool flush,
                                        const void *gradient, double factor)
{
    bool dense = baton__sparse_is_dense(sparse, flush, sparse->steps);
    baton_status_t status = BATON_OK;
    bool parts = sparse->part_count > 0;
    sparse->gradient = !parts ? gradient : dense ? sparse->spare : sparse->work;
    sparse->summed = parts && !dense && sparse->options.clip == 0;
    sparse->given_factor = factor;
    if (!dense) {
        baton__sparse_use_room(sparse, 1 - sparse->shown);
        sparse->work =
            sparse->options.in_place ? sparse->residual : sparse->work;
    }
    if (dense && sparse->payload) {
        status = sparse_host_bind_dense(sparse);
    }
    if (status == BATON_OK) {
        status = baton_schedule_start(dense ? sparse->dense : sparse->schedule);
    }
    if (status != BATON_OK) {
        /* The last result can no longer be read, even if a recovery has handed
           it over. */
        sparse->phase = BATON__SPARSE_NO_RESULT;
        return status;
    }
    sparse->recovered = false;
    sparse->open = sparse->steps + 1;
    baton__sparse_started(sparse, dense);
    return BATON_OK;
}

/* Updates the residual in its own memory. Called once the step is complete,
   since a step that fails must leave the residual as it was. */
static void complete_in_place(baton_sparse_t *sparse, bool dense)
{
    if (!sparse->payload) {
        return;
    }
    if (dense) {
        memset(sparse->residual, 0,
               sparse->options.count * sparse->element_bytes);
    } else {
        sparse->settle(sparse->settling, sparse->result_count);
    }
}

/* Completes a step. Without in_place, swaps `work` and `residual`. A dense step
   leaves no residual, so after such a step `residual` has the step's result,
   which peers that fail in the next step may still need. */
static void sparse_host_complete(baton_sparse_t *sparse, bool dense,
                                 baton_status_t status)
{
    if (status != BATON_OK) {
        return;
    }
    baton__sparse_complete_step(sparse, dense);
    sparse->open = 0;
    if (sparse->options.in_place) {
        complete_in_place(sparse, dense);
        return;
    }
    baton__sparse_advance(sparse);
    baton__sparse_exchange(&sparse->work, &sparse->residual);
    sparse->no_residual = dense;
}

/* ---- recovery ---------------------------------------------------------- */

/* Returns the vector that has the last step's dense result or, if this rank
   lacks the result, that is to receive it. Returns NULL if the result is
   sparse, and so in a room. */
static char *dense_result(const baton_sparse_t *sparse, bool lacks, bool dense)
{
    bool vector = lacks                      ? dense
                  : sparse->options.in_place ? sparse->last.indices == NULL
                                             : sparse->no_residual;
    if (sparse->algorithm != NULL && !vector) {
        return NULL;
    }
    return lacks                       ? sparse->work
           : !sparse->options.in_place ? sparse->residual
           : sparse->last.values != NULL
               ? (char *)(uintptr_t)sparse->last.values
               : sparse->spare;
}

/* Hands over the result of a step, and completes the step on ranks that lack
   it. Returns true once the step is complete either on all ranks or on none. */
static bool sparse_host_agree(baton_sparse_t *sparse, bool lacks, uint64_t step)
{
    bool dense = sparse->is_dense;
    if (!baton__sparse_tell(sparse, lacks, step)) {
        return false;
    }
    bool gets = lacks && baton__sparse_is_had(sparse, step);
    if (!baton__sparse_hand_over(sparse, gets, step,
                                 dense_result(sparse, gets, dense))) {
        return false;
    }
    if (gets && !dense) {
        baton__sparse_settle(sparse);
    }
    if (gets) {
        sparse_host_complete(sparse, dense, BATON_OK);
        sparse->phase = BATON__SPARSE_RESULT;
    }
    baton__sparse_make_up(sparse, lacks && !gets ? step - 1 : step);
    if (sparse->open != 0) {
        sparse->phase = BATON__SPARSE_NO_RESULT;
    }
    sparse->open = 0;
    return true;
}

/* Returns true once each step is complete either on all ranks or on none. */
static bool sparse_host_mend(baton_sparse_t *sparse)
{
    bool stands = sparse->open != 0 && sparse->open <= sparse->steps;
    if (stands && !sparse->lacks) {
        sparse_host_complete(sparse, sparse->is_dense, BATON_OK);
        sparse->phase = BATON__SPARSE_RESULT;
    }
    if (!sparse_host_agree(sparse, sparse->lacks, sparse->steps)) {
        return false;
    }
    sparse->lacks = false;
    return true;
}

/* The backend's function `survive`, called in a shrink. Sets `steps` anew,
   because a recovery that was cut short may have counted a step that no
   survivor has completed. */
static bool sparse_host_survive(baton_sparse_t *sparse)
{
    bool lacks = sparse->open != 0;
    uint64_t step = lacks ? sparse->open : sparse->steps;
    if (!sparse_host_agree(sparse, lacks, step)) {
        return false;
    }
    sparse->steps = baton__sparse_is_had(sparse, step) ? step : step - 1;
    sparse->lacks = sparse->mended = false;
    sparse->told = 0;
    return true;
}

/* The recovery callback of both schedules, called while the application is in
   baton_group_recover. All ranks get the same epochs, so they agree on the
   steps that are complete. The callback returns false until it was called for
   both schedules and the last step is complete on all ranks or none. So neither
   schedule is reset before that, and no rank begins an epoch alone. */
static bool sparse_host_recover(baton_sparse_t *sparse, bool dense,
                                uint64_t epoch)
{
    const uint8_t bit = dense ? 2 : 1, all = sparse->algorithm != NULL ? 3 : 2;
    if (!sparse->mended && (sparse->told & bit) == 0) {
        sparse->told |= bit;
        sparse->lacks = sparse->lacks ||
                        baton_schedule_epoch(dense ? sparse->dense
                                                   : sparse->schedule) < epoch;
        baton__sparse_recover(sparse, dense, epoch);
    }
    sparse->mended =
        sparse->mended || (sparse->told == all && sparse_host_mend(sparse));
    if (!sparse->mended) {
        return false;
    }
    sparse->told ^= bit;
    sparse->mended = sparse->told != 0;
    return true;
}

static bool recover_sparse(void *arg, uint64_t epoch)
{
    return sparse_host_recover(arg, false, epoch);
}

static bool recover_dense(void *arg, uint64_t epoch)
{
    return sparse_host_recover(arg, true, epoch);
}

/* ---- building ---------------------------------------------------------- */

static baton_status_t sparse_host_build(baton_sparse_t *sparse)
{
    const bool in_place = sparse->options.in_place;
    if (sparse->residual == NULL) {
        sparse->no_residual =
            !in_place && baton__sparse_is_dense(sparse, false, 0);
    }
    baton__sparse_host_vectors(sparse);
    if (in_place && sparse->algorithm == NULL) {
        (void)make_spare(sparse);
    }
    baton_view_t work = baton__sparse_bind_dense(sparse);
    sparse->dense_source = baton_buffer_bind(
        sparse->dense, in_place ? NULL : sparse->residual, work.bytes);
    baton__sparse_add_dense(
        sparse, baton_view(sparse->dense_source, 0, work.bytes), work,
        baton__sparse_add_call(sparse, sparse->dense, sparse_host_begin_dense,
                               sparse));
    baton_schedule_on_recover(sparse->dense, recover_dense, sparse);
    /* Without an algorithm all steps are dense. */
    if (sparse->algorithm != NULL) {
        baton_schedule_on_recover(sparse->schedule, recover_sparse, sparse);
        sparse->algorithm->build(sparse);
    }
    return BATON_OK;
}

/* ---- between steps ----------------------------------------------------- */

static baton_status_t sparse_host_read_vector(baton_sparse_t *sparse,
                                              bool velocity, void *to)
{
    size_t bytes = sparse->options.count * sparse->element_bytes;
    if (velocity) {
        baton__sparse_read_velocity(sparse, sparse->velocity, to);
    } else if (sparse->no_residual) {
        memset(to, 0, bytes);
    } else {
        memcpy(to, sparse->residual, bytes);
    }
    return BATON_OK;
}

static baton_status_t sparse_host_write_vectors(baton_sparse_t *sparse,
                                                const void *residual,
                                                const void *velocity)
{
    size_t bytes = sparse->options.count * sparse->element_bytes;
    memcpy(sparse->residual, residual, bytes);
    sparse->no_residual = false;
    if (velocity != NULL) {
        baton__sparse_write_velocity(sparse, sparse->velocity, velocity);
    }
    return BATON_OK;
}

const baton__sparse_backend_t baton__sparse_host = {
    .accumulates = true,
    .build = sparse_host_build,
    .start = sparse_host_start,
    .contribute = sparse_host_contribute,
    .complete = sparse_host_complete,
    .survive = sparse_host_survive,
    .read = sparse_host_read_vector,
    .write = sparse_host_write_vectors,
};
