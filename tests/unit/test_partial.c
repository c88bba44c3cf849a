/* Partial all-reduces in one thread, so that the test decides who comes when:
   every mode, inner builder, element type and reduction against an oracle. */
#include "support/cluster.h"
#include "support/cmocka.h"
#include "support/random.h"
#include "support/values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST 8
#define EPOCHS  6
#define BYTES   64 /* of the longest vector */

typedef struct model {
    support_cluster_t *ranks;
    baton_partial_options_t options;
    support_op_t op;
    baton_partial_t *partials[LARGEST];
    /* What no epoch has taken, by rank. */
    char pending[LARGEST][BYTES];
    uint64_t first_step[LARGEST]; /* 0: nothing */
    uint64_t last_step[LARGEST];
    int late[LARGEST]; /* steps in a row that came too late */
    support_random_t random;
} model_t;

static void describe(const model_t *model, uint64_t epoch, const char *what)
{
    fail_msg("%d ranks, mode %d, keep %d, %s of %d %s, epoch %d: %s",
             model->ranks->size, (int)model->options.mode,
             (int)model->options.keep, model->options.op->name,
             (int)model->options.count, baton_dtype_name(model->options.dtype),
             (int)epoch, what);
}

static void contribute(model_t *model, int rank, uint64_t step)
{
    char data[BYTES];
    const baton_partial_options_t *options = &model->options;
    support_fill_exact(data, options->count, options->dtype, model->op, rank,
                       &model->random);
    support_ok(baton_partial_contribute(model->partials[rank], data));
    model->last_step[rank] = step;
    if (model->first_step[rank] == 0) {
        model->first_step[rank] = step;
        memcpy(model->pending[rank], data, sizeof(data));
    } else {
        support_reduce(model->pending[rank], data, options->count,
                       options->dtype, model->op);
    }
}

/* What the epoch must give: of all that is pending now, in rank order. */
static uint32_t expect(const model_t *model, char *result)
{
    const baton_partial_options_t *options = &model->options;
    uint32_t active = 0;
    options->op->identity(NULL, result, options->count, options->dtype);
    for (int rank = 0; rank < model->ranks->size; rank++) {
        if (model->first_step[rank] == 0) {
            continue;
        }
        if (active++ == 0) { /* the oracle knows no infinite identities */
            memcpy(result, model->pending[rank], BYTES);
        } else {
            support_reduce(result, model->pending[rank], options->count,
                           options->dtype, model->op);
        }
    }
    return active;
}

static bool equal(const model_t *model, const void *a, const void *b)
{
    size_t bytes =
        model->options.count * baton_dtype_size(model->options.dtype);
    return memcmp(a, b, bytes) == 0;
}

/* The one whose start begins the epoch; who starts before it waits in vain. */
static int starter(const model_t *model, uint64_t epoch)
{
    if (model->options.mode == BATON_MAJORITY) {
        return baton_partial_draw(model->options.seed, epoch,
                                  model->ranks->size);
    }
    return (int)(epoch % (uint64_t)model->ranks->size);
}

/* Some contribute, the epoch begins and runs to its end, the others contribute
   and start too late. */
static void run_epoch(model_t *model, uint64_t epoch)
{
    int size = model->ranks->size;
    int first = starter(model, epoch);
    bool full = model->options.mode == BATON_FULL;
    bool in_time[LARGEST], started[LARGEST] = {false};
    for (int rank = 0; rank < size; rank++) {
        in_time[rank] = model->late[rank] == 2 ||
                        support_random_below(&model->random, 2) == 0;
        model->late[rank] = in_time[rank] ? 0 : model->late[rank] + 1;
        if (in_time[rank]) {
            contribute(model, rank, epoch);
        }
    }
    char result[BYTES];
    uint32_t active = expect(model, result);
    for (int rank = 0; rank < size; rank++) {
        bool harmless = model->options.mode == BATON_MAJORITY && rank != first;
        if (full || (harmless && in_time[rank])) {
            support_ok(baton_partial_start(model->partials[rank]));
            started[rank] = true;
        }
    }
    if (!full) {
        support_ok(baton_partial_start(model->partials[first]));
        started[first] = true;
    }
    support_drain(model->ranks);
    uint64_t taken_step[LARGEST];
    bool included[LARGEST];
    for (int rank = 0; rank < size; rank++) {
        taken_step[rank] = model->first_step[rank];
        included[rank] =
            taken_step[rank] != 0 && model->last_step[rank] == epoch;
        model->first_step[rank] = 0;
        if (!in_time[rank]) {
            /* Who has started this step contributes for the next one. */
            contribute(model, rank, started[rank] ? epoch + 1 : epoch);
        }
    }
    for (int rank = 0; rank < size; rank++) {
        bool done = false;
        baton_partial_result_t seen;
        if (!started[rank]) {
            support_ok(baton_partial_start(model->partials[rank]));
        }
        /* It was executed: nobody has to wait any more. */
        support_ok(baton_partial_test(model->partials[rank], &done));
        if (!done) {
            describe(model, epoch, "is not done");
        }
        support_ok(baton_partial_wait(model->partials[rank], 0, &seen));
        if (!equal(model, seen.data, result)) {
            describe(model, epoch, "wrong result");
        }
        uint64_t oldest = taken_step[rank] != 0 ? taken_step[rank] : epoch;
        assert_int_equal(seen.epoch, epoch);
        assert_int_equal(seen.active, active);
        assert_int_equal(seen.included, included[rank]);
        assert_int_equal(seen.staleness, epoch - oldest);
    }
}

