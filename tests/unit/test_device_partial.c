/* Partial all-reduces in device memory, on ranks with emulated devices of their
   own: the bits of the host's, ranks that are late because their streams are,
   steps in flight, recovery, and wrong use. What holds on the host, too, is in
   sim/test_properties.c. */
#include "coll/partial/contribution.h"
#include "support/cmocka.h"
#include "support/device_cluster.h"
#include "support/values.h"

#include <string.h>

enum { LARGEST = 8, MOST = 600 * 8 };

/* Ranks with devices and partials, and device memory for a contribution and a
   result. */
typedef struct world {
    device_cluster_t *ranks;
    int size;
    baton_partial_t *partials[LARGEST];
    char *data[LARGEST], *result[LARGEST];
    void *gates[LARGEST]; /* flags */
    uint64_t closed[LARGEST];
} world_t;

static world_t world_open(int size, bool handles)
{
    const emulated_options_t options = {.seed = support_seed(),
                                        .delay_us = 20,
                                        .workers = 1,

                                        .no_handles = !handles};
    world_t world = {
        .ranks = device_cluster_open(size, SUPPORT_OWN_ENGINES, &options),
        .size = size};
    for (int rank = 0; rank < size; rank++) {
        emulated_t *device = world.ranks->devices[rank];
        world.data[rank] = emulated_allocate(device, MOST);
        world.result[rank] = emulated_allocate(device, MOST);
        world.gates[rank] = emulated_gate(device);
    }
    return world;
}

static void destroy(world_t *world)
{
    for (int rank = 0; rank < world->size; rank++) {
        support_ok(baton_partial_destroy(world->partials[rank]));
        world->partials[rank] = NULL;
    }
}

static void world_close(world_t *world)
{
    destroy(world);
    for (int rank = 0; rank < world->size; rank++) {
        emulated_t *device = world->ranks->devices[rank];
        emulated_synchronise_all(device);
        emulated_free_gate(device, world->gates[rank]);
        emulated_release(device, world->data[rank]);
        emulated_release(device, world->result[rank]);
    }
    device_cluster_close(world->ranks);
}

static void create(world_t *world, baton_partial_options_t options)
{
    options.memory = BATON_MEMORY_DEVICE;
    for (int rank = 0; rank < world->size; rank++) {
        support_ok(baton_partial_create(world->ranks->cluster->groups[rank],
                                        &options, &world->partials[rank]));
    }
}

/* Nothing goes on in the rank's stream from here until open_gate(). */
static void close_gate(world_t *world, int rank)
{
    emulated_t *device = world->ranks->devices[rank];
    support_ok(emulated_port(device)->await(device, world->ranks->streams[rank],
                                            world->gates[rank],
                                            ++world->closed[rank]));
}

static void open_gate(world_t *world, int rank)
{
    emulated_t *device = world->ranks->devices[rank];
    emulated_open_gate(device, world->gates[rank], world->closed[rank]);
}

/* ---- the bits of the host ---------------------------------------------- */

/* A step of a rank, and of one on the host, with the same data. */
static void start_both(world_t *world, int rank, bool in_stream,
                       baton_partial_t *host, const void *in, size_t bytes)
{
    baton_partial_t *partial = world->partials[rank];
    baton_stream_t stream = world->ranks->streams[rank];
    char *data = world->data[rank];
    emulated_write(world->ranks->devices[rank], data, in, bytes);
    support_ok(baton_partial_contribute(host, in));
    support_ok(baton_partial_start(host));
    if (in_stream) {
        support_ok(baton_partial_contribute_on(partial, data, stream));
        support_ok(baton_partial_start_on(partial, stream));
        support_ok(baton_partial_wait_on(partial, stream, world->result[rank]));
    } else {
        support_ok(baton_partial_contribute(partial, data));
        support_ok(baton_partial_start(partial));
    }
}

static void check_both(world_t *world, int rank, bool in_stream,
                       baton_partial_t *host,
                       const baton_partial_options_t *options)
{
    static char out[MOST];
    size_t bytes = options->count * baton_dtype_size(options->dtype);
    baton_partial_result_t right, found = {.data = world->result[rank]};
    support_ok(baton_partial_wait(host, SUPPORT_WAIT_MS, &right));
    device_cluster_synchronise(world->ranks, rank);
    if (!in_stream || options->keep == BATON_KEEP_LATEST) {
        support_ok(
            baton_partial_wait(world->partials[rank], SUPPORT_WAIT_MS, &found));
        assert_int_equal(found.active, right.active);
        assert_int_equal(found.epoch, right.epoch);
        assert_int_equal(found.included, right.included);
    }
    emulated_read(world->ranks->devices[rank], out,
                  in_stream ? world->result[rank] : found.data, bytes);
    if (memcmp(out, right.data, bytes) != 0) {
        fail_msg("%d ranks, %s of %d %s: rank %d differs (BATON_SEED=%llu)",
                 world->size, options->op->name, (int)options->count,
                 baton_dtype_name(options->dtype), rank,
                 (unsigned long long)support_seed());
    }
}

