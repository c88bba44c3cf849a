/* Parts of all steps: call nodes, results, the dense schedule, and the state
   after a completed step. */
#include "coll/sparse/core/core.h"

#include "base/clock.h"
#include "base/error.h"

#include <baton/coll.h>
#include <baton/partial.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- call nodes -------------------------------------------------------- */

typedef struct timed_call {
    baton_sparse_t *sparse;
    baton_call_fn fn;
    void *arg;
} timed_call_t;

static baton_status_t timed(void *arg, baton_call_t *call)
{
    const timed_call_t *self = arg;
    uint64_t begin_ns = baton__clock_thread_ns();
    baton_status_t status = self->fn(self->arg, call);
    self->sparse->counting.select_us +=
        (double)(baton__clock_thread_ns() - begin_ns) / 1e3;
    return status;
}

baton_node_t baton__sparse_add_call(baton_sparse_t *sparse,
                                    baton_schedule_t *schedule,
                                    baton_call_fn fn, void *arg)
{
    timed_call_t *self = baton__sparse_alloc(sparse, 1, sizeof *self);
    if (self == NULL) {
        return baton_add_call(schedule, fn, arg);
    }
    *self = (timed_call_t){sparse, fn, arg};
    return baton_add_call(schedule, timed, self);
}

baton_node_t baton__sparse_call_after(baton_sparse_t *sparse,
                                      baton_node_t before, baton_call_fn fn,
                                      void *arg)
{
    baton_node_t call =
        baton__sparse_add_call(sparse, sparse->schedule, fn, arg);
    baton_before(sparse->schedule, before, call);
    return call;
}

/* ---- the dense schedule ------------------------------------------------ */

baton_view_t baton__sparse_bind_dense(baton_sparse_t *sparse)
{
    size_t bytes = sparse->vector_bytes;
    sparse->dense_buffer =
        baton_buffer_bind(sparse->dense, sparse->work, bytes);
    return baton_view(sparse->dense_buffer, 0, bytes);
}

/* Returns the builder for dense steps. If each host has one rank, this must be
   the algorithm that baton_sparse_cost assumes. */
static baton_allreduce_fn dense_builder(const baton_sparse_t *sparse)
{
    if (baton_schedule_hosts(sparse->dense) < sparse->size) {
        return baton_add_allreduce;
    }
    return sparse->vector_bytes <= BATON_PARTIAL_TREE_BYTES
               ? baton_add_allreduce_binomial
               : baton_add_allreduce_circulant;
}

void baton__sparse_add_dense(baton_sparse_t *sparse, baton_view_t source,
                             baton_view_t work, baton_node_t accumulated)
{
    baton_schedule_t *s = sparse->dense;
    baton_node_t end = baton_add_nop(s);
    baton_allreduce_args_t args = {.size = sizeof args,
                                   .source = source,
                                   .target = work,
                                   .dtype = sparse->dtype,
                                   .op = sparse->options.average ? BATON_AVG
                                                                 : BATON_SUM};
    baton_enclosure_t inside = baton_enclose_begin(s);
    dense_builder(sparse)(s, &args);
    baton_enclose_end(s, inside, accumulated, end);
}

/* ---- results ----------------------------------------------------------- */

size_t baton__sparse_packed_bytes(const baton_sparse_t *sparse)
{
    return sizeof(uint64_t) + sparse->results.capacity *
                                  (sizeof(uint32_t) + sparse->element_bytes);
}

/* Allocates the buffers once, and keeps them when schedules are rebuilt, since
   the application may still read the last result. Schedules of fewer ranks need
   no larger buffers: the capacity is at least the number of ranks, as each
   block has one entry or more. */
