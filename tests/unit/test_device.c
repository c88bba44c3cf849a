/* Nodes that run on a device, on one rank with an emulated device: into which
   streams they are put, in which memory scratch buffers are, what commit
   refuses, and what happens if the device fails. */
#include "support/device_cluster.h"

#include <baton/baton.h>
#include <time.h>

enum { COUNT = 1000, BYTES = COUNT * sizeof(int32_t) };

static int32_t in[COUNT], out[COUNT];

static int fill_in(void **state)
{
    for (int i = 0; i < COUNT; i++) {
        in[i] = i * 7 - 3;
    }
    return 0;
}

static baton_schedule_t *begin(support_cluster_t *cluster, const char *name)
{
    return support_schedule(cluster->groups[0], name);
}

static baton_node_t behind(baton_schedule_t *s, baton_node_t before,
                           baton_node_t node)
{
    baton_before(s, before, node);
    return node;
}

/* ---- chains ------------------------------------------------------------ */

/* in --> copy --> `length` sums, each of the vector and itself --> copy -->
   out */
static void add_chain(baton_schedule_t *s, int length)
{
    baton_view_t a = device_scratch(s, BYTES);
    baton_node_t node = baton_add_copy(s, a, support_view(s, in, BYTES));
    for (int i = 0; i < length; i++) {
        node = behind(s, node,
                      baton_add_reduce_local(s, BATON_I32, BATON_SUM, a, a, a));
    }
    (void)behind(s, node, baton_add_copy(s, support_view(s, out, BYTES), a));
}

static void check_doubled(int times)
{
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(out[i], (int32_t)((uint32_t)in[i] << times));
    }
}

/* A chain is put into its streams at once, with an event recorded after each
   node. */
TEST_WITH(test_chain_without_visits, 1, SUPPORT_DEVICES_MANUAL)
{
    enum { LENGTH = 20 };
    emulated_t *device = cluster->devices[0];
    baton_schedule_t *s = begin(cluster, "at once");
    add_chain(s, LENGTH);
    support_ok(baton_schedule_commit(s));
    emulated_counters_t before = emulated_counters(device);
    /* The start makes steps of the engine, but queries no event. */
    support_ok(baton_schedule_start(s));
    emulated_counters_t after = emulated_counters(device);
    assert_int_equal(after.reduces - before.reduces +
                             after.copies[EMULATED_HOST_TO_DEVICE] -
                             before.copies[EMULATED_HOST_TO_DEVICE] +
                             after.copies[EMULATED_DEVICE_TO_HOST] -
                             before.copies[EMULATED_DEVICE_TO_HOST] <=
                         LENGTH + 2,
                     1);
    /* LENGTH reduces, two copies, and two waits of one stream for another */
    assert_int_equal(after.submissions - before.submissions, LENGTH + 4);
    assert_int_equal(after.follows - before.follows, 2);
    assert_int_equal(after.records - before.records, LENGTH + 2);
    assert_int_equal(after.queries - before.queries, 0);
    support_ok(baton_schedule_wait(s, SUPPORT_WAIT_MS));
    assert_int_equal(emulated_counters(device).submissions, after.submissions);
    check_doubled(LENGTH);
    support_ok(baton_schedule_destroy(s));
}

static baton_status_t refuse_call(void *arg, baton_call_t *call,
                                  baton_stream_t stream)
{
    return arg == NULL
               ? BATON_SKIP
               : baton_call_fail(call, BATON_ERR_LIMIT, "it does not want to");
}

TEST_WITH(test_device_call_fails, 1, SUPPORT_DEVICES)
{
    static const char *const texts[] = {
        "failed at device_call#0 on rank 0: device_call#0 returned 1, "
        "BATON_ERR_INVALID",
        "failed at device_call#0 on rank 0: it does not want to"};
    for (int i = 0; i < 2; i++) {
        baton_schedule_t *s = begin(cluster, "refusing");
        (void)baton_add_device_call(s, refuse_call, i == 0 ? NULL : &in);
        support_ok(baton_schedule_commit(s));
        support_ok(baton_schedule_start(s));
        assert_int_not_equal(baton_schedule_wait(s, SUPPORT_WAIT_MS), BATON_OK);
        support_says(texts[i]);
        support_ok(baton_schedule_destroy(s));
    }
}

