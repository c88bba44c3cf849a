/* Memory that is bound to more than one buffer. Commit, builders and rebind
   compare addresses, not buffers. */
#include "support/cluster.h"
#include <baton/coll.h>

enum { FLOATS = 8, HALF_BYTES = FLOATS / 2 * sizeof(float) };

/* A rank, a schedule and its memory, which each test gets anew. */
static struct bench {
    support_cluster_t *ranks;
    baton_schedule_t *s;
    float memory[FLOATS];
    float other[FLOATS];
} b;

static int begin(void **state)
{
    b.ranks = support_cluster_manual(1);
    b.s = support_schedule(b.ranks->groups[0], "alias");
    return 0;
}

static int end(void **state)
{
    support_ok(baton_schedule_destroy(b.s));
    support_cluster_close(b.ranks);
    return 0;
}

#define ALIAS_TEST(name) TEST_BETWEEN(name, begin, end)

/* Returns a view of half of the memory, from this element on, in a new
   buffer. */
static baton_view_t half(float *from)
{
    return support_view(b.s, from, HALF_BYTES);
}

/* ---- commit ------------------------------------------------------------ */

ALIAS_TEST(test_hazard_between_buffers_of_the_same_memory)
{
    static const char *const says[] = {
        "copy#0 and copy#1 are unordered, and the first writes and the "
        "second writes bytes 0 to 16 of buffer 2 (bound to memory of another "
        "buffer, too)",
        "bytes 0 to 4 of buffer 2"};
    for (int i = 0; i < 2; i++) {
        baton_view_t from = half(b.other);
        (void)baton_add_copy(b.s, half(b.memory), from);
        (void)baton_add_copy(b.s, half(b.memory + 3 * i), from);
        support_fails(baton_schedule_commit(b.s), BATON_ERR_HAZARD, says[i]);
        (void)end(state);
        (void)begin(state);
    }
}

/* The first view and the last one overlap the middle one, but not each
   other. */
ALIAS_TEST(test_buffers_of_a_chain_are_compared_by_bytes)
{
    baton_view_t from = half(b.other);
    baton_view_t views[] = {half(b.memory), half(b.memory + 2),
                            half(b.memory + 4)};
    baton_node_t copies[3];
    for (int i = 0; i < 3; i++) {
        copies[i] = baton_add_copy(b.s, views[i], from);
    }
    baton_before(b.s, copies[0], copies[1]);
    baton_before(b.s, copies[1], copies[2]);
    support_ok(baton_schedule_commit(b.s));
}

ALIAS_TEST(test_node_that_reads_what_it_writes_shifted)
{
    baton_view_t target = half(b.memory);
    baton_view_t source = half(b.memory + 1);
    (void)baton_add_copy(b.s, target, source);
    support_fails(baton_schedule_commit(b.s), BATON_ERR_INVALID,
                  "copy#0 writes 16 bytes at 0 of buffer 0 and reads 16 at 0 "
                  "of buffer 1; these overlap in part");
    char places[100];
    (void)snprintf(places, sizeof places,
                   "(16 bytes at %p, and 16 bytes at %p)", (void *)b.memory,
                   (void *)(b.memory + 1));
    support_says(places);
}

ALIAS_TEST(test_readers_may_share_memory)
{
    baton_view_t sum = half(b.other);
    (void)baton_add_reduce_local(b.s, BATON_F32, BATON_SUM, sum, half(b.memory),
                                 half(b.memory + 1));
    support_ok(baton_schedule_commit(b.s));
    for (int i = 0; i < FLOATS; i++) {
        b.memory[i] = (float)i;
    }
    support_run(b.s);
    for (int i = 0; i < FLOATS / 2; i++) {
        assert_true(b.other[i] == (float)(2 * i + 1));
    }
}

/* ---- builders ---------------------------------------------------------- */

/* The all-reduce is in place, since source and target are two buffers of the
   same memory. */
TEST_MANUALLY(test_allreduce_in_place_by_address, 3)
{
    static const baton_allreduce_fn builders[] = {
        baton_add_allreduce_recursive_doubling, baton_add_allreduce_binomial,
        baton_add_allreduce_ring};
    enum { RANKS = 3, COUNT = 7, BYTES = COUNT * sizeof(float) };
    for (size_t k = 0; k < 3; k++) {
        baton_schedule_t **s = support_schedules_create(cluster, "twice");
        float data[RANKS][COUNT];
        for (int rank = 0; rank < RANKS; rank++) {
            for (int i = 0; i < COUNT; i++) {
                data[rank][i] = (float)(i + 1);
            }
            const baton_allreduce_args_t args = {
                .size = sizeof args,
                .source = support_view(s[rank], data[rank], BYTES),
                .target = support_view(s[rank], data[rank], BYTES),
                .dtype = BATON_F32,
                .op = BATON_SUM};
            builders[k](s[rank], &args);
        }
        support_schedules_commit(cluster, s);
        support_schedules_run(cluster, s);
        for (int rank = 0; rank < RANKS; rank++) {
            for (int i = 0; i < COUNT; i++) {
                assert_true(data[rank][i] == (float)(RANKS * (i + 1)));
            }
        }
        support_schedules_destroy(cluster, s);
    }
}

ALIAS_TEST(test_allreduce_overlap_in_part_by_address)
{
    const baton_allreduce_args_t args = {.size = sizeof args,
                                         .source = half(b.memory),
                                         .target = half(b.memory + 1),
                                         .dtype = BATON_F32,
                                         .op = BATON_SUM};
    baton_add_allreduce_ring(b.s, &args);
    support_fails(baton_schedule_commit(b.s), BATON_ERR_INVALID,
                  "must be the same (in place)");
}

