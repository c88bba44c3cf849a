/* Sparse all-reduces of gradients in device memory, on ranks with emulated
   devices: what is copied, the order of streams, failures, and wrong use; with
   the residual on the device, and, where that has no selection, on the host.
   test_device_selection.c has the bits of the host's. */
#include "base/alloc.h"
#include "base/config.h"
#include "support/cmocka.h"
#include "support/device_sparse.h"
#include "support/random.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { N = 601, K = 24 };

static uint64_t seed;

/* In which of the two ways: a test runs in both. */
static bool no_selection;

static baton_sparse_options_t options_of(baton_sparse_algorithm_t algorithm)
{
    return (baton_sparse_options_t){.size = sizeof(baton_sparse_options_t),
                                    .algorithm = algorithm,
                                    .count = N,
                                    .dtype = BATON_F32,
                                    .k = K};
}

/* A manual engine has only the application's calls to go on with. */
static void test_manual_progress(void **state)
{
    device_sparse_t *world =
        device_sparse_open(1, SUPPORT_OWN_MANUAL, seed, no_selection);
    baton_sparse_options_t options = options_of(BATON_SPARSE_SPARDL);
    baton_sparse_result_t result = {0};
    device_sparse_create(world, &options, DEVICE_SPARSE_ANY);
    device_sparse_run_on_hosts(world);
    for (int step = 0; step < DEVICE_SPARSE_STEPS; step++) {
        device_sparse_run_step(world, step);
        device_sparse_check(world, 0, step);
    }
    device_sparse_put_step(world, 0, 0);
    support_ok(
        baton_sparse_wait(world->rank[0].device, SUPPORT_WAIT_MS, &result));
    device_sparse_destroy(world);
    device_sparse_close(world);
}

/* ---- what is copied ---------------------------------------------------- */

/* Bytes that went one way during a step. */
static uint64_t copied(const emulated_counters_t *before,
                       const emulated_counters_t *after,
                       emulated_direction_t direction)
{
    return after->copied_bytes[direction] - before->copied_bytes[direction];
}

/* Three ranks have three blocks of SparDL, of 8 entries each. With selection
   these come off the device, with a head of 16 bytes each; what goes there are
   the two blocks that were received, the indices of the result, and the result.
   Without it the blocks of the gradient come off it one by one, and the entries
   of the result alone go back. */
static void check_copies(const emulated_counters_t *before,
                         const emulated_counters_t *after, size_t entries)
{
    const size_t entry = sizeof(uint32_t) + sizeof(float);
    size_t result = entries * entry;
    size_t out = N * sizeof(float), in = result;
    if (!no_selection) {
        out = 3 * (16 + K / 3 * entry);
        in = result + entries * sizeof(uint32_t) + K / 3 * entry * 2;
    }
    assert_int_equal(after->copies[EMULATED_DEVICE_TO_HOST] -
                         before->copies[EMULATED_DEVICE_TO_HOST],
                     3);
    assert_int_equal(copied(before, after, EMULATED_DEVICE_TO_HOST), out);
    assert_int_equal(copied(before, after, EMULATED_HOST_TO_DEVICE), in);
    assert_int_equal(after->unpinned, before->unpinned);
}

static void test_copies(void **state)
{
    device_sparse_t *world =
        device_sparse_open(3, SUPPORT_OWN_ENGINES, seed, no_selection);
    baton_sparse_options_t options = options_of(BATON_SPARSE_SPARDL);
    device_sparse_create(world, &options, DEVICE_SPARSE_ANY);
    emulated_counters_t before[3], after;
    int64_t allocations = baton__alloc_count();
    for (int rank = 0; rank < 3; rank++) {
        const device_sparse_rank_t *memory = &world->rank[rank];
        baton_sparse_target_t target = {.size = sizeof target,
                                        .indices = memory->indices,
                                        .values = memory->values};
        emulated_write(world->ranks->devices[rank], memory->gradient,
                       world->rank[rank].gradients[0], world->bytes);
        before[rank] = emulated_counters(world->ranks->devices[rank]);
        support_ok(baton_sparse_start_on(world->rank[rank].device,
                                         world->ranks->streams[rank],
                                         memory->gradient));
        support_ok(baton_sparse_wait_on(world->rank[rank].device,
                                        world->ranks->streams[rank], &target));
    }
    for (int rank = 0; rank < 3; rank++) {
        baton_sparse_result_t result = {0};
        device_cluster_synchronise(world->ranks, rank);
        support_ok(baton_sparse_wait(world->rank[rank].device, SUPPORT_WAIT_MS,
                                     &result));
        after = emulated_counters(world->ranks->devices[rank]);
        check_copies(&before[rank], &after, result.count);
    }
    assert_int_equal(baton__alloc_count(), allocations);
    device_sparse_destroy(world);
    device_sparse_close(world);
}

