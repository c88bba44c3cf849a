/* Partial all-reduces in device memory, on ranks with emulated devices: every
   type and reduction, ranks that are late because their streams are late, steps
   in flight, recovery, and wrong use. Properties that also hold in main memory
   are in sim/test_properties.c. */
#include "coll/partial/parts.h"
#include "support/device_cluster.h"
#include "support/values.h"

#include <baton/partial.h>

enum { LARGEST = 8, MOST = 600 * 16 };

/* Ranks with devices and partials, and device memory for a contribution and a
   result. */
typedef struct world {
    support_cluster_t *ranks;
    int size;
    baton_partial_t *partials[LARGEST];
    char *data[LARGEST], *result[LARGEST];
    device_gate_t gates[LARGEST];
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
        world.gates[rank] = device_gate(world.ranks, rank);
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
        device_gate_destroy(&world->gates[rank]);
        emulated_release(device, world->data[rank]);
        emulated_release(device, world->result[rank]);
    }
    support_cluster_close(world->ranks);
}

static void create(world_t *world, baton_partial_options_t options)
{
    options.memory = BATON_MEMORY_DEVICE;
    for (int rank = 0; rank < world->size; rank++) {
        support_ok(baton_partial_create(world->ranks->groups[rank], &options,
                                        &world->partials[rank]));
    }
}

/* ---- types and reductions ---------------------------------------------- */

/* All ranks contribute twice, in their streams. Their result is that of a
   reference on the host. */
static void reduce_twice(world_t *world, const baton_partial_options_t *options,
                         support_op_t op)
{
    static char in[2 * LARGEST][MOST / 2], out[LARGEST][MOST / 2];
    static char expected[MOST / 2];
    const size_t count = options->count;
    const size_t bytes = count * baton_dtype_size(options->dtype);
    support_random_t random = support_random(support_seed(), 7);
    create(world, *options);
    options->op->identity(options->op->arg, expected, count, options->dtype);
    for (int i = 0; i < 2 * world->size; i++) {
        int rank = i % world->size;
        char *data = world->data[rank] + (i < world->size ? 0 : MOST / 2);
        support_fill_exact(in[i], count, options->dtype, op, rank, &random);
        support_reduce(expected, in[i], count, options->dtype, op);
        device_copy(world->ranks, rank, data, in[i], bytes);
        support_ok(baton_partial_contribute_on(world->partials[rank], data,
                                               world->ranks->streams[rank]));
    }
    support_divide(expected, count, options->dtype, op, world->size);
    for (int rank = 0; rank < world->size; rank++) {
        baton_stream_t stream = world->ranks->streams[rank];
        support_ok(baton_partial_start_on(world->partials[rank], stream));
        support_ok(baton_partial_wait_on(world->partials[rank], stream,
                                         world->result[rank]));
        device_copy(world->ranks, rank, out[rank], world->result[rank], bytes);
    }
    for (int rank = 0; rank < world->size; rank++) {
        device_synchronise(world->ranks, rank);
        if (memcmp(out[rank], expected, bytes) != 0) {
            fail_msg("%d ranks, %s of %zu %s: rank %d is wrong", world->size,
                     options->op->name, count, baton_dtype_name(options->dtype),
                     rank);
        }
    }
    destroy(world);
}