/* Steps in streams, and by the host's calls. */
static void compare(world_t *world, const baton_partial_options_t *options)
{
    static char in[MOST];
    size_t bytes = options->count * baton_dtype_size(options->dtype);
    support_random_t random = support_random(support_seed(), 7);
    baton_partial_t *hosts[LARGEST];
    create(world, *options);
    for (int rank = 0; rank < world->size; rank++) {
        support_ok(baton_partial_create(world->ranks->cluster->groups[rank],
                                        options, &hosts[rank]));
    }
    for (int step = 0; step < 4; step++) {
        for (int rank = 0; rank < world->size; rank++) {
            support_fill_bits(in, bytes, &random);
            start_both(world, rank, step % 2 == 0, hosts[rank], in, bytes);
        }
        for (int rank = 0; rank < world->size; rank++) {
            check_both(world, rank, step % 2 == 0, hosts[rank], options);
        }
    }
    destroy(world);
    for (int rank = 0; rank < world->size; rank++) {
        support_ok(baton_partial_destroy(hosts[rank]));
    }
}

TEST(test_bits_of_the_host)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    static const baton_allreduce_fn inner[] = {
        NULL, baton_allreduce_ring, baton_allreduce_recursive_doubling,
        baton_allreduce_linear_pipeline};
    static const size_t counts[] = {0, 1, 7, 600};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        world_t world = world_open(sizes[i], i % 2 != 0);
        for (size_t k = 0; k < 16; k++) {
            size_t turn = i + k;
            const baton_partial_options_t options = {
                .size = sizeof options,
                .mode = BATON_FULL,
                .keep = k % 3 == 0 ? BATON_KEEP_ALL : BATON_KEEP_LATEST,
                .inner = inner[k % 4],
                .count = counts[k / 4],
                .dtype = (baton_dtype_t)(1 + turn % (BATON_DTYPE_COUNT - 1)),
                .op = support_op((support_op_t)(turn % 4))};
            compare(&world, &options);
        }
        /* A broadcast, whose result the root's contribution is. */
        int root = sizes[i] / 2;
        const baton_partial_options_t broadcast = {.size = sizeof broadcast,
                                                   .mode = BATON_FULL,
                                                   .inner =
                                                       baton_partial_broadcast,
                                                   .inner_arg = &root,
                                                   .count = 600,
                                                   .result_count = 600,
                                                   .dtype = BATON_F32,
                                                   .op = BATON_SUM};
        compare(&world, &broadcast);
        world_close(&world);
    }
}

/* ---- late streams ------------------------------------------------------ */

static baton_partial_options_t of_one(baton_partial_mode_t mode,
                                      baton_keep_t keep, uint32_t history)
{
    return (baton_partial_options_t){.size = sizeof(baton_partial_options_t),
                                     .name = "late",
                                     .mode = mode,
                                     .keep = keep,
                                     .history = history,
                                     .count = 1,
                                     .dtype = BATON_I64};
}

/* A step that contributes *value, and writes its result to *out. */
static void put_step(world_t *world, int rank, const int64_t *value,
                     int64_t *out)
{
    baton_partial_t *partial = world->partials[rank];
    baton_stream_t stream = world->ranks->streams[rank];
    if (value != NULL) {
        device_cluster_copy(world->ranks, rank, world->data[rank], value,
                            sizeof *value);
        support_ok(
            baton_partial_contribute_on(partial, world->data[rank], stream));
    }
    support_ok(baton_partial_start_on(partial, stream));
    support_ok(baton_partial_wait_on(partial, stream, world->result[rank]));
    device_cluster_copy(world->ranks, rank, out, world->result[rank],
                        sizeof *out);
}

/* The last rank's stream stands while the others run epochs; what it has
   contributed is in none of them, and in the one behind them, once. */
