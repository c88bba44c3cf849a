/* baton-skew's check of results: it must accept right results, and name the
   iteration and the element of wrong ones. The code is compiled into this test,
   since the microbenchmarks are not a library. */
#include "../microbench/skew/account.c"
#include "support/cmocka.h"

enum { RANKS = 3, ITERATIONS = 4, COUNT = 5, SALT = 42 };

/* Each rank's account of a run. Rank 2 is late in iterations 1 and 2. Its
   contributions to these are in the results of iterations 2 and 3. */
typedef struct world {
    skew_account_t account[RANKS];
    skew_entry_t entries[RANKS][ITERATIONS];
    uint32_t from[RANKS * ITERATIONS];
} world_t;

/* Returns the oldest iteration of `rank` that no iteration before this one has
   taken. */
static uint32_t oldest(int rank, uint32_t iteration)
{
    bool was_late = rank == 2 && (iteration == 2 || iteration == 3);
    return was_late ? iteration - 1 : iteration;
}

static void fill_sum(uint64_t *data, uint32_t iteration)
{
    memset(data, 0, COUNT * sizeof(*data));
    for (int rank = 0; rank < RANKS; rank++) {
        for (uint32_t i = oldest(rank, iteration);
             i < oldest(rank, iteration + 1); i++) {
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
    return (baton_partial_result_t){
        .epoch = iteration,
        .data = data,
        .included = oldest(rank, iteration + 1) == iteration + 1,
        .active = iteration == 1 ? RANKS - 1 : RANKS,
        .staleness = iteration - oldest(rank, iteration),
    };
}

/* The errors that the test plants in a result. A result that lacks a
   contribution, or that is old, still fits a model, so only the audit can find
   these two. */
typedef enum spoil {
    RIGHT,
    TORN,
    SWAPPED,
    LOST,
    OLD,
    NOT_INCLUDED,
    TOO_FEW_ACTIVE,
    TOO_STALE,
    OTHER_EPOCH
} spoil_t;

static void spoil(spoil_t what, baton_partial_result_t *outcome, uint64_t *data)
{
    uint64_t lost[COUNT];
    uint64_t first = data[0];
    switch (what) {
    case RIGHT:
        break;
    case TORN:
        data[3]++;
        break;
    case SWAPPED:
        data[0] = data[4];
        data[4] = first;
        break;
    case LOST:
        linear_model_fill(linear_model_of(SALT, 0, 3), lost, COUNT);
        for (size_t j = 0; j < COUNT; j++) {
            data[j] -= lost[j];
        }
        break;
    case OLD:
        fill_sum(data, 2);
        break;
    case NOT_INCLUDED:
        outcome->included = false;
        break;
    case TOO_FEW_ACTIVE:
        outcome->active = 1;
        break;
    case TOO_STALE:
        outcome->staleness = 7;
        break;
    case OTHER_EPOCH:
        outcome->epoch = 2;
        break;
    }
}

/* Runs all iterations. In iteration 3, first spoils rank 1's result. */
static void run_world(world_t *world, spoil_t what)
{
    memset(world, 0, sizeof(*world));
    for (int rank = 0; rank < RANKS; rank++) {
        skew_account_t *account = &world->account[rank];
        *account = (skew_account_t){.salt = SALT,
                                    .rank = rank,
                                    .ranks = RANKS,
                                    .count = COUNT,
                                    .iterations = ITERATIONS,
                                    .entries = world->entries[rank]};
        for (uint32_t i = 1; i <= ITERATIONS; i++) {
            uint64_t data[COUNT];
            fill_sum(data, i);
            baton_partial_result_t outcome = outcome_of(rank, i, data);
            if (i == 3 && rank == 1) {
                spoil(what, &outcome, data);
            }
            skew_account_record(account, i, &outcome);
            world->from[rank * ITERATIONS + (int)i - 1] =
                account->entries[i - 1].from;
        }
    }
    for (int rank = 0; rank < RANKS; rank++) {
        skew_account_audit(&world->account[rank], world->from);
    }
}

TEST(test_account_passes_right_results)
{
    world_t world;
    run_world(&world, RIGHT);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_string_equal(world.account[rank].failure, "");
        assert_int_equal(world.account[rank].failed_at, 0);
    }
}

TEST(test_account_counts_active_processes)
{
    static const uint32_t expected[ITERATIONS - 1] = {2, 2, 3};
    world_t world;
    run_world(&world, RIGHT);
    for (uint32_t i = 1; i < ITERATIONS; i++) {
        assert_int_equal(skew_account_active(&world.account[0], world.from, i),
                         expected[i - 1]);
    }
}

TEST(test_account_names_what_is_wrong)
{
    static const struct {
        spoil_t what;
        const char *words;
    } cases[] = {{TORN, "element 3 "},
                 {SWAPPED, "misplaced"},
                 {LOST, "the sum begins with"},
                 {OLD, "the sum begins with"},
                 {NOT_INCLUDED, "included is 0"},
                 {TOO_FEW_ACTIVE, "active is 1"},
                 {TOO_STALE, "staleness is 7"},
                 {OTHER_EPOCH, "epoch 2"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        world_t world;
        run_world(&world, cases[i].what);
        assert_int_equal(world.account[0].failed_at, 0);
        assert_int_equal(world.account[1].failed_at, 3);
        assert_non_null(strstr(world.account[1].failure, cases[i].words));
    }
}
