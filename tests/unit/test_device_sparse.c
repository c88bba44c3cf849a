/* Sparse all-reduces of gradients in device memory, on ranks with emulated
   devices: selections, results and residuals with the bits of the host's; what
   is copied, the order of streams, and failures that are a device's alone. What
   holds on the host, too, is in sim/test_properties.c. */
#include "base/alloc.h"
#include "base/config.h"
#include "support/cmocka.h"
#include "support/device_sparse.h"
#include "support/random.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 601, K = 24 };

static const baton_sparse_algorithm_t algorithms[] = {
    BATON_SPARSE_SPARDL, BATON_SPARSE_TOPKA, BATON_SPARSE_REDSYNC,
    BATON_SPARSE_DENSE};

enum { ALGORITHMS = 4 };

static const baton_dtype_t dtypes[] = {BATON_F32, BATON_F64, BATON_F16,
                                       BATON_BF16};

static baton_sparse_options_t options_of(baton_sparse_algorithm_t algorithm)
{
    return (baton_sparse_options_t){.size = sizeof(baton_sparse_options_t),
                                    .algorithm = algorithm,
                                    .count = N,
                                    .dtype = BATON_F32,
                                    .k = K};
}

static baton_sparse_options_t sized(baton_sparse_algorithm_t algorithm,
                                    size_t count, size_t k)
{
    baton_sparse_options_t options = options_of(algorithm);
    options.count = count;
    options.k = k;
    return options;
}

/* One rank, its memory and its stream. */
typedef struct alone {
    device_sparse_t *world;
    emulated_t *device;
    const device_sparse_rank_t *memory;
    baton_sparse_t *sparse;
    baton_stream_t stream;
    size_t bytes; /* of a gradient */
} alone_t;

static void create_alone(alone_t *self, const baton_sparse_options_t *options)
{
    device_sparse_create(self->world, options, DEVICE_SPARSE_ANY);
    self->sparse = self->memory->device;
    self->bytes = self->world->bytes;
    emulated_write(self->device, self->memory->gradient,
                   self->memory->gradients[0], self->bytes);
}

static alone_t open_alone(int variant, const baton_sparse_options_t *options)
{
    device_sparse_t *world = device_sparse_open(1, variant);
    alone_t self = {.world = world,
                    .device = world->ranks->devices[0],
                    .memory = &world->rank[0],
                    .stream = world->ranks->streams[0]};
    create_alone(&self, options);
    return self;
}

static void close_alone(alone_t *self)
{
    device_sparse_destroy(self->world);
    device_sparse_close(self->world);
}

/* A step in the stream, whose result goes nowhere. */
static void put_alone(const alone_t *self)
{
    support_ok(baton_sparse_start_on(self->sparse, self->stream,
                                     self->memory->gradient));
    support_ok(baton_sparse_wait_on(self->sparse, self->stream, NULL));
    emulated_synchronise(self->device, self->stream);
}

static void wait_alone(const alone_t *self, baton_status_t status)
{
    baton_sparse_result_t result = {0};
    support_expect(baton_sparse_wait(self->sparse, SUPPORT_WAIT_MS, &result),
                   status);
}

static baton_sparse_target_t target_of(const alone_t *self)
{
    return (baton_sparse_target_t){.size = sizeof(baton_sparse_target_t),
                                   .dense = self->memory->dense,
                                   .indices = self->memory->indices,
                                   .values = self->memory->values,
                                   .count = self->memory->count};
}

/* ---- the bits of the host ---------------------------------------------- */

/* Runs some steps; what goes to the device and comes from it is a small part of
   the gradients, and nothing is allocated. */
static void expect_entries_alone(device_sparse_t *world,
                                 const baton_sparse_options_t *options)
{
    emulated_t *device = world->ranks->devices[0];
    device_sparse_create(world, options, DEVICE_SPARSE_ANY);
    emulated_counters_t before = emulated_counters(device);
    int64_t allocations = baton__alloc_count();
    for (int step = 0; step < DEVICE_SPARSE_STEPS; step++) {
        device_sparse_run_step(world, step);
    }
    assert_int_equal(baton__alloc_count(), allocations);
    emulated_counters_t after = emulated_counters(device);
    uint64_t most = DEVICE_SPARSE_STEPS * world->bytes / 20;
    assert_true(after.on_entries > before.on_entries);
    for (int i = 0; i < EMULATED_DIRECTIONS; i++) {
        assert_in_range(after.copied_bytes[i] - before.copied_bytes[i], 0,
                        most);
    }
    assert_int_equal(after.unpinned, before.unpinned);
    device_sparse_destroy(world);
}

