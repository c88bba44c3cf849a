/* Steps of gradients on the host, which wait for every rank. */
#include "coll/sparse/sparse.h"

#include <string.h>

/* ---- building ---------------------------------------------------------- */

bool baton__sparse_host_vectors(baton_sparse_t *sparse)
{
    bool ok = true;
    size_t count = sparse->options.count, size = sparse->element_bytes;
    sparse->residual = baton__sparse_room(sparse, count, size, &ok);
    sparse->work = baton__sparse_room(sparse, count, size, &ok);
    if (sparse->options.momentum > 0) {
        sparse->velocity = baton__sparse_room(sparse, count, size, &ok);
    }
    return ok;
}

static baton_status_t accumulate_all(void *arg, baton_call_t *call)
{
    baton_sparse_t *sparse = arg;
    (void)call;
    baton__sparse_begin(sparse);
    baton__sparse_accumulate(sparse, 0, sparse->options.count);
    return BATON_OK;
}

static bool recover_sparse(void *arg, uint64_t epoch)
{
    return baton__sparse_recover(arg, false, epoch);
}

static bool recover_dense(void *arg, uint64_t epoch)
{
    return baton__sparse_recover(arg, true, epoch);
}

static baton_status_t build(baton_sparse_t *sparse)
{
    if (!baton__sparse_host_vectors(sparse)) {
        return baton__sparse_no_memory(sparse);
    }
    baton_view_t work = baton__sparse_bind_dense(sparse);
    baton__sparse_add_dense(
        sparse, work,
        baton__sparse_add_call(sparse, sparse->dense, accumulate_all, sparse));
    baton_schedule_on_recover(sparse->dense, recover_dense, sparse);
    if (sparse->algorithm == NULL) {
        return BATON_OK; /* dense */
    }
    baton_schedule_on_recover(sparse->schedule, recover_sparse, sparse);
    return sparse->algorithm->build(sparse) ? BATON_OK
                                            : baton__sparse_no_memory(sparse);
}

/* ---- steps ------------------------------------------------------------- */

static baton_status_t start(baton_sparse_t *sparse, bool flush,
                            const void *gradient, double factor)
{
    bool dense = baton__sparse_is_dense(sparse, flush, sparse->steps);
    baton_status_t status = BATON_OK;
    sparse->gradient = gradient;
    sparse->given_factor = factor;
    sparse->recovered = false;
    if (dense && sparse->payload) {
        status = baton_buffer_rebind(sparse->dense, sparse->dense_buffer,
                                     sparse->work);
    }
    if (status == BATON_OK) {
        status = baton_schedule_start(dense ? sparse->dense : sparse->schedule);
    }
    if (status == BATON_OK) {
        baton__sparse_started(sparse, dense);
    }
    return status;
}

static void complete(baton_sparse_t *sparse, bool dense, baton_status_t status)
{
    if (status != BATON_OK) {
        return;
    }
    baton__sparse_complete_step(sparse, dense);
    baton__sparse_advance(sparse);
    if (!dense) {
        baton__sparse_exchange(&sparse->work, &sparse->residual);
    } else if (sparse->payload) {
        memset(sparse->residual, 0,
               sparse->options.count * sparse->element_bytes);
    }
}

/* ---- between steps ----------------------------------------------------- */

static baton_status_t read_vector(baton_sparse_t *sparse, bool velocity,
                                  void *to)
{
    memcpy(to, velocity ? sparse->velocity : sparse->residual,
           sparse->options.count * sparse->element_bytes);
    return BATON_OK;
}

static baton_status_t write_vectors(baton_sparse_t *sparse,
                                    const void *residual, const void *velocity)
{
    size_t bytes = sparse->options.count * sparse->element_bytes;
    memcpy(sparse->residual, residual, bytes);
    if (velocity != NULL) {
        memcpy(sparse->velocity, velocity, bytes);
    }
    return BATON_OK;
}

const baton__sparse_backend_t baton__sparse_host = {
    .accumulates = true,
    .build = build,
    .start = start,
    .complete = complete,
    .read = read_vector,
    .write = write_vectors,
};