void baton__sparse_alloc_results(baton_sparse_t *sparse, size_t capacity)
{
    baton__sparse_results_t *self = &sparse->results;
    if (self->buffers != NULL && capacity <= self->capacity) {
        self->next = self->buffers;
        return;
    }
    capacity =
        capacity < (size_t)sparse->size ? (size_t)sparse->size : capacity;
    /* The capacity is a multiple of 4, so that counts and values of 8 bytes are
       aligned. */
    self->capacity = (capacity + 3) / 4 * 4;
    size_t bytes = baton__sparse_packed_bytes(sparse);
    char *memory = baton__sparse_keep_memory(
        sparse, baton__sparse_alloc_pinned(sparse, self->buffer_count, bytes));
    self->buffers = baton__sparse_keep_memory(
        sparse,
        baton__sparse_alloc(sparse, self->buffer_count, sizeof *self->buffers));
    for (size_t i = 0; !sparse->out_of_memory && i < self->buffer_count; i++) {
        baton__sparse_buffer_t *buffer = &self->buffers[i];
        buffer->count = &buffer->none;
        if (sparse->payload) {
            buffer->packed = memory + i * bytes;
            buffer->count = (uint64_t *)(void *)buffer->packed;
            buffer->indices = (uint32_t *)(void *)(buffer->count + 1);
            buffer->values = (char *)(buffer->indices + self->capacity);
        }
    }
    self->next = self->buffers;
    self->shown = self->buffers + self->buffer_count - 1;
}

void baton__sparse_result_put(baton_sparse_t *sparse, size_t at,
                              const char *entries, size_t count)
{
    const baton__sparse_buffer_t *to = sparse->results.next;
    baton_entries_split(sparse->dtype, entries, count, to->indices + at,
                        to->values + at * sparse->element_bytes);
}

static void complete_result(baton_sparse_t *sparse, size_t count)
{
    *sparse->results.next->count = sparse->payload ? count : 0;
    sparse->counting.algorithm = sparse->options.algorithm;
    sparse->counting.rounds = sparse->rounds;
    sparse->counting.nnz = count;
    sparse->completion.done = true;
    if (sparse->payload && sparse->completion.make_residual != NULL &&
        !sparse->options.in_place) {
        sparse->completion.make_residual(sparse->completion.algorithm, count);
    }
}

void baton__sparse_make_residual(baton_sparse_t *sparse)
{
    if (!sparse->completion.done) {
        complete_result(sparse, (size_t)*sparse->results.next->count);
    }
}

/* Removes entries of zero from the result, unless the algorithm has left them
   out. Returns the number of the other entries. */
static size_t drop_zeros(const baton_sparse_t *sparse, size_t count)
{
    const size_t size = sparse->element_bytes;
    const baton__sparse_buffer_t *buffer = sparse->results.next;
    baton_selection_t of = {
        .dtype = sparse->dtype, .values = buffer->values, .count = count};
    size_t remaining = 0;
    if (!sparse->payload || baton_select_count(&of, 1) == count) {
        return count;
    }
    of.count = 1;
    for (size_t i = 0; i < count; i++) {
        of.values = buffer->values + i * size;
        if (baton_select_count(&of, 1) > 0) {
            buffer->indices[remaining] = buffer->indices[i];
            memmove(buffer->values + remaining++ * size, of.values, size);
        }
    }
    return remaining;
}

void baton__sparse_publish(baton_sparse_t *sparse, size_t count)
{
    count = drop_zeros(sparse, count);
    if (sparse->payload && sparse->options.average) {
        baton_elements_scale(sparse->dtype, sparse->results.next->values, count,
                             1.0 / sparse->size);
    }
    complete_result(sparse, count);
}

/* ---- steps ------------------------------------------------------------- */

bool baton__sparse_is_dense(const baton_sparse_t *sparse, bool flush,
                            uint64_t steps)
{
    return flush || sparse->algorithm == NULL || steps < sparse->options.warmup;
}

void baton__sparse_started(baton_sparse_t *sparse, bool dense)
{
    /* With on_loss `latest` stays NULL, because the schedule is replaced after
       a loss. */
    if (!baton__sparse_goes_on(&sparse->options)) {
        sparse->latest = dense ? sparse->dense : sparse->schedule;
    }
    sparse->is_dense = dense;
    sparse->phase = BATON__SPARSE_RUNNING;
}