/* ---- empty nodes, needs, lengths --------------------------------------- */

typedef struct lengths {
    baton_length_t length;
    size_t bytes;
} lengths_t;

static baton_status_t set_length(void *arg, baton_call_t *call)
{
    const lengths_t *lengths = arg;
    return baton_call_set_length(call, lengths->length, lengths->bytes);
}

TEST_WITH(test_lengths, 1, SUPPORT_DEVICES)
{
    baton_schedule_t *s = begin(cluster, "lengths");
    lengths_t lengths = {.length = baton_add_length(s)};
    baton_view_t a = device_scratch(s, BYTES);
    baton_node_t call = baton_add_call(s, set_length, &lengths);
    baton_node_t copy =
        behind(s, call, baton_add_copy(s, a, support_view(s, in, BYTES)));
    baton_node_t sum = behind(
        s, copy, baton_add_reduce_local(s, BATON_I32, BATON_SUM, a, a, a));
    (void)behind(s, sum, baton_add_copy(s, support_view(s, out, BYTES), a));
    /* The length may be 0, but the copy back still comes after `copy`. */
    baton_set_length(s, sum, lengths.length);
    support_ok(baton_schedule_commit(s));
    for (size_t round = 0; round < 64; round++) {
        size_t count = round % 2 * (round - 1) * (COUNT / 62);
        lengths.bytes = count * sizeof *out;
        support_run(s);
        for (size_t i = 0; i < COUNT; i++) {
            assert_int_equal(out[i], i < count ? 2 * in[i] : in[i]);
        }
    }
    lengths.bytes = 6;
    support_ok(baton_schedule_start(s));
    support_fails(baton_schedule_wait(s, SUPPORT_WAIT_MS), BATON_ERR_INVALID,
                  "reduce#2 on rank 0: its length is 6 bytes");
    support_ok(baton_schedule_destroy(s));
}

/* ---- the memory of scratch --------------------------------------------- */

TEST_WITH(test_scratch_follows_device_memory, 1, SUPPORT_DEVICES)
{
    emulated_t *device = cluster->devices[0];
    void *memory = emulated_allocate(device, BYTES);
    baton_schedule_t *s = begin(cluster, "scratch");
    baton_view_t bound = device_view(s, memory, BYTES);
    /* This scratch is on the device, because a reduce uses it with `bound`. */
    baton_view_t near = support_scratch(s, BYTES);
    /* This scratch is on the device, because it is copied from `near`. */
    baton_view_t far = support_scratch(s, BYTES);
    /* This scratch is in main memory, since nothing requires otherwise. */
    baton_view_t other = support_scratch(s, BYTES);
    baton_view_t said = support_scratch(s, BYTES);
    baton_buffer_set_memory(s, said.buffer, BATON_MEMORY_HOST);
    emulated_write(device, memory, in, BYTES);
    baton_node_t node =
        baton_add_reduce_local(s, BATON_I32, BATON_SUM, near, bound, bound);
    node = behind(s, node, baton_add_copy(s, far, near));
    (void)behind(s, node, baton_add_copy(s, said, far));
    (void)baton_add_copy(s, other, support_view(s, in, BYTES));
    uint64_t before = emulated_counters(device).allocated;
    support_ok(baton_schedule_commit(s));
    assert_int_equal(emulated_counters(device).allocated - before, 2);
    support_run(s);
    support_ok(baton_schedule_destroy(s));
    assert_int_equal(emulated_counters(device).allocated, before);
    emulated_release(device, memory);
}

/* ---- refusals ---------------------------------------------------------- */

static void refuses_commit(baton_schedule_t *s, baton_status_t status,
                           const char *text)
{
    support_fails(baton_schedule_commit(s), status, "\"wrong\"");
    support_says(text);
    support_ok(baton_schedule_destroy(s));
}

TEST_WITH(test_refuses_mixed_reduce, 1, SUPPORT_DEVICES)
{
    baton_schedule_t *s = begin(cluster, "wrong");
    baton_view_t host = support_view(s, in, BYTES);
    baton_view_t a = device_scratch(s, BYTES);
    (void)baton_add_reduce_local(s, BATON_I32, BATON_SUM, a, a, host);
    refuses_commit(s, BATON_ERR_INVALID,
                   "reduce#0 has buffer 1 in device memory and buffer 0 in "
                   "host memory");
}

