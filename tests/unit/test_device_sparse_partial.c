/* Partial sparse all-reduces of gradients in device memory, on ranks with
   emulated devices of their own: the bits of the host's, ranks that are late
   because their streams are, steps in flight, failures, recovery, and wrong
   use. Gradients are small integers where sums must be exact. */
#include "base/alloc.h"
#include "coll/sparse/sparse.h"
#include "support/cmocka.h"
#include "support/device_sparse.h"
#include "support/random.h"

#include <string.h>

enum { N = 601, SMALL = 61, K = 7, STEPS = DEVICE_SPARSE_STEPS };

static uint64_t seed;

static baton_sparse_options_t options_of(baton_sparse_algorithm_t algorithm,
                                         baton_partial_mode_t mode)
{
    return (baton_sparse_options_t){.size = sizeof(baton_sparse_options_t),
                                    .name = "late",
                                    .algorithm = algorithm,
                                    .count = SMALL,
                                    .dtype = BATON_F64,
                                    .k = K,
                                    .partial = true,
                                    .mode = mode};
}

/* ---- a world of ranks whose streams can be stopped ---------------------- */

typedef struct world {
    device_sparse_t *all;
    void *gates[DEVICE_SPARSE_RANKS]; /* flags */
    uint64_t closed[DEVICE_SPARSE_RANKS];
} world_t;

static const baton_device_port_t *port_of(const world_t *world, int rank)
{
    return emulated_port(world->all->ranks->devices[rank]);
}

static world_t world_open(int size, bool no_selection)
{
    world_t world = {.all = device_sparse_open(size, SUPPORT_OWN_ENGINES, seed,
                                               no_selection)};
    for (int rank = 0; rank < size; rank++) {
        support_ok(port_of(&world, rank)
                       ->flag_create(world.all->ranks->devices[rank],
                                     &world.gates[rank]));
    }
    return world;
}

static void world_close(world_t *world)
{
    for (int rank = 0; rank < world->all->size; rank++) {
        emulated_t *device = world->all->ranks->devices[rank];
        emulated_synchronise_all(device);
        port_of(world, rank)->flag_destroy(device, world->gates[rank]);
    }
    device_sparse_close(world->all);
}

/* Nothing goes on in the stream from here until open_gate(). */
static void close_gate(world_t *world, int rank, baton_stream_t stream)
{
    support_ok(port_of(world, rank)
                   ->await(world->all->ranks->devices[rank], stream,
                           world->gates[rank], ++world->closed[rank]));
}

static void open_gate(world_t *world, int rank)
{
    port_of(world, rank)
        ->raise_now(world->all->ranks->devices[rank], world->gates[rank],
                    world->closed[rank]);
}

static baton_stream_t stream_of(const world_t *world, int rank)
{
    return world->all->ranks->streams[rank];
}

static baton_sparse_t *sparse_of(const world_t *world, int rank)
{
    return world->all->rank[rank].device;
}

/* A gradient of doubles. */
static double *gradient_of(const world_t *world, int rank, int step)
{
    return (double *)(void *)world->all->rank[rank].gradients[step];
}

static const double *result_of(const world_t *world, int rank, int step)
{
    return (const double *)(const void *)world->all->rank[rank]
        .found[step]
        .dense;
}

/* Of integers, so that all sums are exact. */
static void create(world_t *world, const baton_sparse_options_t *options)
{
    support_random_t random = support_random(seed, 3);
    device_sparse_create(world->all, options, DEVICE_SPARSE_ZEROS);
    for (int rank = 0; rank < world->all->size; rank++) {
        for (int step = 0; step < STEPS; step++) {
            for (size_t i = 0; i < world->all->count; i++) {
                gradient_of(world, rank, step)[i] =
                    (double)support_random_below(&random, 41) - 20;
            }
        }
    }
}

/* Waits for the stream, and for the last step. */
static bool wait_for(world_t *world, int rank)
{
    baton_sparse_result_t result = {0};
    device_cluster_synchronise(world->all->ranks, rank);
    support_ok(
        baton_sparse_wait(sparse_of(world, rank), SUPPORT_WAIT_MS, &result));
    return result.included;
}

/* ---- the bits of the host ---------------------------------------------- */