/* ---- order ------------------------------------------------------------- */

/* Nothing is read before the stream gets there: neither a gradient on the
   device nor one on the host. */
static void test_begins_with_the_stream(void **state)
{
    for (int memory = 0; memory < 2; memory++) {
        device_sparse_t *world =
            device_sparse_open(2, SUPPORT_OWN_ENGINES, seed, no_selection);
        baton_sparse_options_t options = options_of(BATON_SPARSE_TOPKA);
        baton_sparse_t *sparse[2];
        baton_sparse_result_t result = {0};
        void *gate = NULL;
        emulated_t *device = world->ranks->devices[1];
        const baton_device_port_t *port = emulated_port(device);
        options.k = N;
        options.memory = (baton_memory_t)memory;
        world->bytes = sizeof(float);
        device_sparse_create_on(world->ranks->cluster, &options, sparse);
        support_ok(port->flag_create(device, &gate));
        support_ok(port->await(device, world->ranks->streams[1], gate, 1));
        static float one[N], late[2][N];
        void *pinned = NULL;
        baton_engine_t *engine =
            baton_group_engine(world->ranks->cluster->groups[1]);
        support_ok(
            baton_device_alloc(engine, BATON_MEMORY_HOST, sizeof one, &pinned));
        memset(pinned, 0, sizeof one);
        for (int i = 0; i < N; i++) {
            one[i] = 1;
            late[0][i] = 2;
        }
        for (int rank = 0; rank < 2; rank++) {
            void *gradient = memory != 0 ? (void *)world->rank[rank].gradient
                             : rank == 0 ? (void *)late[0]
                                         : pinned;
            if (rank == 1 || memory != 0) {
                device_cluster_copy(world->ranks, rank, gradient,
                                    rank == 0 ? late[0] : one, sizeof one);
            }
            support_ok(baton_sparse_start_on(
                sparse[rank], world->ranks->streams[rank], gradient));
            support_ok(baton_sparse_wait_on(sparse[rank],
                                            world->ranks->streams[rank], NULL));
        }
        bool done = true;
        for (int polls = 0; polls < 50; polls++) {
            support_ok(baton_sparse_test(sparse[0], &done));
            assert_false(done);
        }
        port->raise_now(device, gate, 1);
        for (int rank = 0; rank < 2; rank++) {
            support_ok(
                baton_sparse_wait(sparse[rank], SUPPORT_WAIT_MS, &result));
            for (size_t i = 0; i < N; i++) {
                assert_true(((const float *)result.values)[i] == 3);
            }
            device_cluster_synchronise(world->ranks, rank);
            support_ok(baton_sparse_destroy(sparse[rank]));
        }
        port->flag_destroy(device, gate);
        baton_device_free(engine, BATON_MEMORY_HOST, pinned);
        device_sparse_close(world);
    }
}

/* A flush has no gradient to copy. */
static void test_flush(void **state)
{
    device_sparse_t *world =
        device_sparse_open(2, SUPPORT_OWN_ENGINES, seed, no_selection);
    baton_sparse_options_t options = options_of(BATON_SPARSE_SPARDL);
    device_sparse_create(world, &options, DEVICE_SPARSE_ANY);
    device_sparse_run_on_hosts(world);
    for (int step = 0; step < DEVICE_SPARSE_STEPS; step++) {
        device_sparse_run_step(world, step);
    }
    static float sums[2][N];
    for (int i = 0; i < 2; i++) {
        baton_sparse_t *both[2];
        for (int rank = 0; rank < 2; rank++) {
            const device_sparse_rank_t *mine = &world->rank[rank];
            both[rank] = i == 0 ? mine->host : mine->device;
            support_ok(baton_sparse_flush(both[rank]));
        }
        for (int rank = 0; rank < 2; rank++) {
            baton_sparse_result_t result = {0};
            support_ok(baton_sparse_wait(both[rank], SUPPORT_WAIT_MS, &result));
            assert_int_equal(result.count, N);
            memcpy(sums[i], result.values, sizeof sums[i]);
        }
    }
    assert_memory_equal(sums[0], sums[1], sizeof sums[0]);
    device_sparse_check_residuals(world);
    device_sparse_destroy(world);
    device_sparse_close(world);
}

