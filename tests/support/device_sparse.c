#include "support/device_sparse.h"

#include "support/cmocka.h"
#include "support/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- life -------------------------------------------------------------- */

device_sparse_t *device_sparse_open(int size, int variant)
{
    const emulated_options_t options = {
        .seed = support_seed(), .delay_us = 20, .workers = 1};
    device_sparse_t *self =
        calloc(1, sizeof *self + (size_t)size * sizeof *self->rank);
    assert_non_null(self);
    self->ranks = device_cluster_open(size, variant, &options);
    self->hosts = support_cluster_manual(size);
    self->size = size;
    for (int rank = 0; rank < size; rank++) {
        emulated_t *device = self->ranks->devices[rank];
        device_sparse_rank_t *mine = &self->rank[rank];
        mine->gradient = emulated_allocate(device, DEVICE_SPARSE_BYTES);
        mine->dense = emulated_allocate(device, DEVICE_SPARSE_BYTES);
        mine->values = emulated_allocate(device, DEVICE_SPARSE_BYTES);
        mine->indices =
            emulated_allocate(device, DEVICE_SPARSE_MOST * sizeof(uint32_t));
        mine->count = emulated_allocate(device, sizeof *mine->count);
    }
    return self;
}

void device_sparse_close(device_sparse_t *self)
{
    for (int rank = 0; rank < self->size; rank++) {
        emulated_t *device = self->ranks->devices[rank];
        const device_sparse_rank_t *mine = &self->rank[rank];
        emulated_synchronise_all(device);
        emulated_release(device, mine->gradient);
        emulated_release(device, mine->dense);
        emulated_release(device, mine->values);
        emulated_release(device, mine->indices);
        emulated_release(device, mine->count);
    }
    support_cluster_close(self->hosts);
    device_cluster_close(self->ranks);
    free(self);
}

void device_sparse_create_on(support_cluster_t *cluster,
                             const baton_sparse_options_t *options,
                             baton_sparse_t **out)
{
    for (int rank = 0; rank < cluster->size; rank++) {
        support_ok(
            baton_sparse_prepare(cluster->groups[rank], options, &out[rank]));
    }
    for (int rank = 0; rank < cluster->size; rank++) {
        support_ok(baton_sparse_connect(out[rank], SUPPORT_WAIT_MS));
    }
}

/* ---- gradients --------------------------------------------------------- */

/* The NaN that is the sum of two infinities: which bits the sum of two
   different NaNs has is open (lib/ops/kernels.c). */
static uint64_t a_nan(baton_dtype_t dtype)
{
    uint64_t infinities[2] = {baton_magnitude_of(dtype, INFINITY)};
    size_t bytes = baton_dtype_size(dtype);
    infinities[1] = infinities[0] | UINT64_C(1) << (8 * bytes - 1);
    BATON_SUM->reduce(BATON_SUM->arg, &infinities[0], &infinities[0],
                      &infinities[1], 1, dtype);
    return infinities[0];
}

/* An element's bits. */
static uint64_t element_of(const device_sparse_t *self,
                           device_sparse_data_t data, support_random_t *random)
{
    unsigned width = (unsigned)(8 * self->element_bytes);
    uint64_t bits = support_random_next(random);
    uint64_t sign = (bits & 1) << (width - 1);
    uint64_t choice = support_random_below(random, 12);
    /* Without the highest bit of the exponent it is below 2. */
    bits &= ~(UINT64_C(1) << (width - 2));
    if (data == DEVICE_SPARSE_TIES) {
        double magnitude = 0.25 * (double)(choice % 5);
        return baton_magnitude_of(self->options.dtype, magnitude) | sign;
    }
    if (data == DEVICE_SPARSE_ZEROS && choice > 0) {
        return sign; /* -0, too */
    }
    if (data == DEVICE_SPARSE_NOT_FINITE && choice < 2) {
        return choice == 0
                   ? a_nan(self->options.dtype)
                   : baton_magnitude_of(self->options.dtype, INFINITY) | sign;
    }
    return bits;
}

