#include "support/sparse.h"

#include "support/cluster.h"
#include "support/cmocka.h"
#include "support/random.h"
#include "support/select_cases.h"

#include <baton/select.h>
#include <baton/sparse.h>
#include <stdlib.h>
#include <string.h>

static size_t vector_bytes(const support_sparse_t *group)
{
    return group->options.count * group->element;
}

support_sparse_t *support_sparse_open_in(const baton_sim_options_t *sim,
                                         const baton_sparse_options_t *options)
{
    support_sparse_t *group = calloc(1, sizeof *group);
    size_t size = (size_t)sim->ranks;
    group->size = sim->ranks;
    group->options = *options;
    group->element = baton_dtype_size(options->dtype);
    support_ok(baton_sim_create(sim, &group->sim));
    group->ranks = calloc(size, sizeof(baton_sparse_t *));
    group->results = calloc(size, sizeof *group->results);
    if (!sim->cost_only) {
        group->gradients = calloc(size, vector_bytes(group));
        group->residuals = calloc(size, vector_bytes(group));
        group->dense = calloc(1, vector_bytes(group));
    }
    for (int rank = 0; rank < group->size; rank++) {
        support_ok(baton_sparse_prepare(baton_sim_group(group->sim, rank),
                                        options, &group->ranks[rank]));
    }
    for (int rank = 0; rank < group->size; rank++) {
        support_ok(baton_sparse_connect(group->ranks[rank], -1));
    }
    return group;
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

void support_sparse_close(support_sparse_t *group)
{
    for (int rank = 0; rank < group->size; rank++) {
        support_ok(baton_sparse_destroy(group->ranks[rank]));
    }
    support_ok(baton_sim_destroy(group->sim));
    free(group->ranks);
    free(group->results);
    free(group->gradients);
    free(group->residuals);
    free(group->dense);
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

static void expect_same(const baton_sparse_result_t *left,
                        const baton_sparse_result_t *right, size_t element)
{
    assert_int_equal(left->count, right->count);
    assert_int_equal(left->indices == NULL, right->indices == NULL);
    if (left->indices != NULL && left->count > 0) {
        assert_memory_equal(left->indices, right->indices,
                            left->count * sizeof *left->indices);
    }
    if (left->count > 0) {
        assert_memory_equal(left->values, right->values, left->count * element);
    }
}

/* Starts a step. A residual that is in place first gets the gradient. */
static void start(const support_sparse_t *group, int rank, const void *gradient)
{
    baton_sparse_t *sparse = group->ranks[rank];
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
        /* alternately the first and the last parts */
        size_t part = i % 2 == 0 ? i / 2 : (all - 1) / step - i / 2;
        size_t end = (part + 1) * step < all ? (part + 1) * step : all;
        size_t count = end - part * step;
        char *copy = malloc(count * group->element);
        assert_non_null(copy);
        memcpy(copy, (const char *)gradient + part * step * group->element,
               count * group->element);
        support_ok(baton_sparse_contribute(sparse, part * step, count, copy));
        /* the library has read it already */
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
        char *got = malloc(count * group->element);
        assert_non_null(got);
        memset(got, 0x55, count * group->element);
        support_ok(
            baton_sparse_dense_range(group->ranks[0], first, count, got));
        assert_memory_equal(got, group->dense + first * group->element,
                            count * group->element);
        free(got);
    }
}

void support_sparse_step(support_sparse_t *group)
{
    support_sparse_start(group);
    for (int rank = 0; rank < group->size; rank++) {
        support_ok(
            baton_sparse_wait(group->ranks[rank], -1, &group->results[rank]));
        expect_same(&group->results[0], &group->results[rank], group->element);
    }
    const baton_sparse_result_t *result = &group->results[0];
    for (size_t i = 1; result->indices != NULL && i < result->count; i++) {
        assert_true(result->indices[i - 1] < result->indices[i]);
    }
    support_ok(baton_sparse_dense(group->ranks[0], group->dense));
    expect_ranges(group);
    for (int rank = 0; rank < group->size; rank++) {
        support_ok(baton_sparse_residual(
            group->ranks[rank],
            group->residuals + (size_t)rank * vector_bytes(group)));
    }
}

void support_sparse_recover(support_sparse_t *group)
{
    bool all = false;
    while (!all) {
        all = true;
        for (int rank = 0; rank < group->size; rank++) {
            baton_status_t status =
                baton_group_recover(baton_sim_group(group->sim, rank), 0);
            all = all && status == BATON_OK;
        }
        support_ok(baton_sim_run(group->sim, -1));
    }
}
