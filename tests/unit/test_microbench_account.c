/* baton-skew's check of results: that it passes what is right, and names the
   iteration and the element of what is wrong. It is compiled in, since the
   microbenchmarks are no library. */
#include "../microbench/common/linear_model.c"
#include "../microbench/skew/account.c"
#include "support/cmocka.h"

#include <stddef.h>
#include <string.h>

enum { RANKS = 3, ITERATIONS = 4, COUNT = 5, SALT = 42 };

/* Each rank's account of one run; rank 2 is late in iterations 1 and 2, and
   what it left goes out in 2 and 3. */
typedef struct world {
    skew_account_t account[RANKS];
    skew_entry_t entries[RANKS][ITERATIONS];
    uint32_t pending_from[RANKS * ITERATIONS];
} world_t;

/* The oldest iteration of `rank` that is pending after `iteration`. */
static uint32_t oldest_after(int rank, uint32_t iteration)
{
    bool late = rank == 2 && (iteration == 1 || iteration == 2);
    return late ? iteration : iteration + 1;
}

static void fill_sum(uint64_t *data, uint32_t iteration)
{
    memset(data, 0, COUNT * sizeof(*data));
    for (int rank = 0; rank < RANKS; rank++) {
        uint32_t from = iteration > 1 ? oldest_after(rank, iteration - 1) : 1;
        for (uint32_t i = from; i < oldest_after(rank, iteration); i++) {
            uint64_t part[COUNT];
            linear_model_fill(linear_model_of(SALT, rank, i), part, COUNT);
            for (size_t j = 0; j < COUNT; j++) {
                data[j] += part[j];
            }
        }
    }
}

static baton_partial_result_t outcome_of(int rank, uint32_t iteration,
                                         const uint64_t *data)
{
    uint32_t oldest = iteration > 1 ? oldest_after(rank, iteration - 1) : 1;
    return (baton_partial_result_t){
        .epoch = iteration,
        .data = data,
        .included = oldest_after(rank, iteration) == iteration + 1,
        .active = iteration == 1 ? RANKS - 1 : RANKS,
        .staleness = iteration - oldest,
    };
}

static void record(world_t *world, int rank, uint32_t iteration,
                   const baton_partial_result_t *outcome)
{
    uint64_t pending[COUNT];
    bool late = oldest_after(rank, iteration) == iteration;
    linear_model_fill(linear_model_of(SALT, rank, iteration), pending, COUNT);
    skew_account_record(&world->account[rank], iteration, outcome,
                        late ? pending : NULL);
}

static void open_world(world_t *world)
{
    memset(world, 0, sizeof(*world));
    for (int rank = 0; rank < RANKS; rank++) {
        world->account[rank] = (skew_account_t){
            .salt = SALT,
            .rank = rank,
            .ranks = RANKS,
            .count = COUNT,
            .iterations = ITERATIONS,
            .entries = world->entries[rank],
        };
    }
}

static void audit(world_t *world)
{
    for (int rank = 0; rank < RANKS; rank++) {
        for (size_t i = 0; i < ITERATIONS; i++) {
            world->pending_from[(size_t)rank * ITERATIONS + i] =
                world->entries[rank][i].pending_from;
        }
    }
    for (int rank = 0; rank < RANKS; rank++) {
        skew_account_audit(&world->account[rank], world->pending_from);
    }
}

typedef void (*spoil_fn)(baton_partial_result_t *outcome, uint64_t *data);

/* Runs all; in iteration 3, rank 1's result goes through `spoil` first. */
static void run_world(world_t *world, spoil_fn spoil)
{
    open_world(world);
    for (uint32_t i = 1; i <= ITERATIONS; i++) {
        for (int rank = 0; rank < RANKS; rank++) {
            uint64_t data[COUNT];
            fill_sum(data, i);
            baton_partial_result_t outcome = outcome_of(rank, i, data);
            if (spoil != NULL && i == 3 && rank == 1) {
                spoil(&outcome, data);
            }
            record(world, rank, i, &outcome);
        }
    }
    audit(world);
}

