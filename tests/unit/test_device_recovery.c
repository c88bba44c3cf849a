/* Ranks with devices fail and recover: a device that fails on one of them,
   epochs that were started behind the failed one, and streams of users, which
   go on in any case. */
#include "support/cmocka.h"
#include "support/device_cluster.h"

#include <string.h>

enum { RANKS = 3, COUNT = 3000, BYTES = COUNT * sizeof(int32_t), ROUNDS = 12 };

static int32_t input[RANKS][COUNT];

typedef struct world {
    bool started[RANKS]; /* the last epoch: it may have failed before */
    device_cluster_t *ranks;
    baton_schedule_t **schedules;
    int32_t *data[RANKS]; /* device memory */
} world_t;

static world_t world_open(bool staged)
{
    const emulated_options_t options = {
        .seed = 3, .delay_us = 20, .no_handles = staged};
    world_t world = {
        .ranks = device_cluster_open(RANKS, SUPPORT_OWN_ENGINES, &options)};
    support_cluster_t *cluster = world.ranks->cluster;
    world.schedules = support_schedules_create(cluster, "sum");
    for (int rank = 0; rank < RANKS; rank++) {
        baton_schedule_t *s = world.schedules[rank];
        for (int i = 0; i < COUNT; i++) {
            input[rank][i] = rank + 1;
        }
        world.data[rank] = emulated_allocate(world.ranks->devices[rank], BYTES);
        baton_view_t view = device_view(s, world.data[rank], BYTES);
        baton_allreduce_ring(
            s, &(baton_allreduce_t){.size = sizeof(baton_allreduce_t),
                                    .source = view,
                                    .target = view,
                                    .dtype = BATON_I32,
                                    .op = BATON_SUM});
    }
    support_schedules_commit(cluster, world.schedules);
    return world;
}

static void world_close(world_t *world)
{
    support_schedules_destroy(world->ranks->cluster, world->schedules);
    for (int rank = 0; rank < RANKS; rank++) {
        emulated_t *device = world->ranks->devices[rank];
        emulated_synchronise_all(device);
        emulated_release(device, world->data[rank]);
    }
    device_cluster_close(world->ranks);
}

/* Starts an epoch on each rank's stream, whose data is its rank + 1. */
static void start_all(world_t *world, int epochs)
{
    for (int rank = 0; rank < RANKS; rank++) {
        baton_schedule_t *s = world->schedules[rank];
        device_cluster_copy(world->ranks, rank, world->data[rank], input[rank],
                            BYTES);
        world->started[rank] = false;
        for (int k = 0; k < epochs; k++) {
            /* It may have failed already, on another rank. */
            baton_status_t status =
                baton_schedule_start_on(s, world->ranks->streams[rank]);
            assert_true(status == BATON_OK || status == BATON_ERR_FAILED);
            world->started[rank] |= status == BATON_OK;
        }
        support_ok(baton_schedule_wait_on(s, world->ranks->streams[rank]));
    }
}

static void check_sum(world_t *world, int32_t sum)
{
    static int32_t found[COUNT];
    for (int rank = 0; rank < RANKS; rank++) {
        emulated_read(world->ranks->devices[rank], found, world->data[rank],
                      BYTES);
        for (int i = 0; i < COUNT; i++) {
            assert_int_equal(found[i], sum);
        }
    }
}

static void recover(void *arg)
{
    support_ok(baton_group_recover(arg, SUPPORT_WAIT_MS));
}

/* Streams end whatever became of the epochs that they wait for. */
static void synchronise(world_t *world)
{
    for (int rank = 0; rank < RANKS; rank++) {
        device_cluster_synchronise(world->ranks, rank);
    }
}

static void run_well(world_t *world)
{
    start_all(world, 1);
    for (int rank = 0; rank < RANKS; rank++) {
        support_ok(
            baton_schedule_wait(world->schedules[rank], SUPPORT_WAIT_MS));
    }
    synchronise(world);
    check_sum(world, RANKS * (RANKS + 1) / 2);
}