/* A result's parts may go to where other parts of the one before it are. */
static void test_targets_change_places(void **state)
{
    device_sparse_t *world =
        device_sparse_open(1, SUPPORT_OWN_ENGINES, seed, no_selection);
    emulated_t *device = world->ranks->devices[0];
    baton_stream_t stream = world->ranks->streams[0];
    const device_sparse_rank_t *memory = &world->rank[0];
    baton_sparse_options_t options = options_of(BATON_SPARSE_SPARDL);
    baton_sparse_target_t targets[] = {
        {.dense = memory->dense, .indices = memory->indices},
        {.dense = memory->values, .values = memory->dense},
        {.values = memory->indices, .indices = (void *)memory->values}};
    static char dense[DEVICE_SPARSE_BYTES], values[2][K * sizeof(float)];
    static uint32_t indices[2][K];
    baton_sparse_result_t result = {0};
    device_sparse_create(world, &options, DEVICE_SPARSE_ANY);
    device_sparse_run_on_hosts(world);
    for (int step = 0; step < 3; step++) {
        targets[step].size = sizeof targets[step];
        device_cluster_copy(world->ranks, 0, memory->gradient,
                            memory->gradients[step], world->bytes);
        support_ok(
            baton_sparse_start_on(memory->device, stream, memory->gradient));
        support_ok(
            baton_sparse_wait_on(memory->device, stream, &targets[step]));
        if (step == 0) {
            device_cluster_copy(world->ranks, 0, indices[0], memory->indices,
                                sizeof indices[0]);
        } else if (step == 1) {
            device_cluster_copy(world->ranks, 0, dense, memory->values,
                                world->bytes);
            device_cluster_copy(world->ranks, 0, values[0], memory->dense,
                                sizeof values[0]);
        }
    }
    device_cluster_copy(world->ranks, 0, values[1], memory->indices,
                        sizeof values[1]);
    device_cluster_copy(world->ranks, 0, indices[1], memory->values,
                        sizeof indices[1]);
    emulated_synchronise(device, stream);
    support_ok(baton_sparse_wait(memory->device, SUPPORT_WAIT_MS, &result));
    const device_sparse_outcome_t *right = world->expected;
    assert_memory_equal(indices[0], right[0].indices, sizeof indices[0]);
    assert_memory_equal(dense, right[1].dense, world->bytes);
    assert_memory_equal(values[0], right[1].values, sizeof values[0]);
    assert_memory_equal(values[1], right[2].values, sizeof values[1]);
    assert_memory_equal(indices[1], right[2].indices, sizeof indices[1]);
    device_sparse_destroy(world);
    device_sparse_close(world);
}

/* Nobody steps the engine but destroy: steps that are in flight end before it
   takes anything away, and their results are given. */
static void test_destroy_in_flight(void **state)
{
    device_sparse_t *world =
        device_sparse_open(1, SUPPORT_OWN_MANUAL, seed, no_selection);
    baton_sparse_options_t options = options_of(BATON_SPARSE_SPARDL);
    device_sparse_create(world, &options, DEVICE_SPARSE_ANY);
    device_sparse_run_on_hosts(world);
    for (int step = 0; step < DEVICE_SPARSE_STEPS; step++) {
        device_sparse_put_step(world, 0, step);
    }
    device_sparse_destroy(world);
    device_cluster_synchronise(world->ranks, 0);
    for (int step = 0; step < DEVICE_SPARSE_STEPS; step++) {
        device_sparse_check(world, 0, step);
    }
    device_sparse_close(world);
}