static void expect_failure(spoil_fn spoil, const char *words)
{
    world_t world;
    run_world(&world, spoil);
    assert_int_equal(world.account[0].failed_at, 0);
    assert_int_equal(world.account[1].failed_at, 3);
    assert_non_null(strstr(world.account[1].failure, words));
}

static void test_ledger_passes_right_results(void **state)
{
    (void)state;
    world_t world;
    run_world(&world, NULL);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_string_equal(world.account[rank].failure, "");
        assert_int_equal(world.account[rank].failed_at, 0);
    }
}

static void test_ledger_counts_active_processes(void **state)
{
    (void)state;
    static const uint32_t expected[ITERATIONS] = {2, 2, 3, 3};
    world_t world;
    run_world(&world, NULL);
    for (uint32_t i = 1; i <= ITERATIONS; i++) {
        assert_int_equal(
            skew_account_active(&world.account[0], world.pending_from, i),
            expected[i - 1]);
    }
}

static void tear(baton_partial_result_t *outcome, uint64_t *data)
{
    (void)outcome;
    data[3]++;
}

static void test_ledger_names_a_torn_element(void **state)
{
    (void)state;
    expect_failure(tear, "element 3 ");
}

static void swap(baton_partial_result_t *outcome, uint64_t *data)
{
    (void)outcome;
    uint64_t first = data[0];
    data[0] = data[4];
    data[4] = first;
}

static void test_ledger_finds_misplaced_elements(void **state)
{
    (void)state;
    expect_failure(swap, "misplaced");
}

/* A whole contribution less is a line, too: only the audit can tell. */
static void drop(baton_partial_result_t *outcome, uint64_t *data)
{
    (void)outcome;
    uint64_t lost[COUNT];
    linear_model_fill(linear_model_of(SALT, 0, 3), lost, COUNT);
    for (size_t j = 0; j < COUNT; j++) {
        data[j] -= lost[j];
    }
}

static void test_ledger_finds_a_lost_contribution(void **state)
{
    (void)state;
    expect_failure(drop, "element 0 of the sum");
}

static void repeat(baton_partial_result_t *outcome, uint64_t *data)
{
    (void)outcome;
    fill_sum(data, 2);
}

static void test_ledger_finds_an_old_result(void **state)
{
    (void)state;
    expect_failure(repeat, "element 0 of the sum");
}

static void lie_included(baton_partial_result_t *outcome, uint64_t *data)
{
    (void)data;
    outcome->included = false;
}

static void lie_active(baton_partial_result_t *outcome, uint64_t *data)
{
    (void)data;
    outcome->active = 1;
}

static void lie_staleness(baton_partial_result_t *outcome, uint64_t *data)
{
    (void)data;
    outcome->staleness = 7;
}

static void lie_epoch(baton_partial_result_t *outcome, uint64_t *data)
{
    (void)data;
    outcome->epoch = 2;
}

static void test_ledger_finds_wrong_flags(void **state)
{
    (void)state;
    expect_failure(lie_included, "included is 0");
    expect_failure(lie_active, "active is 1");
    expect_failure(lie_staleness, "staleness is 7");
    expect_failure(lie_epoch, "epoch 2");
}

static void test_ledger_finds_a_wrong_pending_sum(void **state)
{
    (void)state;
    world_t world;
    open_world(&world);
    uint64_t data[COUNT];
    fill_sum(data, 1);
    baton_partial_result_t outcome = outcome_of(2, 1, data);
    uint64_t pending[COUNT];
    linear_model_fill(linear_model_of(SALT, 2, 1), pending, COUNT);
    pending[4] ^= 1;

    skew_account_record(&world.account[2], 1, &outcome, pending);

    assert_int_equal(world.account[2].failed_at, 1);
    assert_non_null(strstr(world.account[2].failure, "pending"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ledger_passes_right_results),
        cmocka_unit_test(test_ledger_counts_active_processes),
        cmocka_unit_test(test_ledger_names_a_torn_element),
        cmocka_unit_test(test_ledger_finds_misplaced_elements),
        cmocka_unit_test(test_ledger_finds_a_lost_contribution),
        cmocka_unit_test(test_ledger_finds_an_old_result),
        cmocka_unit_test(test_ledger_finds_wrong_flags),
        cmocka_unit_test(test_ledger_finds_a_wrong_pending_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
