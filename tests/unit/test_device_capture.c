/* Captured schedules, on one rank with an emulated device: random graphs beside
   the same ones that are not captured, what is recorded when, the order of
   streams, and what fails. */
#include "base/alloc.h"
#include "base/config.h"
#include "support/cmocka.h"
#include "support/device_user.h"
#include "support/random.h"
#include "support/sanitized.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = USER_COUNT, BYTES = USER_BYTES, FLIGHT = 8, ROUNDS = 20 };

static baton_schedule_t *begin(user_t *user, const char *name)
{
    baton_schedule_t *s =
        support_schedule(user->ranks->cluster->groups[0], name);
    baton_schedule_set_captured(s);
    return s;
}

static void check(const int32_t *data, int32_t from, int32_t factor)
{
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(data[i], factor * (from + i));
    }
}

/* a + a --> b */
static baton_schedule_t *doubling(user_t *user)
{
    return user_double(user, begin(user, "doubling"));
}

/* ---- random graphs ------------------------------------------------------- */

enum { VECTORS = 6, NODES = 60, GRAPHS = 40, EPOCHS = 6 };

typedef struct vectors {
    int32_t *on_device, *on_host; /* VECTORS of each, one behind the other */
    size_t bytes;                 /* of one */
} vectors_t;

typedef struct call {
    user_t *user;
    baton_view_t target, source;
} call_t;

/* What a random graph's schedules are built of; both of the same. */
typedef struct graph {
    baton_schedule_t *s;
    vectors_t vectors;
    baton_view_t views[2 * VECTORS]; /* on the device, then on the host */
    call_t calls[NODES];
} graph_t;

static baton_status_t add_in_stream(void *arg, baton_call_t *call,
                                    baton_stream_t stream)
{
    const call_t *of = arg;
    const void *source = baton_call_address(call, of->source);
    void *target = baton_call_address(call, of->target);
    const user_t *user = of->user;
    return user->port->reduce(user->device, stream, BATON_SUM, BATON_I32,
                              target, target, source,
                              of->source.bytes / sizeof(int32_t));
}

/* A node that reads or writes these two views. */
static baton_node_t add_node(graph_t *graph, uint64_t kind, int k,
                             const int *of)
{
    const baton_view_t *views = graph->views;
    switch (kind) {
    case 0:
        return baton_add_nop(graph->s);
    case 1:
        graph->calls[k].target = views[of[0]];
        graph->calls[k].source = views[of[1]];
        return baton_add_device_call(graph->s, add_in_stream, &graph->calls[k]);
    case 2:
        return baton_add_copy(graph->s, views[of[0]], views[of[1]]);
    case 3: /* from the host, or to it */
        return k % 2 == 0 ? baton_add_copy(graph->s, views[of[0]],
                                           views[VECTORS + of[1]])
                          : baton_add_copy(graph->s, views[VECTORS + of[0]],
                                           views[of[1]]);
    default:
        return baton_add_reduce(graph->s, BATON_I32, BATON_SUM, views[of[0]],
                                views[of[0]], views[of[1]]);
    }
}

/* Edges wherever two nodes have a vector in common, and some more. */
static void add_nodes(graph_t *graph, uint64_t seed)
{
    support_random_t random = support_random(seed, 1);
    baton_node_t nodes[NODES];
    int used[NODES][2];
    for (int k = 0; k < NODES; k++) {
        uint64_t kind = support_random_below(&random, 7);
        used[k][0] = (int)support_random_below(&random, VECTORS);
        used[k][1] =
            (used[k][0] + 1 + (int)support_random_below(&random, VECTORS - 1)) %
            VECTORS;
        nodes[k] = add_node(graph, kind, k, used[k]);
        for (int i = 0; i < k; i++) {
            bool common = used[i][0] == used[k][0] ||
                          used[i][0] == used[k][1] ||
                          used[i][1] == used[k][0] || used[i][1] == used[k][1];
            if (common || support_random_below(&random, 40) == 0) {
                baton_before(graph->s, nodes[i], nodes[k]);
            }
        }
    }
}

static void graph_open(user_t *user, graph_t *graph, uint64_t seed,
                       size_t count, bool captured)
{
    void *pinned = NULL;
    size_t bytes = count * sizeof(int32_t);
    graph->s = support_schedule(user->ranks->cluster->groups[0], "random");
    graph->vectors.bytes = bytes;
    graph->vectors.on_device =
        emulated_allocate(user->device, bytes * VECTORS + 1);
    support_ok(user->port->allocate(user->device, BATON_MEMORY_HOST,
                                    bytes * VECTORS + 1, &pinned));
    graph->vectors.on_host = pinned;
    for (int v = 0; v < VECTORS; v++) {
        graph->views[v] = device_view(
            graph->s, graph->vectors.on_device + (size_t)v * count, bytes);
        graph->views[VECTORS + v] = support_view(
            graph->s, graph->vectors.on_host + (size_t)v * count, bytes);
    }
    for (int k = 0; k < NODES; k++) {
        graph->calls[k].user = user;
    }
    add_nodes(graph, seed);
    if (captured) {
        baton_schedule_set_captured(graph->s);
    }
    support_ok(baton_schedule_commit(graph->s));
}

static void graph_close(user_t *user, graph_t *graph)
{
    support_ok(baton_schedule_destroy(graph->s));
    emulated_release(user->device, graph->vectors.on_device);
    user->port->release(user->device, BATON_MEMORY_HOST,
                        graph->vectors.on_host);
}

static void graph_fill(user_t *user, const graph_t *graph, uint64_t seed)
{
    support_random_t random = support_random(seed, 2);
    size_t bytes = graph->vectors.bytes * VECTORS;
    char *data = malloc(bytes + 1);
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (char)support_random_next(&random);
    }
    emulated_write(user->device, graph->vectors.on_device, data, bytes);
    if (bytes > 0) {
        memcpy(graph->vectors.on_host, data, bytes);
    }
    free(data);
}

static void graph_run(user_t *user, const graph_t *graph, int epoch)
{
    if (epoch % 3 == 0) {
        support_ok(baton_schedule_start(graph->s));
    } else {
        baton_stream_t stream = epoch % 3 == 1 ? user->stream : user->other;
        support_ok(baton_schedule_start_on(graph->s, stream));
    }
    if (epoch % 2 == 0) {
        support_ok(baton_schedule_wait(graph->s, SUPPORT_WAIT_MS));
    }
}