/* What a stream does not get to within BATON_DESTROY_MS is cancelled. */
static void test_destroy_behind_gate(void **state)
{
    assert_int_equal(setenv("BATON_DESTROY_MS", "40", 1), 0);
    baton__config_forget();
    device_sparse_t *world =
        device_sparse_open(1, SUPPORT_OWN_ENGINES, seed, no_selection);
    emulated_t *device = world->ranks->devices[0];
    const baton_device_port_t *port = emulated_port(device);
    baton_sparse_options_t options = options_of(BATON_SPARSE_SPARDL);
    void *gate = NULL;
    device_sparse_create(world, &options, DEVICE_SPARSE_ANY);
    support_ok(port->flag_create(device, &gate));
    support_ok(port->await(device, world->ranks->streams[0], gate, 1));
    for (int step = 0; step < 2; step++) {
        device_sparse_put_step(world, 0, step);
    }
    device_sparse_destroy(world);
    port->raise_now(device, gate, 1);
    device_cluster_synchronise(world->ranks, 0);
    port->flag_destroy(device, gate);
    device_sparse_close(world);
    assert_int_equal(unsetenv("BATON_DESTROY_MS"), 0);
    baton__config_forget();
}

/* ---- failures ---------------------------------------------------------- */

/* The k-th piece of work of rank 0's device fails in the second of two steps
   that are in flight: streams go on, residuals are those of after the last
   step that a rank has completed, and after a recovery all goes on. */
static bool fail_once(const baton_sparse_options_t *options, int k)
{
    enum { SIZE = 3 };
    static char before[SIZE][DEVICE_SPARSE_BYTES], after[DEVICE_SPARSE_BYTES];
    device_sparse_t *world =
        device_sparse_open(SIZE, SUPPORT_OWN_ENGINES, seed, no_selection);
    baton_status_t status[SIZE];
    baton_sparse_result_t result = {0};
    device_sparse_create(world, options, DEVICE_SPARSE_ANY);
    device_sparse_run_step(world, 0);
    for (int rank = 0; rank < SIZE; rank++) {
        support_ok(
            baton_sparse_residual(world->rank[rank].device, before[rank]));
        emulated_write(world->ranks->devices[rank], world->rank[rank].gradient,
                       world->rank[rank].gradients[1], world->bytes);
    }
    emulated_fail_work(world->ranks->devices[0], k);
    bool failed = false;
    for (int rank = 0; rank < SIZE; rank++) {
        baton_sparse_target_t target = {.size = sizeof target,
                                        .dense = world->rank[rank].dense};
        status[rank] = baton_sparse_start_on(world->rank[rank].device,
                                             world->ranks->streams[rank],
                                             world->rank[rank].gradient);
        support_ok(baton_sparse_wait_on(world->rank[rank].device,
                                        world->ranks->streams[rank], &target));
    }
    for (int rank = 0; rank < SIZE; rank++) {
        device_cluster_synchronise(world->ranks, rank);
        if (status[rank] == BATON_OK) {
            status[rank] = baton_sparse_wait(world->rank[rank].device,
                                             SUPPORT_WAIT_MS, &result);
        }
        failed |= status[rank] != BATON_OK && rank != 0;
    }
    emulated_fail_work(world->ranks->devices[0], 0);
    emulated_repair(world->ranks->devices[0]);
    device_cluster_recover(world->ranks);
    for (int rank = 0; rank < SIZE; rank++) {
        support_ok(baton_sparse_residual(world->rank[rank].device, after));
        /* Rank 0 may have been denied the result alone. */
        bool same = memcmp(before[rank], after, world->bytes) == 0;
        assert_true(rank == 0 || same == (status[rank] != BATON_OK));
    }
    for (int step = 2; step < 5; step++) {
        for (int rank = 0; rank < SIZE; rank++) {
            device_sparse_put_step(world, rank, step);
        }
    }
    for (int rank = 0; rank < SIZE; rank++) {
        device_cluster_synchronise(world->ranks, rank);
        support_ok(baton_sparse_wait(world->rank[rank].device, SUPPORT_WAIT_MS,
                                     &result));
        for (int step = 2; step < 5; step++) {
            assert_memory_equal(world->rank[rank].found[step].dense,
                                world->rank[0].found[step].dense, world->bytes);
        }
    }
    device_sparse_destroy(world);
    device_sparse_close(world);
    return failed;
}

/* `last` is more than the pieces of work of a step of this rank and of its
   target. Those behind the result's last message do not fail its peers. */
static void fail_each(const baton_sparse_options_t *options, int last)
{
    int failures = 0, by = no_selection ? 1 : 3;
    for (int k = 1; k <= last; k += by) {
        failures += fail_once(options, k);
    }
    assert_in_range(failures, 1, last / by);
    assert_false(fail_once(options, last));
}