/* RedSync in each way to select, with values and quantised, with the error kept
   or not. */
TEST(test_entries_alone_are_copied)
{
    device_sparse_t *world = device_sparse_open(2, SUPPORT_OWN_ENGINES);
    for (int i = 0; i < 9; i++) {
        baton_sparse_options_t options =
            sized(algorithms[i < 2 ? i : 2], 5000, 10);
        options.redsync =
            i < 2 ? BATON_REDSYNC_EXACT : (baton_redsync_t)((i - 2) % 4);
        options.quantise = i >= 6 && options.redsync != BATON_REDSYNC_SAMPLED;
        expect_entries_alone(world, &options);
    }
    device_sparse_close(world);
}

/* Options that an algorithm allows, at random. */
static baton_sparse_options_t any_options(support_random_t *random, int size)
{
    static const size_t counts[] = {1, 2, 7, 64, 600, 5000, DEVICE_SPARSE_MOST};
    size_t count = 1 + support_random_below(
                           random, counts[support_random_below(random, 7)]);
    size_t share = 1 + support_random_below(random, 40);
    baton_sparse_options_t options =
        sized(algorithms[support_random_below(random, ALGORITHMS)], count,
              (count + share - 1) / share);
    options.dtype = dtypes[support_random_below(random, 4)];
    options.average = support_random_below(random, 2) != 0;
    options.warmup = support_random_below(random, 4) == 0 ? 1 : 0;
    options.clip = support_random_below(random, 3) == 0 ? 5 : 0;
    if (support_random_below(random, 3) == 0) {
        options.momentum = 0.9;
        options.nesterov = support_random_below(random, 2) != 0;
    }
    if (options.algorithm == BATON_SPARSE_SPARDL && size > 1) {
        options.teams = support_random_below(random, 2) == 0 ? size : 1;
        options.teams = size == 8 ? 4 : options.teams;
        options.exchange = (baton_teams_t)(support_random_below(random, 2) == 0
                                               ? BATON_TEAMS_AUTO
                                               : BATON_TEAMS_BSAG);
    }
    if (options.algorithm == BATON_SPARSE_REDSYNC) {
        options.redsync = (baton_redsync_t)support_random_below(random, 4);
        options.quantise = options.redsync != BATON_REDSYNC_SAMPLED &&
                           support_random_below(random, 2) != 0;
    }
    return options;
}

/* A flush, which leaves velocity as it is. */
static void flush_both(device_sparse_t *world)
{
    static char sums[2][DEVICE_SPARSE_BYTES];
    for (int i = 0; i < 2 * world->size; i++) {
        const device_sparse_rank_t *mine = &world->rank[i % world->size];
        support_ok(
            baton_sparse_flush(i < world->size ? mine->host : mine->device));
    }
    for (int i = 0; i < 2 * world->size; i++) {
        const device_sparse_rank_t *mine = &world->rank[i % world->size];
        baton_sparse_result_t result = {0};
        bool host = i < world->size;
        support_ok(baton_sparse_wait(host ? mine->host : mine->device,
                                     SUPPORT_WAIT_MS, &result));
        memcpy(sums[host], result.values, world->bytes);
    }
    assert_memory_equal(sums[0], sums[1], world->bytes);
    device_sparse_check_residuals(world);
}

TEST(test_random_options_and_data)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    support_random_t random = support_random(support_seed(), 31);
    for (int i = 0; i < 5; i++) {
        device_sparse_t *world =
            device_sparse_open(sizes[i], SUPPORT_OWN_ENGINES);
        for (int trial = 0; trial < 20; trial++) {
            baton_sparse_options_t options = any_options(&random, sizes[i]);
            device_sparse_create(
                world, &options,
                (device_sparse_data_t)(trial % DEVICE_SPARSE_KINDS));
            device_sparse_compare(world, trial % 2 == 0);
            if (trial % 4 == DEVICE_SPARSE_ANY) {
                flush_both(world);
                device_sparse_compare(world, true);
            }
            device_sparse_destroy(world);
        }
        device_sparse_close(world);
    }
}

/* ---- between steps ----------------------------------------------------- */

/* f32 elements, equal but for their signs and one in `every`, which is large:
   so a threshold is reached by all of the others, or by none. */
