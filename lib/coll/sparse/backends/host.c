/* The host backend: steps of gradients in main memory, which wait for every
   rank. */
#include "coll/sparse/backends/backends.h"

#include <string.h>

struct baton__sparse_host {
    /* The source of the dense schedule. Before each dense step this buffer is
       bound to the step's operand, and sparse->dense_buffer to `work`. */
    baton_buffer_t dense_source;
    /* A vector for the operand of a dense step, if neither the gradient nor the
       residual alone is that operand. With in_place `spare` is two vectors
       instead, for the results of dense steps in turn. NULL until the memory is
       needed. */
    char *spare;
    bool sums_spare; /* the operand of the running dense step is in `spare` */
    uint64_t open;   /* the step that was started and not completed, or 0 */

    /* In a recovery: true if this rank lacks the last step's result. */
    bool lacks;
    /* In a recovery: true when each step is complete either on all ranks or on
       none. */
    bool everywhere;
    /* In a recovery: a bit for each schedule whose callback has been called so
       far. */
    uint8_t called;
};

typedef struct baton__sparse_host host_t;

/* ---- steps' vectors ----------------------------------------------------- */

/* Allocates memory for `size` bytes for each element. It is kept if schedules
   are rebuilt. */
static char *host_vector(baton_sparse_t *sparse, size_t size)
{
    return baton__sparse_keep_memory(
        sparse, baton__sparse_alloc_data(sparse, sparse->count, size));
}

void baton__sparse_host_vectors(baton_sparse_t *sparse)
{
    const size_t size = sparse->element_bytes;
    const size_t velocity_size = baton__velocity_bytes(sparse);
    sparse->residual = host_vector(sparse, size);
    sparse->work =
        sparse->options.in_place ? sparse->residual : host_vector(sparse, size);
    if (sparse->options.momentum > 0) {
        sparse->input.velocity = host_vector(sparse, velocity_size);
    }
    if (sparse->options.momentum > 0 && !sparse->options.partial) {
        sparse->input.new_velocity = host_vector(sparse, velocity_size);
    }
}

/* ---- dense steps ------------------------------------------------------- */

/* Allocates `spare` if it is NULL. With in_place it has two vectors: the last
   result stays in one while a step writes into the other. */
static bool make_spare(baton_sparse_t *sparse)
{
    host_t *self = sparse->host;
    if (self->spare == NULL) {
        size_t vectors = sparse->options.in_place ? 2 : 1;
        self->spare = host_vector(sparse, vectors * sparse->element_bytes);
    }
    return self->spare != NULL || !sparse->payload;
}

/* Binds the buffers of a dense step. If this rank contributes only its gradient
   or only its residual, unchanged, then that vector is the step's operand.
   Otherwise the operand is accumulated in `spare`. The result goes to `work`;
   with in_place `work` is a vector of `spare`. */
static baton_status_t sparse_host_bind_dense(baton_sparse_t *sparse)
{
    host_t *self = sparse->host;
    const baton__sparse_input_t *input = &sparse->input;
    bool alone = input->gradient == NULL
                     ? input->residual != NULL
                     : input->residual == NULL && input->velocity == NULL &&
                           sparse->options.clip == 0 && input->factor == 1;
    const char *source =
        input->gradient != NULL ? input->gradient : sparse->residual;
    if ((!alone || sparse->options.in_place) && !make_spare(sparse)) {
        return baton__sparse_no_memory(sparse);
    }
    self->sums_spare = !alone;
    if (sparse->options.in_place) {
        /* The vector with the last result is kept. If the last step turns out
           to have failed on peers, this rank hands the result to them. */
        bool first_free = sparse->results.last.values != self->spare;
        sparse->work = self->spare + (first_free ? 0 : sparse->vector_bytes);
    }
    const void *from = alone ? source : self->spare;
    baton_status_t status =
        baton_buffer_rebind(sparse->dense, sparse->dense_buffer, sparse->work);
    return status == BATON_OK
               ? baton_buffer_rebind(sparse->dense, self->dense_source,
                                     (void *)(uintptr_t)from)
               : status;
}

static baton_status_t sparse_host_begin_dense(void *arg, baton_call_t *call)
{
    baton_sparse_t *sparse = arg;
    host_t *self = sparse->host;
    baton__sparse_begin(sparse);
    if (self->sums_spare) {
        baton__sparse_exchange(&sparse->work, &self->spare);
        baton__sparse_accumulate(sparse, 0, sparse->count);
        baton__sparse_exchange(&sparse->work, &self->spare);
    }
    return BATON_OK;
}

