/* Epochs that begin and end in the order of a user's stream, on ranks with an
   emulated device. */
#include "support/device_cluster.h"

#include <sched.h>
#include <semaphore.h>

enum { COUNT = 500, BYTES = COUNT * sizeof(int32_t), FLIGHT = 8, ROUNDS = 30 };

/* A rank with an emulated device as its user sees it: a stream with a gate, and
   two vectors in device memory. */
typedef struct user {
    support_cluster_t *ranks;
    emulated_t *device;
    baton_stream_t stream;
    device_gate_t gate;
    int32_t *a, *b; /* in device memory, COUNT elements each */
} user_t;

static user_t user_open(support_cluster_t *ranks)
{
    emulated_t *device = ranks->devices[0];
    return (user_t){.ranks = ranks,
                    .device = device,
                    .stream = ranks->streams[0],
                    .gate = device_gate(ranks, 0),
                    .a = emulated_allocate(device, BYTES),
                    .b = emulated_allocate(device, BYTES)};
}

static void user_close(const user_t *user)
{
    emulated_synchronise_all(user->device);
    device_gate_destroy(&user->gate);
    emulated_release(user->device, user->a);
    emulated_release(user->device, user->b);
}

static void user_fill(int32_t *data, int32_t from)
{
    for (int i = 0; i < COUNT; i++) {
        data[i] = from + i;
    }
}

static baton_schedule_t *begin(user_t *user, const char *name)
{
    return support_schedule(user->ranks->groups[0], name);
}

/* The schedule computes b = a + a. */
static baton_schedule_t *doubling(user_t *user)
{
    baton_schedule_t *s = begin(user, "doubling");
    baton_view_t a = device_view(s, user->a, BYTES);
    baton_view_t b = device_view(s, user->b, BYTES);
    (void)baton_add_reduce_local(s, BATON_I32, BATON_SUM, b, a, a);
    support_ok(baton_schedule_commit(s));
    return s;
}

/* ---- no work before the stream reaches it ------------------------------ */

TEST_ON_DEVICES(test_gate, 1)
{
    user_t user = user_open(cluster);
    baton_schedule_t *s = doubling(&user);
    uint64_t calls = 0;
    baton_schedule_t *root = begin(&user, "root");
    (void)baton_add_call(root, support_count, &calls);
    support_ok(baton_schedule_commit(root));
    baton_schedule_t *empty = begin(&user, "empty");
    support_ok(baton_schedule_commit(empty));
    baton_schedule_t *all[] = {s, root, empty};
    static int32_t zeros[COUNT];
    emulated_write(user.device, user.a, zeros, BYTES);
    for (uint64_t round = 1; round <= 5; round++) {
        device_gate_close(&user.gate);
        for (int i = 0; i < 3; i++) {
            support_ok(baton_schedule_start_on(all[i], user.stream));
        }
        bool done = false;
        for (int polls = 0; polls < 100; polls++) {
            for (int i = 0; i < 3; i++) {
                support_ok(baton_schedule_test(all[i], &done));
                assert_false(done);
            }
        }
        assert_int_equal(calls, round - 1);
        if (round == 1) { /* a wait that times out says why */
            support_times_out(
                s, 20, "the stream that it was started on has not reached it");
        }
        device_gate_open(&user.gate);
        for (int i = 0; i < 3; i++) {
            support_ok(baton_schedule_wait(all[i], SUPPORT_WAIT_MS));
        }
        assert_int_equal(calls, round);
    }
    for (int i = 0; i < 3; i++) {
        support_ok(baton_schedule_destroy(all[i]));
    }
    user_close(&user);
}

/* ---- chains that do not return to the CPU ------------------------------ */

/* A manual engine makes no step after the start. The user's stream sees the end
   of the epoch nevertheless, even if the epoch has an optional node. */