/* In epochs that wait for all ranks; of others it is not known who is late. */
static void compare_all(device_sparse_t *world, int turn)
{
    static const baton_sparse_algorithm_t algorithms[] = {
        BATON_SPARSE_SPARDL, BATON_SPARSE_TOPKA, BATON_SPARSE_TOPKDSA,
        BATON_SPARSE_GTOPK};
    static const baton_dtype_t dtypes[] = {BATON_F32, BATON_F64, BATON_F16,
                                           BATON_BF16};
    for (int a = 0; a < 4; a++, turn++) {
        baton_sparse_options_t options = options_of(algorithms[a], BATON_FULL);
        bool spardl = algorithms[a] == BATON_SPARSE_SPARDL;
        options.count = N;
        options.k = 24;
        options.dtype = dtypes[turn % 4];
        options.average = turn % 2 == 0;
        options.clip = turn % 3 == 0 ? 2 : 0;
        options.momentum = spardl && turn % 2 == 0 ? 0.5 : 0;
        options.nesterov = spardl && turn % 4 == 0;
        options.history = (uint32_t)turn % 3;
        options.max_staleness = (uint32_t)turn % 2;
        options.teams = spardl && world->size % 2 == 0 ? 2 : 1;
        device_sparse_create(world, &options, DEVICE_SPARSE_ANY);
        device_sparse_compare(world, turn % 2 == 0);
        device_sparse_destroy(world);
    }
}

static void test_bits_of_the_host(void **state)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    for (int i = 0; i < 10; i++) {
        device_sparse_t *world = device_sparse_open(
            sizes[i / 2], SUPPORT_OWN_ENGINES, seed, i % 2 == 1);
        compare_all(world, 7 * i);
        device_sparse_close(world);
    }
}

/* A manual engine has only the application's calls to go on with. */
static void test_manual_progress(void **state)
{
    device_sparse_t *world =
        device_sparse_open(1, SUPPORT_OWN_MANUAL, seed, false);
    baton_sparse_options_t options =
        options_of(BATON_SPARSE_SPARDL, BATON_SOLO);
    device_sparse_create(world, &options, DEVICE_SPARSE_ANY);
    device_sparse_run_on_hosts(world);
    for (int step = 0; step < STEPS; step++) {
        device_sparse_run_step(world, step);
        device_sparse_check(world, 0, step);
    }
    device_sparse_check_residuals(world);
    device_sparse_destroy(world);
    device_sparse_close(world);
}

/* ---- late streams ------------------------------------------------------ */

/* The last rank's stream stands while rank 0 runs epochs; what the last one
   would add is in none of them, and in the one behind them. All entries are
   selected, so residuals are what is pending. */
static void run_late(int size)
{
    enum { AHEAD = 3 };
    world_t world = world_open(size, false);
    baton_sparse_options_t options =
        options_of(BATON_SPARSE_SPARDL, BATON_SOLO);
    int last = size - 1;
    static double left[SMALL];
    options.k = SMALL;
    create(&world, &options);
    close_gate(&world, last, stream_of(&world, last));
    for (int step = 0; step <= AHEAD; step++) {
        device_sparse_put_step(world.all, last, step);
    }
    for (int step = 0; step < AHEAD; step++) {
        bool done = true;
        device_sparse_put_step(world.all, 0, step);
        assert_true(wait_for(&world, 0));
        assert_memory_equal(result_of(&world, 0, step),
                            gradient_of(&world, 0, step), sizeof left);
        support_ok(baton_sparse_test(sparse_of(&world, last), &done));
        assert_false(done); /* its last step is the next epoch */
    }
    open_gate(&world, last);
    assert_true(wait_for(&world, last));
    for (size_t i = 0; i < SMALL; i++) {
        double all = 0;
        for (int step = 0; step <= AHEAD; step++) {
            all += gradient_of(&world, last, step)[i];
        }
        assert_true(result_of(&world, last, AHEAD)[i] == all);
    }
    for (int step = 0; step < AHEAD; step++) {
        assert_memory_equal(result_of(&world, last, step),
                            gradient_of(&world, 0, step), sizeof left);
    }
    device_sparse_put_step(world.all, 0, AHEAD);
    assert_false(wait_for(&world, 0));
    assert_memory_equal(result_of(&world, 0, AHEAD),
                        result_of(&world, last, AHEAD), sizeof left);
    support_ok(baton_sparse_residual(sparse_of(&world, 0), left));
    assert_memory_equal(left, gradient_of(&world, 0, AHEAD), sizeof left);
    device_sparse_destroy(world.all);
    world_close(&world);
}

static void test_late_stream(void **state)
{
    for (int size = 2; size <= 5; size++) {
        run_late(size);
    }
}