TEST(test_every_type_and_reduction)
{
    static const baton_allreduce_fn inner[] = {
        NULL, baton_add_allreduce_ring, baton_add_allreduce_recursive_doubling,
        baton_add_allreduce_linear_pipeline};
    for (int size = 1; size <= 5; size += 2) {
        world_t world = world_open(size, size > 1);
        int turn = size;
        baton_partial_options_t options = BATON_PARTIAL_OPTIONS;
        options.mode = BATON_FULL;
        for (int op = SUPPORT_SUM; op < SUPPORT_XOR; op++) {
            for (int dtype = 1; dtype < (int)BATON_DTYPE_COUNT; dtype++) {
                options.inner = inner[turn++ % 4];
                options.count = turn % 3 == 0 ? 300 : (size_t)turn % 8;
                options.dtype = (baton_dtype_t)dtype;
                options.op = support_op((support_op_t)op);
                if (baton_op_takes(options.op, options.dtype)) {
                    reduce_twice(&world, &options, (support_op_t)op);
                }
            }
        }
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

/* Puts a step into the rank's stream. It contributes *value, and writes its
   result to *out. */
static void put_step(world_t *world, int rank, const int64_t *value,
                     int64_t *out)
{
    baton_partial_t *partial = world->partials[rank];
    baton_stream_t stream = world->ranks->streams[rank];
    if (value != NULL) {
        device_copy(world->ranks, rank, world->data[rank], value,
                    sizeof *value);
        support_ok(
            baton_partial_contribute_on(partial, world->data[rank], stream));
    }
    support_ok(baton_partial_start_on(partial, stream));
    support_ok(baton_partial_wait_on(partial, stream, world->result[rank]));
    device_copy(world->ranks, rank, out, world->result[rank], sizeof *out);
}

/* The last rank's stream is stopped while the others run epochs. Its
   contributions are in none of these epochs, and once in the epoch after
   them. */
static void run_late(int size, baton_keep_t keep)
{
    enum { AHEAD = 3 };
    world_t world = world_open(size, true);
    int last = size - 1;
    int64_t in[LARGEST][AHEAD + 1], out[LARGEST][AHEAD + 1];
    create(&world, of_one(BATON_SOLO, keep, keep == BATON_KEEP_ALL ? 4 : 0));
    memset(out, -1, sizeof out);
    device_gate_close(&world.gates[last]);
    for (int k = 0; k <= AHEAD; k++) {
        in[last][k] = 1000 << k;
        put_step(&world, last, &in[last][k], &out[last][k]);
    }
    bool done = true;
    for (int k = 0; k < AHEAD; k++) {
        in[0][k] = 1 + k;
        put_step(&world, 0, &in[0][k], &out[0][k]);
        device_synchronise(world.ranks, 0);
        assert_int_equal(out[0][k], 1 + k);
        support_ok(baton_partial_test(world.partials[last], &done));
        assert_false(done); /* the last step of that rank is the next epoch */
    }
    while (baton_schedule_epoch(baton_partial_schedule(world.partials[last])) <
           AHEAD) {
        support_ok(baton_partial_test(world.partials[last], &done));
    }
    assert_int_equal(out[last][0], -1);
    device_gate_open(&world.gates[last]);
    device_synchronise(world.ranks, last); /* only this begins the last epoch */
    assert_int_equal(out[last][AHEAD], 1000 * 15);
    for (int k = 0; k < AHEAD; k++) {
        /* With KEEP_ALL results come in the order of epochs. With KEEP_LATEST
           each is the newest one. */
        assert_int_equal(out[last][k], keep == BATON_KEEP_ALL ? 1 + k : AHEAD);
    }
    in[0][AHEAD] = 7;
    put_step(&world, 0, &in[0][AHEAD], &out[0][AHEAD]);
    device_synchronise(world.ranks, 0);
    assert_int_equal(out[0][AHEAD], 1000 * 15);
    for (int rank = 0; rank <= last; rank += last) {
        int64_t left = -1;
        bool any = rank != 0;
        support_ok(baton_partial_pending(world.partials[rank],
                                         world.result[rank], &any));
        emulated_read(world.ranks->devices[rank], &left, world.result[rank],
                      sizeof left);
        assert_int_equal(any, rank == 0);
        assert_int_equal(left, rank == 0 ? 7 : 0);
    }
    world_close(&world);
}

TEST(test_late_stream)
{
    for (int size = 2; size <= 5; size++) {
        run_late(size, BATON_KEEP_LATEST);
        run_late(size, BATON_KEEP_ALL);
    }
}

/* The stream is late with some contributions. A contribution outside of the
   stream comes after these. */
TEST(test_contributions_behind_a_late_stream)
{
    world_t world = world_open(1, true);
    int64_t sum = 0;
    const int64_t value = 5;
    create(&world, of_one(BATON_SOLO, BATON_KEEP_LATEST, 0));
    emulated_write(world.ranks->devices[0], world.data[0], &value,
                   sizeof value);
    device_delay(world.ranks, 0, 20000);
    support_ok(baton_partial_contribute_on(world.partials[0], world.data[0],
                                           world.ranks->streams[0]));
    support_ok(baton_partial_contribute(world.partials[0], world.data[0]));
    put_step(&world, 0, NULL, &sum);
    device_synchronise(world.ranks, 0);
    assert_int_equal(sum, 2 * value);
    world_close(&world);
}

/* ---- bounds ------------------------------------------------------------ */

/* No contribution is taken more than S epochs after its step, although the host
   starts all steps long before the stream gets to them. */
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
        device_gate_close(&world.gates[1]);
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
        device_gate_open(&world.gates[1]);
        for (int rank = 0; rank < 2; rank++) {
            support_ok(baton_partial_wait(world.partials[rank], SUPPORT_WAIT_MS,
                                          &seen));
            device_synchronise(world.ranks, rank);
        }
        assert_in_range(seen.staleness, 0, bound);
        world_close(&world);
    }
}