static void run_late(int size, baton_keep_t keep)
{
    enum { AHEAD = 3 };
    world_t world = world_open(size, true);
    int last = size - 1;
    int64_t in[LARGEST][AHEAD + 1], out[LARGEST][AHEAD + 1];
    create(&world, of_one(BATON_SOLO, keep, keep == BATON_KEEP_ALL ? 4 : 0));
    memset(out, -1, sizeof out);
    close_gate(&world, last);
    for (int k = 0; k <= AHEAD; k++) {
        in[last][k] = 1000 << k;
        put_step(&world, last, &in[last][k], &out[last][k]);
    }
    bool done = true;
    for (int k = 0; k < AHEAD; k++) {
        in[0][k] = 1 + k;
        put_step(&world, 0, &in[0][k], &out[0][k]);
        device_cluster_synchronise(world.ranks, 0);
        assert_int_equal(out[0][k], 1 + k);
        support_ok(baton_partial_test(world.partials[last], &done));
        assert_false(done); /* its last step is the next epoch */
    }
    while (baton_schedule_epoch(baton_partial_schedule(world.partials[last])) <
           AHEAD) {
        support_ok(baton_partial_test(world.partials[last], &done));
    }
    assert_int_equal(out[last][0], -1);
    open_gate(&world, last);
    device_cluster_synchronise(world.ranks,
                               last); /* which begins the last epoch */
    assert_int_equal(out[last][AHEAD], 1000 * 15);
    for (int k = 0; k < AHEAD; k++) {
        /* The epochs in order, or the newest of them. */
        assert_int_equal(out[last][k], keep == BATON_KEEP_ALL ? 1 + k : AHEAD);
    }
    in[0][AHEAD] = 7;
    put_step(&world, 0, &in[0][AHEAD], &out[0][AHEAD]);
    device_cluster_synchronise(world.ranks, 0);
    assert_int_equal(out[0][AHEAD], 1000 * 15);
    int64_t left = 0;
    bool any = false;
    support_ok(baton_partial_pending(world.partials[0], world.result[0], &any));
    emulated_read(world.ranks->devices[0], &left, world.result[0], sizeof left);
    assert_true(any);
    assert_int_equal(left, 7);
    support_ok(
        baton_partial_pending(world.partials[last], world.result[last], &any));
    emulated_read(world.ranks->devices[last], &left, world.result[last],
                  sizeof left);
    assert_false(any);
    assert_int_equal(left, 0);
    world_close(&world);
}

TEST(test_late_stream)
{
    for (int size = 2; size <= 5; size++) {
        run_late(size, BATON_KEEP_LATEST);
        run_late(size, BATON_KEEP_ALL);
    }
}

/* ---- bounds ------------------------------------------------------------ */

/* No contribution is taken more than S epochs after its step, though the host
   has started all steps long before the stream gets there. */
TEST(test_staleness_is_of_the_stream)
{
    enum { AHEAD = 4 };
    for (uint32_t bound = 1; bound <= 2; bound++) {
        world_t world = world_open(2, true);
        baton_partial_options_t options =
            of_one(BATON_SOLO, BATON_KEEP_LATEST, 0);
        int64_t in[2][AHEAD], out[2][AHEAD];
        options.max_staleness = bound;
        create(&world, options);
        close_gate(&world, 1);
        for (int k = 0; k < AHEAD; k++) {
            in[1][k] = 100;
            put_step(&world, 1, &in[1][k], &out[1][k]);
        }
        for (int k = 0; k < AHEAD; k++) {
            in[0][k] = 1;
            put_step(&world, 0, &in[0][k], &out[0][k]);
        }
        baton_partial_result_t seen;
        while (baton_schedule_epoch(baton_partial_schedule(world.partials[0])) <
               bound) {
            support_expect(baton_partial_wait(world.partials[0], 1, &seen),
                           BATON_ERR_TIMEOUT);
        }
        support_expect(baton_partial_wait(world.partials[0], 50, &seen),
                       BATON_ERR_TIMEOUT);
        assert_int_equal(
            baton_schedule_epoch(baton_partial_schedule(world.partials[0])),
            bound);
        open_gate(&world, 1);
        for (int rank = 0; rank < 2; rank++) {
            support_ok(baton_partial_wait(world.partials[rank], SUPPORT_WAIT_MS,
                                          &seen));
            device_cluster_synchronise(world.ranks, rank);
        }
        baton_partial_stats_t stats;
        support_ok(baton_partial_stats(world.partials[1], &stats));
        for (uint32_t s = bound + 1; s < BATON_PARTIAL_BINS; s++) {
            assert_int_equal(stats.staleness[s], 0);
        }
        world_close(&world);
    }
}

/* ---- recovery ---------------------------------------------------------- */

enum { SICK = 3, SICK_COUNT = 100, SICK_BYTES = SICK_COUNT * 8 };

/* Contributes, starts and waits, on all ranks' streams. True on each rank where
   the step was started: it may have failed on another before. */