static void graphs_compare(user_t *user, const graph_t *one,
                           const graph_t *other)
{
    size_t bytes = one->vectors.bytes * VECTORS;
    char *data[2] = {malloc(bytes + 1), malloc(bytes + 1)};
    emulated_read(user->device, data[0], one->vectors.on_device, bytes);
    emulated_read(user->device, data[1], other->vectors.on_device, bytes);
    assert_memory_equal(data[0], data[1], bytes + 0);
    assert_memory_equal(one->vectors.on_host, other->vectors.on_host, bytes);
    free(data[0]);
    free(data[1]);
}

static void check_graph(user_t *user, uint64_t seed, size_t count)
{
    graph_t *plain = calloc(1, sizeof *plain);
    graph_t *captured = calloc(1, sizeof *captured);
    assert_non_null(plain);
    assert_non_null(captured);
    graph_open(user, plain, seed, count, false);
    graph_open(user, captured, seed, count, true);
    graph_fill(user, plain, seed);
    graph_fill(user, captured, seed);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        support_ok(baton_schedule_start(plain->s));
        support_ok(baton_schedule_wait(plain->s, SUPPORT_WAIT_MS));
        if (epoch % 3 == 0) { /* only in the middle others are in flight */
            support_ok(baton_schedule_wait(captured->s, SUPPORT_WAIT_MS));
        }
        graph_run(user, captured, epoch);
    }
    support_ok(baton_schedule_wait(captured->s, SUPPORT_WAIT_MS));
    assert_int_equal(baton_schedule_epoch(captured->s), EPOCHS);
    graphs_compare(user, plain, captured);
    graph_close(user, plain);
    graph_close(user, captured);
    free(plain);
    free(captured);
}

static void test_random_graphs(void **state)
{
    static const int variants[] = {SUPPORT_OWN_ENGINES, SUPPORT_OWN_MANUAL};
    static const size_t counts[] = {0, 1, 7, 64};
    uint64_t seed = support_seed();
    for (size_t v = 0; v < 2; v++) {
        const emulated_options_t options = {
            .seed = seed, .streams = v == 0 ? 8 : 3, .delay_us = 5};
        user_t user = user_open_with(variants[v], &options);
        for (uint64_t i = 0; i < SUPPORT_REPEAT(GRAPHS); i++) {
            check_graph(&user, seed + 100 * v + i, counts[i % 4]);
        }
        user_close(&user);
    }
}

/* ---- what is recorded -----------------------------------------------------
 */

typedef struct counted {
    user_t *user;
    baton_view_t view;
    int calls;
} counted_t;

static baton_status_t double_in_stream(void *arg, baton_call_t *call,
                                       baton_stream_t stream)
{
    counted_t *counted = arg;
    void *data = baton_call_address(call, counted->view);
    counted->calls++;
    return counted->user->port->reduce(counted->user->device, stream, BATON_SUM,
                                       BATON_I32, data, data, data, COUNT);
}

/* The function is called in the commit alone, and no epoch allocates. */
static void check_called_once(user_t *user)
{
    baton_schedule_t *s = begin(user, "once");
    counted_t counted = {.user = user};
    counted.view = device_view(s, user->a, BYTES);
    baton_view_t b = device_view(s, user->b, BYTES);
    baton_node_t in = baton_add_copy(s, counted.view, b);
    baton_node_t call = baton_add_device_call(s, double_in_stream, &counted);
    baton_node_t out = baton_add_copy(s, b, counted.view);
    baton_before(s, in, call);
    baton_before(s, call, out);
    assert_int_equal(counted.calls, 0);
    support_ok(baton_schedule_commit(s));
    assert_int_equal(counted.calls, 1);
    static int32_t data[COUNT];
    user_fill(data, 3);
    emulated_write(user->device, user->b, data, BYTES);
    support_run(s);
    emulated_counters_t before = emulated_counters(user->device);
    int64_t allocations = baton__alloc_count();
    for (int i = 1; i < 20; i++) {
        support_run(s);
    }
    for (int i = 0; i < 300; i++) {
        support_ok(baton_schedule_start_on(s, user->stream));
        if (i % FLIGHT == FLIGHT - 1) {
            support_ok(baton_schedule_wait(s, SUPPORT_WAIT_MS));
        }
    }
    support_ok(baton_schedule_wait(s, SUPPORT_WAIT_MS));
    assert_int_equal(baton__alloc_count(), allocations);
    assert_int_equal(counted.calls, 1);
    emulated_counters_t after = emulated_counters(user->device);
    assert_int_equal(after.launches - before.launches, 319);
    assert_int_equal(after.recordings, before.recordings);
    assert_int_equal(after.recorded, before.recorded);
    assert_int_equal(after.reduces, before.reduces);
    emulated_read(user->device, data, user->b, BYTES);
    check(data, 3, 0); /* 2^320 is 0 modulo 2^32 */
    support_ok(baton_schedule_destroy(s));
}

static void test_called_once(void **state)
{
    user_for_each(check_called_once);
}

/* What is recorded is the work alone: nops, and nodes without bytes, are not.
 */
static void test_nothing_is_recorded_of_nops(void **state)
{
    user_t user = user_open(SUPPORT_OWN_ENGINES, 6);
    baton_schedule_t *s = begin(&user, "nops");
    baton_node_t entry = baton_add_nop(s);
    baton_node_t last = baton_add_nop(s);
    baton_view_t a = device_view(s, user.a, BYTES);
    baton_view_t b = device_view(s, user.b, BYTES);
    baton_view_t none = baton_view(a.buffer, 0, 0);
    baton_node_t sum = baton_add_reduce(s, BATON_I32, BATON_SUM, b, a, a);
    baton_node_t nothing =
        baton_add_reduce(s, BATON_I32, BATON_SUM, none, none, none);
    baton_before(s, entry, sum);
    baton_before(s, entry, nothing);
    baton_before(s, sum, last);
    baton_before(s, nothing, last);
    support_ok(baton_schedule_commit(s));
    assert_int_equal(emulated_counters(user.device).recorded, 1);
    baton_schedule_t *empty = begin(&user, "empty");
    support_ok(baton_schedule_commit(empty));
    assert_int_equal(emulated_counters(user.device).recorded, 1);
    baton_schedule_t *both[] = {s, empty};
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 2; i++) {
            support_run(both[i]);
            support_ok(baton_schedule_start_on(both[i], user.stream));
            support_ok(baton_schedule_wait(both[i], SUPPORT_WAIT_MS));
        }
    }
    assert_int_equal(baton_schedule_epoch(empty), 2 * ROUNDS);
    support_ok(baton_schedule_destroy(s));
    support_ok(baton_schedule_destroy(empty));
    user_close(&user);
}