TEST_WITH(test_ends_by_itself, 1, SUPPORT_DEVICES_MANUAL)
{
    user_t user = user_open(cluster);
    baton_schedule_t *s = begin(&user, "by itself");
    baton_view_t a = device_view(s, user.a, BYTES);
    baton_view_t b = device_view(s, user.b, BYTES);
    baton_view_t c = support_scratch(s, BYTES);
    (void)baton_add_reduce_local(s, BATON_I32, BATON_SUM, b, a, a);
    baton_set_optional(
        s, baton_add_reduce_local(s, BATON_I32, BATON_SUM, c, a, a));
    support_ok(baton_schedule_commit(s));
    static int32_t in[COUNT], out[COUNT];
    for (int round = 0; round < ROUNDS; round++) {
        emulated_counters_t before = emulated_counters(user.device);
        user_fill(in, 3 * round);
        memset(out, 0, sizeof out);
        device_copy(cluster, 0, user.a, in, BYTES);
        emulated_synchronise(user.device, user.stream);
        support_ok(baton_schedule_start_on(s, user.stream));
        support_ok(baton_schedule_wait_on(s, user.stream));
        device_copy(cluster, 0, out, user.b, BYTES);
        emulated_synchronise(user.device, user.stream);
        for (int i = 0; i < COUNT; i++) {
            assert_int_equal(out[i], 2 * (3 * round + i));
        }
        emulated_counters_t after = emulated_counters(user.device);
        assert_int_equal(after.raises - before.raises, 1);
        support_ok(baton_schedule_wait(s, SUPPORT_WAIT_MS));
    }
    support_ok(baton_schedule_destroy(s));
    user_close(&user);
}

/* The end of the epoch comes after all nodes, whichever of their streams is
   late. */
TEST_WITH(test_ends_behind_every_stream, 1, SUPPORT_DEVICES_MANUAL)
{
    static int32_t in[COUNT], out[2][COUNT];
    user_t user = user_open(cluster);
    baton_schedule_t *s = begin(&user, "two streams");
    baton_view_t b = device_view(s, user.b, BYTES);
    (void)baton_add_copy(s, device_view(s, user.a, BYTES),
                         support_view(s, in, BYTES));
    (void)baton_add_reduce_local(s, BATON_I32, BATON_SUM, b, b, b);
    support_ok(baton_schedule_commit(s));
    user_fill(in, 1);
    emulated_write(user.device, user.b, in, BYTES);
    for (int k = 0; k < BATON_DEVICE_STREAMS; k++) {
        user_fill(in, k);
        emulated_delay(user.device, emulated_port(user.device)->streams[k],
                       20000);
        support_ok(baton_schedule_start_on(s, user.stream));
        support_ok(baton_schedule_wait_on(s, user.stream));
        device_copy(cluster, 0, out[0], user.a, BYTES);
        device_copy(cluster, 0, out[1], user.b, BYTES);
        emulated_synchronise(user.device, user.stream);
        assert_memory_equal(out[0], in, BYTES);
        for (int i = 0; i < COUNT; i++) {
            assert_int_equal(out[1][i], (1 + i) << (k + 1));
        }
        support_ends(s, BATON_OK);
    }
    support_ok(baton_schedule_destroy(s));
    user_close(&user);
}

/* ---- an end on the host ------------------------------------------------ */

/* The device does all of its work between two queries of the driver. So the
   answer to the first query is out of date. */
static struct {
    const baton_device_port_t *port;
    sem_t latch; /* holds back the stream that copies to the device */
    bool answers_late;
} late;

static void hold_back(void *latch)
{
    while (sem_wait(latch) != 0) {
    }
}

static baton_status_t answer_late(void *device, void *event)
{
    baton_status_t status = late.port->query(device, event);
    if (late.answers_late && status == BATON_AGAIN) {
        late.answers_late = false;
        assert_int_equal(sem_post(&late.latch), 0);
        for (int k = 0; k < BATON_DEVICE_STREAMS; k++) {
            emulated_synchronise(device, late.port->streams[k]);
        }
    }
    return status;
}

static void attach_late(void *arg, int rank, baton_engine_t *engine)
{
    const emulated_options_t options = {.seed = 11};
    emulated_t *device = emulated_open(&options);
    late.port = emulated_port(device);
    baton_device_port_t port = *late.port;
    port.query = answer_late;
    support_ok(baton_engine_attach_device(engine, &port, device));
    *(emulated_t **)arg = device;
}

/* host --> a, a + a --> a, call. The driver learns that the reduction is done
   before it learns the same of the copy. So the copy is all that is left of the
   epoch when the call is over. Even so, no stream raises the flag: later work
   in the user's stream relies on an epoch that the driver has retired. */