static void put_all(world_t *world, bool gives, bool *started)
{
    for (int rank = 0; rank < world->size; rank++) {
        baton_stream_t stream = world->ranks->streams[rank];
        baton_partial_t *partial = world->partials[rank];
        if (gives) {
            support_ok(baton_partial_contribute_on(partial, world->data[rank],
                                                   stream));
        }
        baton_status_t status = baton_partial_start_on(partial, stream);
        assert_true(status == BATON_OK || status == BATON_ERR_FAILED);
        started[rank] = status == BATON_OK;
        if (started[rank]) {
            support_ok(
                baton_partial_wait_on(partial, stream, world->result[rank]));
        }
    }
}

/* What no step gives. */
static const int64_t untouched = -7;

/* Waits for a step on all ranks, whose streams go on. True if it has failed: a
   rank's target is then as it was. */
static bool wait_all(world_t *world, const bool *started)
{
    bool failed = false;
    for (int rank = 0; rank < world->size; rank++) {
        baton_partial_result_t seen;
        baton_status_t status = BATON_ERR_FAILED;
        if (started[rank]) {
            status = baton_partial_wait(world->partials[rank], SUPPORT_WAIT_MS,
                                        &seen);
        }
        device_cluster_synchronise(world->ranks, rank);
        if (rank != 0) { /* rank 0's may be its contribution alone */
            int64_t out = 0;
            failed |= status != BATON_OK;
            emulated_read(world->ranks->devices[rank], &out,
                          world->result[rank], sizeof out);
            assert_int_equal(out == untouched, status != BATON_OK);
        }
    }
    return failed;
}

/* What a step has given to all ranks. */
static int64_t read_all(world_t *world)
{
    static int64_t out[SICK][SICK_COUNT];
    for (int rank = 0; rank < world->size; rank++) {
        emulated_read(world->ranks->devices[rank], out[rank],
                      world->result[rank], SICK_BYTES);
        for (int i = 0; i < SICK_COUNT; i++) {
            assert_int_equal(out[rank][i], out[0][0]);
        }
    }
    return out[0][0];
}

/* Whether nothing of rank 0 was taken, nor is pending. */
static bool is_lost(world_t *world)
{
    baton_partial_stats_t stats;
    bool any = false;
    support_ok(baton_partial_stats(world->partials[0], &stats));
    support_ok(
        baton_partial_pending(world->partials[0], world->result[0], &any));
    return !any && stats.taken == 1; /* of the first step */
}

static void fill_data(world_t *world)
{
    int64_t in[SICK_COUNT];
    int64_t nothing[SICK_COUNT];
    for (int rank = 0; rank < world->size; rank++) {
        for (int i = 0; i < SICK_COUNT; i++) {
            in[i] = INT64_C(1) << (4 * rank);
            nothing[i] = untouched;
        }
        emulated_write(world->ranks->devices[rank], world->result[rank],
                       nothing, SICK_BYTES);
        emulated_write(world->ranks->devices[rank], world->data[rank], in,
                       SICK_BYTES);
    }
}

/* The k-th piece of work of rank 0's device fails, somewhere in the second
   step: streams go on, and after a recovery what the step had taken is in the
   next results; or rank 0's contribution was lost before. Returns which. */
static bool fail_once(int k, bool *failed)
{
    const int64_t each = 0x111;
    world_t world = world_open(SICK, true);
    baton_partial_options_t options = of_one(BATON_FULL, BATON_KEEP_LATEST, 0);
    bool started[SICK] = {false};
    options.count = SICK_COUNT;
    create(&world, options);
    fill_data(&world);
    put_all(&world, true, started);
    assert_false(wait_all(&world, started));
    fill_data(&world);
    emulated_fail_work(world.ranks->devices[0], k);
    put_all(&world, true, started);
    *failed = wait_all(&world, started);
    emulated_fail_work(world.ranks->devices[0], 0);
    emulated_repair(world.ranks->devices[0]);
    bool lost = is_lost(&world);
    device_cluster_recover(world.ranks);
    int64_t total = 0;
    for (int step = 0; step < 3; step++) { /* the first is of before alone */
        put_all(&world, step == 0, started);
        assert_false(wait_all(&world, started));
        assert_true(started[0]);
        total += read_all(&world);
    }
    assert_int_equal(total, each + (*failed ? each - lost : 0));
    world_close(&world);
    return lost;
}

TEST(test_recovery)
{
    int lost = 0, failures = 0;
    for (int k = 1; k <= 12; k++) {
        bool failed = false;
        lost += fail_once(k, &failed);
        failures += failed;
    }
    assert_true(lost > 0);
    assert_true(failures > 0);
}