ALIAS_TEST(test_view_address)
{
    baton_view_t view = half(b.memory + 2);
    view.offset = 4;
    assert_ptr_equal(baton_view_address(b.s, view), b.memory + 3);
    view.buffer = baton_buffer_scratch(b.s, 8);
    assert_null(baton_view_address(b.s, view));
    view.buffer.index = 7;
    assert_null(baton_view_address(b.s, view));
}

/* ---- rebind ------------------------------------------------------------ */

/* A node writes each of the two buffers, which share no memory at commit. */
ALIAS_TEST(test_rebind_to_memory_of_another_buffer)
{
    baton_view_t from = half(b.other);
    baton_view_t left = half(b.memory);
    baton_view_t right = half(b.memory + 4);
    baton_view_t none = support_view(b.s, NULL, 0);
    baton_before(b.s, baton_add_copy(b.s, left, from),
                 baton_add_copy(b.s, right, from));
    (void)baton_add_copy(b.s, none, none);
    support_ok(baton_schedule_commit(b.s));
    /* An empty buffer shares no memory. */
    support_ok(baton_buffer_rebind(b.s, none.buffer, b.memory + 1));
    support_run(b.s);
    support_ok(baton_buffer_rebind(b.s, right.buffer, b.memory + 1));
    for (int again = 0; again < 2; again++) {
        support_fails(baton_schedule_start(b.s), BATON_ERR_INVALID,
                      "start of \"alias\": buffers 1 and 2 were apart when it "
                      "was committed, and now they share memory");
    }
    /* A rebind to NULL binds no memory. */
    support_ok(baton_buffer_rebind(b.s, left.buffer, NULL));
    support_ok(baton_buffer_rebind(b.s, left.buffer, b.other));
    support_fails(baton_schedule_start(b.s), BATON_ERR_INVALID,
                  "buffers 0 and 1 were apart");
    support_ok(baton_buffer_rebind(b.s, left.buffer, b.memory));
    support_ok(baton_buffer_rebind(b.s, right.buffer, b.memory + 4));
    support_run(b.s);
}

/* All of many buffers are rebound at once. At commit they share memory in
   pairs. A rebind that separates a pair, or makes pairs overlap, is refused. */
enum { PAIRS = 20 };

ALIAS_TEST(test_rebind_of_many_buffers_at_once)
{
    float memory[2][PAIRS][FLOATS] = {{{0}}};
    baton_buffer_t left[PAIRS], right[PAIRS];
    for (int i = 0; i < PAIRS; i++) {
        baton_view_t from = half(&memory[0][i][2]);
        baton_view_t to = half(&memory[0][i][2]);
        left[i] = from.buffer;
        right[i] = to.buffer;
        (void)baton_add_copy(b.s, to, from);
    }
    support_ok(baton_schedule_commit(b.s));
    for (int move = 1; move < 5; move++) {
        for (int i = 0; i < PAIRS; i++) {
            float *to = &memory[move % 2][i][2];
            support_ok(baton_buffer_rebind(b.s, left[i], to));
            support_ok(baton_buffer_rebind(b.s, right[i], to));
        }
        float *other = memory[move % 2][PAIRS - 1];
        /* Separates the pair in part, and completely. */
        float *apart[] = {other, b.other};
        for (int i = 0; i < 2 && move == 2; i++) {
            support_ok(baton_buffer_rebind(b.s, right[PAIRS - 1], apart[i]));
            support_fails(baton_schedule_start(b.s), BATON_ERR_INVALID,
                          "buffers 38 and 39 shared memory when it was "
                          "committed, and now they do not");
            support_ok(baton_buffer_rebind(b.s, right[PAIRS - 1], other + 2));
        }
        if (move == 3) { /* this makes the last pair overlap the first */
            float *first = memory[move % 2][0] + 3;
            support_ok(baton_buffer_rebind(b.s, left[PAIRS - 1], first));
            support_ok(baton_buffer_rebind(b.s, right[PAIRS - 1], first));
            support_fails(baton_schedule_start(b.s), BATON_ERR_INVALID,
                          "buffers 0 and 39 were apart when it was committed");
            support_ok(baton_buffer_rebind(b.s, left[PAIRS - 1], other + 2));
            support_ok(baton_buffer_rebind(b.s, right[PAIRS - 1], other + 2));
        }
        support_run(b.s);
    }
}

/* A rebind in a call node fails at once. */
typedef struct rebinder {
    baton_schedule_t *s;
    baton_buffer_t buffer;
    float *to;
    baton_status_t status;
} rebinder_t;

static baton_status_t rebind(void *arg, baton_call_t *call)
{
    rebinder_t *self = arg;
    self->status = baton_buffer_rebind(self->s, self->buffer, self->to);
    return BATON_OK;
}

ALIAS_TEST(test_rebind_in_a_call_is_checked_at_once)
{
    baton_view_t from = half(b.other);
    baton_view_t to = half(NULL);
    rebinder_t self = {b.s, to.buffer, b.memory, BATON_OK};
    baton_node_t call = baton_add_call(b.s, rebind, &self);
    baton_before(b.s, call, baton_add_copy(b.s, to, from));
    support_ok(baton_schedule_commit(b.s));
    support_run(b.s);
    support_ok(self.status);
    self.to = b.other + 1;
    support_run(b.s);
    support_expect(self.status, BATON_ERR_INVALID);
    /* The buffer has its old memory again. */
    assert_ptr_equal(baton_view_address(b.s, to), b.memory);
}