/* ---- branches --------------------------------------------------------------
 */

/* Which pieces of work have been done, in order; device work writes it. */
typedef struct diary {
    user_t *user;
    atomic_int length;
    atomic_char text[64];
} diary_t;

typedef struct entry {
    diary_t *diary;
    char letter;
} entry_t;

static void write_entry(void *arg)
{
    const entry_t *entry = arg;
    diary_t *diary = entry->diary;
    int at = atomic_fetch_add(&diary->length, 1);
    atomic_store(&diary->text[at], entry->letter);
}

static baton_status_t put_entry(void *arg, baton_call_t *call,
                                baton_stream_t stream)
{
    entry_t *entry = arg;
    return emulated_try_call(entry->diary->user->device, stream, write_entry,
                             entry);
}

static int find(const diary_t *diary, char letter)
{
    int at = 0;
    while (atomic_load(&diary->text[at]) != letter) {
        at++;
        assert_true(at < 64);
    }
    return at;
}

/*     a --> b --> c --+
       d --> e --> f --+--> j      The branches are recorded in streams of their
       g --> h --> i --+           own: each comes first some time. */
static void test_branches(void **state)
{
    enum { LETTERS = 10 };
    user_t user = user_open(SUPPORT_OWN_ENGINES, 6);
    diary_t diary = {.user = &user};
    entry_t entries[LETTERS];
    baton_node_t nodes[LETTERS];
    baton_schedule_t *s = begin(&user, "branches");
    for (int i = 0; i < LETTERS; i++) {
        entries[i] = (entry_t){&diary, (char)('a' + i)};
        nodes[i] = baton_add_device_call(s, put_entry, &entries[i]);
        if (i < LETTERS - 1 && i % 3 > 0) {
            baton_before(s, nodes[i - 1], nodes[i]);
        }
    }
    for (int k = 2; k < LETTERS - 1; k += 3) {
        baton_before(s, nodes[k], nodes[LETTERS - 1]);
    }
    support_ok(baton_schedule_commit(s));
    bool first[3] = {false, false, false};
    bool mixed = false;
    for (int epoch = 0; epoch < 200; epoch++) {
        atomic_store(&diary.length, 0);
        support_run(s);
        assert_int_equal(atomic_load(&diary.length), LETTERS);
        assert_int_equal(find(&diary, 'j'), LETTERS - 1);
        for (int k = 0; k < 3; k++) {
            int a = find(&diary, (char)('a' + 3 * k));
            int b = find(&diary, (char)('b' + 3 * k));
            int c = find(&diary, (char)('c' + 3 * k));
            assert_true(a < b && b < c);
            first[k] |= a == 0;
            mixed |= c - a > 2;
        }
    }
    assert_true(first[0] && first[1] && first[2] && mixed);
    support_ok(baton_schedule_destroy(s));
    user_close(&user);
}

/* ---- the order of streams ---------------------------------------------------
 */

/* The user's stream is slow; what is behind the epoch there sees its result,
   and the epoch sees what was before it. */
static void check_order(user_t *user)
{
    static int32_t in[FLIGHT][COUNT], out[FLIGHT][COUNT];
    baton_schedule_t *s = doubling(user);
    for (int round = 0; round < 3; round++) {
        memset(out, 0, sizeof out);
        for (int k = 0; k < FLIGHT; k++) {
            user_fill(in[k], 100 * k + round);
            emulated_delay(user->device, user->stream, 200);
            user_copy(user, user->a, in[k]);
            support_ok(baton_schedule_start_on(s, user->stream));
            if (k % 2 == 0) { /* there it is behind the epoch in any case */
                support_ok(baton_schedule_wait_on(s, user->stream));
            }
            user_copy(user, out[k], user->b);
        }
        support_ok(baton_schedule_wait(s, SUPPORT_WAIT_MS));
        emulated_synchronise(user->device, user->stream);
        for (int k = 0; k < FLIGHT; k++) {
            check(out[k], 100 * k + round, 2);
        }
    }
    support_ok(baton_schedule_destroy(s));
}

static void test_order(void **state)
{
    user_for_each(check_order);
}

/* Epochs on two streams, and without one: they run one after the other, and a
   stream that waits sees all of them. */
static void check_two_streams(user_t *user)
{
    static int32_t in[COUNT], out[COUNT];
    baton_schedule_t *s = begin(user, "growing");
    baton_view_t a = device_view(s, user->a, BYTES);
    (void)baton_add_reduce(s, BATON_I32, BATON_SUM, a, a, a);
    support_ok(baton_schedule_commit(s));
    for (int round = 0; round < ROUNDS; round++) {
        user_fill(in, round);
        emulated_write(user->device, user->a, in, BYTES);
        support_ok(baton_schedule_start(s));
        if (round % 2 == 0) {
            support_ok(baton_schedule_wait_on(s, user->other));
        }
        emulated_delay(user->device, user->stream, 100);
        support_ok(baton_schedule_start_on(s, user->stream));
        support_ok(baton_schedule_start_on(s, user->other));
        support_ok(baton_schedule_start_on(s, user->stream));
        support_ok(baton_schedule_wait_on(s, user->other));
        support_ok(
            user->port->copy(user->device, user->other, out, user->a, BYTES));
        if (round == 0) { /* a flag that nobody awaited yet is the host's */
            support_ok(baton_schedule_wait(s, SUPPORT_WAIT_MS));
        }
        emulated_synchronise(user->device, user->other);
        check(out, round, 16);
        support_ok(baton_schedule_wait(s, SUPPORT_WAIT_MS));
    }
    support_ok(baton_schedule_destroy(s));
}

static void test_two_streams(void **state)
{
    user_for_each(check_two_streams);
}

/* Waits that give up, until the driver has got so far that one says this. */
static void wait_until_it_says(baton_schedule_t *s, const char *text)
{
    do {
        support_expect(baton_schedule_wait(s, 5), BATON_ERR_TIMEOUT);
    } while (strstr(baton_error_message(), text) == NULL);
}