/* The epoch begins with the last of the streams that it needs. */
static void begin_with_streams(baton_partial_mode_t mode, int needed)
{
    enum { SIZE = 3 };
    world_t world = world_open(SIZE, false);
    baton_sparse_options_t options = options_of(BATON_SPARSE_TOPKA, mode);
    baton_sparse_result_t result = {0};
    options.mode_ranks = mode == BATON_QUORUM ? (uint32_t)needed : 0;
    options.k = SMALL;
    create(&world, &options);
    for (int rank = 0; rank < SIZE; rank++) {
        close_gate(&world, rank, stream_of(&world, rank));
        device_sparse_put_step(world.all, rank, 0);
    }
    for (int rank = 0; rank < needed; rank++) {
        bool done = false;
        for (int polls = 0; polls < 50; polls++) {
            support_ok(baton_sparse_test(sparse_of(&world, 0), &done));
            assert_false(done);
        }
        open_gate(&world, rank);
    }
    /* The last rank knows the result before its stream gets there. */
    support_ok(baton_sparse_wait(sparse_of(&world, SIZE - 1), SUPPORT_WAIT_MS,
                                 &result));
    assert_int_equal(result.included, needed == SIZE);
    for (int rank = needed; rank < SIZE; rank++) {
        open_gate(&world, rank);
    }
    for (int rank = 0; rank < SIZE; rank++) {
        assert_int_equal(wait_for(&world, rank), rank < needed);
        for (size_t i = 0; i < SMALL; i++) {
            double sum = 0;
            for (int other = 0; other < needed; other++) {
                sum += gradient_of(&world, other, 0)[i];
            }
            assert_true(result_of(&world, rank, 0)[i] == sum);
        }
    }
    device_sparse_destroy(world.all);
    world_close(&world);
}

static void test_begins_with_the_stream(void **state)
{
    begin_with_streams(BATON_SOLO, 1);
    begin_with_streams(BATON_QUORUM, 2);
    begin_with_streams(BATON_FULL, 3);
}

/* What is put into the stream behind the start overwrites the gradient, though
   the epoch waits for another rank. */
static void test_gradient_may_be_overwritten(void **state)
{
    world_t world = world_open(2, false);
    baton_sparse_options_t options = options_of(BATON_SPARSE_GTOPK, BATON_FULL);
    static const double zeros[SMALL];
    options.k = SMALL;
    create(&world, &options);
    char *memory = world.all->rank[0].gradient;
    close_gate(&world, 1, stream_of(&world, 1));
    device_sparse_put_step(world.all, 1, 0);
    device_cluster_copy(world.all->ranks, 0, memory, gradient_of(&world, 0, 0),
                        sizeof zeros);
    support_ok(baton_sparse_start_on(sparse_of(&world, 0), stream_of(&world, 0),
                                     memory));
    device_cluster_copy(world.all->ranks, 0, memory, zeros, sizeof zeros);
    device_cluster_synchronise(world.all->ranks, 0);
    open_gate(&world, 1);
    assert_true(wait_for(&world, 0));
    assert_true(wait_for(&world, 1));
    for (size_t i = 0; i < SMALL; i++) {
        assert_true(result_of(&world, 1, 0)[i] ==
                    gradient_of(&world, 0, 0)[i] +
                        gradient_of(&world, 1, 0)[i]);
    }
    device_sparse_destroy(world.all);
    world_close(&world);
}

/* A rank arrives at a step when the one before has ended, also where its stream
   does not wait for that: each epoch has the gradients of its own step. */
static void test_steps_come_one_after_the_other(void **state)
{
    enum { AHEAD = 3 };
    world_t world = world_open(2, false);
    baton_sparse_options_t options = options_of(BATON_SPARSE_TOPKA, BATON_FULL);
    options.k = SMALL;
    create(&world, &options);
    char *memory = world.all->rank[0].gradient;
    for (int step = 0; step < AHEAD; step++) {
        device_cluster_copy(world.all->ranks, 0, memory,
                            gradient_of(&world, 0, step),
                            SMALL * sizeof(double));
        support_ok(baton_sparse_start_on(sparse_of(&world, 0),
                                         stream_of(&world, 0), memory));
    }
    for (int step = 0; step < AHEAD; step++) {
        device_sparse_put_step(world.all, 1, step);
        assert_true(wait_for(&world, 1));
        for (size_t i = 0; i < SMALL; i++) {
            assert_true(result_of(&world, 1, step)[i] ==
                        gradient_of(&world, 0, step)[i] +
                            gradient_of(&world, 1, step)[i]);
        }
    }
    assert_true(wait_for(&world, 0));
    device_sparse_destroy(world.all);
    world_close(&world);
}

/* No epoch takes a gradient more than S steps after its own, though the host
   has started all of them long before the stream gets to the second. */
static void test_staleness_is_of_the_stream(void **state)
{
    enum { AHEAD = 4 };
    for (uint32_t bound = 1; bound <= 2; bound++) {
        world_t world = world_open(2, false);
        baton_sparse_options_t options =
            options_of(BATON_SPARSE_SPARDL, BATON_SOLO);
        baton_sparse_result_t result;
        options.max_staleness = bound;
        options.history = 8;
        create(&world, &options);
        close_gate(&world, 1, stream_of(&world, 1));
        device_sparse_put_step(world.all, 1, 0);
        close_gate(&world, 1, stream_of(&world, 1));
        for (int step = 1; step <= AHEAD; step++) {
            device_sparse_put_step(world.all, 1, step);
        }
        port_of(&world, 1)->raise_now(world.all->ranks->devices[1],
                                      world.gates[1], world.closed[1] - 1);
        for (int step = 0; step <= AHEAD; step++) {
            device_sparse_put_step(world.all, 0, step);
        }
        const baton_schedule_t *schedule =
            baton_sparse_schedule(sparse_of(&world, 0));
        while (baton_schedule_epoch(schedule) < 1 + bound) {
            support_expect(baton_sparse_wait(sparse_of(&world, 0), 1, &result),
                           BATON_ERR_TIMEOUT);
        }
        support_expect(baton_sparse_wait(sparse_of(&world, 0), 50, &result),
                       BATON_ERR_TIMEOUT);
        assert_int_equal(baton_schedule_epoch(schedule), 1 + bound);
        open_gate(&world, 1);
        (void)wait_for(&world, 0);
        (void)wait_for(&world, 1);
        device_sparse_destroy(world.all);
        world_close(&world);
    }
}