/* Expects that the epoch has failed on all ranks: at a node, or at a message
   whose copy has failed. */
static void expect_failure(world_t *world)
{
    for (int rank = 0; rank < RANKS; rank++) {
        baton_status_t status =
            baton_schedule_wait(world->schedules[rank], SUPPORT_WAIT_MS);
        assert_int_not_equal(status, BATON_ERR_TIMEOUT);
        assert_true(status != BATON_OK || !world->started[rank]);
        support_expect(baton_schedule_start_on(world->schedules[rank],
                                               world->ranks->streams[rank]),
                       BATON_ERR_FAILED);
        support_ok(baton_schedule_wait_on(world->schedules[rank],
                                          world->ranks->streams[rank]));
    }
    synchronise(world);
}

static void fail_and_recover(bool staged)
{
    world_t world = world_open(staged);
    for (int round = 0; round < ROUNDS; round++) {
        int victim = round % RANKS;
        run_well(&world);
        emulated_fail_work(world.ranks->devices[victim], 2 + round % 4);
        start_all(&world, 1 + round % 3);
        expect_failure(&world);
        emulated_repair(world.ranks->devices[victim]);
        device_cluster_recover(world.ranks);
    }
    run_well(&world);
    world_close(&world);
}

static void test_device_fails(void **state)
{
    fail_and_recover(true);
    fail_and_recover(false);
}

/* One rank cancels while its stream has not got to the start. */
static void test_cancel_on_one_rank(void **state)
{
    world_t world = world_open(true);
    for (int round = 0; round < ROUNDS; round++) {
        int victim = round % RANKS;
        run_well(&world);
        emulated_delay(world.ranks->devices[victim],
                       world.ranks->streams[victim], 3000);
        start_all(&world, 1);
        baton_status_t status = baton_schedule_cancel(world.schedules[victim]);
        if (status == BATON_OK) {
            expect_failure(&world);
            device_cluster_recover(world.ranks);
        }
        synchronise(&world);
    }
    run_well(&world);
    world_close(&world);
}

static baton_status_t refuse(void *arg, baton_call_t *call)
{
    return BATON_ERR_INVALID;
}

/* A peer has begun the epoch that failed, and this rank has never started one:
   after the recovery there is nothing that its stream would have to wait for.
 */
static void test_wait_before_start(void **state)
{
    const emulated_options_t options = {.seed = 3};
    device_cluster_t *ranks =
        device_cluster_open(2, SUPPORT_OWN_ENGINES, &options);
    support_cluster_t *cluster = ranks->cluster;
    baton_schedule_t **s = support_schedules_create(cluster, "activated");
    (void)baton_add_activate(s[0], 1);
    (void)baton_add_recv(s[0], 1, support_scratch(s[0], 1));
    baton_node_t armed = baton_add_armed_recv(s[1], 0);
    baton_node_t fails = baton_add_call(s[1], refuse, NULL);
    baton_before(s[1], armed, fails);
    baton_before(s[1], fails,
                 baton_add_send(s[1], 0, support_scratch(s[1], 1)));
    support_schedules_commit(cluster, s);
    baton_stream_t stream = emulated_stream(ranks->devices[1]);
    support_ok(baton_schedule_start(s[0]));
    support_expect(baton_schedule_wait(s[0], SUPPORT_WAIT_MS),
                   BATON_ERR_INVALID);
    support_thread_t *other = support_thread_start(recover, cluster->groups[0]);
    recover(cluster->groups[1]);
    support_thread_join(other);
    support_ok(baton_schedule_wait_on(s[1], stream));
    emulated_synchronise(ranks->devices[1], stream);
    support_schedules_destroy(cluster, s);
    device_cluster_close(ranks);
}