/* Both starts are made in a call node, where the first is left to the driver;
   the second one's stream does not go on until the first has ended. */
typedef struct starter {
    user_t *user;
    baton_schedule_t *captured;
} starter_t;

static baton_status_t start_twice(void *arg, baton_call_t *call)
{
    const starter_t *starter = arg;
    baton_status_t status = baton_schedule_start(starter->captured);
    return status == BATON_OK ? baton_schedule_start_on(starter->captured,
                                                        starter->user->stream)
                              : status;
}

static void check_starts_in_call(user_t *user)
{
    starter_t starter = {user, doubling(user)};
    baton_schedule_t *s =
        support_schedule(user->ranks->cluster->groups[0], "starter");
    (void)baton_add_call(s, start_twice, &starter);
    support_ok(baton_schedule_commit(s));
    for (uint64_t round = 0; round < 5; round++) {
        user_close_gate(user);
        support_run(s);
        while (baton_schedule_epoch(starter.captured) == 2 * round) {
            bool done;
            support_ok(baton_schedule_test(starter.captured, &done));
        }
        user_open_gate(user);
        support_ok(baton_schedule_wait(starter.captured, SUPPORT_WAIT_MS));
    }
    support_ok(baton_schedule_destroy(s));
    support_ok(baton_schedule_destroy(starter.captured));
}

static void test_starts_in_call(void **state)
{
    user_for_each(check_starts_in_call);
}

/* What captured epochs took of the device's streams is given back: another
   schedule's work is put behind the user's stream at once, as ever. */
static void test_streams_are_given_back(void **state)
{
    static int32_t in[COUNT], out[COUNT];
    user_t user = user_open(SUPPORT_OWN_MANUAL, 8);
    for (int i = 0; i < 8; i++) {
        baton_schedule_t *s = doubling(&user);
        support_run(s);
        support_ok(baton_schedule_start_on(s, user.stream));
        support_ok(baton_schedule_wait(s, SUPPORT_WAIT_MS));
        support_ok(baton_schedule_destroy(s));
    }
    baton_schedule_t *s =
        support_schedule(user.ranks->cluster->groups[0], "not captured");
    baton_view_t a = device_view(s, user.a, BYTES);
    baton_view_t b = device_view(s, user.b, BYTES);
    (void)baton_add_reduce(s, BATON_I32, BATON_SUM, b, a, a);
    support_ok(baton_schedule_commit(s));
    user_fill(in, 4);
    user_close_gate(&user);
    user_copy(&user, user.a, in);
    support_ok(baton_schedule_start_on(s, user.stream));
    support_ok(baton_schedule_wait_on(s, user.stream));
    user_copy(&user, out, user.b);
    user_open_gate(&user);
    emulated_synchronise(user.device, user.stream); /* nobody steps */
    check(out, 4, 2);
    support_ok(baton_schedule_wait(s, SUPPORT_WAIT_MS));
    support_ok(baton_schedule_destroy(s));
    user_close(&user);
}

/* Nothing is done before the stream gets there, and other schedules are not
   held up. A wait that gives up says what it has waited for. */
static void check_gate(user_t *user)
{
    static int32_t in[COUNT];
    baton_schedule_t *s = doubling(user);
    baton_schedule_t *free = begin(user, "free");
    baton_view_t c = support_scratch(free, BYTES);
    baton_buffer_set_memory(free, c.buffer, BATON_MEMORY_DEVICE);
    baton_view_t a = device_view(free, user->a, BYTES);
    (void)baton_add_reduce(free, BATON_I32, BATON_SUM, c, a, a);
    support_ok(baton_schedule_commit(free));
    for (int round = 0; round < 5; round++) {
        user_fill(in, round);
        emulated_write(user->device, user->a, in, BYTES);
        user_close_gate(user);
        support_ok(baton_schedule_start_on(s, user->stream));
        wait_until_it_says(s, "waiting: all of its 1 nodes, which were "
                              "launched as one on emulated:");
        support_run(free);
        assert_int_equal(baton_schedule_epoch(s), (uint64_t)round);
        user_open_gate(user);
        support_ok(baton_schedule_wait(s, SUPPORT_WAIT_MS));
        emulated_read(user->device, in, user->b, BYTES);
        check(in, round, 2);
    }
    support_ok(baton_schedule_destroy(s));
    support_ok(baton_schedule_destroy(free));
}

static void test_gate(void **state)
{
    user_for_each(check_gate);
}

/* A manual engine that nobody steps: one launch, and no question. */
static void test_ends_by_itself(void **state)
{
    static int32_t in[COUNT], out[COUNT];
    user_t user = user_open(SUPPORT_OWN_MANUAL, 8);
    baton_schedule_t *s = doubling(&user);
    for (int round = 0; round < ROUNDS; round++) {
        emulated_counters_t before = emulated_counters(user.device);
        user_fill(in, 3 * round);
        user_close_gate(&user);
        user_copy(&user, user.a, in);
        support_ok(baton_schedule_start_on(s, user.stream));
        support_ok(baton_schedule_wait_on(s, user.stream));
        user_copy(&user, out, user.b);
        user_open_gate(&user);
        emulated_synchronise(user.device, user.stream);
        check(out, 3 * round, 2);
        emulated_counters_t after = emulated_counters(user.device);
        assert_int_equal(after.launches - before.launches, 1);
        assert_int_equal(after.raises - before.raises, 0);
        assert_int_equal(after.awaits - before.awaits, 1); /* the gate */
        assert_int_equal(after.queries - before.queries, 0);
        support_ok(baton_schedule_wait(s, SUPPORT_WAIT_MS));
    }
    support_ok(baton_schedule_destroy(s));
    user_close(&user);
}

/* ---- in flight
 * --------------------------------------------------------------- */

static void check_flight(user_t *user)
{
    baton_schedule_t *s = doubling(user);
    user_close_gate(user);
    for (int k = 0; k < FLIGHT; k++) {
        support_ok(baton_schedule_start_on(s, user->stream));
    }
    support_expect(baton_schedule_start_on(s, user->stream), BATON_ERR_BUSY);
    support_says("8 epochs have been started and not ended");
    support_expect(baton_schedule_start(s), BATON_ERR_BUSY);
    support_expect(baton_buffer_rebind(s, (baton_buffer_t){0}, user->b),
                   BATON_ERR_BUSY);
    assert_int_equal(baton_schedule_epoch(s), 0);
    user_open_gate(user);
    support_ok(baton_schedule_wait(s, SUPPORT_WAIT_MS));
    assert_int_equal(baton_schedule_epoch(s), FLIGHT);
    support_run(s);
    support_ok(baton_schedule_destroy(s));
}