/* A result that a stream has waited for holds up nobody: peers get as far ahead
   as the history allows before the rank's next start, with a target or not. */
static void test_history_is_of_the_stream(void **state)
{
    for (int given = 0; given < 2; given++) {
        world_t world = world_open(2, false);
        baton_sparse_options_t options =
            options_of(BATON_SPARSE_SPARDL, BATON_SOLO);
        baton_sparse_result_t result;
        options.history = 1;
        create(&world, &options);
        if (given != 0) {
            device_sparse_put_step(world.all, 0, 0);
        } else {
            support_ok(baton_sparse_start_on(sparse_of(&world, 0),
                                             stream_of(&world, 0),
                                             world.all->rank[0].gradient));
            support_ok(baton_sparse_wait_on(sparse_of(&world, 0),
                                            stream_of(&world, 0), NULL));
        }
        device_cluster_synchronise(world.all->ranks, 0);
        for (int step = 0; step < 2; step++) {
            device_sparse_put_step(world.all, 1, step);
            (void)wait_for(&world, 1);
        }
        device_sparse_put_step(world.all, 1, 2);
        support_expect(baton_sparse_wait(sparse_of(&world, 1), 50, &result),
                       BATON_ERR_TIMEOUT);
        for (int step = 1; step < 3; step++) {
            device_sparse_put_step(world.all, 0, step);
        }
        (void)wait_for(&world, 0);
        (void)wait_for(&world, 1);
        device_sparse_destroy(world.all);
        world_close(&world);
    }
}

/* A result is copied in another stream than the steps are in, which stands: the
   next step waits for it, and peers get no farther ahead than the history. */
static void test_result_is_kept_until_it_is_copied(void **state)
{
    world_t world = world_open(2, false);
    emulated_t *device = world.all->ranks->devices[0];
    baton_stream_t second = emulated_stream(device);
    baton_sparse_options_t options =
        options_of(BATON_SPARSE_SPARDL, BATON_SOLO);
    baton_sparse_target_t target = {.size = sizeof target,
                                    .dense = world.all->rank[0].dense};
    baton_sparse_result_t result;
    static double given[SMALL];
    options.history = 1;
    options.k = SMALL;
    create(&world, &options);
    char *memory = world.all->rank[0].gradient;
    emulated_write(device, memory, gradient_of(&world, 0, 0), sizeof given);
    support_ok(baton_sparse_start_on(sparse_of(&world, 0), stream_of(&world, 0),
                                     memory));
    close_gate(&world, 0, second);
    support_ok(baton_sparse_wait_on(sparse_of(&world, 0), second, &target));
    for (int step = 1; step < 3; step++) {
        support_ok(baton_sparse_start_on(sparse_of(&world, 0),
                                         stream_of(&world, 0), memory));
    }
    for (int step = 0; step < 3; step++) {
        device_sparse_put_step(world.all, 1, step);
    }
    support_expect(baton_sparse_wait(sparse_of(&world, 1), 50, &result),
                   BATON_ERR_TIMEOUT);
    open_gate(&world, 0);
    emulated_synchronise(device, second);
    emulated_read(device, given, target.dense, sizeof given);
    (void)wait_for(&world, 0);
    (void)wait_for(&world, 1);
    assert_memory_equal(given, result_of(&world, 1, 0), sizeof given);
    device_sparse_destroy(world.all);
    world_close(&world);
}

/* ---- conservation ------------------------------------------------------ */

/* What ranks have added for their gradients, less what momentum's results have
   masked, by the definition. */
static void add_up(const world_t *world, double *total)
{
    const baton_sparse_options_t *o = &world->all->options;
    for (int rank = 0; rank < world->all->size; rank++) {
        for (size_t i = 0; i < world->all->count; i++) {
            double u = 0;
            for (int step = 0; step < STEPS; step++) {
                const device_sparse_outcome_t *found =
                    &world->all->rank[rank].found[step];
                double g = gradient_of(world, rank, step)[i];
                u = o->nesterov ? o->momentum * (u + g) : o->momentum * u + g;
                total[i] += o->nesterov ? u + g : u;
                for (size_t k = 0; k < found->count; k++) {
                    u = found->indices[k] == i ? 0 : u;
                }
            }
        }
    }
}