static void test_failure(void **state)
{
    baton_sparse_options_t options = options_of(BATON_SPARSE_SPARDL);
    fail_each(&options, no_selection ? 7 : 28);
    options = options_of(BATON_SPARSE_OKTOPK);
    fail_each(&options, no_selection ? 7 : 16);
    options = options_of(BATON_SPARSE_REDSYNC);
    options.quantise = true;
    options.keep_error = true;
    fail_each(&options, no_selection ? 7 : 16);
}

/* A step fails, and the group is recovered before anybody asks: a target for
   its result stays as it was, after earlier steps and without any. */
static void target_after_recovery(int steps)
{
    static char kept[DEVICE_SPARSE_BYTES], now[DEVICE_SPARSE_BYTES];
    device_sparse_t *world =
        device_sparse_open(1, SUPPORT_OWN_ENGINES, seed, no_selection);
    emulated_t *device = world->ranks->devices[0];
    const device_sparse_rank_t *memory = &world->rank[0];
    baton_sparse_options_t options = options_of(BATON_SPARSE_SPARDL);
    baton_sparse_target_t target = {.size = sizeof target,
                                    .dense = memory->dense,
                                    .indices = memory->indices,
                                    .values = memory->values,
                                    .count = memory->count};
    uint64_t count = 12345;
    device_sparse_create(world, &options, DEVICE_SPARSE_ANY);
    for (int step = 0; step < steps; step++) {
        device_sparse_run_step(world, step);
    }
    memset(kept, 0x5a, sizeof kept);
    emulated_write(device, memory->dense, kept, world->bytes);
    emulated_write(device, memory->count, &count, sizeof count);
    emulated_fail_work(device, 1);
    support_ok(baton_sparse_start_on(
        world->rank[0].device, world->ranks->streams[0], memory->gradient));
    support_ok(baton_sparse_wait_on(world->rank[0].device,
                                    world->ranks->streams[0], NULL));
    emulated_synchronise(device, world->ranks->streams[0]);
    emulated_fail_work(device, 0);
    emulated_repair(device);
    device_cluster_recover(world->ranks);
    support_ok(baton_sparse_wait_on(world->rank[0].device,
                                    world->ranks->streams[0], &target));
    emulated_synchronise(device, world->ranks->streams[0]);
    emulated_read(device, now, memory->dense, world->bytes);
    emulated_read(device, &count, memory->count, sizeof count);
    assert_memory_equal(now, kept, world->bytes);
    assert_int_equal(count, 12345);
    device_sparse_destroy(world);
    device_sparse_close(world);
}

static void test_target_after_recovery(void **state)
{
    target_after_recovery(0);
    target_after_recovery(2);
}

static void count_line(void *arg, baton_log_level_t level, const char *message)
{
    atomic_fetch_add((_Atomic int *)arg, 1);
}

/* A result that was not copied is told of, once, also where a later one was;
   where all were copied nothing is logged. */
static void test_failed_gift(void **state)
{
    static _Atomic int lines;
    baton_log_set(count_line, &lines);
    device_sparse_t *world =
        device_sparse_open(1, SUPPORT_OWN_ENGINES, seed, no_selection);
    emulated_t *device = world->ranks->devices[0];
    baton_stream_t stream = world->ranks->streams[0];
    const device_sparse_rank_t *memory = &world->rank[0];
    baton_sparse_options_t options = options_of(BATON_SPARSE_SPARDL);
    baton_sparse_target_t target = {.size = sizeof target,
                                    .values = memory->values};
    baton_sparse_result_t result = {0};
    device_sparse_create(world, &options, DEVICE_SPARSE_ANY);
    emulated_write(device, memory->gradient, memory->gradients[0],
                   world->bytes);
    for (int step = 0; step < 3; step++) {
        support_ok(
            baton_sparse_start_on(memory->device, stream, memory->gradient));
        support_ok(baton_sparse_wait_on(memory->device, stream, NULL));
        emulated_synchronise(device, stream);
        emulated_fail_work(device, step == 1 ? 1 : 0);
        support_ok(baton_sparse_wait_on(memory->device, stream, &target));
        emulated_synchronise(device, stream);
        emulated_repair(device);
        if (step == 0) {
            int before = atomic_load(&lines);
            support_ok(
                baton_sparse_wait(memory->device, SUPPORT_WAIT_MS, &result));
            assert_int_equal(atomic_load(&lines), before);
        }
    }
    support_expect(baton_sparse_wait(memory->device, SUPPORT_WAIT_MS, &result),
                   BATON_ERR_SYSTEM);
    support_says("a result was not copied");
    support_ok(baton_sparse_wait(memory->device, SUPPORT_WAIT_MS, &result));
    assert_int_equal(result.count, K);
    device_sparse_destroy(world);
    device_sparse_close(world);
    baton_log_set(NULL, NULL);
}