TEST(test_ends_on_the_host)
{
    static int32_t data[COUNT];
    emulated_t *device = NULL;
    uint64_t calls = 0;
    support_cluster_t *cluster =
        support_cluster_prepare(1, SUPPORT_OWN_MANUAL, attach_late, &device);
    assert_int_equal(sem_init(&late.latch, 0, 0), 0);
    baton_stream_t in = late.port->streams[BATON_DEVICE_IN];
    baton_stream_t stream = emulated_stream(device);
    int32_t *memory = emulated_allocate(device, BYTES);
    baton_schedule_t *s = support_schedule(cluster->groups[0], "end");
    baton_view_t a = device_view(s, memory, BYTES);
    baton_node_t copied = baton_add_copy(s, a, support_view(s, data, BYTES));
    baton_node_t sum = baton_add_reduce_local(s, BATON_I32, BATON_SUM, a, a, a);
    baton_node_t end = baton_add_call(s, support_count, &calls);
    baton_before(s, copied, sum);
    baton_before(s, sum, end);
    support_ok(baton_schedule_commit(s));
    uint64_t raises = emulated_counters(device).raises;
    for (uint64_t epoch = 1; epoch <= 3; epoch++) {
        support_ok(emulated_call(device, in, hold_back, &late.latch));
        late.answers_late = true;
        support_ok(baton_schedule_start_on(s, stream));
        support_ok(baton_schedule_wait_on(s, stream));
        while (baton_schedule_epoch(s) < epoch) {
            (void)baton_engine_step(cluster->engines[0]);
        }
        emulated_synchronise(device, stream);
        assert_false(late.answers_late);
        assert_int_equal(calls, epoch);
        assert_int_equal(emulated_counters(device).raises, raises);
    }
    support_ok(baton_schedule_destroy(s));
    emulated_release(device, memory);
    support_cluster_close(cluster);
    assert_int_equal(sem_destroy(&late.latch), 0);
}

/* ---- in flight --------------------------------------------------------- */

TEST_ON_DEVICES(test_flight, 1)
{
    user_t user = user_open(cluster);
    baton_schedule_t *s = doubling(&user);
    emulated_fail_submit(user.device, 1);
    support_fails(baton_schedule_start_on(s, user.stream), BATON_ERR_SYSTEM,
                  "start of \"doubling\" on a stream: ");
    device_gate_close(&user.gate);
    for (int k = 0; k < FLIGHT; k++) {
        support_ok(baton_schedule_start_on(s, user.stream));
    }
    support_fails(baton_schedule_start_on(s, user.stream), BATON_ERR_BUSY,
                  "8 epochs have been started and not ended");
    support_fails(baton_schedule_start(s), BATON_ERR_BUSY,
                  "epoch 8 is still running");
    support_expect(baton_buffer_rebind(s, (baton_buffer_t){0}, user.b),
                   BATON_ERR_BUSY);
    assert_int_equal(baton_schedule_epoch(s), 0);
    device_gate_open(&user.gate);
    support_ok(baton_schedule_wait(s, SUPPORT_WAIT_MS));
    assert_int_equal(baton_schedule_epoch(s), FLIGHT);
    support_run(s);
    assert_int_equal(baton_schedule_epoch(s), FLIGHT + 1);
    support_ok(baton_schedule_destroy(s));
    user_close(&user);
}

/* Destroy cancels an epoch that does not end in time. If work is already in
   streams, the schedule is freed only when that is done. After a closed gate
   nothing is put into streams. */
TEST_WITH(test_destroy_gives_up, 1, SUPPORT_DEVICES)
{
    user_t user = user_open(cluster);
    support_set_variable("BATON_DESTROY_MS", "40");
    baton_schedule_t *s = doubling(&user);
    device_gate_close(&user.gate);
    support_ok(baton_schedule_start_on(s, user.stream));
    support_ok(baton_schedule_wait_on(s, user.stream));
    support_ok(baton_schedule_destroy(s));
    device_gate_open(&user.gate);
    s = doubling(&user);
    uint64_t before = emulated_counters(user.device).events;
    assert_int_equal(sem_init(&late.latch, 0, 0), 0);
    support_ok(emulated_call(
        user.device, emulated_port(user.device)->streams[BATON_DEVICE_WORK],
        hold_back, &late.latch));
    support_ok(baton_schedule_start(s));
    support_ok(baton_schedule_wait_on(s, user.stream));
    support_expect(baton_schedule_destroy(s), BATON_ERR_TIMEOUT);
    assert_int_equal(emulated_counters(user.device).events, before);
    assert_int_equal(sem_post(&late.latch), 0);
    while (baton_schedule_destroy(s) == BATON_ERR_TIMEOUT) {
        (void)sched_yield();
    }
    assert_true(emulated_counters(user.device).events < before);
    user_close(&user);
    assert_int_equal(sem_destroy(&late.latch), 0);
    support_set_variable("BATON_DESTROY_MS", NULL);
}