static void fill_with(device_sparse_t *world, int step, size_t every,
                      float value)
{
    for (int rank = 0; rank < world->size; rank++) {
        char *gradient = world->rank[rank].gradients[step];
        for (size_t i = 0; i < world->count; i++) {
            size_t at = i + (size_t)rank;
            float element = at % every == 0 ? 64 : value;
            element = at % 3 == 0 ? -element : element;
            memcpy(gradient + i * sizeof element, &element, sizeof element);
        }
    }
}

static void path_of(char path[64], int rank)
{
    snprintf(path, 64, "/tmp/baton-selection-%d-%d", (int)getpid(), rank);
}

/* What is in a file replaces what the device has: a step later it is undone;
   and what a device has that has made no step. Step 2 has a threshold of its
   own, where there are thresholds: more elements reach an earlier one than
   there is room for. */
static void go_back(const baton_sparse_options_t *options)
{
    alone_t self = open_alone(SUPPORT_OWN_ENGINES, options);
    static char before[DEVICE_SPARSE_BYTES], after[DEVICE_SPARSE_BYTES];
    char path[64];
    fill_with(self.world, 2, 2, 32);
    path_of(path, 0);
    device_sparse_run_step(self.world, 0);
    support_ok(baton_sparse_save(self.sparse, path));
    device_sparse_run_step(self.world, 1);
    support_ok(baton_sparse_residual(self.sparse, before));
    device_sparse_run_step(self.world, 2);
    for (int made = 0; made < 2; made++) {
        if (made == 1) {
            device_sparse_destroy(self.world);
            create_alone(&self, options);
        }
        support_ok(baton_sparse_load(self.sparse, path));
        device_sparse_run_step(self.world, 1);
        support_ok(baton_sparse_residual(self.sparse, after));
        assert_memory_equal(before, after, self.bytes);
    }
    assert_int_equal(remove(path), 0);
    close_alone(&self);
}

TEST(test_load_goes_back)
{
    for (int i = 0; i < 3; i += 2) { /* SparDL, RedSync */
        baton_sparse_options_t options = sized(algorithms[i], 300, 20);
        options.momentum = 0.5;
        options.redsync = BATON_REDSYNC_SAMPLED;
        go_back(&options);
    }
}

/* A copy that fails leaves the state as it was, and the next one works. */
TEST(test_failed_copy)
{
    baton_sparse_options_t options = sized(BATON_SPARSE_TOPKA, 300, 20);
    static char before[DEVICE_SPARSE_BYTES], after[DEVICE_SPARSE_BYTES];
    char path[64];
    options.momentum = 0.5;
    alone_t self = open_alone(SUPPORT_OWN_ENGINES, &options);
    path_of(path, 0);
    device_sparse_run_step(self.world, 0);
    support_ok(baton_sparse_save(self.sparse, path));
    device_sparse_run_step(self.world, 1);
    support_ok(baton_sparse_residual(self.sparse, before));
    for (int k = 1; k <= 3; k++) {
        emulated_fail_work(self.device, k < 3 ? k : 1);
        support_expect(k < 3 ? baton_sparse_load(self.sparse, path)
                             : baton_sparse_residual(self.sparse, after),
                       BATON_ERR_SYSTEM);
        support_says("a vector of the device");
        emulated_repair(self.device);
        support_ok(baton_sparse_residual(self.sparse, after));
        assert_memory_equal(before, after, self.bytes);
    }
    assert_int_equal(remove(path), 0);
    close_alone(&self);
}

/* The k-th piece of work of a step is refused; false: it has fewer. */
static bool refuse_work(const baton_sparse_options_t *options, int k)
{
    static char before[DEVICE_SPARSE_BYTES], after[DEVICE_SPARSE_BYTES];
    baton_sparse_result_t result;
    alone_t self = open_alone(SUPPORT_OWN_ENGINES, options);
    device_sparse_run_step(self.world, 0);
    support_ok(baton_sparse_residual(self.sparse, before));
    emulated_fail_submit(self.device, k);
    support_ok(baton_sparse_start(self.sparse, self.memory->gradient));
    baton_status_t status =
        baton_sparse_wait(self.sparse, SUPPORT_WAIT_MS, &result);
    emulated_repair(self.device);
    if (status != BATON_OK) {
        assert_int_equal(status, BATON_ERR_SYSTEM);
        support_ok(baton_sparse_residual(self.sparse, after));
        assert_memory_equal(before, after, self.bytes);
    }
    close_alone(&self);
    return status != BATON_OK;
}