/* All gradients are in the results of so many steps, or in residuals. */
static void check_conserved(const world_t *world, const double *total,
                            int steps)
{
    static double left[DEVICE_SPARSE_RANKS][SMALL];
    for (int rank = 0; rank < world->all->size; rank++) {
        support_ok(baton_sparse_residual(sparse_of(world, rank), left[rank]));
    }
    for (size_t i = 0; i < world->all->count; i++) {
        double rest = total[i];
        for (int rank = 0; rank < world->all->size; rank++) {
            rest -= left[rank][i];
        }
        for (int step = 0; step < steps; step++) {
            rest -= result_of(world, 0, step)[i];
        }
        if (rest != 0) {
            fail_msg("%d ranks, %s, mode %d: %g of element %zu is lost "
                     "(BATON_SEED=%llu)",
                     world->all->size,
                     baton_sparse_algorithm_name(world->all->options.algorithm),
                     (int)world->all->options.mode, rest, i,
                     (unsigned long long)seed);
        }
    }
}

/* Steps of every rank, ahead of the streams, which are slow at random. */
static void conserve(world_t *world, const baton_sparse_options_t *options,
                     support_random_t *random)
{
    double total[SMALL] = {0};
    int size = world->all->size;
    create(world, options);
    for (int step = 0; step < STEPS; step++) {
        for (int rank = 0; rank < size; rank++) {
            if (support_random_below(random, 3) == 0) {
                device_cluster_delay(world->all->ranks, rank,
                                     (int)support_random_below(random, 900));
            }
            device_sparse_put_step(world->all, rank, step);
        }
    }
    for (int rank = 0; rank < size; rank++) {
        (void)wait_for(world, rank);
        for (int step = 0; step < STEPS; step++) {
            assert_memory_equal(result_of(world, rank, step),
                                result_of(world, 0, step),
                                SMALL * sizeof(double));
        }
    }
    add_up(world, total);
    check_conserved(world, total, STEPS);
    device_sparse_destroy(world->all);
}

static void test_conservation(void **state)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    static const baton_partial_mode_t modes[] = {
        BATON_SOLO,   BATON_MAJORITY,       BATON_FULL,
        BATON_QUORUM, BATON_CANDIDATES_ANY, BATON_CANDIDATES_ALL};
    static const baton_sparse_algorithm_t algorithms[] = {
        BATON_SPARSE_SPARDL, BATON_SPARSE_TOPKA, BATON_SPARSE_TOPKDSA,
        BATON_SPARSE_GTOPK};
    support_random_t random = support_random(seed, 17);
    for (int i = 0; i < 5; i++) {
        world_t world = world_open(sizes[i], i % 2 == 1);
        for (int turn = 0; turn < 24; turn++) {
            baton_sparse_options_t options =
                options_of(algorithms[turn % 4], modes[turn % 6]);
            options.mode_ranks =
                options.mode >= BATON_QUORUM ? (uint32_t)(sizes[i] + 1) / 2 : 0;
            options.momentum = turn % 4 == 0 && turn % 3 != 0 ? 0.5 : 0;
            options.nesterov = options.momentum != 0 && turn % 8 == 0;
            options.history = 1 + (uint32_t)turn % 5;
            options.max_staleness = turn % 5 == 0 ? 2 : 0;
            options.seed = seed;
            conserve(&world, &options, &random);
        }
        world_close(&world);
    }
}

/* ---- failures ---------------------------------------------------------- */

/* The device of rank 0 fails as a gradient is copied: its step goes on without
   it, and wait says once that it is lost. */
static void test_lost_gradient(void **state)
{
    world_t world = world_open(2, false);
    emulated_t *device = world.all->ranks->devices[0];
    baton_sparse_options_t options =
        options_of(BATON_SPARSE_SPARDL, BATON_FULL);
    baton_sparse_result_t result;
    double total[SMALL] = {0};
    create(&world, &options);
    char *memory = world.all->rank[0].gradient;
    emulated_write(device, memory, gradient_of(&world, 0, 0), sizeof total);
    emulated_fail_work(device, 1);
    support_ok(baton_sparse_start_on(sparse_of(&world, 0), stream_of(&world, 0),
                                     memory));
    device_sparse_put_step(world.all, 1, 0);
    (void)wait_for(&world, 1);
    device_cluster_synchronise(world.all->ranks, 0);
    support_expect(
        baton_sparse_wait(sparse_of(&world, 0), SUPPORT_WAIT_MS, &result),
        BATON_ERR_SYSTEM);
    support_says("1 gradients that were started are lost");
    support_ok(
        baton_sparse_wait(sparse_of(&world, 0), SUPPORT_WAIT_MS, &result));
    assert_false(result.included);
    emulated_fail_work(device, 0);
    emulated_repair(device);
    support_ok(baton_sparse_dense(sparse_of(&world, 0),
                                  world.all->rank[0].found[0].dense));
    for (int rank = 0; rank < 2; rank++) {
        device_sparse_put_step(world.all, rank, 1);
    }
    for (int rank = 0; rank < 2; rank++) {
        assert_true(wait_for(&world, rank));
    }
    for (size_t i = 0; i < SMALL; i++) {
        total[i] = gradient_of(&world, 1, 0)[i] + gradient_of(&world, 0, 1)[i] +
                   gradient_of(&world, 1, 1)[i];
    }
    check_conserved(&world, total, 2);
    device_sparse_destroy(world.all);
    world_close(&world);
}