static void reduce_nothing(void *arg, void *target, const void *left,
                           const void *right, size_t count, baton_dtype_t dtype)
{
}

TEST(test_refuses_unknown_reduction)
{
    static const baton_op_t own = {
        .name = "own", .reduce = reduce_nothing, .commutative = true};
    const emulated_options_t options = {.builtin_only = true};
    support_cluster_t *self =
        device_cluster_open(1, SUPPORT_OWN_MANUAL, &options);
    baton_schedule_t *s = begin(self, "wrong");
    baton_view_t a = device_scratch(s, BYTES);
    (void)baton_add_reduce_local(s, BATON_I32, &own, a, a, a);
    refuses_commit(s, BATON_ERR_UNSUPPORTED, "has no reduction \"own\" of i32");
    support_cluster_close(self);
}

TEST_WITH(test_refuses_wrong_memory, 1, SUPPORT_DEVICES)
{
    emulated_t *device = cluster->devices[0];
    void *memory = emulated_allocate(device, BYTES);
    baton_schedule_t *s = begin(cluster, "wrong");
    baton_view_t a = device_view(s, in, BYTES);
    (void)baton_add_copy(s, support_view(s, out, BYTES), a);
    refuses_commit(s, BATON_ERR_INVALID,
                   "buffer 0 (copy#0 uses it) is to be device memory");
    s = begin(cluster, "wrong");
    (void)baton_add_copy(s, support_view(s, out, BYTES),
                         support_view(s, memory, BYTES));
    refuses_commit(s, BATON_ERR_INVALID,
                   "(copy#0 uses it) is to be host memory");
    /* This memory belongs to another device. */
    support_cluster_t *other = support_cluster_open(1, SUPPORT_DEVICES);
    void *foreign = emulated_allocate(other->devices[0], BYTES);
    s = begin(cluster, "wrong");
    (void)baton_add_copy(s, support_view(s, out, BYTES),
                         device_view(s, foreign, BYTES));
    refuses_commit(s, BATON_ERR_INVALID,
                   "(copy#0 uses it) is to be device memory");
    emulated_release(other->devices[0], foreign);
    support_cluster_close(other);
    emulated_release(device, memory);
}

TEST_MANUALLY(test_refuses_without_device, 1)
{
    baton_schedule_t *s = begin(cluster, "wrong");
    (void)baton_add_device_call(s, refuse_call, NULL);
    refuses_commit(s, BATON_ERR_UNSUPPORTED, "device_call#0 needs a device");
    s = begin(cluster, "wrong");
    (void)baton_add_copy(s, support_view(s, out, BYTES),
                         device_view(s, in, BYTES));
    refuses_commit(s, BATON_ERR_UNSUPPORTED,
                   " in device memory: the engine has no device");
    s = begin(cluster, "idle");
    support_ok(baton_schedule_commit(s));
    support_expect(baton_schedule_start_on(s, NULL), BATON_ERR_UNSUPPORTED);
    support_expect(baton_schedule_wait_on(s, NULL), BATON_ERR_UNSUPPORTED);
    support_ok(baton_schedule_destroy(s));
}

static void attach_to_first(void *arg, int rank, baton_engine_t *engine)
{
    emulated_t **device = arg;
    if (rank == 0) {
        *device = emulated_open(NULL);
        support_ok(baton_engine_attach_device(engine, emulated_port(*device),
                                              *device));
    }
}

/* Rank 0 sends device memory to rank 1, which has no device. */
TEST(test_refuses_receiver_without_device)
{
    emulated_t *device;
    support_cluster_t *cluster = support_cluster_prepare(
        2, SUPPORT_OWN_ENGINES, attach_to_first, &device);
    baton_schedule_t **s = support_schedules_create(cluster, "mixed");
    void *memory = emulated_allocate(device, BYTES);
    (void)baton_add_send(s[0], 1, device_view(s[0], memory, BYTES));
    (void)baton_add_recv(s[1], 0, support_scratch(s[1], BYTES));
    support_schedules_commit(cluster, s);
    for (int rank = 0; rank < 2; rank++) {
        baton_status_t status = baton_schedule_run(s[rank], SUPPORT_WAIT_MS);
        assert_true(status == BATON_ERR_MISMATCH || status == BATON_ERR_FAILED);
        support_says("is to receive device memory of rank 0, but its engine "
                     "has no device");
    }
    support_schedules_destroy(cluster, s);
    emulated_release(device, memory);
    support_cluster_close(cluster);
}

