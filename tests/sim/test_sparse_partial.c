/* Partial sparse all-reduces in the simulator: ranks that are late at random,
   by several epochs, too. Gradients are integers, so sums are exact: all
   gradients equal all results plus all residuals, in every mode. */
#include "support/cmocka.h"
#include "support/random.h"
#include "support/sanitized.h"
#include "support/sim.h"

#include "base/alloc.h"

#include <baton/sparse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 12, MOST_RANKS = 33 };

static const int sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

typedef struct world world_t;

typedef struct rank {
    world_t *world;
    int number;
    baton_sparse_t *sparse;
    bool running;
    uint64_t steps;
    double *velocity; /* u, by the definition; without momentum a gradient */
} rank_t;

struct world {
    baton_sim_t *sim;
    int size;
    baton_sparse_options_t options;
    support_random_t random;
    uint64_t pause_us; /* the longest between two steps of a rank */
    double *total;     /* of all gradients, by element */
    double *results[STEPS + 1];
    uint32_t included[STEPS + 1], seen[STEPS + 1];
    double *vector;
    rank_t ranks[MOST_RANKS];
};

static double *vector_of(const world_t *world)
{
    return calloc(world->options.count, sizeof(double));
}

static void open_world(world_t *world, int size,
                       const baton_sparse_options_t *options)
{
    baton_sim_options_t model = support_sim_options(size);
    model.link = (baton_sim_link_t){.alpha_us = 1, .beta_ns = 1};
    *world = (world_t){.sim = support_sim_open(&model),
                       .size = size,
                       .options = *options,
                       .random = support_random(support_seed(), (uint64_t)size),
                       .pause_us = 60};
    world->total = vector_of(world);
    world->vector = vector_of(world);
    for (int step = 0; step <= STEPS; step++) {
        world->results[step] = vector_of(world);
    }
    for (int r = 0; r < size; r++) {
        world->ranks[r] =
            (rank_t){.world = world, .number = r, .velocity = vector_of(world)};
        support_ok(baton_sparse_prepare(baton_sim_group(world->sim, r),
                                        &world->options,
                                        &world->ranks[r].sparse));
    }
    for (int r = 0; r < size; r++) {
        support_ok(baton_sparse_connect(world->ranks[r].sparse, -1));
    }
}

static void close_world(world_t *world)
{
    for (int r = 0; r < world->size; r++) {
        support_ok(baton_sparse_destroy(world->ranks[r].sparse));
        free(world->ranks[r].velocity);
    }
    support_ok(baton_sim_destroy(world->sim));
    free(world->total);
    free(world->vector);
    for (int step = 0; step <= STEPS; step++) {
        free(world->results[step]);
    }
}

/* ---- steps ------------------------------------------------------------- */

/* What a rank adds for a gradient. */
static double accumulated(const world_t *world, double gradient, double *u)
{
    double m = world->options.momentum;
    if (world->options.nesterov) {
        *u = m * (*u + gradient);
        return *u + gradient;
    }
    *u = m * *u + gradient;
    return *u;
}

static void start(rank_t *rank)
{
    world_t *world = rank->world;
    for (size_t i = 0; i < world->options.count; i++) {
        world->vector[i] =
            (double)support_random_below(&world->random, 41) - 20;
        world->total[i] +=
            accumulated(world, world->vector[i], &rank->velocity[i]);
    }
    support_ok(baton_sparse_start(rank->sparse, world->vector));
    memset(world->vector, 0xff, world->options.count * sizeof(double));
    rank->running = true;
    rank->steps++;
}

/* No rank is farther behind an epoch that has ended than its options allow. */
static void expect_bounded(const world_t *world, uint64_t epoch)
{
    const baton_sparse_options_t *o = &world->options;
    for (int r = 0; r < world->size; r++) {
        const rank_t *rank = &world->ranks[r];
        uint64_t seen = rank->steps - (rank->running ? 1 : 0);
        uint64_t history = o->history != 0 ? o->history : 4;
        assert_in_range(epoch, 0, seen + history);
        if (o->max_staleness != 0) {
            assert_in_range(epoch, 0, rank->steps + o->max_staleness);
        }
    }
}