static void fill(device_sparse_t *self, device_sparse_data_t data)
{
    support_random_t random = support_random(support_seed(), 9);
    for (int rank = 0; rank < self->size; rank++) {
        for (int step = 0; step < DEVICE_SPARSE_STEPS; step++) {
            char *gradient = self->rank[rank].gradients[step];
            for (size_t i = 0; i < self->count; i++) {
                uint64_t bits = element_of(self, data, &random);
                memcpy(gradient + i * self->element_bytes, &bits,
                       self->element_bytes);
            }
        }
    }
}

void device_sparse_create(device_sparse_t *self,
                          const baton_sparse_options_t *options,
                          device_sparse_data_t data)
{
    baton_sparse_t *made[DEVICE_SPARSE_RANKS] = {NULL};
    assert_in_range(options->count, 1, DEVICE_SPARSE_MOST);
    self->options = *options;
    self->element_bytes = baton_dtype_size(options->dtype);
    self->count = options->count;
    self->bytes = self->count * self->element_bytes;
    device_sparse_create_on(self->hosts, options, made);
    for (int rank = 0; rank < self->size; rank++) {
        self->rank[rank].host = made[rank];
    }
    self->options.memory = BATON_MEMORY_DEVICE;
    device_sparse_create_on(self->ranks->cluster, &self->options, made);
    for (int rank = 0; rank < self->size; rank++) {
        self->rank[rank].device = made[rank];
    }
    fill(self, data);
}

void device_sparse_destroy(device_sparse_t *self)
{
    for (int rank = 0; rank < self->size; rank++) {
        support_ok(baton_sparse_destroy(self->rank[rank].device));
        support_ok(baton_sparse_destroy(self->rank[rank].host));
    }
}

/* ---- steps ------------------------------------------------------------- */

static void keep(const device_sparse_t *self,
                 const baton_sparse_result_t *result,
                 device_sparse_outcome_t *out)
{
    out->count = result->count;
    out->entries = result->indices != NULL;
    if (out->entries && out->count > 0) {
        memcpy(out->indices, result->indices, out->count * sizeof(uint32_t));
        memcpy(out->values, result->values, out->count * self->element_bytes);
    }
}

void device_sparse_run_on_host(device_sparse_t *self, int step)
{
    baton_sparse_result_t result = {0};
    for (int rank = 0; rank < self->size; rank++) {
        support_ok(baton_sparse_start(self->rank[rank].host,
                                      self->rank[rank].gradients[step]));
    }
    for (int rank = 0; rank < self->size; rank++) {
        support_ok(
            baton_sparse_wait(self->rank[rank].host, SUPPORT_WAIT_MS, &result));
    }
    keep(self, &result, &self->expected[step]);
    support_ok(
        baton_sparse_dense(self->rank[0].host, self->expected[step].dense));
}

void device_sparse_run_on_hosts(device_sparse_t *self)
{
    for (int step = 0; step < DEVICE_SPARSE_STEPS; step++) {
        device_sparse_run_on_host(self, step);
    }
}

void device_sparse_put_step(device_sparse_t *self, int rank, int step)
{
    device_sparse_rank_t *mine = &self->rank[rank];
    device_sparse_outcome_t *out = &mine->found[step];
    baton_sparse_target_t target = {.size = sizeof target,
                                    .dense = mine->dense,
                                    .indices = mine->indices,
                                    .values = mine->values,
                                    .count = mine->count};
    size_t most = baton_sparse_most_entries(mine->device);
    baton_stream_t stream = self->ranks->streams[rank];
    device_cluster_delay(self->ranks, rank, 30);
    device_cluster_copy(self->ranks, rank, mine->gradient,
                        mine->gradients[step], self->bytes);
    support_ok(baton_sparse_start_on(mine->device, stream, mine->gradient));
    support_ok(baton_sparse_wait_on(mine->device, stream, &target));
    device_cluster_copy(self->ranks, rank, out->dense, mine->dense,
                        self->bytes);
    device_cluster_copy(self->ranks, rank, &out->count, mine->count,
                        sizeof out->count);
    if (most > 0) {
        device_cluster_copy(self->ranks, rank, out->indices, mine->indices,
                            most * sizeof(uint32_t));
        device_cluster_copy(self->ranks, rank, out->values, mine->values,
                            most * self->element_bytes);
    }
}