/* ---- steps ------------------------------------------------------------- */

/* Accumulates a part of a gradient as the step would do it. If the gradient is
   clipped, only copies the part, since the norm is not known yet. Also only
   copies it if the step is dense, since a dense step may use the gradient
   itself as its operand. */
static baton_status_t sparse_host_contribute(baton_sparse_t *sparse,
                                             size_t first, size_t count,
                                             const void *part)
{
    const size_t offset = first * sparse->element_bytes;
    baton__sparse_input_t *input = &sparse->input;
    bool dense = baton__sparse_is_dense(sparse, false, sparse->steps);
    if (sparse->host->open != 0) {
        return baton__sparse_error(
            sparse, BATON_ERR_FAILED, "contribute to",
            "the last step has failed: recover the group first");
    }
    if (!sparse->payload) {
        return BATON_OK;
    }
    if (dense && !make_spare(sparse)) {
        return baton__sparse_no_memory(sparse);
    }
    if (dense || sparse->options.clip > 0) {
        memcpy((dense ? sparse->host->spare : sparse->work) + offset, part,
               count * sparse->element_bytes);
        return BATON_OK;
    }
    input->gradient = (const char *)((uintptr_t)part - offset);
    input->clip_factor = 1;
    input->summed = false;
    baton__sparse_accumulate(sparse, first, count);
    return BATON_OK;
}