/* The first rank's result of an epoch is kept, others are compared with it. */
static void take(rank_t *rank)
{
    world_t *world = rank->world;
    baton_sparse_result_t result;
    size_t bytes = world->options.count * sizeof(double);
    expect_bounded(world, rank->steps);
    support_ok(baton_sparse_wait(rank->sparse, 0, &result));
    support_ok(baton_sparse_dense(rank->sparse, world->vector));
    rank->running = false;
    world->included[rank->steps] += result.included;
    if (world->seen[rank->steps]++ == 0) {
        memcpy(world->results[rank->steps], world->vector, bytes);
    }
    assert_memory_equal(world->results[rank->steps], world->vector, bytes);
    for (size_t i = 0; i < result.count; i++) {
        assert_true(i == 0 || result.indices[i - 1] < result.indices[i]);
        rank->velocity[result.indices[i]] = 0;
    }
}

/* Starts a step, or looks whether it has ended, and comes again. */
static void act(void *arg)
{
    rank_t *rank = arg;
    world_t *world = rank->world;
    double later_us = 1;
    if (!rank->running) {
        start(rank);
    } else {
        bool done = false;
        support_ok(baton_sparse_test(rank->sparse, &done));
        if (done) {
            take(rank);
            later_us =
                (double)support_random_below(&world->random, world->pause_us);
        }
    }
    if (rank->running || rank->steps < STEPS) {
        support_ok(baton_sim_at(
            world->sim, baton_sim_now_us(world->sim) + later_us, act, rank));
    }
}

static void run(world_t *world)
{
    for (int r = 0; r < world->size; r++) {
        double at_us = baton_sim_now_us(world->sim) +
                       (double)support_random_below(&world->random, 50);
        support_ok(baton_sim_at(world->sim, at_us, act, &world->ranks[r]));
    }
    support_ok(baton_sim_run(world->sim, -1));
}

/* ---- what holds -------------------------------------------------------- */

static void expect_conserved(world_t *world, const char *what)
{
    double *rest = vector_of(world);
    memcpy(rest, world->total, world->options.count * sizeof(double));
    for (int r = 0; r < world->size; r++) {
        support_ok(
            baton_sparse_residual(world->ranks[r].sparse, world->vector));
        for (size_t i = 0; i < world->options.count; i++) {
            rest[i] -= world->vector[i];
        }
    }
    for (size_t i = 0; i < world->options.count; i++) {
        for (int step = 1; step <= STEPS; step++) {
            rest[i] -= world->results[step][i];
        }
        if (rest[i] != 0) {
            fail_msg("%s on %d ranks: %g of element %zu is lost", what,
                     world->size, rest[i], i);
        }
    }
    free(rest);
}

/* How many ranks of an epoch are in time, at least. */
static uint32_t least_included(const baton_sparse_options_t *o, int size,
                               int step)
{
    bool full = o->sync_every != 0 && step % (int)o->sync_every == 0;
    return full || o->mode == BATON_FULL     ? (uint32_t)size
           : o->mode == BATON_QUORUM         ? o->mode_ranks
           : o->mode == BATON_CANDIDATES_ALL ? o->mode_ranks
                                             : 1;
}

static void try_mode(int size, baton_sparse_options_t options)
{
    char what[100];
    world_t world;
    (void)snprintf(what, sizeof what, "%s, mode %d of %u, %d teams",
                   baton_sparse_algorithm_name(options.algorithm),
                   (int)options.mode, options.mode_ranks, options.teams);
    open_world(&world, size, &options);
    run(&world);
    for (int step = 1; step <= STEPS; step++) {
        assert_int_equal(world.seen[step], size);
        assert_in_range(world.included[step],
                        least_included(&options, size, step), size);
    }
    expect_conserved(&world, what);
    close_world(&world);
}

static baton_sparse_options_t some_options(void)
{
    baton_sparse_options_t options = BATON_SPARSE_OPTIONS;
    options.count = 61;
    options.k = 7;
    options.dtype = BATON_F64;
    options.partial = true;
    options.seed = 3;
    return options;
}

static void try_modes(int size, baton_sparse_options_t options)
{
    static const baton_partial_mode_t modes[] = {
        BATON_SOLO,   BATON_MAJORITY,       BATON_FULL,
        BATON_QUORUM, BATON_CANDIDATES_ANY, BATON_CANDIDATES_ALL};
    for (int i = 0; i < 6; i++) {
        options.mode = modes[i];
        options.mode_ranks =
            modes[i] >= BATON_QUORUM ? (uint32_t)(size + 1) / 2 : 0;
        try_mode(size, options);
    }
}