void device_sparse_run_step(device_sparse_t *self, int step)
{
    for (int rank = 0; rank < self->size; rank++) {
        const device_sparse_rank_t *mine = &self->rank[rank];
        emulated_write(self->ranks->devices[rank], mine->gradient,
                       mine->gradients[step], self->bytes);
        support_ok(baton_sparse_start(mine->device, mine->gradient));
    }
    for (int rank = 0; rank < self->size; rank++) {
        device_sparse_rank_t *mine = &self->rank[rank];
        baton_sparse_result_t result = {0};
        support_ok(baton_sparse_wait(mine->device, SUPPORT_WAIT_MS, &result));
        keep(self, &result, &mine->found[step]);
        support_ok(baton_sparse_dense(mine->device, mine->found[step].dense));
    }
}

/* Waits for the rank's stream, and for the last step. */
static void wait_for(device_sparse_t *self, int rank)
{
    baton_sparse_result_t result = {0};
    device_cluster_synchronise(self->ranks, rank);
    support_ok(
        baton_sparse_wait(self->rank[rank].device, SUPPORT_WAIT_MS, &result));
}

/* ---- comparison -------------------------------------------------------- */

static void differs(const device_sparse_t *self, int rank, int step,
                    const char *what)
{
    fail_msg("%d ranks, %s of %zu %s, k %zu: %s of rank %d in step %d differs "
             "(BATON_SEED=%llu)",
             self->size, baton_sparse_algorithm_name(self->options.algorithm),
             self->count, baton_dtype_name(self->options.dtype),
             self->options.k, what, rank, step,
             (unsigned long long)support_seed());
}

void device_sparse_check(const device_sparse_t *self, int rank, int step)
{
    const device_sparse_outcome_t *right = &self->expected[step];
    const device_sparse_outcome_t *mine = &self->rank[rank].found[step];
    if (memcmp(right->dense, mine->dense, self->bytes) != 0) {
        differs(self, rank, step, "dense result");
    }
    if (right->count != mine->count) {
        differs(self, rank, step, "count");
    }
    if (right->entries && (memcmp(right->indices, mine->indices,
                                  right->count * sizeof(uint32_t)) != 0 ||
                           memcmp(right->values, mine->values,
                                  right->count * self->element_bytes) != 0)) {
        differs(self, rank, step, "list of entries");
    }
}

void device_sparse_check_residuals(device_sparse_t *self)
{
    static char right[DEVICE_SPARSE_BYTES], mine[DEVICE_SPARSE_BYTES];
    for (int rank = 0; rank < self->size; rank++) {
        support_ok(baton_sparse_residual(self->rank[rank].host, right));
        support_ok(baton_sparse_residual(self->rank[rank].device, mine));
        if (memcmp(right, mine, self->bytes) != 0) {
            differs(self, rank, DEVICE_SPARSE_STEPS, "residual");
        }
    }
}

void device_sparse_compare(device_sparse_t *self, bool in_flight)
{
    device_sparse_run_on_hosts(self);
    for (int step = 0; step < DEVICE_SPARSE_STEPS; step++) {
        if (!in_flight && step % 2 == 1) {
            device_sparse_run_step(self, step);
            continue;
        }
        for (int rank = 0; rank < self->size; rank++) {
            device_sparse_put_step(self, rank, step);
        }
        for (int rank = 0; rank < self->size && !in_flight; rank++) {
            wait_for(self, rank);
        }
    }
    for (int rank = 0; rank < self->size; rank++) {
        wait_for(self, rank);
        for (int step = 0; step < DEVICE_SPARSE_STEPS; step++) {
            device_sparse_check(self, rank, step);
        }
    }
    device_sparse_check_residuals(self);
}
