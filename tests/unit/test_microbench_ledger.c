/* baton-skew's check of results: right ones pass, and for wrong ones it names
   the iteration and the element. The source is included, since the
   microbenchmarks are no library. */
#include "../microbench/common/linear_model.c"
#include "../microbench/skew/ledger.c"
#include "support/cmocka.h"

#include <stddef.h>
#include <string.h>

enum { RANKS = 3, ITERATIONS = 4, COUNT = 5, SALT = 42 };

/* Each rank's ledger of one run. Rank 2 is late in iterations 1 and 2, and its
   contributions are in the results of 2 and 3. */
typedef struct world {
    skew_ledger_t ledger[RANKS];
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
            line_fill(line_of(SALT, rank, i), part, COUNT);
            for (size_t j = 0; j < COUNT; j++) {
                data[j] += part[j];
            }
        }
    }
}

static skew_outcome_t outcome_of(int rank, uint32_t iteration,
                                 const uint64_t *data)
{
    uint32_t oldest = iteration > 1 ? oldest_after(rank, iteration - 1) : 1;
    return (skew_outcome_t){
        .epoch = iteration,
        .data = data,
        .included = oldest_after(rank, iteration) == iteration + 1,
        .active = iteration == 1 ? RANKS - 1 : RANKS,
        .staleness = iteration - oldest,
    };
}

static void record(world_t *world, int rank, uint32_t iteration,
                   const skew_outcome_t *outcome)
{
    uint64_t pending[COUNT];
    bool late = oldest_after(rank, iteration) == iteration;
    line_fill(line_of(SALT, rank, iteration), pending, COUNT);
    skew_ledger_record(&world->ledger[rank], iteration, outcome,
                       late ? pending : NULL);
}

static void open_world(world_t *world)
{
    memset(world, 0, sizeof(*world));
    for (int rank = 0; rank < RANKS; rank++) {
        world->ledger[rank] = (skew_ledger_t){
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
        skew_ledger_audit(&world->ledger[rank], world->pending_from);
    }
}

typedef void (*spoil_fn)(skew_outcome_t *outcome, uint64_t *data);

/* Runs all iterations. In iteration 3 `spoil` changes rank 1's result. */
static void run_world(world_t *world, spoil_fn spoil)
{
    open_world(world);
    for (uint32_t i = 1; i <= ITERATIONS; i++) {
        for (int rank = 0; rank < RANKS; rank++) {
            uint64_t data[COUNT];
            fill_sum(data, i);
            skew_outcome_t outcome = outcome_of(rank, i, data);
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
    assert_int_equal(world.ledger[0].failed_at, 0);
    assert_int_equal(world.ledger[1].failed_at, 3);
    assert_non_null(strstr(world.ledger[1].failure, words));
}

static void test_ledger_passes_right_results(void **state)
{
    world_t world;
    run_world(&world, NULL);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_string_equal(world.ledger[rank].failure, "");
        assert_int_equal(world.ledger[rank].failed_at, 0);
    }
}

static void test_ledger_counts_active_processes(void **state)
{
    static const uint32_t expected[ITERATIONS] = {2, 2, 3, 3};
    world_t world;
    run_world(&world, NULL);
    for (uint32_t i = 1; i <= ITERATIONS; i++) {
        assert_int_equal(
            skew_ledger_active(&world.ledger[0], world.pending_from, i),
            expected[i - 1]);
    }
}

static void tear(skew_outcome_t *outcome, uint64_t *data)
{
    data[3]++;
}

static void test_ledger_names_a_torn_element(void **state)
{
    expect_failure(tear, "element 3 ");
}

static void swap(skew_outcome_t *outcome, uint64_t *data)
{
    uint64_t first = data[0];
    data[0] = data[4];
    data[4] = first;
}

static void test_ledger_finds_misplaced_elements(void **state)
{
    expect_failure(swap, "misplaced");
}

/* A result without one whole contribution is still linear, so only the audit
   can find the error. */
static void drop(skew_outcome_t *outcome, uint64_t *data)
{
    uint64_t lost[COUNT];
    line_fill(line_of(SALT, 0, 3), lost, COUNT);
    for (size_t j = 0; j < COUNT; j++) {
        data[j] -= lost[j];
    }
}

static void test_ledger_finds_a_lost_contribution(void **state)
{
    expect_failure(drop, "element 0 of the sum");
}

static void repeat(skew_outcome_t *outcome, uint64_t *data)
{
    fill_sum(data, 2);
}

static void test_ledger_finds_an_old_result(void **state)
{
    expect_failure(repeat, "element 0 of the sum");
}

static void lie_included(skew_outcome_t *outcome, uint64_t *data)
{
    outcome->included = false;
}

static void lie_active(skew_outcome_t *outcome, uint64_t *data)
{
    outcome->active = 1;
}

static void lie_staleness(skew_outcome_t *outcome, uint64_t *data)
{
    outcome->staleness = 7;
}

static void lie_epoch(skew_outcome_t *outcome, uint64_t *data)
{
    outcome->epoch = 2;
}

static void test_ledger_finds_wrong_flags(void **state)
{
    expect_failure(lie_included, "included is 0");
    expect_failure(lie_active, "active is 1");
    expect_failure(lie_staleness, "staleness is 7");
    expect_failure(lie_epoch, "epoch 2");
}

static void test_ledger_finds_a_wrong_pending_sum(void **state)
{
    world_t world;
    open_world(&world);
    uint64_t data[COUNT];
    fill_sum(data, 1);
    skew_outcome_t outcome = outcome_of(2, 1, data);
    uint64_t pending[COUNT];
    line_fill(line_of(SALT, 2, 1), pending, COUNT);
    pending[4] ^= 1;

    skew_ledger_record(&world.ledger[2], 1, &outcome, pending);

    assert_int_equal(world.ledger[2].failed_at, 1);
    assert_non_null(strstr(world.ledger[2].failure, "pending"));
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
