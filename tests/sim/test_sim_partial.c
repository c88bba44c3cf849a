/* Partial collectives in the simulator: without payload, and a rank that is
   alone. Which ranks take part in which epoch is test_properties.c's. */
#include "support/cmocka.h"
#include "support/sim.h"

#include <baton/partial.h>
#include <string.h>

enum { RANKS = 4, COUNT = 5 };

/* A message takes 1 us. */
static baton_sim_options_t options_of(bool cost_only)
{
    baton_sim_options_t options = support_sim_options(RANKS);
    options.link = (baton_sim_link_t){.alpha_us = 1};
    options.cost_only = cost_only;
    return options;
}

/* Rank r contributes r + 1 in each element, each step. */
typedef struct world {
    baton_sim_t *sim;
    bool cost_only;
    baton_partial_t *partials[RANKS];
    float vectors[RANKS][COUNT];
} world_t;

typedef struct step {
    world_t *world;
    int rank;
    baton_partial_result_t seen;
} step_t;

/* ---- cost-only ---------------------------------------------------------- */

/* With a maximum the count of active ranks is reduced by itself. */
static void max_of(bool cost_only, baton_sim_totals_t *totals_out)
{
    const baton_sim_options_t options = options_of(cost_only);
    baton_partial_options_t partial = {.size = sizeof partial,
                                       .mode = BATON_FULL,
                                       .count = COUNT,
                                       .dtype = BATON_F32,
                                       .op = BATON_MAX};
    baton_sim_t *sim = support_sim_open(&options);
    baton_partial_t *partials[RANKS];
    const float data[COUNT] = {0};
    for (int rank = 0; rank < RANKS; rank++) {
        support_ok(baton_partial_create(baton_sim_group(sim, rank), &partial,
                                        &partials[rank]));
        support_ok(baton_partial_contribute(partials[rank], data));
        support_ok(baton_partial_start(partials[rank]));
    }
    for (int rank = 0; rank < RANKS; rank++) {
        baton_partial_result_t seen;
        support_ok(baton_partial_wait(partials[rank], -1, &seen));
        assert_int_equal(seen.active, cost_only ? 0 : RANKS);
        assert_true(seen.included);
        support_ok(baton_partial_destroy(partials[rank]));
    }
    *totals_out = baton_sim_totals(sim);
    support_ok(baton_sim_destroy(sim));
}

static void test_sim_partial_costs_the_same_without_payload(void **state)
{
    baton_sim_totals_t with, without;
    max_of(false, &with);
    max_of(true, &without);
    assert_memory_equal(&with, &without, sizeof with);
}

/* Vectors of a TiB, which are neither allocated nor read. */
static void test_sim_partial_vectors_have_no_memory(void **state)
{
    const baton_sim_options_t options = options_of(true);
    baton_partial_options_t partial = {.size = sizeof partial,
                                       .mode = BATON_SOLO,
                                       .keep = BATON_KEEP_ALL,
                                       .count = (size_t)1 << 38,
                                       .dtype = BATON_F32,
                                       .inner = baton_allreduce_binomial};
    baton_sim_t *sim = support_sim_open(&options);
    baton_partial_t *partials[RANKS];
    for (int rank = 0; rank < RANKS; rank++) {
        support_ok(baton_partial_create(baton_sim_group(sim, rank), &partial,
                                        &partials[rank]));
    }
    char untouched = 'u';
    for (int rank = 0; rank < RANKS; rank++) {
        bool any = true;
        support_ok(baton_partial_pending(partials[rank], &untouched, &any));
        assert_false(any);
        support_ok(baton_partial_contribute(partials[rank], &untouched));
        support_ok(baton_partial_contribute(partials[rank], NULL));
        support_ok(baton_partial_pending(partials[rank], NULL, &any));
        assert_true(any);
        support_ok(baton_partial_start(partials[rank]));
    }
    for (int rank = 0; rank < RANKS; rank++) {
        baton_partial_result_t seen;
        support_ok(baton_partial_wait(partials[rank], -1, &seen));
        assert_int_equal(seen.epoch, 1);
        assert_true(seen.included);
        assert_null(seen.data);
        support_ok(baton_partial_destroy(partials[rank]));
    }
    assert_int_equal(untouched, 'u');
    assert_true(baton_sim_totals(sim).bytes > (uint64_t)1 << 40);
    support_ok(baton_sim_destroy(sim));
}

/* ---- failures ----------------------------------------------------------- */

/* target = source, unless the epoch is to fail. */
static baton_status_t fail_once(void *arg, baton_call_t *call)
{
    static bool failed;
    bool fails = !failed && baton_call_epoch(call) == 2;
    failed |= fails;
    return fails ? BATON_ERR_LIMIT : BATON_OK;
}

static void copy_or_fail(baton_schedule_t *s, const baton_allreduce_t *args)
{
    baton_node_t call = baton_add_call(s, fail_once, NULL);
    baton_before(s, call, baton_add_copy(s, args->target, args->source));
}

/* A rank that is alone has no messages: its failed epochs retire. */
static void test_sim_partial_of_one_rank_keeps_what_failed(void **state)
{
    const baton_sim_options_t model = support_sim_options(1);
    baton_sim_t *sim = support_sim_open(&model);
    const baton_partial_options_t options = {.size = sizeof options,
                                             .mode = BATON_SOLO,
                                             .count = 1,
                                             .dtype = BATON_U64,
                                             .inner = copy_or_fail};
    baton_partial_t *partial;
    baton_group_t *group = baton_sim_group(sim, 0);
    support_ok(baton_partial_create(group, &options, &partial));
    baton_partial_result_t seen;
    for (uint64_t step = 1; step <= 2; step++) {
        support_ok(baton_partial_contribute(partial, &step));
        support_ok(baton_partial_start(partial));
        support_expect(baton_partial_wait(partial, -1, &seen),
                       step == 1 ? BATON_OK : BATON_ERR_LIMIT);
    }
    support_ok(baton_group_recover(group, -1));
    uint64_t pending = 0;
    bool any = false;
    support_ok(baton_partial_pending(partial, &pending, &any));
    assert_true(any);
    assert_int_equal(pending, 2);
    support_ok(baton_partial_start(partial));
    support_ok(baton_partial_wait(partial, -1, &seen));
    assert_int_equal(seen.epoch, 1);
    assert_int_equal(*(const uint64_t *)seen.data, 2);
    support_ok(baton_partial_destroy(partial));
    support_ok(baton_sim_destroy(sim));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sim_partial_costs_the_same_without_payload),
        cmocka_unit_test(test_sim_partial_vectors_have_no_memory),
        cmocka_unit_test(test_sim_partial_of_one_rank_keeps_what_failed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