/* ---- two ranks --------------------------------------------------------- */

static baton_status_t refuse_on_host(void *arg, baton_call_t *call)
{
    return BATON_ERR_INVALID;
}

/* A peer has begun an epoch, which failed, and this rank has never started one.
   After the recovery nothing is left that its stream must wait for. */
TEST_WITH(test_wait_before_start, 2, SUPPORT_DEVICES)
{
    baton_schedule_t **s = support_schedules_create(cluster, "activated");
    (void)baton_add_activate(s[0], 1);
    (void)baton_add_recv(s[0], 1, support_scratch(s[0], 1));
    baton_node_t armed = baton_add_armed_recv(s[1], 0);
    baton_node_t fails = baton_add_call(s[1], refuse_on_host, NULL);
    baton_before(s[1], armed, fails);
    baton_before(s[1], fails,
                 baton_add_send(s[1], 0, support_scratch(s[1], 1)));
    support_schedules_commit(cluster, s);
    baton_stream_t stream = cluster->streams[1];
    support_fails(baton_schedule_wait_on(s[1], stream), BATON_ERR_STATE,
                  "it has not been started");
    support_ok(baton_schedule_start(s[0]));
    support_expect(baton_schedule_wait(s[0], SUPPORT_WAIT_MS),
                   BATON_ERR_INVALID);
    support_cluster_recover(cluster);
    support_ok(baton_schedule_wait_on(s[1], stream));
    device_synchronise(cluster, 1);
    support_schedules_destroy(cluster, s);
}

/* Rank 0 activates an epoch. Rank 1 has started it on its stream, which is held
   back. */
typedef struct activated {
    support_cluster_t *ranks;
    baton_schedule_t **schedules;
    device_gate_t gate;
    int32_t *data;
} activated_t;

static activated_t activated_open(support_cluster_t *ranks, uint32_t need)
{
    enum { SMALL = 400 };
    baton_schedule_t **s = support_schedules_create(ranks, "solo");
    activated_t self = {.ranks = ranks,
                        .schedules = s,
                        .gate = device_gate(ranks, 1),
                        .data = emulated_allocate(ranks->devices[1], SMALL)};
    (void)baton_add_activate(s[0], 1);
    (void)baton_add_recv(s[0], 1, support_scratch(s[0], SMALL));
    baton_node_t armed = baton_add_armed_recv(s[1], 0);
    baton_node_t start = baton_add_on_start(s[1]);
    baton_node_t any = baton_add_nop(s[1]);
    baton_before(s[1], armed, any);
    baton_before(s[1], start, any);
    baton_set_need(s[1], any, need);
    baton_view_t v = device_view(s[1], self.data, SMALL);
    baton_node_t sum =
        baton_add_reduce_local(s[1], BATON_I32, BATON_SUM, v, v, v);
    baton_before(s[1], any, sum);
    baton_before(s[1], sum, baton_add_send(s[1], 0, v));
    return self;
}

static void activated_close(activated_t *self)
{
    emulated_synchronise_all(self->gate.device);
    support_schedules_destroy(self->ranks, self->schedules);
    device_gate_destroy(&self->gate);
    emulated_release(self->gate.device, self->data);
}

/* The epoch runs once the limit allows it. That is after it was activated, and
   before the stream reaches the epoch. */
TEST_WITH(test_limit_is_raised_before_stream, 2, SUPPORT_DEVICES_MANUAL)
{
    activated_t world = activated_open(cluster, 1);
    baton_schedule_t **s = world.schedules;
    baton_schedule_limit(s[1], 0);
    support_schedules_commit(cluster, s);
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        bool done[2] = {false, false};
        device_gate_close(&world.gate);
        support_ok(baton_schedule_start_on(s[1], cluster->streams[1]));
        support_ok(baton_schedule_start(s[0]));
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
        device_gate_open(&world.gate);
    }
    activated_close(&world);
}

/* The device does all nodes that can begin before the message that activates
   the epoch. The nodes after this message still have to be done, so the stream
   waits. */