/* Whichever piece of its work the device refuses, the step fails, and leaves
   the residual as it was. */
TEST(test_refused_work)
{
    for (int i = 0; i < 2; i++) { /* SparDL, TopkA */
        baton_sparse_options_t options = sized(algorithms[i], 300, 20);
        int k = 1;
        options.momentum = 0.5;
        options.clip = 0.5;
        while (refuse_work(&options, k)) {
            k++;
        }
        assert_true(k > 10);
    }
}

/* ---- order ------------------------------------------------------------- */

/* The first sparse step is put into the stream right behind the last one of the
   warm-up, which is of the other schedule: it begins when that has ended. */
TEST(test_warm_up_ends_in_flight)
{
    baton_sparse_options_t options = options_of(BATON_SPARSE_SPARDL);
    static char dense[DEVICE_SPARSE_BYTES];
    options.warmup = 1;
    alone_t self = open_alone(SUPPORT_OWN_ENGINES, &options);
    char *gradients[] = {self.memory->gradient, self.memory->values};
    for (int step = 0; step < 2; step++) {
        device_sparse_run_on_host(self.world, step);
        emulated_write(self.device, gradients[step],
                       self.memory->gradients[step], self.bytes);
    }
    for (int step = 0; step < 2; step++) {
        support_ok(
            baton_sparse_start_on(self.sparse, self.stream, gradients[step]));
    }
    wait_alone(&self, BATON_OK);
    support_ok(baton_sparse_dense(self.sparse, dense));
    assert_memory_equal(dense, self.world->expected[1].dense, self.bytes);
    close_alone(&self);
}

/* Nobody steps the engine but destroy: steps that are in flight end before it
   takes anything away, and their results are given. */
TEST(test_destroy_in_flight)
{
    baton_sparse_options_t options = options_of(BATON_SPARSE_SPARDL);
    alone_t self = open_alone(SUPPORT_OWN_MANUAL, &options);
    device_sparse_run_on_hosts(self.world);
    for (int step = 0; step < DEVICE_SPARSE_STEPS; step++) {
        device_sparse_put_step(self.world, 0, step);
    }
    device_sparse_destroy(self.world);
    emulated_synchronise(self.device, self.stream);
    for (int step = 0; step < DEVICE_SPARSE_STEPS; step++) {
        device_sparse_check(self.world, 0, step);
    }
    device_sparse_close(self.world);
}

/* What a stream does not get to within BATON_DESTROY_MS is cancelled. */
TEST(test_destroy_behind_gate)
{
    assert_int_equal(setenv("BATON_DESTROY_MS", "40", 1), 0);
    baton__config_forget();
    device_sparse_t *world = device_sparse_open(1, SUPPORT_OWN_ENGINES);
    emulated_t *device = world->ranks->devices[0];
    const baton_device_port_t *port = emulated_port(device);
    baton_sparse_options_t options = options_of(BATON_SPARSE_SPARDL);
    void *gate = NULL;
    device_sparse_create(world, &options, DEVICE_SPARSE_ANY);
    gate = emulated_gate(device);
    support_ok(port->await(device, world->ranks->streams[0], gate, 1));
    for (int step = 0; step < 2; step++) {
        device_sparse_put_step(world, 0, step);
    }
    device_sparse_destroy(world);
    emulated_open_gate(device, gate, 1);
    device_cluster_synchronise(world->ranks, 0);
    emulated_free_gate(device, gate);
    device_sparse_close(world);
    assert_int_equal(unsetenv("BATON_DESTROY_MS"), 0);
    baton__config_forget();
}

/* ---- failures ---------------------------------------------------------- */

/* A step fails, and the group is recovered before anybody asks: a target for
   its result stays as it was, after earlier steps and without any. */