static void test_sparse_partial_conserves(void **state)
{
    for (int i = 0; i < SIZES; i++) {
        if (!SUPPORT_SANITIZED || sizes[i] < 16) {
            try_modes(sizes[i], some_options());
        }
    }
}

/* A late rank's velocity, too, is in a result or in a residual. */
static void test_sparse_partial_conserves_with_momentum(void **state)
{
    for (int size = 1; size <= 9; size++) {
        baton_sparse_options_t options = some_options();
        options.momentum = 0.5;
        try_modes(size, options);
        options.nesterov = true;
        try_modes(size, options);
    }
}

static void test_sparse_partial_conserves_with_teams(void **state)
{
    static const int layouts[][2] = {{2, 2}, {4, 2}, {6, 2}, {8, 4}, {16, 4}};
    for (int i = 0; i < 5; i++) {
        baton_sparse_options_t options = some_options();
        options.teams = layouts[i][1];
        for (int j = BATON_TEAMS_RSAG; j <= BATON_TEAMS_BSAG; j++) {
            options.exchange = (baton_teams_t)j;
            try_modes(layouts[i][0], options);
        }
    }
}

static void test_sparse_partial_conserves_by_every_algorithm(void **state)
{
    static const baton_sparse_algorithm_t others[] = {
        BATON_SPARSE_TOPKA, BATON_SPARSE_TOPKDSA, BATON_SPARSE_GTOPK};
    for (int i = 0; i < 3; i++) {
        for (int size = 1; size <= 9; size++) {
            baton_sparse_options_t options = some_options();
            options.algorithm = others[i];
            options.mode = size % 2 == 0 ? BATON_SOLO : BATON_MAJORITY;
            try_mode(size, options);
        }
    }
}

static void test_sparse_partial_bounds_staleness(void **state)
{
    baton_sparse_options_t options = some_options();
    options.history = 9;
    options.max_staleness = 1;
    try_mode(5, options);
    options.max_staleness = 0;
    options.sync_every = 3;
    try_mode(5, options);
}

/* ---- one rank late ----------------------------------------------------- */

static void start_one(void *arg)
{
    start(arg);
}

static void run_step(world_t *world, double apart_us)
{
    for (int r = 0; r < world->size; r++) {
        double at_us = baton_sim_now_us(world->sim) + r * apart_us;
        support_ok(
            baton_sim_at(world->sim, at_us, start_one, &world->ranks[r]));
    }
    support_ok(baton_sim_run(world->sim, -1));
}

/* Ranks start far apart, in solo: epoch 1 has rank 0's gradient alone, epoch 2
   the others' of step 1 and rank 0's of step 2. */
static void test_sparse_partial_takes_a_late_gradient_next(void **state)
{
    baton_sparse_options_t options = some_options();
    options.k = options.count; /* all of it, so residuals are pending alone */
    world_t world;
    baton_sparse_result_t result;
    open_world(&world, 4, &options);
    for (int step = 1; step <= 2; step++) {
        double *first = vector_of(&world), *all = vector_of(&world);
        memcpy(all, world.total, options.count * sizeof(double));
        for (int r = 0; r < world.size; r++) {
            start(&world.ranks[r]);
            support_ok(baton_sim_run(world.sim, -1));
            if (r == 0) {
                memcpy(first, world.total, options.count * sizeof(double));
            }
        }
        for (int r = 0; r < world.size; r++) {
            support_ok(baton_sparse_wait(world.ranks[r].sparse, 0, &result));
            assert_int_equal(result.included, r == 0);
            support_ok(baton_sparse_dense(world.ranks[r].sparse, world.vector));
            for (size_t i = 0; i < options.count; i++) {
                double before = step == 1 ? 0 : world.results[1][i];
                assert_true(world.vector[i] == first[i] - before);
            }
            world.ranks[r].running = false;
        }
        memcpy(world.results[step], world.vector,
               options.count * sizeof(double));
        free(first);
        free(all);
    }
    close_world(&world);
}

/* What a rank has left pending and in its residual is not taken by epochs that
   begin to work before it has started again. */
