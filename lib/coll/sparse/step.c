/* A step: start, test, wait; and what it leaves when it has been completed. */
#include "coll/sparse/sparse.h"

#include "base/error.h"
#include "coll/sparse/on_device.h"
#include "coll/sparse/ordered.h"
#include "coll/sparse/partial.h"

#include <string.h>

/* ---- start ------------------------------------------------------------- */

/* Where there is no device. */
static baton_status_t start_alone(baton_sparse_t *sparse, bool dense,
                                  const void *gradient, double factor)
{
    sparse->gradient = gradient;
    sparse->given_factor = factor;
    sparse->recovered = false;
    if (dense && sparse->payload) {
        baton_status_t status = baton_buffer_rebind(
            sparse->dense, sparse->dense_buffer, sparse->work);
        if (status != BATON_OK) {
            return status;
        }
    }
    return baton_schedule_start(dense ? sparse->dense : sparse->schedule);
}

static baton_status_t start(baton_sparse_t *sparse, bool dense,
                            const void *gradient, double factor,
                            const baton_stream_t *on)
{
    baton_status_t status =
        sparse->ordered != NULL
            ? baton__sparse_ordered_start(sparse, dense, gradient, factor, on)
            : start_alone(sparse, dense, gradient, factor);
    if (status == BATON_OK) {
        sparse->running = dense ? sparse->dense : sparse->schedule;
        sparse->latest = sparse->running;
        sparse->has_result = false;
    }
    return status;
}

baton_status_t baton_sparse_start(baton_sparse_t *sparse, const void *gradient)
{
    return baton__sparse_start_scaled(sparse, gradient, 1);
}

baton_status_t baton__sparse_start_step(baton_sparse_t *sparse,
                                        const void *gradient, double factor,
                                        const baton_stream_t *on)
{
    uint64_t steps = sparse->ordered != NULL
                         ? baton__sparse_ordered_steps(sparse)
                         : sparse->steps;
    bool dense = sparse->algorithm == NULL || steps < sparse->options.warmup;
    return start(sparse, dense, gradient, factor, on);
}

baton_status_t baton__sparse_start_scaled(baton_sparse_t *sparse,
                                          const void *gradient, double factor)
{
    baton_status_t status = baton__sparse_check_idle(sparse, "start");
    if (status != BATON_OK) {
        return status;
    }
    if (gradient == NULL && sparse->payload) {
        return baton__error(BATON_ERR_INVALID, "start \"%s\": gradient is NULL",
                            sparse->name);
    }
    return sparse->partial != NULL
               ? baton__sparse_partial_start(sparse, gradient)
               : baton__sparse_start_step(sparse, gradient, factor, NULL);
}

baton_status_t baton_sparse_flush(baton_sparse_t *sparse)
{
    baton_status_t status = baton__sparse_check_full(sparse, "flush");
    if (status == BATON_OK) {
        status = baton__sparse_check_idle(sparse, "flush");
    }
    if (status == BATON_OK && sparse->ordered != NULL) {
        (void)baton__sparse_ordered_steps(sparse);
    }
    return status == BATON_OK ? start(sparse, true, NULL, 1, NULL) : status;
}

/* ---- results ----------------------------------------------------------- */

void baton__sparse_result_put(baton_sparse_t *sparse, size_t at,
                              const char *entries, size_t count)
{
    baton_entries_split(sparse->options.dtype, entries, count,
                        sparse->result_indices + at,
                        sparse->result_values + at * sparse->element_bytes);
}

void baton__sparse_publish(baton_sparse_t *sparse, size_t count)
{
    sparse->result_count = count;
    sparse->counting.nnz = count;
    sparse->masked = sparse->result_indices;
    sparse->masked_count = count;
    if (!sparse->payload) {
        return;
    }
    if (sparse->options.average) {
        baton_elements_scale(sparse->options.dtype, sparse->result_values,
                             count, 1.0 / sparse->size);
    }
    baton_magnitudes_t all = baton_elements_measure(
        sparse->options.dtype, sparse->result_values, count);
    sparse->counting.nans = all.nans;
    sparse->counting.infinities = all.infinities;
}

/* After a dense step `work` is the result, and nothing is left out. */
static void complete_dense(baton_sparse_t *sparse)
{
    sparse->counting.algorithm = BATON_SPARSE_DENSE;
    sparse->last = (baton_sparse_result_t){
        .count = sparse->payload ? sparse->options.count : 0,
        .values = sparse->work,
        .included = true,
    };
    sparse->masked_count = 0;
    baton__sparse_advance(sparse);
    if (!sparse->payload) {
        return;
    }
    baton_magnitudes_t all = baton_elements_measure(
        sparse->options.dtype, sparse->work, sparse->options.count);
    sparse->counting.nnz = sparse->options.count;
    sparse->counting.nans = all.nans;
    sparse->counting.infinities = all.infinities;
    if (sparse->device != NULL) {
        baton__sparse_device_complete(sparse);
        return;
    }
    memset(sparse->residual, 0, sparse->options.count * sparse->element_bytes);
}