static void test_flight(void **state)
{
    user_for_each(check_flight);
}

/* All that were started end with the one that is cancelled, once the device has
   done them; the next epoch is as ever. */
static void check_cancel(user_t *user)
{
    baton_schedule_t *s = doubling(user);
    for (int round = 0; round < ROUNDS; round++) {
        user_close_gate(user);
        for (int k = 0; k <= round % FLIGHT; k++) {
            support_ok(baton_schedule_start_on(s, user->stream));
        }
        support_ok(baton_schedule_cancel(s));
        support_expect(baton_schedule_wait(s, 1), BATON_ERR_TIMEOUT);
        user_open_gate(user);
        support_expect(baton_schedule_wait(s, SUPPORT_WAIT_MS),
                       BATON_ERR_CANCELLED);
        support_ok(baton_schedule_wait_on(s, user->other));
        emulated_synchronise(user->device, user->other);
        support_ok(baton_schedule_start_on(s, user->stream));
        support_ok(baton_schedule_wait(s, SUPPORT_WAIT_MS));
    }
    support_ok(baton_schedule_destroy(s));
}

static void test_cancel(void **state)
{
    user_for_each(check_cancel);
}

/* The cancelled epoch has been done, but not one behind it, which fails with
   it: till then its memory is in use. */
static void check_cancel_between(user_t *user)
{
    baton_schedule_t *s = doubling(user);
    for (int round = 0; round < 3; round++) {
        user_close_gate(user);
        support_ok(baton_schedule_start_on(s, user->stream));
        uint64_t first = user->closed;
        user_close_gate(user);
        support_ok(baton_schedule_start_on(s, user->stream));
        support_ok(baton_schedule_cancel(s));
        wait_until_it_says(s, "has not done what was launched");
        user->port->raise_now(user->device, user->gate, first);
        support_expect(baton_schedule_wait(s, 5), BATON_ERR_TIMEOUT);
        support_says("has not done what was launched");
        assert_int_equal(baton_schedule_epoch(s), 2 * (uint64_t)round);
        user_open_gate(user);
        support_expect(baton_schedule_wait(s, SUPPORT_WAIT_MS),
                       BATON_ERR_CANCELLED);
        assert_int_equal(baton_schedule_epoch(s), 2 * (uint64_t)round + 2);
    }
    support_ok(baton_schedule_destroy(s));
}

static void test_cancel_between(void **state)
{
    user_for_each(check_cancel_between);
}

static void ok_or(baton_status_t status, baton_status_t other)
{
    if (status != other) {
        support_ok(status);
    }
}

/* Epochs are cancelled while others are started. */
static void check_cancelling(user_t *user)
{
    baton_schedule_t *s = doubling(user);
    for (int i = 0; i < SUPPORT_REPEAT(1500); i++) {
        baton_status_t status = baton_schedule_start_on(s, user->stream);
        if (status == BATON_ERR_BUSY) {
            support_ok(baton_schedule_wait_on(s, user->other));
            ok_or(baton_schedule_wait(s, SUPPORT_WAIT_MS), BATON_ERR_CANCELLED);
            emulated_synchronise(user->device, user->other);
        } else {
            support_ok(status);
        }
        if (i % 3 == 0) {
            ok_or(baton_schedule_cancel(s), BATON_ERR_STATE);
        }
    }
    ok_or(baton_schedule_wait(s, SUPPORT_WAIT_MS), BATON_ERR_CANCELLED);
    support_run(s);
    support_ok(baton_schedule_destroy(s));
}

static void test_cancelling(void **state)
{
    user_for_each(check_cancelling);
}

/* The device fails in one of several epochs: they all end, with the error. */
static void check_failure(user_t *user)
{
    baton_schedule_t *one = doubling(user);
    baton_schedule_t *two = begin(user, "two");
    baton_view_t a = device_view(two, user->a, BYTES);
    baton_view_t b = device_view(two, user->b, BYTES);
    (void)baton_add_reduce(two, BATON_I32, BATON_SUM, a, a, a);
    (void)baton_add_copy(two, b, b);
    support_ok(baton_schedule_commit(two));
    for (int k = 1; k <= 8; k++) {
        baton_schedule_t *s = k % 2 == 0 ? two : one;
        emulated_fail_work(user->device, 1 + k / 2);
        user_close_gate(user);
        for (int i = 0; i < 5; i++) {
            support_ok(baton_schedule_start_on(s, user->stream));
        }
        user_open_gate(user);
        support_expect(baton_schedule_wait(s, SUPPORT_WAIT_MS),
                       BATON_ERR_SYSTEM);
        support_says(s == one ? "failed at reduce#0"
                              : "one of its 2 nodes that were launched as one, "
                                "reduce#0 to copy#1");
        support_says("as a test asked");
        emulated_repair(user->device);
        support_run(s);
        support_ok(baton_schedule_start_on(s, user->stream));
        support_ok(baton_schedule_wait(s, SUPPORT_WAIT_MS));
    }
    support_ok(baton_schedule_destroy(one));
    support_ok(baton_schedule_destroy(two));
}

static void test_failure(void **state)
{
    user_for_each(check_failure);
}

/* A recovery cancels what is in flight, and waits until it has been done. The
   next epoch is number 1, as after the commit. */
static void recover(user_t *user, baton_schedule_t *s)
{
    static int32_t in[COUNT], out[COUNT];
    for (int round = 0; round < 5; round++) {
        baton_group_t *group = user->ranks->cluster->groups[0];
        user_close_gate(user);
        for (int k = 0; k <= round; k++) {
            support_ok(baton_schedule_start_on(s, user->stream));
        }
        baton_status_t status = baton_group_recover(group, 0);
        user_open_gate(user);
        if (status != BATON_OK) { /* something of it is in a stream */
            support_expect(status, BATON_ERR_TIMEOUT);
            support_ok(baton_group_recover(group, SUPPORT_WAIT_MS));
        }
        support_expect(baton_schedule_wait(s, SUPPORT_WAIT_MS),
                       BATON_ERR_CANCELLED);
        assert_int_equal(baton_schedule_epoch(s), 0);
        user_fill(in, round);
        user_copy(user, user->a, in);
        support_ok(baton_schedule_wait_on(s, user->other));
        support_ok(baton_schedule_start_on(s, user->stream));
        support_ok(baton_schedule_wait_on(s, user->other));
        support_ok(
            user->port->copy(user->device, user->other, out, user->b, BYTES));
        support_ok(baton_schedule_wait(s, SUPPORT_WAIT_MS));
        emulated_synchronise(user->device, user->other);
        check(out, round, 2);
        assert_int_equal(baton_schedule_epoch(s), 1);
    }
    support_ok(baton_schedule_destroy(s));
}