static void test_sparse_partial_sends_little_for_one_rank(void **state)
{
    for (int size = 2; size <= 9; size++) {
        baton_sparse_options_t options = some_options();
        world_t world;
        size_t entry = baton_entry_bytes(options.dtype);
        unsigned steps = 0;
        while (1 << steps < size) {
            steps++;
        }
        open_world(&world, size, &options);
        run_step(&world, 0); /* all: residuals are not zero */
        baton_sparse_result_t result;
        for (int r = 0; r < size; r++) {
            support_ok(baton_sparse_wait(world.ranks[r].sparse, 0, &result));
            assert_true(result.included);
        }
        uint64_t before = baton_sim_totals(world.sim).bytes;
        start(&world.ranks[0]);
        support_ok(baton_sim_run(world.sim, -1));
        uint64_t bytes = baton_sim_totals(world.sim).bytes - before;
        /* A quota is one entry at least. */
        size_t k = options.k + (size_t)size;
        assert_in_range(bytes, 1, k * entry * (steps + (unsigned)size - 1));
        for (int r = 1; r < size; r++) {
            start(&world.ranks[r]); /* late: nothing more is sent */
        }
        support_ok(baton_sim_run(world.sim, -1));
        assert_int_equal(baton_sim_totals(world.sim).bytes, before + bytes);
        close_world(&world);
    }
}

/* ---- failure ----------------------------------------------------------- */

static void recover(world_t *world)
{
    for (int round = 0; round < 2; round++) {
        for (int r = 0; r < world->size; r++) {
            baton_status_t status = baton_group_recover(
                baton_sim_group(world->sim, r), round == 0 ? 0 : -1);
            if (round == 1) {
                support_ok(status);
            }
        }
    }
}

/* Epoch 2, in which a send fails. Returns how many ranks do not complete it. */
static int run_failing_step(world_t *world)
{
    int failed = 0;
    run_step(world, 0);
    for (int r = 0; r < world->size; r++) {
        baton_sparse_result_t result;
        baton_sparse_t *sparse = world->ranks[r].sparse;
        baton_status_t status = baton_sparse_wait(sparse, 0, &result);
        if (status != BATON_OK) {
            support_expect(status, BATON_ERR_TRANSPORT);
            support_expect(baton_sparse_start(sparse, world->vector),
                           BATON_ERR_FAILED);
            failed++;
        }
    }
    return failed;
}

/* The k-th send of the last rank fails in epoch 2; epoch 1 after the recovery
   takes its gradients as well, unless some rank has completed it. Returns how
   many ranks have not. */
static int try_failure(int size, uint64_t k)
{
    baton_sparse_options_t options = some_options();
    world_t world;
    open_world(&world, size, &options);
    run_step(&world, 0);
    for (int r = 0; r < size; r++) {
        take(&world.ranks[r]);
    }
    support_ok(baton_sim_fail_send(world.sim, size - 1, k));
    int failed = run_failing_step(&world);
    support_ok(baton_sim_fail_send(world.sim, size - 1, 0));
    if (failed > 0) {
        recover(&world);
        run_step(&world, 0);
        for (int r = 0; r < size; r++) {
            world.ranks[r].steps = 2;
            take(&world.ranks[r]);
        }
    }
    if (failed == size) {
        expect_conserved(&world, "after a failure");
    }
    close_world(&world);
    return failed;
}

static void test_sparse_partial_keeps_gradients_over_failures(void **state)
{
    for (int size = 2; size <= 8; size++) {
        uint64_t sends = 0;
        int failed = size, nowhere = 0;
        while (failed > 0) {
            failed = try_failure(size, ++sends);
            nowhere += failed == size;
        }
        assert_true(nowhere > 0);
    }
}

/* Epoch 1 ends without ranks 1 and 2, and epoch 2 fails, before they start
   step 1: that start is no part of the failure, and its gradient is kept. The
   start of step 2 is refused, and leaves no trace. */