/* Rank 0 begins what rank 1 has started on its stream, which stands. */
typedef struct activated {
    device_cluster_t *ranks;
    baton_schedule_t **schedules;
    emulated_t *device; /* of rank 1 */
    baton_stream_t stream;
    void *gate; /* a flag */
    int32_t *data;
} activated_t;

static activated_t activated_open(int variant)
{
    enum { SMALL = 400 };
    const emulated_options_t options = {.seed = 3};
    activated_t self = {.ranks = device_cluster_open(2, variant, &options)};
    self.device = self.ranks->devices[1];
    self.stream = emulated_stream(self.device);
    self.gate = emulated_gate(self.device);
    self.data = emulated_allocate(self.device, SMALL);
    baton_schedule_t **s =
        support_schedules_create(self.ranks->cluster, "solo");
    self.schedules = s;
    (void)baton_add_activate(s[0], 1);
    (void)baton_add_recv(s[0], 1, support_scratch(s[0], SMALL));
    baton_node_t armed = baton_add_armed_recv(s[1], 0);
    baton_node_t start = baton_add_on_start(s[1]);
    baton_node_t any = baton_add_nop(s[1]);
    baton_before(s[1], armed, any);
    baton_before(s[1], start, any);
    baton_set_need(s[1], any, 1);
    baton_view_t v = device_view(s[1], self.data, SMALL);
    baton_node_t sum = baton_add_reduce(s[1], BATON_I32, BATON_SUM, v, v, v);
    baton_before(s[1], any, sum);
    baton_before(s[1], sum, baton_add_send(s[1], 0, v));
    return self;
}

static void activated_close(activated_t *self)
{
    emulated_synchronise_all(self->device);
    support_schedules_destroy(self->ranks->cluster, self->schedules);
    emulated_free_gate(self->device, self->gate);
    emulated_release(self->device, self->data);
    device_cluster_close(self->ranks);
}

static void activated_start(const activated_t *self, uint64_t round)
{
    support_ok(emulated_port(self->device)
                   ->await(self->device, self->stream, self->gate, round));
    support_ok(baton_schedule_start_on(self->schedules[1], self->stream));
    support_ok(baton_schedule_start(self->schedules[0]));
}

static void activated_open_gate(const activated_t *self, uint64_t round)
{
    emulated_open_gate(self->device, self->gate, round);
}

static void test_activated_before_stream(void **state)
{
    activated_t world = activated_open(SUPPORT_OWN_ENGINES);
    support_schedules_commit(world.ranks->cluster, world.schedules);
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        activated_start(&world, round);
        for (int rank = 0; rank < 2; rank++) {
            support_ok(
                baton_schedule_wait(world.schedules[rank], SUPPORT_WAIT_MS));
        }
        activated_open_gate(&world, round);
    }
    activated_close(&world);
}

/* The same if the limit allows the epoch only after it was activated. */
static void test_limit_is_raised_before_stream(void **state)
{
    activated_t world = activated_open(SUPPORT_OWN_MANUAL);
    baton_schedule_t **s = world.schedules;
    baton_schedule_limit(s[1], 0);
    support_schedules_commit(world.ranks->cluster, s);
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        bool done[2] = {false, false};
        activated_start(&world, round);
        for (int polls = 0; polls < 100; polls++) {
            for (int rank = 0; rank < 2; rank++) {
                support_ok(baton_schedule_test(s[rank], &done[rank]));
                assert_false(done[rank]);
            }
        }
        baton_schedule_limit(s[1], round);
        while (!done[0] || !done[1]) {
            support_ok(baton_schedule_test(s[0], &done[0]));
            support_ok(baton_schedule_test(s[1], &done[1]));
        }
        activated_open_gate(&world, round);
    }
    activated_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device_fails),
        cmocka_unit_test(test_cancel_on_one_rank),
        cmocka_unit_test(test_wait_before_start),
        cmocka_unit_test(test_activated_before_stream),
        cmocka_unit_test(test_limit_is_raised_before_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