static baton_status_t sparse_host_start(baton_sparse_t *sparse, bool flush,
                                        const void *gradient)
{
    host_t *self = sparse->host;
    baton__sparse_input_t *input = &sparse->input;
    baton__sparse_results_t *results = &sparse->results;
    bool dense = baton__sparse_is_dense(sparse, flush, sparse->steps);
    baton_status_t status = BATON_OK;
    bool parts = input->part_count > 0;
    if (parts) {
        gradient = dense ? self->spare : sparse->work;
    }
    input->gradient = gradient;
    input->summed = parts && !dense && sparse->options.clip == 0;
    if (!dense) {
        bool first_shown = results->shown == results->buffers;
        results->next = results->buffers + (first_shown ? 1 : 0);
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
    self->open = sparse->steps + 1;
    baton__sparse_started(sparse, dense);
    return BATON_OK;
}

/* Updates the residual in its own memory. Called after the step is complete,
   since a step that fails must leave the residual as it was. */
static void complete_in_place(baton_sparse_t *sparse, bool dense)
{
    const baton__completion_t *completion = &sparse->completion;
    if (!sparse->payload) {
        return;
    }
    if (dense) {
        memset(sparse->residual, 0, sparse->vector_bytes);
    } else {
        completion->make_residual(completion->algorithm,
                                  (size_t)*sparse->results.next->count);
    }
}

/* Completes a step. Without in_place, swaps `work` and `residual`. A dense step
   leaves no residual, so after such a step `residual` has the step's result. If
   the step turns out to have failed on peers, this rank hands the result to
   them. */
static void sparse_host_complete(baton_sparse_t *sparse, baton_status_t status)
{
    const bool dense = sparse->is_dense;
    if (status != BATON_OK) {
        return;
    }
    baton__sparse_complete_step(sparse, dense);
    sparse->host->open = 0;
    if (sparse->options.in_place) {
        complete_in_place(sparse, dense);
        return;
    }
    baton__sparse_advance(sparse, dense);
    baton__sparse_exchange(&sparse->work, &sparse->residual);
    sparse->input.residual = dense ? NULL : sparse->residual;
}

/* ---- recovery ---------------------------------------------------------- */

static char *dense_result(const baton_sparse_t *sparse, bool gets)
{
    const host_t *self = sparse->host;
    const baton_sparse_result_t *last = &sparse->results.last;
    bool in_place = sparse->options.in_place;
    bool vector =
        in_place ? last->indices == NULL : sparse->input.residual == NULL;
    if (gets) {
        return sparse->is_dense ? sparse->work : NULL;
    }
    if (sparse->algorithm != NULL && !vector) {
        return NULL;
    }
    if (!in_place) {
        return sparse->residual;
    }
    return last->values != NULL ? (char *)(uintptr_t)last->values : self->spare;
}

static void sparse_host_take_result(baton_sparse_t *sparse)
{
    if (!sparse->is_dense) {
        baton__sparse_make_residual(sparse);
    }
    sparse_host_complete(sparse, BATON_OK);
    sparse->phase = BATON__SPARSE_RESULT;
}

static bool sparse_host_complete_everywhere(baton_sparse_t *sparse, bool lacks,
                                            uint64_t step)
{
    host_t *self = sparse->host;
    if (!baton__sparse_complete_everywhere(sparse, lacks, step)) {
        return false;
    }
    if (self->open != 0) {
        sparse->phase = BATON__SPARSE_NO_RESULT;
    }
    self->open = 0;
    return true;
}

/* Completes the last step on all ranks, or on none. Returns false while that
   takes; then the function must be called again. */
static bool sparse_host_complete_last(baton_sparse_t *sparse)
{
    host_t *self = sparse->host;
    bool stands = self->open != 0 && self->open <= sparse->steps;
    if (stands && !self->lacks) {
        sparse_host_complete(sparse, BATON_OK);
        sparse->phase = BATON__SPARSE_RESULT;
    }
    if (!sparse_host_complete_everywhere(sparse, self->lacks, sparse->steps)) {
        return false;
    }
    self->lacks = false;
    return true;
}

/* The backend's function `survive`, called in a shrink. Sets `steps` anew,
   because a recovery that was cut short may have counted a step that no
   survivor has completed. */
static bool sparse_host_survive(baton_sparse_t *sparse)
{
    host_t *self = sparse->host;
    bool lacks = self->open != 0;
    uint64_t step = lacks ? self->open : sparse->steps;
    if (!sparse_host_complete_everywhere(sparse, lacks, step)) {
        return false;
    }
    sparse->steps = baton__sparse_any_completed(sparse, step) ? step : step - 1;
    self->lacks = self->everywhere = false;
    self->called = 0;
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
    host_t *self = sparse->host;
    const uint8_t bit = dense ? 2 : 1, all = sparse->algorithm != NULL ? 3 : 2;
    if (!self->everywhere && (self->called & bit) == 0) {
        self->called |= bit;
        self->lacks = self->lacks ||
                      baton_schedule_epoch(dense ? sparse->dense
                                                 : sparse->schedule) < epoch;
        baton__sparse_recover(sparse, dense, epoch);
    }
    self->everywhere = self->everywhere || (self->called == all &&
                                            sparse_host_complete_last(sparse));
    if (!self->everywhere) {
        return false;
    }
    self->called ^= bit;
    self->everywhere = self->called != 0;
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
    if (sparse->host == NULL) {
        sparse->host = baton__sparse_keep_memory(
            sparse, baton__sparse_alloc(sparse, 1, sizeof *sparse->host));
        if (sparse->host == NULL) {
            return BATON_OK;
        }
        baton__sparse_host_vectors(sparse);
        bool dense = !in_place && baton__sparse_is_dense(sparse, false, 0);
        sparse->input.residual = dense ? NULL : sparse->residual;
    }
    if (in_place && sparse->algorithm == NULL) {
        (void)make_spare(sparse);
    }
    baton_view_t work = baton__sparse_bind_dense(sparse);
    baton_buffer_t source = baton_buffer_bind(
        sparse->dense, in_place ? NULL : sparse->residual, work.bytes);
    sparse->host->dense_source = source;
    baton__sparse_add_dense(sparse, baton_view(source, 0, work.bytes), work,
                            baton__sparse_add_call(sparse, sparse->dense,
                                                   sparse_host_begin_dense,
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
    if (velocity) {
        baton__sparse_read_velocity(sparse, to);
    } else if (sparse->input.residual == NULL) {
        memset(to, 0, sparse->vector_bytes);
    } else {
        memcpy(to, sparse->residual, sparse->vector_bytes);
    }
    return BATON_OK;
}

baton_status_t baton__sparse_host_write(baton_sparse_t *sparse,
                                        const void *residual,
                                        const void *velocity)
{
    memcpy(sparse->residual, residual, sparse->vector_bytes);
    sparse->input.residual = sparse->residual;
    if (velocity != NULL) {
        baton__sparse_write_velocity(sparse, velocity);
    }
    return BATON_OK;
}

const baton__sparse_backend_t baton__sparse_host = {
    .build = sparse_host_build,
    .start = sparse_host_start,
    .contribute = sparse_host_contribute,
    .complete = sparse_host_complete,
    .survive = sparse_host_survive,
    .dense_result = dense_result,
    .take_result = sparse_host_take_result,
    .read = sparse_host_read_vector,
    .write = baton__sparse_host_write,
};