static void target_after_recovery(int steps)
{
    static char kept[DEVICE_SPARSE_BYTES], now[DEVICE_SPARSE_BYTES];
    baton_sparse_options_t options = options_of(BATON_SPARSE_SPARDL);
    alone_t self = open_alone(SUPPORT_OWN_ENGINES, &options);
    baton_sparse_target_t target = target_of(&self);
    uint64_t count = 12345;
    for (int step = 0; step < steps; step++) {
        device_sparse_run_step(self.world, step);
        support_ok(baton_sparse_wait_on(self.sparse, self.stream, &target));
    }
    emulated_synchronise(self.device, self.stream);
    memset(kept, 0x5a, sizeof kept);
    emulated_write(self.device, target.dense, kept, self.bytes);
    emulated_write(self.device, target.count, &count, sizeof count);
    emulated_fail_work(self.device, 1);
    put_alone(&self);
    emulated_repair(self.device);
    device_cluster_recover(self.world->ranks);
    support_ok(baton_sparse_wait_on(self.sparse, self.stream, &target));
    emulated_synchronise(self.device, self.stream);
    emulated_read(self.device, now, target.dense, self.bytes);
    emulated_read(self.device, &count, target.count, sizeof count);
    assert_memory_equal(now, kept, self.bytes);
    assert_int_equal(count, 12345);
    close_alone(&self);
}

TEST(test_target_after_recovery)
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
TEST(test_failed_copy_of_a_result)
{
    static _Atomic int lines;
    baton_log_set(count_line, &lines);
    baton_sparse_options_t options = options_of(BATON_SPARSE_SPARDL);
    alone_t self = open_alone(SUPPORT_OWN_ENGINES, &options);
    baton_sparse_target_t target = {.size = sizeof target,
                                    .values = self.memory->values};
    for (int step = 0; step < 3; step++) {
        put_alone(&self);
        emulated_fail_work(self.device, step == 1 ? 1 : 0);
        support_ok(baton_sparse_wait_on(self.sparse, self.stream, &target));
        emulated_synchronise(self.device, self.stream);
        emulated_repair(self.device);
        if (step == 0) {
            int before = atomic_load(&lines);
            wait_alone(&self, BATON_OK);
            assert_int_equal(atomic_load(&lines), before);
        }
    }
    wait_alone(&self, BATON_ERR_SYSTEM);
    support_says("a result was not copied");
    wait_alone(&self, BATON_OK);
    close_alone(&self);
    baton_log_set(NULL, NULL);
}

/* The last step of the warm-up fails, and the next one is behind it in the
   stream, of the other schedule: it fails with it. */
TEST(test_failure_ends_warm_up)
{
    baton_sparse_options_t options = options_of(BATON_SPARSE_SPARDL);
    options.warmup = 1;
    alone_t self = open_alone(SUPPORT_OWN_ENGINES, &options);
    emulated_fail_work(self.device, 1);
    put_alone(&self);
    emulated_repair(self.device);
    support_ok(
        baton_sparse_start_on(self.sparse, self.stream, self.memory->gradient));
    wait_alone(&self, BATON_ERR_SYSTEM);
    support_says("the step before it has failed");
    device_cluster_recover(self.world->ranks);
    device_sparse_compare(self.world, true);
    close_alone(&self);
}

/* ---- wrong use --------------------------------------------------------- */

TEST(test_wrong_use)
{
    baton_sparse_options_t options = options_of(BATON_SPARSE_SPARDL);
    alone_t self = open_alone(SUPPORT_OWN_ENGINES, &options);
    baton_sparse_target_t target = {.size = sizeof target};
    baton_stream_t stream = self.stream;
    const baton_device_port_t *port = emulated_port(self.device);
    baton_sparse_t *sparse = self.sparse, *host = NULL;
    void *gate = emulated_gate(self.device), *gradient = self.memory->gradient;
    static float here[N];
    support_expect(baton_sparse_start_on(NULL, stream, gradient),
                   BATON_ERR_INVALID);
    support_expect(baton_sparse_start_on(sparse, stream, here),
                   BATON_ERR_INVALID);
    support_says("must be 601 elements of device memory");
    support_expect(baton_sparse_wait_on(sparse, stream, &target),
                   BATON_ERR_STATE);
    target.values = here;
    support_expect(baton_sparse_wait_on(sparse, stream, &target),
                   BATON_ERR_INVALID);
    support_says("target.values must be");
    target.values = self.memory->values;

    put_alone(&self);
    wait_alone(&self, BATON_OK);
    support_ok(port->await(self.device, stream, gate, 1));
    support_ok(baton_sparse_wait_on(sparse, stream, &target));
    /* A step waits for the copies of the last one's result. */
    baton_sparse_result_t result = {0};
    support_ok(baton_sparse_start(sparse, gradient));
    support_expect(baton_sparse_wait(sparse, 20, &result), BATON_ERR_TIMEOUT);
    emulated_open_gate(self.device, gate, 1);
    wait_alone(&self, BATON_OK);
    emulated_synchronise(self.device, stream);
    emulated_free_gate(self.device, gate);
    device_sparse_destroy(self.world);

    device_sparse_create_on(self.world->ranks->cluster, &options, &host);
    support_expect(baton_sparse_start_on(host, stream, here),
                   BATON_ERR_UNSUPPORTED);
    support_says("must be BATON_MEMORY_DEVICE");
    support_expect(baton_sparse_wait_on(host, stream, NULL),
                   BATON_ERR_UNSUPPORTED);
    support_ok(baton_sparse_destroy(host));
    device_sparse_close(self.world);
}