static void check_recovery(user_t *user)
{
    recover(user, doubling(user));
    baton_schedule_t *s =
        support_schedule(user->ranks->cluster->groups[0], "not captured");
    baton_view_t a = device_view(s, user->a, BYTES);
    baton_view_t b = device_view(s, user->b, BYTES);
    (void)baton_add_reduce(s, BATON_I32, BATON_SUM, b, a, a);
    support_ok(baton_schedule_commit(s));
    recover(user, s);
}

static void test_recovery(void **state)
{
    user_for_each(check_recovery);
}

/* A launch is refused: start_on says so, and has started nothing; an epoch that
   the driver launches fails. */
static void check_refused_launch(user_t *user)
{
    baton_schedule_t *s = doubling(user);
    for (int round = 0; round < 3; round++) {
        emulated_fail_submit(user->device, 1);
        support_expect(baton_schedule_start_on(s, user->stream),
                       BATON_ERR_SYSTEM);
        support_says("a test made this call fail");
        support_ok(baton_schedule_wait(s, SUPPORT_WAIT_MS));
        emulated_fail_submit(user->device, 1);
        support_ok(baton_schedule_start(s));
        support_expect(baton_schedule_wait(s, SUPPORT_WAIT_MS),
                       BATON_ERR_SYSTEM);
        support_says("it could not be launched");
        /* The event behind a launch is not lost. */
        emulated_fail_submit(user->device, 2);
        support_ok(baton_schedule_start_on(s, user->stream));
        support_ok(baton_schedule_wait_on(s, user->other));
        support_ok(baton_schedule_wait(s, SUPPORT_WAIT_MS));
        for (int k = 2; k <= 3; k++) { /* nor the flag of one without stream */
            emulated_fail_submit(user->device, k);
            support_ok(baton_schedule_start(s));
            support_ok(baton_schedule_wait_on(s, user->other));
            support_ok(baton_schedule_wait(s, SUPPORT_WAIT_MS));
            emulated_synchronise(user->device, user->other);
        }
        user_close_gate(user);
        support_ok(baton_schedule_start_on(s, user->stream));
        emulated_fail_submit(user->device, 1); /* to follow the one before */
        support_expect(baton_schedule_start_on(s, user->other),
                       BATON_ERR_SYSTEM);
        user_open_gate(user);
        support_ok(baton_schedule_wait(s, SUPPORT_WAIT_MS));
    }
    assert_int_equal(baton_schedule_epoch(s), 15);
    support_ok(baton_schedule_destroy(s));
}

static void test_refused_launch(void **state)
{
    /* Manual: a thread's own calls would be made to fail, too. */
    user_t user = user_open(SUPPORT_OWN_MANUAL, 3);
    check_refused_launch(&user);
    user_close(&user);
}

/* Destroy waits for what was started, as far as it may. */
static void check_destroy(user_t *user)
{
    for (int round = 0; round < ROUNDS; round++) {
        baton_schedule_t *s = doubling(user);
        emulated_delay(user->device, user->stream, 300);
        for (int k = 0; k <= round % 3; k++) {
            support_ok(baton_schedule_start_on(s, user->stream));
        }
        support_ok(baton_schedule_wait_on(s, user->other));
        support_ok(baton_schedule_destroy(s));
        emulated_synchronise(user->device, user->other);
        s = doubling(user);
        support_ok(baton_schedule_start(s));
        support_ok(baton_schedule_destroy(s));
    }
}

static void test_destroy(void **state)
{
    user_for_each(check_destroy);
}

/* It does not get there in time: the epoch is cancelled, and the end of what
   was launched frees the schedule. */
static void test_destroy_behind_gate(void **state)
{
    assert_int_equal(setenv("BATON_DESTROY_MS", "40", 1), 0);
    baton__config_forget();
    for (int streams = 3; streams <= 8; streams += 5) {
        user_t user = user_open(SUPPORT_OWN_ENGINES, streams);
        baton_schedule_t *s = doubling(&user);
        user_close_gate(&user);
        for (int k = 0; k < 3; k++) {
            support_ok(baton_schedule_start_on(s, user.stream));
        }
        support_ok(baton_schedule_wait_on(s, user.stream));
        support_expect(baton_schedule_destroy(s), BATON_ERR_TIMEOUT);
        assert_int_equal(emulated_counters(user.device).graphs, 1);
        user_open_gate(&user);
        while (emulated_counters(user.device).graphs > 0) {
            (void)sched_yield();
        }
        user_close(&user);
    }
    assert_int_equal(unsetenv("BATON_DESTROY_MS"), 0);
    baton__config_forget();
}

/* ---- rebinding
 * --------------------------------------------------------------- */

static void check_rebind(user_t *user)
{
    static int32_t data[COUNT];
    baton_schedule_t *s = begin(user, "rebound");
    counted_t counted = {.user = user};
    counted.view = device_view(s, user->a, BYTES);
    baton_view_t b = device_view(s, user->b, BYTES);
    baton_node_t call = baton_add_device_call(s, double_in_stream, &counted);
    baton_before(s, call,
                 baton_add_reduce(s, BATON_I32, BATON_SUM, b, counted.view,
                                  counted.view));
    support_ok(baton_schedule_commit(s));
    for (int round = 1; round <= 10; round++) {
        int32_t *a = emulated_allocate(user->device, BYTES);
        user_fill(data, round);
        emulated_write(user->device, a, data, BYTES);
        support_ok(baton_buffer_rebind(s, counted.view.buffer, a));
        assert_int_equal(counted.calls, round);
        for (int twice = 0; twice < 2; twice++) {
            if (round % 2 == 0) {
                support_run(s);
            } else {
                support_ok(baton_schedule_start_on(s, user->stream));
            }
        }
        support_ok(baton_schedule_wait(s, SUPPORT_WAIT_MS));
        assert_int_equal(counted.calls, round + 1);
        emulated_read(user->device, data, user->b, BYTES);
        check(data, round, 8);
        support_ok(baton_buffer_rebind(s, counted.view.buffer, user->a));
        emulated_release(user->device, a); /* no launch touches it any more */
    }
    assert_int_equal(emulated_counters(user->device).graphs, 1);
    support_ok(baton_schedule_destroy(s));
}