/* The last step of the warm-up fails, and the next one is behind it in the
   stream, of the other schedule: it fails with it. */
static void test_failure_ends_warm_up(void **state)
{
    device_sparse_t *world =
        device_sparse_open(1, SUPPORT_OWN_ENGINES, seed, no_selection);
    emulated_t *device = world->ranks->devices[0];
    baton_stream_t stream = world->ranks->streams[0];
    baton_sparse_options_t options = options_of(BATON_SPARSE_SPARDL);
    baton_sparse_result_t result = {0};
    options.warmup = 1;
    device_sparse_create(world, &options, DEVICE_SPARSE_ANY);
    baton_sparse_t *sparse = world->rank[0].device;
    void *gradient = world->rank[0].gradient;
    emulated_write(device, gradient, world->rank[0].gradients[0], world->bytes);
    emulated_fail_work(device, 1);
    support_ok(baton_sparse_start_on(sparse, stream, gradient));
    support_ok(baton_sparse_wait_on(sparse, stream, NULL));
    emulated_synchronise(device, stream);
    emulated_repair(device);
    support_ok(baton_sparse_start_on(sparse, stream, gradient));
    support_expect(baton_sparse_wait(sparse, SUPPORT_WAIT_MS, &result),
                   BATON_ERR_SYSTEM);
    support_says("the step before it has failed");
    device_cluster_recover(world->ranks);
    device_sparse_compare(world, true);
    device_sparse_destroy(world);
    device_sparse_close(world);
}

/* A step that has failed, and whose error was told, does not fail a flush. */
static void test_flush_after_failure(void **state)
{
    device_sparse_t *world =
        device_sparse_open(1, SUPPORT_OWN_ENGINES, seed, no_selection);
    emulated_t *device = world->ranks->devices[0];
    baton_sparse_options_t options = options_of(BATON_SPARSE_SPARDL);
    baton_sparse_result_t result = {0};
    device_sparse_create(world, &options, DEVICE_SPARSE_ANY);
    baton_sparse_t *sparse = world->rank[0].device;
    emulated_write(device, world->rank[0].gradient, world->rank[0].gradients[0],
                   world->bytes);
    emulated_fail_work(device, 1);
    support_ok(baton_sparse_start(sparse, world->rank[0].gradient));
    support_expect(baton_sparse_wait(sparse, SUPPORT_WAIT_MS, &result),
                   BATON_ERR_SYSTEM);
    emulated_repair(device);
    support_ok(baton_sparse_flush(sparse));
    support_ok(baton_sparse_wait(sparse, SUPPORT_WAIT_MS, &result));
    assert_int_equal(result.count, N);
    device_sparse_destroy(world);
    device_sparse_close(world);
}

/* ---- wrong use --------------------------------------------------------- */