TEST_WITH(test_stream_waits_for_all, 2, SUPPORT_DEVICES_MANUAL)
{
    activated_t world = activated_open(cluster, 2);
    emulated_t *device = cluster->devices[1];
    baton_schedule_t **s = world.schedules;
    baton_view_t root = device_scratch(s[1], BYTES);
    (void)baton_add_reduce_local(s[1], BATON_I32, BATON_SUM, root, root, root);
    support_schedules_commit(cluster, s);
    uint64_t raises = emulated_counters(device).raises;
    bool done[2] = {false, false};
    support_ok(baton_schedule_start_on(s[1], cluster->streams[1]));
    support_ok(baton_schedule_wait_on(s[1], cluster->streams[1]));
    for (int polls = 0; polls < 100; polls++) {
        support_ok(baton_schedule_test(s[1], &done[1]));
        emulated_synchronise(device,
                             emulated_port(device)->streams[BATON_DEVICE_WORK]);
    }
    assert_int_equal(emulated_counters(device).raises, raises);
    support_ok(baton_schedule_start(s[0]));
    while (!done[0] || !done[1]) {
        support_ok(baton_schedule_test(s[0], &done[0]));
        support_ok(baton_schedule_test(s[1], &done[1]));
    }
    activated_close(&world);
}

/* Once all that an epoch needs is in streams, a message for it comes too late:
   the user's stream may have gone on. */
TEST_WITH(test_stream_ends_without_a_late_message, 2, SUPPORT_DEVICES_MANUAL)
{
    emulated_t *device = cluster->devices[1];
    int32_t sent = 7, got = 0;
    bool done[2] = {false, false};
    baton_schedule_t **s = support_schedules_create(cluster, "late");
    baton_view_t a = device_scratch(s[1], BYTES);
    support_message(s, 0, 1, &sent, &got, sizeof got);
    baton_set_optional(s[1], (baton_node_t){0});
    (void)baton_add_reduce_local(s[1], BATON_I32, BATON_SUM, a, a, a);
    support_schedules_commit(cluster, s);
    assert_int_equal(sem_init(&late.latch, 0, 0), 0);
    support_ok(emulated_call(device,
                             emulated_port(device)->streams[BATON_DEVICE_WORK],
                             hold_back, &late.latch));
    uint64_t raises = emulated_counters(device).raises;
    support_ok(baton_schedule_start_on(s[1], cluster->streams[1]));
    support_ok(baton_schedule_wait_on(s[1], cluster->streams[1]));
    while (emulated_counters(device).raises == raises) {
        support_ok(baton_schedule_test(s[1], &done[1]));
    }
    support_ok(baton_schedule_start(s[0]));
    for (int polls = 0; polls < 100; polls++) {
        support_ok(baton_schedule_test(s[0], &done[0]));
        support_ok(baton_schedule_test(s[1], &done[1]));
    }
    assert_true(done[0] && !done[1]);
    assert_int_equal(sem_post(&late.latch), 0);
    support_ends(s[1], BATON_OK);
    assert_int_equal(got, 0);
    support_schedules_destroy(cluster, s);
    assert_int_equal(sem_destroy(&late.latch), 0);
}

/* Memory of both kinds. How a port allocates it is tested by
   test_device_conformance. */
TEST_WITH(test_memory, 1, SUPPORT_DEVICES)
{
    baton_engine_t *engine = cluster->engines[0];
    uint64_t before = emulated_counters(cluster->devices[0]).allocated;
    for (int kind = 0; kind < 2; kind++) {
        void *memory = NULL;
        baton_memory_t of = (baton_memory_t)kind;
        support_ok(baton_device_alloc(engine, of, BYTES, &memory));
        support_ok(baton_device_check(engine, memory, BYTES, of));
        support_expect(
            baton_device_check(engine, memory, BYTES, (baton_memory_t)!kind),
            BATON_ERR_INVALID);
        baton_device_free(engine, of, memory);
        support_expect(baton_device_alloc(engine, of, 0, &memory),
                       BATON_ERR_INVALID);
    }
    void *untouched = &before;
    support_fails(
        baton_device_alloc(engine, (baton_memory_t)2, BYTES, &untouched),
        BATON_ERR_INVALID, "kind is 2");
    support_fails(baton_device_check(engine, &before, 1, (baton_memory_t)2),
                  BATON_ERR_INVALID, "kind is 2");
    assert_ptr_equal(untouched, &before);
    baton_device_free(engine, BATON_MEMORY_HOST, NULL);
    assert_int_equal(emulated_counters(cluster->devices[0]).allocated, before);
}