/* Device memory fails in a start of the host's: nothing was started. */
static void test_lost_gradient_of_the_host(void **state)
{
    world_t world = world_open(1, false);
    emulated_t *device = world.all->ranks->devices[0];
    baton_sparse_options_t options =
        options_of(BATON_SPARSE_SPARDL, BATON_SOLO);
    create(&world, &options);
    emulated_fail_work(device, 1);
    assert_true(baton_sparse_start(sparse_of(&world, 0),
                                   world.all->rank[0].gradient) != BATON_OK);
    emulated_fail_work(device, 0);
    emulated_repair(device);
    device_sparse_run_on_host(world.all, 0);
    device_sparse_run_step(world.all, 0);
    device_sparse_check(world.all, 0, 0);
    device_sparse_check_residuals(world.all);
    device_sparse_destroy(world.all);
    world_close(&world);
}

/* Steps in flight fail while the last rank's stream stands, which gets to them
   after the recovery; asked: the application waits for the failure before, and
   tries to start another step, which leaves nothing behind. All gradients are
   in results, or in residuals. */
static void recover_in_flight(int size, uint32_t history, bool asked)
{
    enum { FAILING = 3 };
    world_t world = world_open(size, false);
    baton_sparse_options_t options =
        options_of(BATON_SPARSE_SPARDL, BATON_FULL);
    baton_sparse_result_t result;
    double total[SMALL] = {0};
    options.history = history;
    create(&world, &options);
    for (int rank = 0; rank < size; rank++) {
        device_sparse_put_step(world.all, rank, 0);
    }
    for (int rank = 0; rank < size; rank++) {
        assert_true(wait_for(&world, rank));
    }
    close_gate(&world, size - 1, stream_of(&world, size - 1));
    for (int step = 1; step < FAILING; step++) {
        for (int rank = 0; rank < size; rank++) {
            device_sparse_put_step(world.all, rank, step);
        }
    }
    support_ok(baton_schedule_cancel(sparse_of(&world, 0)->schedule));
    for (int rank = 0; rank < size && asked; rank++) {
        baton_sparse_t *sparse = sparse_of(&world, rank);
        support_expect(baton_sparse_wait(sparse, SUPPORT_WAIT_MS, &result),
                       BATON_ERR_CANCELLED);
        support_expect(baton_sparse_start_on(sparse, stream_of(&world, rank),
                                             world.all->rank[rank].gradient),
                       BATON_ERR_FAILED);
    }
    device_cluster_recover(world.all->ranks);
    for (int step = FAILING; step < STEPS; step++) {
        for (int rank = 0; rank < size; rank++) {
            device_sparse_put_step(world.all, rank, step);
        }
    }
    open_gate(&world, size - 1);
    for (int rank = 0; rank < size; rank++) {
        assert_true(wait_for(&world, rank));
        /* Nothing was given for the steps that failed. */
        for (int step = 1; step < FAILING; step++) {
            assert_memory_equal(result_of(&world, rank, step),
                                result_of(&world, rank, 0), sizeof total);
        }
    }
    for (int step = 1; step < FAILING; step++) {
        memset(world.all->rank[0].found[step].dense, 0, sizeof total);
    }
    add_up(&world, total);
    check_conserved(&world, total, STEPS);
    device_sparse_destroy(world.all);
    world_close(&world);
}

static void test_recovery_in_flight(void **state)
{
    for (int size = 1; size <= 4; size++) {
        recover_in_flight(size, 1, true);
        recover_in_flight(size, 4, false);
    }
}

/* The group is recovered while the device copies a result, behind which a step
   was started: no epoch overwrites that result meanwhile. */