static void test_rebind(void **state)
{
    user_for_each(check_rebind);
}

/* Memory may be bound after the commit; a start without it fails, and so does
   one in which recording does. */
static void test_bound_late(void **state)
{
    static int32_t data[COUNT];
    user_t user = user_open(SUPPORT_OWN_ENGINES, 6);
    baton_schedule_t *s = begin(&user, "late");
    counted_t counted = {.user = &user};
    counted.view = device_view(s, NULL, BYTES);
    (void)baton_add_nop(s);
    baton_view_t b = device_view(s, user.b, BYTES);
    (void)baton_add_copy(s, b, counted.view);
    support_ok(baton_schedule_commit(s));
    support_expect(baton_schedule_start(s), BATON_ERR_INVALID);
    support_says(
        "copy#1 can't be captured: no memory is bound to one of its views");
    support_expect(baton_schedule_start_on(s, user.stream), BATON_ERR_INVALID);
    support_ok(baton_buffer_rebind(s, counted.view.buffer, user.a));
    emulated_fail_submit(user.device, 1);
    support_expect(baton_schedule_start(s), BATON_ERR_SYSTEM);
    support_says("start of \"late\": copy#1 can't be captured: ");
    user_fill(data, 5);
    emulated_write(user.device, user.a, data, BYTES);
    support_run(s);
    emulated_read(user.device, data, user.b, BYTES);
    check(data, 5, 1);
    /* What is bound must be the device's, as ever. */
    support_ok(baton_buffer_rebind(s, counted.view.buffer, data));
    support_expect(baton_schedule_start(s), BATON_ERR_INVALID);
    support_ok(baton_buffer_rebind(s, counted.view.buffer, user.a));
    support_run(s);
    support_ok(baton_schedule_destroy(s));
    user_close(&user);
}

/* ---- what can't be captured
 * --------------------------------------------------- */

static void refuse(user_t *user, baton_schedule_t *s, const char *says)
{
    emulated_counters_t before = emulated_counters(user->device);
    support_expect(baton_schedule_commit(s), BATON_ERR_UNSUPPORTED);
    support_says(says);
    assert_int_equal(emulated_counters(user->device).recordings,
                     before.recordings);
    support_ok(baton_schedule_destroy(s));
}

static void refuse_node(user_t *user, baton_node_t (*add)(baton_schedule_t *s),
                        const char *says)
{
    baton_schedule_t *s = begin(user, "refused");
    baton_view_t a = device_view(s, user->a, BYTES);
    baton_view_t b = device_view(s, user->b, BYTES);
    baton_node_t first = baton_add_copy(s, a, b);
    baton_node_t node = add(s);
    baton_before(s, first, node);
    baton_before(s, node, baton_add_nop(s));
    baton_before(s, node, add(s)); /* the first one is named */
    refuse(user, s, says);
}

static baton_node_t add_call(baton_schedule_t *s)
{
    return baton_add_call(s, support_succeed, NULL);
}

static baton_status_t begin_async(void *arg, baton_call_t *call,
                                  baton_async_t async)
{
    return BATON_DONE;
}

static baton_node_t add_async(baton_schedule_t *s)
{
    static const baton_async_ops_t ops = {.start = begin_async};
    return baton_add_async(s, &ops, NULL);
}

static baton_node_t add_send(baton_schedule_t *s)
{
    return baton_add_send(s, 0, baton_view((baton_buffer_t){1}, 0, 4));
}

static baton_node_t add_host_copy(baton_schedule_t *s)
{
    static int32_t data[4];
    baton_view_t host = support_view(s, data, sizeof data);
    return baton_add_copy(s, baton_view(host.buffer, 0, 4),
                          baton_view(host.buffer, 8, 4));
}

static baton_node_t add_any(baton_schedule_t *s)
{
    baton_node_t node = baton_add_nop(s);
    baton_before(s, baton_add_nop(s), node);
    baton_set_need(s, node, BATON_NEED_ANY);
    return node;
}

static baton_node_t add_of_length(baton_schedule_t *s)
{
    baton_view_t none = baton_view((baton_buffer_t){0}, 0, 0);
    baton_node_t node = baton_add_copy(s, none, none);
    baton_set_length(s, node, baton_add_length(s));
    return node;
}

static void do_nothing(void *arg, uint64_t epoch)
{
}

static void test_refused(void **state)
{
    const emulated_options_t none = {.seed = 1, .no_graphs = true};
    user_t user = user_open(SUPPORT_OWN_ENGINES, 6);
    refuse_node(&user, add_call,
                "because of call#1: its function runs on the host");
    refuse_node(&user, add_async,
                "because of async#1: its function runs on the host");
    refuse_node(&user, add_send, "because of send#1: it is a message");
    refuse_node(&user, add_host_copy,
                "because of copy#1: its views are in host memory");
    refuse_node(&user, add_any,
                "because of nop#1: it does not wait for all of its edges");
    refuse_node(&user, add_of_length,
                "because of copy#1: its length is set anew in each epoch");
    baton_schedule_t *s = begin(&user, "refused");
    (void)baton_add_on_start(s);
    refuse(&user, s,
           "because of on_start#0: it depends on who began the epoch");
    s = begin(&user, "refused");
    baton_schedule_on_recover(s, do_nothing, NULL);
    refuse(&user, s, "it has an on_recover function");
    user_close(&user);
    user = user_open_with(SUPPORT_OWN_ENGINES, &none);
    refuse(&user, begin(&user, "refused"), "the device has no graphs");
    user_close(&user);
    support_cluster_t *cluster = support_cluster_manual(1);
    s = support_schedule(cluster->groups[0], "refused");
    baton_schedule_set_captured(s);
    support_expect(baton_schedule_commit(s), BATON_ERR_UNSUPPORTED);
    support_says("it can't be captured: the engine has no device");
    support_ok(baton_schedule_destroy(s));
    support_cluster_close(cluster);
}