baton_sparse_result_t
baton__sparse_result_of(const baton__sparse_buffer_t *buffer)
{
    return (baton_sparse_result_t){
        .count = (size_t)*buffer->count,
        .indices = buffer->indices,
        .values = buffer->values,
        .included = true,
    };
}

/* Completes a step. `work` is the result of a dense step, which leaves nothing
   for the residual. After a recovery leaves `steps` and `learned` as they are,
   since ranks would differ in them otherwise: the recovery has counted the step
   if some rank has completed it, and has reset `learned`. */
void baton__sparse_complete_step(baton_sparse_t *sparse, bool dense)
{
    baton__sparse_results_t *results = &sparse->results;
    if (dense) {
        results->last = (baton_sparse_result_t){
            .count = sparse->payload ? sparse->count : 0,
            .values = sparse->work,
            .included = true,
        };
        sparse->counting.algorithm = BATON_SPARSE_DENSE;
        sparse->counting.nnz = results->last.count;
    } else {
        results->shown = results->next;
        results->last = baton__sparse_result_of(results->next);
    }
    sparse->stats = sparse->counting;
    if (!sparse->recovered) {
        sparse->learned = dense ? sparse->learned : sparse->next;
        sparse->steps++;
    }
}

/* In a recovery the callbacks of all ranks get the same epoch. So all ranks
   compute the same number of steps. */
void baton__sparse_recover(baton_sparse_t *sparse, bool dense, uint64_t epoch)
{
    sparse->base[dense] += epoch;
    sparse->steps = sparse->base[false] + sparse->base[true];
    if (!dense) {
        sparse->learned = (baton__learned_t){0};
    }
    sparse->input.part_count = 0;
    sparse->recovered = true;
}

/* ---- checks ------------------------------------------------------------ */

baton_status_t baton__sparse_error(const baton_sparse_t *sparse,
                                   baton_status_t status, const char *doing,
                                   const char *format, ...)
{
    char text[BATON__MESSAGE_BYTES];
    va_list args;
    if (status == BATON_OK) {
        return status;
    }
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return baton__error(status, "%s \"%s\": %s", doing, sparse->name, text);
}

baton_status_t baton__sparse_no_memory(const baton_sparse_t *sparse)
{
    return baton__sparse_error(
        sparse, BATON_ERR_NO_MEMORY, "sparse",
        "no memory for %zu elements of %zu bytes and %zu entries",
        sparse->count, sparse->element_bytes, sparse->options.max_k);
}

bool baton__sparse_is_alive(const baton_sparse_t *sparse, const char *doing)
{
    return baton__is_alive(sparse, sparse != NULL && sparse->group == NULL,
                           doing, "sparse") &&
           baton__process_is_own(doing);
}

baton_status_t baton__sparse_check_connected(const baton_sparse_t *sparse,
                                             const char *doing)
{
    if (!baton__sparse_is_alive(sparse, doing)) {
        return baton__error_status();
    }
    return sparse->connected && sparse->survivors == NULL
               ? BATON_OK
               : baton__sparse_error(
                     sparse, BATON_ERR_STATE, doing,
                     "it is not connected: call baton_sparse_%s first",
                     sparse->connected ? "shrink" : "connect");
}

baton_status_t baton__sparse_check_idle(const baton_sparse_t *sparse,
                                        const char *doing)
{
    baton_status_t status = baton__sparse_check_connected(sparse, doing);
    return status != BATON_OK || sparse->phase != BATON__SPARSE_RUNNING
               ? status
               : baton__sparse_error(sparse, BATON_ERR_BUSY, doing,
                                     "a step is running: wait for it");
}

baton_status_t baton__sparse_check_range(const baton_sparse_t *sparse,
                                         const char *doing, size_t first,
                                         size_t count)
{
    const size_t all = sparse->count;
    return first <= all && count <= all - first
               ? BATON_OK
               : baton__sparse_error(
                     sparse, BATON_ERR_INVALID, doing,
                     "first is %zu and count %zu; allowed: up to element %zu",
                     first, count, all);
}