static void test_result_is_kept_over_a_recovery(void **state)
{
    world_t world = world_open(2, false);
    emulated_t *device = world.all->ranks->devices[0];
    baton_sparse_options_t options =
        options_of(BATON_SPARSE_SPARDL, BATON_SOLO);
    baton_sparse_target_t target = {.size = sizeof target,
                                    .dense = world.all->rank[0].dense};
    baton_sparse_result_t result;
    double total[SMALL] = {0};
    bool there = false;
    options.history = 1;
    options.k = SMALL;
    create(&world, &options);
    baton_sparse_t *sparse = sparse_of(&world, 0);
    char *memory = world.all->rank[0].gradient;
    emulated_write(device, memory, gradient_of(&world, 0, 0), sizeof total);
    support_ok(baton_sparse_start_on(sparse, stream_of(&world, 0), memory));
    support_ok(baton_sparse_wait(sparse, SUPPORT_WAIT_MS, &result));
    /* The stream of copies from the host stands. */
    close_gate(&world, 0, port_of(&world, 0)->stream(device, 0, &there));
    uint64_t before = emulated_counters(device).on_entries;
    support_ok(baton_sparse_wait_on(sparse, stream_of(&world, 0), &target));
    while (emulated_counters(device).on_entries < before + 2) {
        /* until it is put behind the copy to zero the target, and to write */
        support_ok(baton_sparse_test(sparse, &there));
    }
    support_ok(baton_sparse_start_on(sparse, stream_of(&world, 0), memory));
    device_cluster_recover(world.all->ranks);
    device_sparse_put_step(world.all, 1, 1);
    support_expect(baton_sparse_wait(sparse_of(&world, 1), 50, &result),
                   BATON_ERR_TIMEOUT);
    open_gate(&world, 0);
    device_cluster_synchronise(world.all->ranks, 0);
    emulated_read(device, world.all->rank[0].found[0].dense, target.dense,
                  sizeof total);
    assert_memory_equal(result_of(&world, 0, 0), gradient_of(&world, 0, 0),
                        sizeof total);
    device_sparse_put_step(world.all, 0, 1);
    (void)wait_for(&world, 0);
    for (int step = 1; step < 3; step++) { /* peers may begin epochs again */
        (void)wait_for(&world, 1);
        device_sparse_put_step(world.all, step == 1 ? 1 : 0, 2);
    }
    (void)wait_for(&world, 0);
    for (size_t i = 0; i < SMALL; i++) {
        total[i] = 2 * gradient_of(&world, 0, 0)[i];
        for (int step = 1; step < 3; step++) {
            total[i] += gradient_of(&world, 0, step)[i] +
                        gradient_of(&world, 1, step)[i];
        }
    }
    check_conserved(&world, total, 3);
    device_sparse_destroy(world.all);
    world_close(&world);
}

/* ---- wrong use --------------------------------------------------------- */

/* A start that is refused has added nothing. All entries are selected, so what
   is left is what was added too much. */
static void test_refused_start(void **state)
{
    enum { IN_FLIGHT = 8 };
    world_t world = world_open(1, false);
    baton_sparse_options_t options =
        options_of(BATON_SPARSE_SPARDL, BATON_SOLO);
    baton_sparse_result_t result;
    static double left[SMALL];
    options.k = SMALL;
    create(&world, &options);
    baton_sparse_t *sparse = sparse_of(&world, 0);
    baton_stream_t stream = stream_of(&world, 0);
    char *memory = world.all->rank[0].gradient;
    emulated_write(world.all->ranks->devices[0], memory,
                   gradient_of(&world, 0, 0), sizeof left);
    close_gate(&world, 0, stream);
    for (int step = 0; step < IN_FLIGHT; step++) {
        support_ok(baton_sparse_start_on(sparse, stream, memory));
    }
    support_expect(baton_sparse_start_on(sparse, stream, memory),
                   BATON_ERR_BUSY);
    support_expect(baton_sparse_start(sparse, memory), BATON_ERR_BUSY);
    support_expect(baton_sparse_residual(sparse, left), BATON_ERR_BUSY);
    open_gate(&world, 0);
    support_ok(baton_sparse_wait(sparse, SUPPORT_WAIT_MS, &result));
    assert_true(result.included);
    support_ok(baton_sparse_dense(sparse, left));
    assert_memory_equal(left, gradient_of(&world, 0, 0), sizeof left);
    support_ok(baton_sparse_residual(sparse, left));
    for (size_t i = 0; i < SMALL; i++) {
        assert_true(left[i] == 0);
    }
    device_sparse_destroy(world.all);
    world_close(&world);
}