static void expect_refused(support_cluster_t *cluster,
                           const baton_sparse_options_t *options,
                           baton_status_t status, const char *message)
{
    baton_sparse_t *sparse = NULL;
    support_expect(baton_sparse_create(cluster->groups[0], options,
                                       SUPPORT_WAIT_MS, &sparse),
                   status);
    support_says(message);
}

TEST(test_refused_options)
{
    static const baton_sparse_algorithm_t of_the_host[] = {
        BATON_SPARSE_TOPKDSA, BATON_SPARSE_GTOPK, BATON_SPARSE_OKTOPK};
    device_sparse_t *world = device_sparse_open(1, SUPPORT_OWN_ENGINES);
    support_cluster_t *cluster = world->ranks->cluster;
    baton_sparse_options_t options;
    for (int i = 0; i < 3; i++) {
        options = options_of(of_the_host[i]);
        options.memory = BATON_MEMORY_DEVICE;
        expect_refused(cluster, &options, BATON_ERR_UNSUPPORTED,
                       "allowed with algorithms auto, spardl, topka, redsync");
    }
    options = options_of(BATON_SPARSE_SPARDL);
    options.memory = BATON_MEMORY_DEVICE;
    options.partial = true;
    expect_refused(cluster, &options, BATON_ERR_UNSUPPORTED,
                   "allowed with options.partial: BATON_MEMORY_HOST");
    options.partial = false;
    expect_refused(world->hosts, &options, BATON_ERR_UNSUPPORTED, "no device");
    options.memory = (baton_memory_t)2;
    expect_refused(cluster, &options, BATON_ERR_INVALID, "memory is 2");
    device_sparse_close(world);
}

TEST(test_device_without_selection)
{
    const emulated_options_t kind = {.seed = support_seed(),
                                     .no_selection = true};
    device_cluster_t *ranks =
        device_cluster_open(1, SUPPORT_OWN_ENGINES, &kind);
    baton_sparse_options_t options = options_of(BATON_SPARSE_SPARDL);
    options.memory = BATON_MEMORY_DEVICE;
    expect_refused(ranks->cluster, &options, BATON_ERR_UNSUPPORTED,
                   "the device cannot select");
    device_cluster_close(ranks);
}

/* By cost gTopk would be the choice here. */
TEST(test_choice_is_for_devices)
{
    enum { SIZE = 8 };
    device_sparse_t *world = device_sparse_open(SIZE, SUPPORT_OWN_ENGINES);
    baton_sparse_t *made[SIZE] = {NULL};
    baton_sparse_cost_t cost = {0};
    baton_sparse_options_t options = sized(BATON_SPARSE_AUTO, 100, 1);
    options.link = (baton_link_cost_t){.alpha_us = 1e-9, .beta_ns = 1};
    support_ok(baton_sparse_cost(&options, SIZE, &cost));
    assert_int_equal(cost.algorithm, BATON_SPARSE_GTOPK);
    options.memory = BATON_MEMORY_DEVICE;
    support_ok(baton_sparse_cost(&options, SIZE, &cost));
    assert_int_equal(cost.algorithm, BATON_SPARSE_TOPKA);
    for (int rank = 0; rank < SIZE; rank++) {
        options.memory = (baton_memory_t)(rank > 0);
        support_ok(baton_sparse_prepare(world->ranks->cluster->groups[rank],
                                        &options, &made[rank]));
    }
    for (int rank = 0; rank < SIZE; rank++) {
        support_expect(baton_sparse_connect(made[rank], SUPPORT_WAIT_MS),
                       BATON_ERR_MISMATCH);
        support_says("memory is 0 on one rank and 1 on another");
        support_ok(baton_sparse_destroy(made[rank]));
    }
    device_sparse_close(world);
}

RUN_TESTS()