/* ---- errors while nodes are recorded
 * ------------------------------------------- */

static baton_status_t fail_in_call(void *arg, baton_call_t *call,
                                   baton_stream_t stream)
{
    return *(bool *)arg
               ? baton_call_fail(call, BATON_ERR_INVALID, "the moon is full")
               : BATON_OK;
}

/* It does what can't be recorded, and does not say so. */
static baton_status_t await_in_call(void *arg, baton_call_t *call,
                                    baton_stream_t stream)
{
    const user_t *user = arg;
    (void)user->port->await(user->device, stream, user->gate, 0);
    return BATON_OK;
}

static void test_failing_functions(void **state)
{
    user_t user = user_open(SUPPORT_OWN_ENGINES, 6);
    bool fails = true;
    baton_schedule_t *s = begin(&user, "failing");
    baton_view_t a = device_view(s, user.a, BYTES);
    baton_view_t b = device_view(s, user.b, BYTES);
    baton_node_t first = baton_add_copy(s, a, b);
    baton_before(s, first, baton_add_device_call(s, fail_in_call, &fails));
    support_expect(baton_schedule_commit(s), BATON_ERR_INVALID);
    support_says("device_call#1 can't be captured: the moon is full");
    assert_int_equal(emulated_counters(user.device).graphs, 0);
    fails = false;
    support_ok(baton_schedule_commit(s));
    support_run(s);
    support_ok(baton_schedule_destroy(s));
    s = begin(&user, "spoiling");
    first = baton_add_device_call(s, await_in_call, &user);
    baton_before(s, first, baton_add_nop(s));
    support_expect(baton_schedule_commit(s), BATON_ERR_SYSTEM);
    support_says("device_call#0 can't be captured: emulated:");
    support_ok(baton_schedule_destroy(s));
    user_close(&user);
}

/* Memory of the host that is not pinned can't be captured. */
static void test_unpinned(void **state)
{
    static int32_t data[COUNT];
    user_t user = user_open(SUPPORT_OWN_ENGINES, 6);
    baton_schedule_t *s = begin(&user, "unpinned");
    baton_view_t a = device_view(s, user.a, BYTES);
    (void)baton_add_copy(s, a, support_view(s, data, BYTES));
    support_expect(baton_schedule_commit(s), BATON_ERR_UNSUPPORTED);
    support_says("copy#0 can't be captured: ");
    support_says("not pinned");
    support_ok(baton_schedule_destroy(s));
    user_close(&user);
}

/*     copy#0 --> reduce#1 --+
                             +--> copy#4
       copy#2 --> call#3 ----+                     */
static baton_schedule_t *diamond(user_t *user, counted_t *counted,
                                 baton_view_t *c)
{
    baton_schedule_t *s = begin(user, "diamond");
    counted->user = user;
    counted->view = device_view(s, user->a, BYTES);
    baton_view_t a = counted->view;
    baton_view_t b = device_view(s, user->b, BYTES);
    *c = support_scratch(s, BYTES);
    baton_buffer_set_memory(s, c->buffer, BATON_MEMORY_DEVICE);
    baton_node_t left = baton_add_copy(s, b, b);
    baton_node_t sum = baton_add_reduce(s, BATON_I32, BATON_SUM, b, b, b);
    baton_node_t right = baton_add_copy(s, a, a);
    baton_node_t call = baton_add_device_call(s, double_in_stream, counted);
    baton_node_t last = baton_add_reduce(s, BATON_I32, BATON_SUM, *c, a, b);
    baton_before(s, left, sum);
    baton_before(s, right, call);
    baton_before(s, sum, last);
    baton_before(s, call, last);
    return s;
}

/* Each call of the port in a commit fails once; and each allocation, of the
   library and of the device. Nothing is left behind, and the next commit
   succeeds. */
static void check_each_fails(user_t *user, void (*plant)(user_t *user, int k),
                             bool *last_out)
{
    counted_t counted;
    baton_view_t c;
    *last_out = false;
    for (int k = 1; !*last_out; k++) {
        assert_true(k < 500);
        baton_schedule_t *s = diamond(user, &counted, &c);
        uint64_t events = emulated_counters(user->device).events;
        plant(user, k);
        baton_status_t status = baton_schedule_commit(s);
        plant(user, 0);
        *last_out = status == BATON_OK;
        if (status != BATON_OK) {
            assert_int_equal(emulated_counters(user->device).graphs, 0);
            assert_int_equal(emulated_counters(user->device).events, events);
            support_ok(baton_schedule_commit(s));
        }
        assert_int_equal(emulated_counters(user->device).graphs, 1);
        support_run(s);
        support_ok(baton_schedule_destroy(s));
        assert_int_equal(emulated_counters(user->device).graphs, 0);
    }
}

static void plant_submit(user_t *user, int k)
{
    emulated_fail_submit(user->device, k);
}

static void plant_device_allocation(user_t *user, int k)
{
    emulated_fail_allocate(user->device, k);
}

static void plant_allocation(user_t *user, int k)
{
    baton__alloc_fail_nth(k);
}

static void test_each_call_fails(void **state)
{
    bool done = false;
    user_t user = user_open(SUPPORT_OWN_MANUAL, 6);
    check_each_fails(&user, plant_submit, &done);
    check_each_fails(&user, plant_device_allocation, &done);
    check_each_fails(&user, plant_allocation, &done);
    user_close(&user);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_graphs),
        cmocka_unit_test(test_called_once),
        cmocka_unit_test(test_nothing_is_recorded_of_nops),
        cmocka_unit_test(test_branches),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_two_streams),
        cmocka_unit_test(test_starts_in_call),
        cmocka_unit_test(test_streams_are_given_back),
        cmocka_unit_test(test_gate),
        cmocka_unit_test(test_ends_by_itself),
        cmocka_unit_test(test_flight),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_cancel_between),
        cmocka_unit_test(test_cancelling),
        cmocka_unit_test(test_failure),
        cmocka_unit_test(test_recovery),
        cmocka_unit_test(test_refused_launch),
        cmocka_unit_test(test_destroy),
        cmocka_unit_test(test_destroy_behind_gate),
        cmocka_unit_test(test_rebind),
        cmocka_unit_test(test_bound_late),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_failing_functions),
        cmocka_unit_test(test_unpinned),
        cmocka_unit_test(test_each_call_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