/* The pipeline's blocks of 1 MiB in device memory are not divided, as blocks in
   main memory are. */
TEST_WITH(test_segments_are_long, 2, SUPPORT_DEVICES)
{
    enum { LONG = 1 << 21 };
    baton_schedule_t *s[2];
    float *memory[2];
    for (int rank = 0; rank < 2; rank++) {
        memory[rank] = emulated_allocate(cluster->devices[rank], LONG);
        const baton_operands_t operands = {.target = memory[rank],
                                           .count = LONG / sizeof(float),
                                           .dtype = BATON_F32,
                                           .op = BATON_SUM,
                                           .algorithm = "pairwise",
                                           .memory = BATON_MEMORY_DEVICE};
        support_ok(
            baton_allreduce_create(cluster->groups[rank], &operands, &s[rank]));
    }
    for (int rank = 0; rank < 2; rank++) {
        support_ok(baton_schedule_start(s[rank]));
    }
    for (int rank = 0; rank < 2; rank++) {
        support_ends(s[rank], BATON_OK);
        assert_int_equal(baton_schedule_sent(s[rank]).messages, 2);
        support_ok(baton_schedule_destroy(s[rank]));
        emulated_release(cluster->devices[rank], memory[rank]);
    }
}

TEST_WITH(test_rebinds, 1, SUPPORT_DEVICES)
{
    emulated_t *device = cluster->devices[0];
    char *memory = emulated_allocate(device, 2 * BYTES);
    baton_schedule_t *s = begin(cluster, "rebound");
    baton_view_t a = device_view(s, memory, BYTES);
    (void)baton_add_copy(s, support_view(s, out, BYTES), a);
    support_ok(baton_schedule_commit(s));
    emulated_write(device, memory + BYTES, in, BYTES);
    support_ok(baton_buffer_rebind(s, a.buffer, memory + BYTES));
    support_run(s);
    check_doubled(0);
    support_ok(baton_buffer_rebind(s, a.buffer, in));
    support_fails(baton_schedule_start(s), BATON_ERR_INVALID,
                  "buffer 0 (copy#0 uses it) is to be device memory");
    support_ok(baton_buffer_rebind(s, a.buffer, memory));
    emulated_write(device, memory, in, BYTES);
    support_run(s);
    support_ok(baton_schedule_destroy(s));
    emulated_release(device, memory);
}

TEST_WITH(test_no_device_memory, 1, SUPPORT_DEVICES)
{
    emulated_t *device = cluster->devices[0];
    baton_schedule_t *s = begin(cluster, "wrong");
    baton_view_t a = device_scratch(s, BYTES);
    (void)baton_add_copy(s, a, support_view(s, in, BYTES));
    emulated_fail_allocate(device, 1);
    uint64_t events = emulated_counters(device).events;
    support_fails(baton_schedule_commit(s), BATON_ERR_NO_MEMORY,
                  "no 4000 bytes of emulated:");
    support_says("for scratch buffer 0");
    assert_int_equal(emulated_counters(device).events, events);
    support_ok(baton_schedule_commit(s));
    support_run(s);
    support_ok(baton_schedule_destroy(s));
    assert_int_equal(emulated_counters(device).events, events);
}

/* ---- attaching --------------------------------------------------------- */