/* ---- wrong use --------------------------------------------------------- */

TEST(test_wrong_use)
{
    support_cluster_t *hosts = support_cluster_open(1, SUPPORT_OWN_ENGINES);
    world_t world = world_open(1, true);
    baton_group_t *group = world.ranks->cluster->groups[0];
    baton_stream_t stream = world.ranks->streams[0];
    baton_partial_options_t options = of_one(BATON_SOLO, BATON_KEEP_ALL, 8);
    baton_partial_t *host = NULL;
    int64_t here = 0;
    support_ok(baton_partial_create(group, &options, &host));
    support_expect(baton_partial_start_on(host, stream), BATON_ERR_UNSUPPORTED);
    support_says("must be BATON_MEMORY_DEVICE");
    support_expect(baton_partial_start_on(NULL, stream), BATON_ERR_INVALID);
    support_ok(baton_partial_destroy(host));
    options.memory = BATON_MEMORY_DEVICE;
    support_expect(baton_partial_create(hosts->groups[0], &options, &host),
                   BATON_ERR_UNSUPPORTED);
    support_says("the engine has no device");
    support_cluster_close(hosts);
    options.memory = (baton_memory_t)2;
    support_expect(baton_partial_create(group, &options, &host),
                   BATON_ERR_INVALID);
    support_says("memory is 2");

    create(&world, options);
    baton_partial_t *partial = world.partials[0];
    support_expect(baton_partial_contribute_on(partial, &here, stream),
                   BATON_ERR_INVALID);
    support_says("must be device memory");
    support_expect(baton_partial_contribute_on(partial, NULL, stream),
                   BATON_ERR_INVALID);
    support_expect(baton_partial_wait_on(partial, stream, world.result[0]),
                   BATON_ERR_STATE);
    support_ok(baton_partial_start_on(partial, stream));
    support_expect(baton_partial_wait_on(partial, stream, &here),
                   BATON_ERR_INVALID);
    support_ok(baton_partial_wait_on(partial, stream, NULL));
    support_expect(baton_partial_wait_on(partial, stream, NULL),
                   BATON_ERR_STATE);
    device_cluster_synchronise(world.ranks, 0);
    close_gate(&world, 0);
    /* The stream goes on a moment before the first step has ended on the host.
     */
    int started = 0;
    while (started < 9 && baton_partial_start_on(partial, stream) == BATON_OK) {
        started++;
    }
    support_expect(baton_partial_start_on(partial, stream), BATON_ERR_BUSY);
    assert_in_range(started, 7, 8);
    open_gate(&world, 0);
    support_ok(baton_partial_wait_on(partial, stream, NULL));
    device_cluster_synchronise(world.ranks, 0);
    world_close(&world);
}

/* A device that reduces by the library's operators alone, or has no memory. */
TEST(test_poor_device)
{
    const emulated_options_t given = {.seed = support_seed(),
                                      .builtin_only = true};
    device_cluster_t *ranks =
        device_cluster_open(1, SUPPORT_OWN_ENGINES, &given);
    baton_group_t *group = ranks->cluster->groups[0];
    emulated_t *device = ranks->devices[0];
    baton_partial_options_t options = of_one(BATON_SOLO, BATON_KEEP_LATEST, 0);
    const baton_op_t own = {.name = "own",
                            .reduce = BATON_SUM->reduce,
                            .identity = BATON_SUM->identity};
    baton_partial_t *partial = NULL;
    options.memory = BATON_MEMORY_DEVICE;
    options.op = &own;
    support_expect(baton_partial_create(group, &options, &partial),
                   BATON_ERR_UNSUPPORTED);
    support_says("has no reduction \"own\"");
    options.op = NULL;
    emulated_counters_t before = emulated_counters(device);
    /* 2^20 vectors, of more bytes than there are addresses. */
    options.history = (UINT32_C(1) << 20) - 8; /* partial.h */
    options.count = (SIZE_MAX >> 20) / sizeof(int64_t) + 1;
    support_expect(baton_partial_create(group, &options, &partial),
                   BATON_ERR_NO_MEMORY);
    support_says("vectors of");
    options.history = 0;
    options.count = 1;
    support_ok(baton_partial_create(group, &options, &partial));
    support_ok(baton_partial_destroy(partial));
    emulated_counters_t after = emulated_counters(device);
    assert_int_equal(after.allocated, before.allocated);
    assert_int_equal(after.events, before.events);
    device_cluster_close(ranks);
}

RUN_TESTS()