static void test_wrong_use(void **state)
{
    device_sparse_t *world =
        device_sparse_open(1, SUPPORT_OWN_ENGINES, seed, no_selection);
    baton_sparse_options_t options = options_of(BATON_SPARSE_SPARDL);
    baton_sparse_target_t target = {.size = sizeof target};
    baton_stream_t stream = world->ranks->streams[0];
    emulated_t *device = world->ranks->devices[0];
    const baton_device_port_t *port = emulated_port(device);
    void *gate = NULL, *gradient = world->rank[0].gradient;
    static float here[N];
    baton_sparse_t *host = NULL;
    device_sparse_create(world, &options, DEVICE_SPARSE_ANY);
    baton_sparse_t *sparse = world->rank[0].device;
    emulated_write(device, gradient, world->rank[0].gradients[0], world->bytes);

    support_expect(baton_sparse_start_on(NULL, stream, gradient),
                   BATON_ERR_INVALID);
    support_expect(baton_sparse_start_on(sparse, stream, NULL),
                   BATON_ERR_INVALID);
    support_expect(baton_sparse_start_on(sparse, stream, here),
                   BATON_ERR_INVALID);
    support_says("must be 601 elements of device memory");
    support_expect(baton_sparse_start(sparse, here), BATON_ERR_INVALID);
    support_expect(baton_sparse_wait_on(sparse, stream, &target),
                   BATON_ERR_STATE);
    target.values = here;
    support_expect(baton_sparse_wait_on(sparse, stream, &target),
                   BATON_ERR_INVALID);
    support_says("target.values must be");
    target.values = world->rank[0].values;

    support_ok(port->flag_create(device, &gate));
    support_ok(port->await(device, stream, gate, 1));
    for (int k = 0; k < 8; k++) {
        support_ok(baton_sparse_start_on(sparse, stream, gradient));
    }
    support_expect(baton_sparse_start_on(sparse, stream, gradient),
                   BATON_ERR_BUSY);
    support_expect(baton_sparse_start(sparse, gradient), BATON_ERR_BUSY);
    port->raise_now(device, gate, 1);
    baton_sparse_result_t result = {0};
    support_ok(baton_sparse_wait(sparse, SUPPORT_WAIT_MS, &result));
    support_ok(port->await(device, stream, gate, 2));
    support_ok(baton_sparse_wait_on(sparse, stream, &target));
    /* A step waits for the copies of the last one's result. */
    support_ok(baton_sparse_start(sparse, gradient));
    support_expect(baton_sparse_wait(sparse, 20, &result), BATON_ERR_TIMEOUT);
    port->raise_now(device, gate, 2);
    support_ok(baton_sparse_wait(sparse, SUPPORT_WAIT_MS, &result));
    emulated_synchronise(device, stream);
    port->flag_destroy(device, gate);
    device_sparse_destroy(world);

    device_sparse_create_on(world->ranks->cluster, &options, &host);
    support_ok(baton_sparse_start_on(host, stream, here));
    support_expect(baton_sparse_wait_on(host, stream, &target),
                   BATON_ERR_UNSUPPORTED);
    support_ok(baton_sparse_wait_on(host, stream, NULL));
    support_ok(baton_sparse_destroy(host));
    device_sparse_close(world);
}

static void test_unsupported(void **state)
{
    support_cluster_t *cluster = support_cluster_open(1, SUPPORT_OWN_ENGINES);
    baton_sparse_options_t options = options_of(BATON_SPARSE_SPARDL);
    static float gradient[N];
    baton_sparse_t *sparse = NULL;
    device_sparse_create_on(cluster, &options, &sparse);
    support_expect(baton_sparse_start_on(sparse, NULL, gradient),
                   BATON_ERR_UNSUPPORTED);
    support_says("no device");
    support_expect(baton_sparse_wait_on(sparse, NULL, NULL),
                   BATON_ERR_UNSUPPORTED);
    support_ok(baton_sparse_destroy(sparse));
    options.memory = BATON_MEMORY_DEVICE;
    support_expect(baton_sparse_create(cluster->groups[0], &options,
                                       SUPPORT_WAIT_MS, &sparse),
                   BATON_ERR_UNSUPPORTED);
    support_says("no device");
    options = options_of(BATON_SPARSE_SPARDL);
    options.memory = (baton_memory_t)2;
    support_expect(baton_sparse_create(cluster->groups[0], &options,
                                       SUPPORT_WAIT_MS, &sparse),
                   BATON_ERR_INVALID);
    support_says("memory is 2");
    support_cluster_close(cluster);
}

/* Partial steps are of gradients in host memory, in no order of a stream. */
static void test_partial_is_refused(void **state)
{
    device_sparse_t *world =
        device_sparse_open(1, SUPPORT_OWN_ENGINES, seed, no_selection);
    baton_sparse_options_t options = options_of(BATON_SPARSE_SPARDL);
    static float here[N];
    baton_sparse_t *sparse = NULL;
    options.partial = true;
    device_sparse_create_on(world->ranks->cluster, &options, &sparse);
    support_expect(
        baton_sparse_start_on(sparse, world->ranks->streams[0], here),
        BATON_ERR_UNSUPPORTED);
    support_says("options.partial");
    support_ok(baton_sparse_destroy(sparse));
    options.memory = BATON_MEMORY_DEVICE;
    support_expect(baton_sparse_create(world->ranks->cluster->groups[0],
                                       &options, SUPPORT_WAIT_MS, &sparse),
                   BATON_ERR_UNSUPPORTED);
    support_says("allowed with options.partial: BATON_MEMORY_HOST");
    device_sparse_close(world);
}