TEST_WITH(test_attaching, 1, SUPPORT_DEVICES_MANUAL)
{
    support_cluster_t *without = support_cluster_manual(1);
    baton_engine_t *engine = cluster->engines[0];
    emulated_t *device = cluster->devices[0];
    baton_device_port_t port = *emulated_port(device);
    const baton_device_port_t *own = NULL;
    void *owned = NULL;
    support_ok(baton_engine_device(engine, &own, &owned));
    assert_ptr_equal(owned, device);
    assert_ptr_equal(own->copy, port.copy);
    support_expect(baton_engine_device(NULL, &own, &owned), BATON_ERR_INVALID);
    support_expect(baton_engine_device(engine, NULL, &owned),
                   BATON_ERR_INVALID);
    support_expect(baton_engine_device(engine, &own, NULL), BATON_ERR_INVALID);
    support_fails(baton_engine_attach_device(engine, &port, device),
                  BATON_ERR_STATE, "the engine has a device already");
    support_fails(
        baton_engine_attach_device(without->engines[0], &port, device),
        BATON_ERR_STATE, "the engine has a group already");
    support_ok(baton_engine_open(NULL, &engine));
    support_expect(baton_engine_device(engine, &own, &owned),
                   BATON_ERR_UNSUPPORTED);
    support_expect(baton_engine_attach_device(engine, NULL, device),
                   BATON_ERR_INVALID);
    port.query = NULL;
    support_expect(baton_engine_attach_device(engine, &port, device),
                   BATON_ERR_INVALID);
    port = *emulated_port(device);
    port.get_handle = NULL;
    support_expect(baton_engine_attach_device(engine, &port, device),
                   BATON_ERR_INVALID);
    port = *emulated_port(device);
    port.entries = NULL;
    support_fails(baton_engine_attach_device(engine, &port, device),
                  BATON_ERR_INVALID, "has only 4 of the functions");
    support_ok(baton_engine_close(engine));
    support_cluster_close(without);
}

/* ---- failures ---------------------------------------------------------- */

/* The k-th piece of work fails, or the k-th call that puts something into a
   stream. The epoch fails after the device has ended its work, and the message
   names the node. The next epoch is right. */
static void fail_kth(support_cluster_t *cluster, int k,
                     void (*plant)(emulated_t *device, int k), const char *at)
{
    emulated_t *device = cluster->devices[0];
    baton_schedule_t *s = begin(cluster, "failing");
    add_chain(s, 10);
    support_ok(baton_schedule_commit(s));
    if (k == 26) { /* work 26 is the record of the copy to `out` */
        emulated_delay(device, emulated_port(device)->streams[BATON_DEVICE_OUT],
                       20000);
    }
    plant(device, k);
    support_fails(baton_schedule_run(s, SUPPORT_WAIT_MS), BATON_ERR_SYSTEM,
                  "\"failing\" epoch 1 failed at ");
    support_says(at);
    memset(out, 0, sizeof out);
    emulated_synchronise_all(device);
    assert_int_equal(out[0], 0);
    emulated_repair(device);
    support_run(s);
    check_doubled(10);
    support_ok(baton_schedule_destroy(s));
}

TEST_WITH(test_failures, 1, SUPPORT_DEVICES)
{
    for (int k = 1; k <= 12; k++) {
        char at[32];
        (void)snprintf(at, sizeof at, "%s#%d on rank",
                       k == 1 || k == 12 ? "copy" : "reduce", k - 1);
        fail_kth(cluster, k, emulated_fail_work, at);
    }
    /* The failure occurs at varying moments. */
    for (int i = 0; i < 4 * 26; i++) {
        fail_kth(cluster, 1 + i % 26, emulated_fail_submit, "");
    }
}

/* A copy to main memory fails, and so do the copies from there that follow it.
   The queue of the later copies is examined first, but the message must name
   the first cause. */
TEST_WITH(test_failure_names_its_cause_in_a_later_queue, 1,
          SUPPORT_DEVICES_MANUAL)
{
    for (int round = 0; round < 8; round++) {
        baton_schedule_t *s = begin(cluster, "following");
        baton_view_t a = device_scratch(s, BYTES);
        baton_view_t host = support_view(s, out, BYTES);
        baton_node_t to = baton_add_copy(s, a, support_view(s, in, BYTES));
        baton_node_t back = behind(s, to, baton_add_copy(s, host, a));
        (void)behind(s, back, baton_add_copy(s, a, host));
        support_ok(baton_schedule_commit(s));
        emulated_fail_work(cluster->devices[0], 2);
        support_ok(baton_schedule_start(s));
        /* By now all copies have failed. */
        nanosleep(&(struct timespec){0, 2000000}, NULL);
        support_fails(baton_schedule_wait(s, SUPPORT_WAIT_MS), BATON_ERR_SYSTEM,
                      "failed at copy#1");
        emulated_repair(cluster->devices[0]);
        support_ok(baton_schedule_destroy(s));
    }
}

RUN_TESTS_BETWEEN(fill_in, NULL)