static void complete_sparse(baton_sparse_t *sparse)
{
    if (sparse->device != NULL) {
        baton__sparse_device_complete(sparse);
    } else {
        char *residual = sparse->work;
        sparse->work = sparse->residual;
        sparse->residual = residual;
    }
    sparse->counting.algorithm = sparse->options.algorithm;
    sparse->counting.rounds = sparse->rounds;
    sparse->learned = sparse->next;
    sparse->last = (baton_sparse_result_t){
        .count = sparse->payload ? sparse->result_count : 0,
        .indices = sparse->result_indices,
        .values = sparse->result_values,
        .included = true,
    };
    baton__sparse_advance(sparse);
}

/* A recovery has counted the step, if it has been completed on some rank, and
   has forgotten what ranks learned: they would differ in both. */
void baton__sparse_complete_step(baton_sparse_t *sparse, bool dense)
{
    const baton__learned_t learned = sparse->learned;
    if (dense) {
        complete_dense(sparse);
    } else {
        complete_sparse(sparse);
    }
    sparse->stats = sparse->counting;
    if (sparse->recovered) {
        sparse->learned = learned;
    } else {
        sparse->steps++;
    }
}

/* The running step has ended on this rank. */
static void complete(baton_sparse_t *sparse, baton_status_t status)
{
    bool dense = sparse->running == sparse->dense;
    sparse->running = NULL;
    sparse->has_result = status == BATON_OK;
    if (sparse->partial != NULL) {
        if (status == BATON_OK) {
            baton__sparse_partial_complete(sparse);
        }
    } else if (sparse->ordered != NULL) {
        baton__sparse_ordered_complete(sparse, dense, status);
    } else if (status == BATON_OK) {
        baton__sparse_complete_step(sparse, dense);
    }
}

/* ---- test, wait -------------------------------------------------------- */

baton_status_t baton_sparse_test(baton_sparse_t *sparse, bool *done_out)
{
    if (sparse == NULL || done_out == NULL) {
        return baton__error(BATON_ERR_INVALID, "%s: %s is NULL", __func__,
                            sparse == NULL ? "sparse" : "done_out");
    }
    baton_status_t status = baton__sparse_check_connected(sparse, "test");
    if (status != BATON_OK) {
        return status;
    }
    if (sparse->running == NULL) {
        *done_out = true;
        return BATON_OK;
    }
    bool done = false;
    status = baton_schedule_test(sparse->running, &done);
    if (status != BATON_OK || done) {
        complete(sparse, status);
        done = true;
    }
    if (status == BATON_OK) {
        *done_out = done;
    }
    return status;
}

baton_status_t baton_sparse_wait(baton_sparse_t *sparse, int timeout_ms,
                                 baton_sparse_result_t *out)
{
    if (sparse == NULL || out == NULL) {
        return baton__error(BATON_ERR_INVALID, "%s: %s is NULL", __func__,
                            sparse == NULL ? "sparse" : "out");
    }
    baton_status_t status = baton__sparse_check_connected(sparse, "wait for");
    if (status != BATON_OK) {
        return status;
    }
    if (sparse->running != NULL) {
        status = baton_schedule_wait(sparse->running, timeout_ms);
        if (status != BATON_OK) {
            bool done = false;
            baton_status_t ended = baton_schedule_test(sparse->running, &done);
            if (ended == BATON_OK && !done) {
                return status; /* a timeout: it goes on */
            }
            status = ended;
        }
        complete(sparse, status);
        if (status != BATON_OK) {
            return status;
        }
    }
    if (!sparse->has_result) {
        return baton__error(BATON_ERR_STATE,
                            "wait for \"%s\": no step has "
                            "been completed since a start",
                            sparse->name);
    }
    status = baton__sparse_ordered_outcome(sparse);
    if (status == BATON_OK) {
        *out = sparse->last;
    }
    return status;
}

static void write_dense(const baton_sparse_t *sparse, void *vector)
{
    const baton_sparse_result_t *result = &sparse->last;
    const size_t size = sparse->element_bytes;
    if (result->indices == NULL) {
        memcpy(vector, result->values, sparse->options.count * size);
        return;
    }
    memset(vector, 0, sparse->options.count * size);
    for (size_t i = 0; i < result->count; i++) {
        memcpy((char *)vector + (size_t)result->indices[i] * size,
               (const char *)result->values + i * size, size);
    }
}

baton_status_t baton_sparse_dense(baton_sparse_t *sparse, void *vector)
{
    baton_status_t status = baton__sparse_check_idle(sparse, "result of");
    if (status != BATON_OK) {
        return status;
    }
    if (!sparse->has_result || (vector == NULL && sparse->payload)) {
        return baton__error(
            sparse->has_result ? BATON_ERR_INVALID : BATON_ERR_STATE,
            "result of \"%s\": %s", sparse->name,
            sparse->has_result ? "vector is NULL" : "there is none");
    }
    if (sparse->payload) {
        write_dense(sparse, vector);
    }
    return BATON_OK;
}