static void expect_pending(model_t *model)
{
    for (int rank = 0; rank < model->ranks->size; rank++) {
        char data[BYTES], identity[BYTES];
        bool any;
        const baton_partial_options_t *options = &model->options;
        options->op->identity(NULL, identity, options->count, options->dtype);
        support_ok(baton_partial_pending(model->partials[rank], data, &any));
        assert_int_equal(any, model->first_step[rank] != 0);
        if (!equal(model, data, any ? model->pending[rank] : identity)) {
            describe(model, EPOCHS, "wrong pending contribution");
        }
    }
}

static void run_model(support_cluster_t *ranks,
                      const baton_partial_options_t *o, support_op_t op)
{
    model_t model = {.ranks = ranks,
                     .options = *o,
                     .op = op,
                     .random = support_random(support_seed(), 4)};
    for (int rank = 0; rank < ranks->size; rank++) {
        support_ok(baton_partial_create(ranks->groups[rank], o,
                                        &model.partials[rank]));
    }
    for (uint64_t epoch = 1; epoch <= EPOCHS; epoch++) {
        run_epoch(&model, epoch);
    }
    expect_pending(&model);
    for (int rank = 0; rank < ranks->size; rank++) {
        support_ok(baton_partial_destroy(model.partials[rank]));
    }
}

static void run_types(support_cluster_t *ranks,
                      baton_partial_options_t *options)
{
    static const size_t counts[] = {0, 1, 7};
    /* The library's reductions, which have an identity. */
    for (int op = SUPPORT_SUM; op <= SUPPORT_MAX; op++) {
        for (int dtype = 0; dtype < (int)BATON_DTYPE_COUNT; dtype++) {
            options->op = support_op((support_op_t)op);
            options->dtype = (baton_dtype_t)dtype;
            for (size_t i = 0; i < 3; i++) {
                options->count = counts[i];
                run_model(ranks, options, (support_op_t)op);
            }
        }
    }
}

static void run_mode(baton_partial_mode_t mode)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int variant = 0; variant < 4; variant++) {
            baton_partial_options_t options = {
                .size = sizeof(options),
                .mode = mode,
                .keep = variant % 2 == 0 ? BATON_KEEP_LATEST : BATON_KEEP_ALL,
                .inner = variant < 2 ? baton_allreduce_recursive_doubling
                                     : baton_allreduce_ring,
                .seed = 11,
            };
            run_types(support_cluster_of(sizes[i]), &options);
        }
    }
}

static void test_partial_solo_gives_what_was_there(void **state)
{
    (void)state;
    run_mode(BATON_SOLO);
}

static void test_partial_majority_waits_for_the_drawn(void **state)
{
    (void)state;
    run_mode(BATON_MAJORITY);
}

static void test_partial_full_waits_for_all(void **state)
{
    (void)state;
    run_mode(BATON_FULL);
}

/* Types that can't count so many ranks, and those that just can. */
static void test_partial_counts_more_ranks_than_i8_can(void **state)
{
    (void)state;
    static const int sizes[] = {127, 130};
    for (size_t i = 0; i < 2; i++) {
        support_cluster_t *ranks = support_cluster_manual(sizes[i]);
        int size = ranks->size;
        baton_partial_t **partials = calloc((size_t)size, sizeof(*partials));
        assert_non_null(partials);
        for (int dtype = 0; dtype < (int)BATON_DTYPE_COUNT; dtype++) {
            const uint64_t zero = 0;
            baton_partial_options_t options = {.size = sizeof(options),
                                               .mode = BATON_FULL,
                                               .count = 1,
                                               .dtype = (baton_dtype_t)dtype};
            for (int rank = 0; rank < size; rank++) {
                support_ok(baton_partial_create(ranks->groups[rank], &options,
                                                &partials[rank]));
                support_ok(baton_partial_contribute(partials[rank], &zero));
            }
            for (int rank = 0; rank < size; rank++) {
                support_ok(baton_partial_start(partials[rank]));
            }
            for (int rank = 0; rank < size; rank++) {
                baton_partial_result_t seen;
                support_ok(baton_partial_wait(partials[rank], 60000, &seen));
                assert_int_equal(seen.active, size);
            }
            for (int rank = 0; rank < size; rank++) {
                support_ok(baton_partial_destroy(partials[rank]));
            }
        }
        free(partials);
        support_cluster_close(ranks);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_partial_solo_gives_what_was_there),
        cmocka_unit_test(test_partial_majority_waits_for_the_drawn),
        cmocka_unit_test(test_partial_full_waits_for_all),
        cmocka_unit_test(test_partial_counts_more_ranks_than_i8_can),
    };
    return cmocka_run_group_tests(tests, support_clusters_open,
                                  support_clusters_close);
}