static void test_wrong_use(void **state)
{
    world_t world = world_open(1, false);
    baton_sparse_options_t options =
        options_of(BATON_SPARSE_SPARDL, BATON_SOLO);
    baton_sparse_target_t target = {.size = sizeof target};
    baton_stream_t stream = stream_of(&world, 0);
    static double here[SMALL];
    baton_sparse_t *host = NULL;
    create(&world, &options);
    baton_sparse_t *sparse = sparse_of(&world, 0);
    support_expect(baton_sparse_start_on(sparse, stream, NULL),
                   BATON_ERR_INVALID);
    support_expect(baton_sparse_start_on(sparse, stream, here),
                   BATON_ERR_INVALID);
    support_says("must be 61 elements of device memory");
    support_expect(baton_sparse_start(sparse, here), BATON_ERR_INVALID);
    support_expect(baton_sparse_wait_on(sparse, stream, &target),
                   BATON_ERR_STATE);
    support_expect(baton_sparse_flush(sparse), BATON_ERR_UNSUPPORTED);
    support_expect(baton_sparse_save(sparse, "/tmp/x"), BATON_ERR_UNSUPPORTED);
    device_sparse_destroy(world.all);

    device_sparse_create_on(world.all->ranks->cluster, &options, &host);
    support_expect(baton_sparse_start_on(host, stream, here),
                   BATON_ERR_UNSUPPORTED);
    support_says("with options.partial it needs options.memory");
    support_expect(baton_sparse_wait_on(host, stream, NULL),
                   BATON_ERR_UNSUPPORTED);
    support_ok(baton_sparse_destroy(host));
    world_close(&world);
}

static void test_unsupported(void **state)
{
    support_cluster_t *cluster = support_cluster_open(1, SUPPORT_OWN_ENGINES);
    baton_sparse_options_t options =
        options_of(BATON_SPARSE_SPARDL, BATON_SOLO);
    baton_sparse_t *sparse = NULL;
    options.memory = BATON_MEMORY_DEVICE;
    support_expect(baton_sparse_create(cluster->groups[0], &options,
                                       SUPPORT_WAIT_MS, &sparse),
                   BATON_ERR_UNSUPPORTED);
    support_says("no device");
    support_cluster_close(cluster);
}

/* A device without memory, or a host: whatever was made is freed. */
static void fail_allocations(bool of_device)
{
    device_sparse_t *world =
        device_sparse_open(1, SUPPORT_OWN_ENGINES, seed, false);
    emulated_t *device = world->ranks->devices[0];
    baton_sparse_options_t options =
        options_of(BATON_SPARSE_SPARDL, BATON_SOLO);
    baton_status_t status = BATON_ERR_NO_MEMORY;
    emulated_counters_t before = emulated_counters(device);
    int nth = 0;
    options.memory = BATON_MEMORY_DEVICE;
    options.momentum = 0.5;
    while (status != BATON_OK) {
        baton_sparse_t *sparse = NULL;
        nth++;
        emulated_fail_allocate(device, of_device ? nth : 0);
        baton__alloc_fail_nth(of_device ? 0 : nth);
        status = baton_sparse_create(world->ranks->cluster->groups[0], &options,
                                     SUPPORT_WAIT_MS, &sparse);
        emulated_fail_allocate(device, 0);
        baton__alloc_fail_nth(0);
        assert_true(status == BATON_OK || status == BATON_ERR_NO_MEMORY);
        support_ok(baton_sparse_destroy(sparse));
        emulated_counters_t after = emulated_counters(device);
        assert_int_equal(after.allocated, before.allocated);
        assert_int_equal(after.events, before.events);
    }
    assert_true(nth > 10);
    device_sparse_close(world);
}

static void test_no_memory(void **state)
{
    fail_allocations(true);
    fail_allocations(false);
}

/* A step allocates nothing. */
static void test_steps_do_not_allocate(void **state)
{
    world_t world = world_open(2, false);
    baton_sparse_options_t options =
        options_of(BATON_SPARSE_SPARDL, BATON_QUORUM);
    options.mode_ranks = 1;
    create(&world, &options);
    int64_t allocated = 0;
    for (int step = 0; step < STEPS; step++) {
        for (int rank = 0; rank < 2; rank++) {
            device_sparse_put_step(world.all, rank, step);
        }
        for (int rank = 0; rank < 2; rank++) {
            (void)wait_for(&world, rank);
        }
        allocated = step == STEPS / 2 ? baton__alloc_count() : allocated;
    }
    assert_int_equal(baton__alloc_count(), allocated);
    device_sparse_destroy(world.all);
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_of_the_host),
        cmocka_unit_test(test_manual_progress),
        cmocka_unit_test(test_late_stream),
        cmocka_unit_test(test_begins_with_the_stream),
        cmocka_unit_test(test_gradient_may_be_overwritten),
        cmocka_unit_test(test_steps_come_one_after_the_other),
        cmocka_unit_test(test_staleness_is_of_the_stream),
        cmocka_unit_test(test_history_is_of_the_stream),
        cmocka_unit_test(test_result_is_kept_until_it_is_copied),
        cmocka_unit_test(test_conservation),
        cmocka_unit_test(test_lost_gradient),
        cmocka_unit_test(test_lost_gradient_of_the_host),
        cmocka_unit_test(test_recovery_in_flight),
        cmocka_unit_test(test_result_is_kept_over_a_recovery),
        cmocka_unit_test(test_refused_start),
        cmocka_unit_test(test_wrong_use),
        cmocka_unit_test(test_unsupported),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_steps_do_not_allocate),
    };
    seed = support_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
