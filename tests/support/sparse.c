#include "support/sparse.h"

#include "support/cluster.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static size_t vector_bytes(const support_sparse_t *group)
{
    return group->options.count * group->element;
}

static void trace(void *arg, const baton_sim_event_t *event)
{
    support_sparse_t *group = arg;
    if (event->what != BATON_SIM_SEND) {
        return;
    }
    if (group->transfer_count == group->transfer_room) {
        group->transfer_room = 2 * group->transfer_room + 64;
        group->transfers = realloc(
            group->transfers, group->transfer_room * sizeof *group->transfers);
    }
    group->transfers[group->transfer_count++] =
        (support_transfer_t){event->rank, event->peer, event->bytes};
}

support_sparse_t *support_sparse_open(int size,
                                      const baton_sparse_options_t *options)
{
    support_sparse_t *group = calloc(1, sizeof *group);
    baton_sim_options_t sim = BATON_SIM_OPTIONS;
    sim.ranks = size;
    sim.link.alpha_us = 1;
    sim.link.beta_ns = 1;
    group->size = size;
    group->options = *options;
    group->element = baton_dtype_size(options->dtype);
    support_ok(baton_sim_create(&sim, &group->sim));
    group->ranks = calloc((size_t)size, sizeof(baton_sparse_t *));
    group->results = calloc((size_t)size, sizeof *group->results);
    group->gradients = calloc((size_t)size, vector_bytes(group));
    group->residuals = calloc((size_t)size, vector_bytes(group));
    group->dense = calloc(1, vector_bytes(group));
    for (int rank = 0; rank < size; rank++) {
        support_ok(baton_sparse_prepare(baton_sim_group(group->sim, rank),
                                        options, &group->ranks[rank]));
    }
    for (int rank = 0; rank < size; rank++) {
        support_ok(baton_sparse_connect(group->ranks[rank], -1));
    }
    baton_sim_trace(group->sim, trace, group);
    return group;
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
    free(group->transfers);
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

void support_sparse_read(support_sparse_t *group)
{
    for (int rank = 0; rank < group->size; rank++) {
        support_ok(baton_sparse_residual(
            group->ranks[rank],
            group->residuals + (size_t)rank * vector_bytes(group)));
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

void support_sparse_step(support_sparse_t *group)
{
    group->transfer_count = 0;
    for (int rank = 0; rank < group->size; rank++) {
        support_ok(baton_sparse_start(group->ranks[rank],
                                      support_sparse_gradient(group, rank)));
    }
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
    support_sparse_read(group);
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