/* A device without memory, or without more of it. */
static void test_no_memory(void **state)
{
    device_sparse_t *world =
        device_sparse_open(1, SUPPORT_OWN_ENGINES, seed, no_selection);
    emulated_t *device = world->ranks->devices[0];
    baton_sparse_options_t options = options_of(BATON_SPARSE_SPARDL);
    options.memory = BATON_MEMORY_DEVICE;
    emulated_counters_t before = emulated_counters(device);
    baton_status_t status = BATON_ERR_NO_MEMORY;
    for (int k = 1; status != BATON_OK; k++) {
        baton_sparse_t *sparse = NULL;
        emulated_fail_allocate(device, k);
        status = baton_sparse_create(world->ranks->cluster->groups[0], &options,
                                     SUPPORT_WAIT_MS, &sparse);
        emulated_fail_allocate(device, 0);
        assert_true(status == BATON_OK || status == BATON_ERR_NO_MEMORY);
        assert_true(k > 1 || status != BATON_OK);
        support_ok(baton_sparse_destroy(sparse));
        emulated_counters_t after = emulated_counters(device);
        assert_int_equal(after.allocated, before.allocated);
        assert_int_equal(after.events, before.events);
    }
    device_sparse_close(world);
}

/* A host without memory: whatever was made is freed. */
static void test_no_memory_of_the_host(void **state)
{
    static const baton_sparse_algorithm_t algorithms[] = {
        BATON_SPARSE_SPARDL, BATON_SPARSE_TOPKA,  BATON_SPARSE_TOPKDSA,
        BATON_SPARSE_GTOPK,  BATON_SPARSE_OKTOPK, BATON_SPARSE_REDSYNC};
    device_sparse_t *world =
        device_sparse_open(1, SUPPORT_OWN_ENGINES, seed, no_selection);
    emulated_t *device = world->ranks->devices[0];
    emulated_counters_t before = emulated_counters(device);
    for (int i = 0; i < 6; i++) {
        baton_sparse_options_t options = options_of(algorithms[i]);
        baton_status_t status = BATON_ERR_NO_MEMORY;
        options.quantise = algorithms[i] == BATON_SPARSE_REDSYNC;
        options.keep_error = options.quantise;
        int64_t nth = 0;
        options.memory = BATON_MEMORY_DEVICE;
        options.momentum = 0.5;
        options.clip = 1;
        while (status != BATON_OK) {
            baton_sparse_t *sparse = NULL;
            baton__alloc_fail_nth(++nth);
            status = baton_sparse_create(world->ranks->cluster->groups[0],
                                         &options, SUPPORT_WAIT_MS, &sparse);
            baton__alloc_fail_nth(0);
            assert_true(status == BATON_OK || status == BATON_ERR_NO_MEMORY);
            support_ok(baton_sparse_destroy(sparse));
            emulated_counters_t after = emulated_counters(device);
            assert_int_equal(after.allocated, before.allocated);
            assert_int_equal(after.events, before.events);
        }
        assert_true(nth > 10);
    }
    device_sparse_close(world);
}

static int with_selection(void **state)
{
    no_selection = false;
    return 0;
}

static int without_selection(void **state)
{
    no_selection = true;
    return 0;
}

int main(void)
{
#define IN_BOTH_WAYS(test)                                                     \
    cmocka_unit_test_setup(test, with_selection),                              \
        cmocka_unit_test_setup(test, without_selection)
    const struct CMUnitTest tests[] = {
        IN_BOTH_WAYS(test_manual_progress),
        IN_BOTH_WAYS(test_copies),
        IN_BOTH_WAYS(test_begins_with_the_stream),
        IN_BOTH_WAYS(test_flush),
        IN_BOTH_WAYS(test_targets_change_places),
        IN_BOTH_WAYS(test_destroy_in_flight),
        IN_BOTH_WAYS(test_destroy_behind_gate),
        IN_BOTH_WAYS(test_failure),
        IN_BOTH_WAYS(test_target_after_recovery),
        IN_BOTH_WAYS(test_failed_gift),
        IN_BOTH_WAYS(test_failure_ends_warm_up),
        IN_BOTH_WAYS(test_flush_after_failure),
        IN_BOTH_WAYS(test_wrong_use),
        cmocka_unit_test(test_unsupported),
        cmocka_unit_test(test_partial_is_refused),
        IN_BOTH_WAYS(test_no_memory),
        IN_BOTH_WAYS(test_no_memory_of_the_host),
    };
    seed = support_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