static void test_sparse_partial_keeps_what_starts_behind_a_failure(void **state)
{
    enum { SIZE = 3 };
    baton_sparse_options_t options = some_options();
    baton_sparse_result_t result;
    world_t world;
    open_world(&world, SIZE, &options);
    start(&world.ranks[0]);
    support_ok(baton_sim_run(world.sim, -1));
    take(&world.ranks[0]);
    support_ok(baton_sim_fail_send(world.sim, 0, 1));
    start(&world.ranks[0]);
    support_ok(baton_sim_run(world.sim, -1));
    support_ok(baton_sim_fail_send(world.sim, 0, 0));
    support_expect(baton_sparse_wait(world.ranks[0].sparse, 0, &result),
                   BATON_ERR_TRANSPORT);
    for (int r = 1; r < SIZE; r++) {
        start(&world.ranks[r]);
        take(&world.ranks[r]);
        for (size_t i = 0; i < options.count; i++) {
            world.vector[i] = 1;
        }
        support_expect(baton_sparse_start(world.ranks[r].sparse, world.vector),
                       BATON_ERR_FAILED);
    }
    assert_int_equal(world.included[1], 1);
    recover(&world);
    run_step(&world, 0);
    for (int r = 0; r < SIZE; r++) {
        world.ranks[r].steps = 2;
        take(&world.ranks[r]);
    }
    expect_conserved(&world, "behind a failure");
    close_world(&world);
}

/* A rank has the result of the last step that it completed after a recovery,
   too, whether it had asked before or not, and whatever epochs peers begin. */
static void test_sparse_partial_keeps_results_over_recoveries(void **state)
{
    enum { SIZE = 3 };
    for (int asked = 0; asked < 2; asked++) {
        baton_sparse_options_t options = some_options();
        options.history = 3;
        world_t world;
        double *found = NULL;
        baton_sparse_result_t result;
        open_world(&world, SIZE, &options);
        found = vector_of(&world);
        for (int step = 1; step < 3; step++) {
            run_step(&world, 0);
            for (int r = 0; r < SIZE && (step == 1 || asked != 0); r++) {
                take(&world.ranks[r]);
            }
        }
        recover(&world);
        for (int r = 1; r < SIZE; r++) {
            if (asked == 0) {
                take(&world.ranks[r]);
            }
        }
        for (int epoch = 1; epoch < 3; epoch++) {
            for (int r = 1; r < SIZE; r++) {
                start(&world.ranks[r]);
            }
            support_ok(baton_sim_run(world.sim, -1));
            for (int r = 1; r < SIZE; r++) {
                take(&world.ranks[r]);
            }
        }
        support_ok(baton_sparse_wait(world.ranks[0].sparse, 0, &result));
        assert_true(result.included);
        support_ok(baton_sparse_dense(world.ranks[0].sparse, found));
        assert_memory_equal(found, world.results[2],
                            options.count * sizeof(double));
        expect_conserved(&world, "after a recovery");
        free(found);
        close_world(&world);
    }
}

/* A gradient is left pending by a recovery, and a peer's epoch takes it before
   its rank starts again: the step that the rank starts then is late. */
static void test_sparse_partial_is_late_after_a_recovery(void **state)
{
    baton_sparse_options_t options = some_options();
    world_t world;
    baton_sparse_result_t result;
    open_world(&world, 2, &options);
    for (int r = 0; r < 2; r++) {
        start(&world.ranks[r]);
        support_ok(baton_sim_run(world.sim, -1));
        take(&world.ranks[r]);
    }
    recover(&world);
    for (int r = 0; r < 2; r++) {
        start(&world.ranks[r]);
        support_ok(baton_sim_run(world.sim, -1));
        support_ok(baton_sparse_wait(world.ranks[r].sparse, 0, &result));
        assert_int_equal(result.included, r == 0);
    }
    close_world(&world);
}

/* ---- between steps, and options ---------------------------------------- */

static void test_sparse_partial_refuses_what_it_cannot_do(void **state)
{
    baton_sparse_options_t options = some_options();
    world_t world;
    open_world(&world, 2, &options);
    baton_sparse_t *sparse = world.ranks[0].sparse;
    support_expect(baton_sparse_flush(sparse), BATON_ERR_UNSUPPORTED);
    support_expect(baton_sparse_set_k(sparse, 1), BATON_ERR_UNSUPPORTED);
    support_expect(baton_sparse_set_density(sparse, 0.1),
                   BATON_ERR_UNSUPPORTED);
    support_expect(baton_sparse_save(sparse, "/tmp/x"), BATON_ERR_UNSUPPORTED);
    support_expect(baton_sparse_load(sparse, "/tmp/x"), BATON_ERR_UNSUPPORTED);
    support_says("it was created with options.partial");
    close_world(&world);
}

