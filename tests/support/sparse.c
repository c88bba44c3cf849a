#include "support/sparse.h"

#include "support/device_cluster.h"
#include "support/select_cases.h"
#include "support/sim.h"

#include <baton/select.h>
#include <baton/sparse.h>

static size_t vector_bytes(const support_sparse_t *group)
{
    return group->options.count * group->element;
}

static baton_group_t *group_of(const support_sparse_t *self, int rank)
{
    return self->cluster != NULL ? self->cluster->groups[rank]
                                 : baton_sim_group(self->sim, rank);
}

static int limit_ms(const support_sparse_t *group)
{
    return group->cluster != NULL ? SUPPORT_WAIT_MS : -1;
}

static support_sparse_t *open_group(baton_sim_t *sim,
                                    support_cluster_t *cluster, int ranks,
                                    bool payload,
                                    const baton_sparse_options_t *options)
{
    support_sparse_t *group = support_alloc(1, sizeof *group);
    size_t size = (size_t)ranks;
    *group = (support_sparse_t){
        .sim = sim,
        .cluster = cluster,
        .options = *options,
        .size = ranks,
        .element = baton_dtype_size(options->dtype),
        .ranks = support_alloc(size, sizeof(baton_sparse_t *)),
        .results = support_alloc(size, sizeof *group->results)};
    if (payload) {
        group->gradients = calloc(size, vector_bytes(group));
        group->residuals = calloc(size, vector_bytes(group));
        group->dense = calloc(1, vector_bytes(group));
    }
    if (cluster != NULL && cluster->devices != NULL) {
        group->options.memory = BATON_MEMORY_DEVICE;
        group->there = support_alloc(size, sizeof(char *));
    }
    for (int rank = 0; rank < ranks; rank++) {
        support_ok(baton_sparse_prepare(group_of(group, rank), &group->options,
                                        &group->ranks[rank]));
        if (group->there != NULL) {
            group->there[rank] = emulated_allocate(cluster->devices[rank],
                                                   2 * vector_bytes(group));
        }
    }
    for (int rank = 0; rank < ranks; rank++) {
        support_ok(baton_sparse_connect(group->ranks[rank], limit_ms(group)));
    }
    return group;
}

support_sparse_t *support_sparse_open_in(const baton_sim_options_t *sim,
                                         const baton_sparse_options_t *options)
{
    baton_sim_t *made = NULL;
    support_ok(baton_sim_create(sim, &made));
    return open_group(made, NULL, sim->ranks, !sim->cost_only, options);
}

support_sparse_t *support_sparse_open(int size,
                                      const baton_sparse_options_t *options)
{
    baton_sim_options_t sim = BATON_SIM_OPTIONS;
    sim.ranks = size;
    sim.link.alpha_us = 1;
    sim.link.beta_ns = 1;
    return support_sparse_open_in(&sim, options);
}

support_sparse_t *support_sparse_open_on(support_cluster_t *cluster,
                                         const baton_sparse_options_t *options)
{
    return open_group(NULL, cluster, cluster->size, true, options);
}

void support_sparse_close(support_sparse_t *group)
{
    for (int rank = 0; rank < group->size; rank++) {
        support_ok(baton_sparse_destroy(group->ranks[rank]));
        if (group->there != NULL) {
            emulated_t *device = group->cluster->devices[rank];
            emulated_synchronise_all(device);
            emulated_release(device, group->there[rank]);
        }
    }
    support_ok(baton_sim_destroy(group->sim));
    free(group->ranks);
    free(group->results);
    free(group->gradients);
    free(group->residuals);
    free(group->dense);
    free(group->there);
    free(group);
}

void *support_sparse_gradient(support_sparse_t *group, int rank)
{
    return group->gradients + (size_t)rank * vector_bytes(group);
}

const void *support_sparse_residual(const support_sparse_t *group, int rank)
{
    return group->residuals + (size_t)rank * vector_bytes(group);
}

void support_sparse_fill(support_sparse_t *group, uint64_t step)
{
    support_random_t random = support_random(7, step);
    for (size_t i = 0; i < (size_t)group->size * group->options.count; i++) {
        select_store(group->options.dtype, group->gradients, i,
                     (double)support_random_below(&random, 2001) - 1000);
    }
}

bool support_sparse_same(const baton_sparse_result_t *left,
                         const baton_sparse_result_t *right, size_t element)
{
    const size_t count = left->count;
    const bool entries = left->indices != NULL;
    return count == right->count && entries == (right->indices != NULL) &&
           (count == 0 ||
            ((!entries || memcmp(left->indices, right->indices,
                                 count * sizeof *left->indices) == 0) &&
             memcmp(left->values, right->values, count * element) == 0));
}