/* ---- recovery ---------------------------------------------------------- */

enum { SICK = 3 };

/* A value that no step gives. */
static const int64_t untouched = -7;

/* A step of all ranks, in their streams. Rank r contributes 16^r, or nothing.
   Returns whether the step has failed on a rank above 0. On such a rank the
   target is unchanged; on the others it has *sum_out. A rank that fails at once
   may keep others from starting. */
static bool step_all(world_t *world, bool gives, int64_t *sum_out)
{
    bool started[SICK], failed = false;
    for (int rank = 0; rank < SICK; rank++) {
        emulated_t *device = world->ranks->devices[rank];
        baton_stream_t stream = world->ranks->streams[rank];
        baton_partial_t *partial = world->partials[rank];
        const int64_t value = INT64_C(1) << (4 * rank);
        emulated_write(device, world->data[rank], &value, sizeof value);
        emulated_write(device, world->result[rank], &untouched,
                       sizeof untouched);
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
    for (int rank = 0; rank < SICK; rank++) {
        baton_partial_result_t seen;
        int64_t out = 0;
        bool ok = started[rank] &&
                  baton_partial_wait(world->partials[rank], SUPPORT_WAIT_MS,
                                     &seen) == BATON_OK;
        device_synchronise(world->ranks, rank);
        emulated_read(world->ranks->devices[rank], &out, world->result[rank],
                      sizeof out);
        if (rank != 0) { /* rank 0's own contribution may be included */
            failed |= !ok;
            assert_int_equal(out == untouched, !ok);
            *sum_out = ok ? out : *sum_out;
        }
    }
    return failed;
}

/* The k-th piece of work of rank 0's device fails, somewhere in the second
   step. Streams go on, and after a recovery the next results include the
   contributions that the step had taken, unless rank 0's was lost before that.
   Returns whether it was lost. */
static bool fail_once(int k, bool *failed)
{
    const int64_t each = 0x111;
    world_t world = world_open(SICK, true);
    int64_t total = 0, sum = 0;
    bool any = false;
    create(&world, of_one(BATON_FULL, BATON_KEEP_LATEST, 0));
    assert_false(step_all(&world, true, &sum));
    emulated_fail_work(world.ranks->devices[0], k);
    *failed = step_all(&world, true, &sum);
    emulated_fail_work(world.ranks->devices[0], 0);
    emulated_repair(world.ranks->devices[0]);
    const baton__contribution_t *c = &world.partials[0]->contribution;
    bool took = c->taken_for == 2 && c->steps.first != 0;
    support_ok(baton_partial_pending(world.partials[0], world.result[0], &any));
    bool lost = !any && !took;
    support_cluster_recover(world.ranks);
    /* Only the first of these steps has contributions. */
    for (int step = 0; step < 3; step++) {
        assert_false(step_all(&world, step == 0, &sum));
        total += sum;
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

TEST_WITH(test_wrong_use, 1, SUPPORT_OWN_ENGINES)
{
    world_t world = world_open(1, true);
    baton_group_t *group = world.ranks->groups[0];
    baton_stream_t stream = world.ranks->streams[0];
    baton_partial_options_t options = of_one(BATON_SOLO, BATON_KEEP_ALL, 8);
    baton_partial_t *host = NULL;
    int64_t here = 0;
    support_ok(baton_partial_create(group, &options, &host));
    support_fails(baton_partial_start_on(host, stream), BATON_ERR_UNSUPPORTED,
                  "must be BATON_MEMORY_DEVICE");
    support_expect(baton_partial_start_on(NULL, stream), BATON_ERR_INVALID);
    support_ok(baton_partial_destroy(host));
    options.memory = BATON_MEMORY_DEVICE;
    support_fails(baton_partial_create(cluster->groups[0], &options, &host),
                  BATON_ERR_UNSUPPORTED, "the engine has no device");
    options.memory = (baton_memory_t)2;
    support_fails(baton_partial_create(group, &options, &host),
                  BATON_ERR_INVALID, "memory is 2");

    create(&world, options);
    baton_partial_t *partial = world.partials[0];
    support_fails(baton_partial_contribute_on(partial, &here, stream),
                  BATON_ERR_INVALID, "must be in device memory");
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
    device_synchronise(world.ranks, 0);
    device_gate_close(&world.gates[0]);
    /* The stream may go on shortly before the first step has ended on the
       host. */
    int started = 0;
    while (started < 9 && baton_partial_start_on(partial, stream) == BATON_OK) {
        started++;
    }
    support_expect(baton_partial_start_on(partial, stream), BATON_ERR_BUSY);
    assert_in_range(started, 7, 8);
    device_gate_open(&world.gates[0]);
    support_ok(baton_partial_wait_on(partial, stream, NULL));
    device_synchronise(world.ranks, 0);
    world_close(&world);
}

/* A device that reduces only with the library's operators, or has no memory
   left. */
TEST(test_poor_device)
{
    const emulated_options_t given = {.seed = support_seed(),
                                      .builtin_only = true};
    support_cluster_t *ranks =
        device_cluster_open(1, SUPPORT_OWN_ENGINES, &given);
    baton_group_t *group = ranks->groups[0];
    emulated_t *device = ranks->devices[0];
    baton_partial_options_t options = of_one(BATON_SOLO, BATON_KEEP_LATEST, 0);
    const baton_op_t own = {.name = "own",
                            .reduce = BATON_SUM->reduce,
                            .identity = BATON_SUM->identity};
    baton_partial_t *partial = NULL;
    options.memory = BATON_MEMORY_DEVICE;
    options.op = &own;
    support_fails(baton_partial_create(group, &options, &partial),
                  BATON_ERR_UNSUPPORTED, "has no reduction \"own\"");
    options.op = NULL;
    emulated_counters_t before = emulated_counters(device);
    /* 2^20 vectors would have more bytes than there are addresses */
    /* The largest history that partial.h allows. */
    options.history = (UINT32_C(1) << 20) - 8;
    options.count = (SIZE_MAX >> 20) / sizeof(int64_t) + 1;
    support_fails(baton_partial_create(group, &options, &partial),
                  BATON_ERR_NO_MEMORY, "vectors of");
    options.history = 0;
    options.count = 1;
    support_ok(baton_partial_create(group, &options, &partial));
    support_ok(baton_partial_destroy(partial));
    emulated_counters_t after = emulated_counters(device);
    assert_int_equal(after.allocated, before.allocated);
    assert_int_equal(after.events, before.events);
    support_cluster_close(ranks);
}