/* Scaled by 0, all of what ranks hold is gone, pending gradients too. */
static void test_sparse_partial_scales_all_of_the_residual(void **state)
{
    baton_sparse_options_t options = some_options();
    world_t world;
    open_world(&world, 3, &options);
    run_step(&world, 1000);
    for (int r = 0; r < world.size; r++) {
        take(&world.ranks[r]);
        support_ok(baton_sparse_scale_residual(world.ranks[r].sparse, 0));
        support_ok(baton_sparse_residual(world.ranks[r].sparse, world.vector));
        for (size_t i = 0; i < options.count; i++) {
            assert_true(world.vector[i] == 0);
        }
    }
    close_world(&world);
}

static void test_sparse_partial_clips_when_it_starts(void **state)
{
    baton_sparse_options_t options = some_options();
    options.clip = 1;
    options.k = options.count;
    world_t world;
    open_world(&world, 1, &options);
    baton_sparse_result_t result;
    for (size_t i = 0; i < options.count; i++) {
        world.vector[i] = 2;
    }
    support_ok(baton_sparse_start(world.ranks[0].sparse, world.vector));
    support_ok(baton_sparse_wait(world.ranks[0].sparse, -1, &result));
    double norm = 0;
    for (size_t i = 0; i < result.count; i++) {
        double value = ((const double *)result.values)[i];
        norm += value * value;
    }
    assert_true(norm > 1 - 1e-12 && norm < 1 + 1e-12);
    close_world(&world);
}

typedef struct bad {
    const char *says;
    baton_sparse_options_t options;
} bad_t;

#define BAD(...)                                                               \
    {                                                                          \
        .size = sizeof(baton_sparse_options_t), .count = 10, .k = 2,           \
        __VA_ARGS__                                                            \
    }

static void test_sparse_partial_refuses_bad_options(void **state)
{
    static const bad_t all[] = {
        {"mode is 1; allowed without partial: 0", BAD(.mode = BATON_MAJORITY)},
        {"history is 2; allowed without partial: 0", BAD(.history = 2)},
        {"mode_ranks, the q of QUORUM(q), is 3, must be 1 to 2",
         BAD(.partial = true, .mode = BATON_QUORUM, .mode_ranks = 3)},
        {"algorithm is oktopk; allowed with partial: auto, spardl",
         BAD(.partial = true, .algorithm = BATON_SPARSE_OKTOPK)},
        {"momentum is 0.5; allowed with partial, unless by spardl: 0",
         BAD(.partial = true, .momentum = 0.5,
             .algorithm = BATON_SPARSE_TOPKA)},
        {"warmup is 3; allowed with partial: 0",
         BAD(.partial = true, .warmup = 3)},
        {"max_staleness is 1048577; allowed: 0 to 1048576",
         BAD(.partial = true, .max_staleness = (1 << 20) + 1)},
    };
    baton_sim_options_t model = support_sim_options(2);
    baton_sim_t *sim = support_sim_open(&model);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        baton_sparse_t *both[2];
        for (int r = 0; r < 2; r++) {
            support_ok(baton_sparse_prepare(baton_sim_group(sim, r),
                                            &all[i].options, &both[r]));
        }
        for (int r = 0; r < 2; r++) {
            support_expect(baton_sparse_connect(both[r], -1),
                           BATON_ERR_INVALID);
            support_says(all[i].says);
        }
        support_ok(baton_sparse_destroy(both[0]));
        support_ok(baton_sparse_destroy(both[1]));
    }
    support_ok(baton_sim_destroy(sim));
}