void support_sparse_differs(const support_sparse_t *group, const char *what,
                            int rank, int step)
{
    const baton_sparse_options_t *o = &group->options;
    fail_msg("%d ranks, %s of %zu %s, k %zu: %s of rank %d in step %d differs "
             "(BATON_SEED=%llu)",
             group->size, baton_sparse_algorithm_name(o->algorithm), o->count,
             baton_dtype_name(o->dtype), o->k, what, rank, step,
             (unsigned long long)support_seed());
}

/* Starts a step. With options.in_place it first adds the gradient to the
   residual. */
static void start(const support_sparse_t *group, int rank, const void *gradient)
{
    baton_sparse_t *sparse = group->ranks[rank];
    if (group->there != NULL) {
        emulated_write(group->cluster->devices[rank], group->there[rank],
                       gradient, vector_bytes(group));
        gradient = group->there[rank];
    }
    if (group->options.in_place) {
        void *sum = baton_sparse_accumulator(sparse);
        const baton_accumulation_t of = {.dtype = group->options.dtype,
                                         .sum = sum,
                                         .left = sum,
                                         .right = gradient,
                                         .count = group->options.count};
        (void)baton_accumulate_at_least(&of, UINT64_MAX, NULL, 0);
        gradient = NULL;
    }
    const size_t all = group->options.count, step = all / 7 + 1;
    for (size_t i = 0; group->in_parts && gradient != NULL && i * step < all;
         i++) {
        /* Goes through the parts from both ends: one from the beginning, the
           next from the end. */
        size_t part = i % 2 == 0 ? i / 2 : (all - 1) / step - i / 2;
        size_t end = (part + 1) * step < all ? (part + 1) * step : all;
        size_t count = end - part * step;
        char *copy = support_alloc(count, group->element);
        memcpy(copy, (const char *)gradient + part * step * group->element,
               count * group->element);
        support_ok(baton_sparse_contribute(sparse, part * step, count, copy));
        /* By now the library must have read the copy, so it can be
           overwritten. */
        memset(copy, 0x55, count * group->element);
        free(copy);
    }
    support_ok(baton_sparse_start(sparse, group->in_parts ? NULL : gradient));
}

void support_sparse_start(support_sparse_t *group)
{
    for (int rank = 0; rank < group->size; rank++) {
        start(group, rank, support_sparse_gradient(group, rank));
    }
}

/* Expects that parts of a vector, written one by one, make up the whole
   vector. */
static void expect_ranges(const support_sparse_t *group)
{
    const size_t all = group->options.count, step = all / 3 + 1;
    for (size_t first = 0; first < all; first += step) {
        const size_t count = all - first < step ? all - first : step;
        char *got = support_alloc(count, group->element);
        memset(got, 0x55, count * group->element);
        support_ok(
            baton_sparse_dense_range(group->ranks[0], first, count, got));
        assert_memory_equal(got, group->dense + first * group->element,
                            count * group->element);
        free(got);
    }
}

void support_sparse_put(support_sparse_t *group, int rank, const void *gradient,
                        void *dense)
{
    baton_stream_t stream = group->cluster->streams[rank];
    char *there = group->there[rank], *sum = there + vector_bytes(group);
    device_copy(group->cluster, rank, there, gradient, vector_bytes(group));
    support_ok(baton_sparse_start_on(group->ranks[rank], stream, there));
    support_ok(baton_sparse_wait_on(group->ranks[rank], stream, sum));
    device_copy(group->cluster, rank, dense, sum, vector_bytes(group));
}

void support_sparse_wait(support_sparse_t *group)
{
    for (int rank = 0; rank < group->size; rank++) {
        support_ok(baton_sparse_wait(group->ranks[rank], limit_ms(group),
                                     &group->results[rank]));
        if (!support_sparse_same(&group->results[0], &group->results[rank],
                                 group->element)) {
            support_sparse_differs(group, "result", rank, group->steps);
        }
    }
    const baton_sparse_result_t *result = &group->results[0];
    for (size_t i = 1; result->indices != NULL && i < result->count; i++) {
        assert_true(result->indices[i - 1] < result->indices[i]);
    }
    support_ok(baton_sparse_dense(group->ranks[0], group->dense));
    group->steps++;
}

void support_sparse_read_residuals(support_sparse_t *group)
{
    for (int rank = 0; rank < group->size; rank++) {
        support_ok(baton_sparse_residual(
            group->ranks[rank],
            group->residuals + (size_t)rank * vector_bytes(group)));
    }
}

void support_sparse_step(support_sparse_t *group)
{
    support_sparse_start(group);
    support_sparse_wait(group);
    expect_ranges(group);
    support_sparse_read_residuals(group);
}

void support_sparse_recover(support_sparse_t *group)
{
    if (group->cluster != NULL) {
        support_cluster_recover(group->cluster);
    } else {
        support_sim_recover(group->sim, group->size);
    }
}