/* Without payload the same epochs run. */
static void test_sparse_partial_runs_without_payload(void **state)
{
    baton_sim_options_t model = support_sim_options(5);
    model.cost_only = true;
    baton_sim_t *sim = support_sim_open(&model);
    baton_sparse_options_t options = some_options();
    baton_sparse_t *all[5];
    baton_sparse_result_t result;
    for (int r = 0; r < 5; r++) {
        support_ok(
            baton_sparse_prepare(baton_sim_group(sim, r), &options, &all[r]));
    }
    for (int r = 0; r < 5; r++) {
        support_ok(baton_sparse_connect(all[r], -1));
    }
    for (int r = 0; r < 5; r++) {
        support_ok(baton_sparse_start(all[r], NULL));
        support_ok(baton_sim_run(sim, -1));
        support_ok(baton_sparse_wait(all[r], 0, &result));
        assert_int_equal(result.included, r == 0);
        assert_int_equal(result.count, 0);
    }
    for (int r = 0; r < 5; r++) {
        support_ok(baton_sparse_destroy(all[r]));
    }
    support_ok(baton_sim_destroy(sim));
}

/* ---- memory ------------------------------------------------------------ */

static void test_sparse_partial_steps_do_not_allocate(void **state)
{
    enum { RANKS = 4 };
    support_cluster_t *cluster = support_cluster_manual(RANKS);
    baton_sparse_options_t options = some_options();
    baton_sparse_t *all[RANKS];
    double gradient[61] = {0};
    int64_t allocated = 0;
    options.mode = BATON_QUORUM;
    options.mode_ranks = 2;
    for (int r = 0; r < RANKS; r++) {
        support_ok(baton_sparse_prepare(cluster->groups[r], &options, &all[r]));
    }
    for (int r = 0; r < RANKS; r++) {
        support_ok(baton_sparse_connect(all[r], -1));
    }
    for (int step = 0; step < 20; step++) {
        baton_sparse_result_t result;
        gradient[step] = step;
        allocated = step == 10 ? baton__alloc_count() : allocated;
        for (int r = 0; r < RANKS; r++) {
            support_ok(baton_sparse_start(all[(r + step) % RANKS], gradient));
        }
        for (int r = 0; r < RANKS; r++) {
            support_ok(baton_sparse_wait(all[r], -1, &result));
        }
    }
    assert_int_equal(baton__alloc_count(), allocated);
    for (int r = 0; r < RANKS; r++) {
        support_ok(baton_sparse_destroy(all[r]));
    }
    support_cluster_close(cluster);
}

/* Whichever allocation of a create fails, nothing is left behind. */
static void test_sparse_partial_create_without_memory_fails(void **state)
{
    support_cluster_t *cluster = support_cluster_manual(1);
    baton_sparse_options_t options = some_options();
    baton_status_t status = BATON_ERR_NO_MEMORY;
    int64_t nth = 0;
    while (status != BATON_OK) {
        baton_sparse_t *sparse;
        baton__alloc_fail_nth(++nth);
        status = baton_sparse_create(cluster->groups[0], &options, -1, &sparse);
        baton__alloc_fail_nth(0);
        if (status == BATON_OK) {
            support_ok(baton_sparse_destroy(sparse));
        } else {
            support_expect(status, BATON_ERR_NO_MEMORY);
        }
    }
    assert_true(nth > 10);
    support_cluster_close(cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sparse_partial_conserves),
        cmocka_unit_test(test_sparse_partial_conserves_with_momentum),
        cmocka_unit_test(test_sparse_partial_conserves_with_teams),
        cmocka_unit_test(test_sparse_partial_conserves_by_every_algorithm),
        cmocka_unit_test(test_sparse_partial_bounds_staleness),
        cmocka_unit_test(test_sparse_partial_takes_a_late_gradient_next),
        cmocka_unit_test(test_sparse_partial_sends_little_for_one_rank),
        cmocka_unit_test(test_sparse_partial_keeps_gradients_over_failures),
        cmocka_unit_test(
            test_sparse_partial_keeps_what_starts_behind_a_failure),
        cmocka_unit_test(test_sparse_partial_keeps_results_over_recoveries),
        cmocka_unit_test(test_sparse_partial_is_late_after_a_recovery),
        cmocka_unit_test(test_sparse_partial_refuses_what_it_cannot_do),
        cmocka_unit_test(test_sparse_partial_scales_all_of_the_residual),
        cmocka_unit_test(test_sparse_partial_clips_when_it_starts),
        cmocka_unit_test(test_sparse_partial_refuses_bad_options),
        cmocka_unit_test(test_sparse_partial_runs_without_payload),
        cmocka_unit_test(test_sparse_partial_steps_do_not_allocate),
        cmocka_unit_test(test_sparse_partial_create_without_memory_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
