/* The cost model: exact times of small schedules. A message of n bytes takes
   2 + n us (support_sim_options). */
#include "support/sim.h"

static void expect_at(const support_trace_t *trace, baton_sim_what_t what,
                      int rank, size_t k, double begin_us, double end_us)
{
    const baton_sim_event_t *event = support_event(trace, what, rank, k);
    support_us(event->begin_us, begin_us);
    support_us(event->end_us, end_us);
}

/* ---- messages ----------------------------------------------------------- */

/* The time of one epoch with these messages, some of its events, and the
   options in addition to those of support_sim_options. */
typedef struct traffic {
    int ranks;
    support_message_t messages[2];
    size_t count;
    baton_sim_options_t options;
    double us;
    struct {
        baton_sim_what_t what;
        int rank;
        size_t k;
        double begin_us, end_us;
    } events[4];
} traffic_t;

#define ONE(from, to, bytes) {{from, to, bytes}}, 1
#define OUT_OF_ONE           {{0, 1, 8}, {0, 2, 3}}, 2
#define INTO_ONE             {{1, 0, 8}, {2, 0, 3}}, 2
#define BOTH_WAYS            {{0, 1, 8}, {1, 0, 8}}, 2
#define SEND                 BATON_SIM_SEND
#define RECV                 BATON_SIM_RECV
#define EPOCH                BATON_SIM_EPOCH
#define MULTI                .multi_ported = true
#define OVERHEAD             .overhead_us = 4
#define LAG                  .lag = {BATON_DISTRIBUTION_CONSTANT, 50, 0}
/* Ranks 0 to 3 and 4 to 5 share hosts. */
#define HOSTS .host_ranks = 4, .host_link = {.alpha_us = 1, .beta_ns = 500}

#define RUN(ranks, messages, options, us, ...)                                 \
    {                                                                          \
        ranks, messages, {options}, us,                                        \
        {                                                                      \
            __VA_ARGS__                                                        \
        }                                                                      \
    }

static const traffic_t all_traffic[] = {
    RUN(2, ONE(0, 1, 0), 0, 2, {SEND, 0, 0, 0, 2}, {RECV, 1, 0, 0, 2}),
    RUN(2, ONE(0, 1, 17), 0, 19, {SEND, 0, 0, 0, 19}, {RECV, 1, 0, 0, 19}),
    RUN(1, ONE(0, 0, 5), 0, 7, {RECV, 0, 0, 0, 7}),
    /* A rank sends one message at a time, and receives one at a time. The
       second sender's port is free before the receiver's port, where its
       message waits. A rank has one port for sending and one for receiving. */
    RUN(3, OUT_OF_ONE, 0, 15, {SEND, 0, 0, 0, 10}, {SEND, 0, 1, 10, 15},
        {RECV, 2, 0, 10, 15}),
    RUN(3, INTO_ONE, 0, 15, {RECV, 0, 0, 0, 10}, {SEND, 2, 0, 0, 5},
        {RECV, 0, 1, 10, 15}, {EPOCH, 2, 0, 0, 5}),
    RUN(2, BOTH_WAYS, 0, 10, {SEND, 1, 0, 0, 10}),
    RUN(3, OUT_OF_ONE, MULTI, 10, {SEND, 0, 1, 0, 5}),
    /* This row expects only the event of the message that ends first. */
    RUN(3, INTO_ONE, MULTI, 10, {RECV, 0, 0, 0, 5}),
    RUN(6, ONE(0, 3, 8), HOSTS, 5, {SEND, 0, 0, 0, 5}),
    RUN(6, ONE(3, 4, 8), HOSTS, 10, {SEND, 3, 0, 0, 10}),
    RUN(6, ONE(4, 5, 8), HOSTS, 5, {SEND, 4, 0, 0, 5}),
    /* The second of two sends is ready while the first is transferred. Two
       receives come 5 us apart. */
    RUN(2, ONE(0, 1, 8), OVERHEAD, 4 + 10 + 4, {SEND, 0, 0, 4, 14},
        {EPOCH, 0, 0, 0, 14}),
    RUN(3, OUT_OF_ONE, OVERHEAD, 4 + 10 + 5 + 4, {SEND, 0, 1, 14, 19}),
    RUN(3, INTO_ONE, OVERHEAD, 4 + 10 + 5 + 4, {SEND, 1, 0, 4, 14}),
    /* Lag does not occupy a port. */
    RUN(3, OUT_OF_ONE, LAG, 15 + 50, {EPOCH, 0, 0, 0, 15},
        {EPOCH, 1, 0, 0, 10 + 50}),
    RUN(3, INTO_ONE, LAG, 15 + 50, {EPOCH, 2, 0, 0, 5}, {RECV, 0, 0, 0, 10},
        {RECV, 0, 1, 10, 15}),
};

TEST(test_sim_cost_of_messages)
{
    for (size_t i = 0; i < sizeof all_traffic / sizeof all_traffic[0]; i++) {
        const traffic_t *t = &all_traffic[i];
        const baton_sim_options_t basic = support_sim_options(t->ranks);
        baton_sim_options_t options = t->options;
        options.size = basic.size;
        options.ranks = basic.ranks;
        options.link = basic.link;
        support_trace_t trace;
        print_message("traffic %zu\n", i);
        support_us(support_sim_traffic(&options, t->messages, t->count, &trace),
                   t->us);
        for (int k = 0; k < 4 && t->events[k].end_us > 0; k++) {
            expect_at(&trace, t->events[k].what, t->events[k].rank,
                      t->events[k].k, t->events[k].begin_us,
                      t->events[k].end_us);
        }
    }
}

/* ---- processors --------------------------------------------------------- */

/* recv --> sum --> send, and a second recv, whose message the rank sees after
   the sum:

       rank 1 --8--> rank 0 --8--> rank 2
       rank 2 --3--> */
static void build_relay(void *arg, baton_schedule_t *s)
{
    int rank = baton_schedule_rank(s);
    baton_view_t large = support_scratch(s, 8);
    baton_view_t small = support_scratch(s, 3);
    if (rank == 1) {
        (void)baton_add_send(s, 0, large);
    } else if (rank == 2) {
        (void)baton_add_recv(s, 0, large);
        (void)baton_add_send(s, 0, small);
    } else {
        baton_node_t recv = baton_add_recv(s, 1, large);
        baton_node_t sum = baton_add_reduce_local(s, BATON_U32, BATON_SUM,
                                                  large, large, large);
        baton_node_t send = baton_add_send(s, 2, large);
        (void)baton_add_recv(s, 2, small);
        baton_before(s, recv, sum);
        baton_before(s, sum, send);
    }
}

static double relay_us(const baton_sim_options_t *options,
                       support_trace_t *trace)
{
    baton_sim_t *sim = support_sim_open(options);
    double us = -1;
    trace->count = 0;
    baton_sim_trace(sim, support_trace, trace);
    support_ok(baton_sim_build(sim, "relay", build_relay, NULL));
    support_ok(baton_sim_epoch(sim, &us));
    support_ok(baton_sim_destroy(sim));
    return us;
}

TEST(test_sim_cost_of_a_reduction)
{
    baton_sim_options_t options = support_sim_options(3);
    options.gamma_ns = 2000;
    support_trace_t trace;
    /* 10 us for the first message, 5 us more for the small one, and 16 us of
       sums. */
    support_us(relay_us(&options, &trace), 10 + 16 + 10);
    expect_at(&trace, BATON_SIM_REDUCE, 0, 0, 10, 26);
    expect_at(&trace, BATON_SIM_RECV, 0, 1, 10, 15);
    expect_at(&trace, BATON_SIM_SEND, 0, 0, 26, 36);
    /* In a cost-only simulation no byte is reduced, but times are the same. */
    options.cost_only = true;
    support_us(relay_us(&options, &trace), 10 + 16 + 10);
}

TEST(test_sim_cost_of_work_is_divided_by_speed)
{
    baton_sim_options_t options = support_sim_options(3);
    options.gamma_ns = 2000;
    options.overhead_us = 1;
    options.speed = (baton_distribution_t){BATON_DISTRIBUTION_CONSTANT, 0.5, 0};
    support_trace_t trace;
    /* Send, transfer, receive, sum, send, transfer, receive. The second message
       ends only after all work of rank 0. */
    support_us(relay_us(&options, &trace), 2 + 10 + 2 + 32 + 2 + 10 + 2);
    expect_at(&trace, BATON_SIM_EPOCH, 0, 0, 0, 58);
    options.speed.a = 1e-300; /* this counts as 1e-9 */
    assert_true(relay_us(&options, &trace) < 22e9);
}

typedef struct notes {
    const baton_sim_t *sim;
    double times[2];
    size_t count;
} notes_t;

static baton_status_t note_time(void *arg, baton_call_t *call)
{
    notes_t *notes = arg;
    notes->times[notes->count++] = baton_sim_now_us(notes->sim);
    return BATON_OK;
}

/* call --> sum --> nop --> call: if a message comes while a rank computes, the
   rank sees the message afterwards. Calls and nops take no time. */
TEST(test_sim_cost_busy_rank_sees_messages_later)
{
    baton_sim_options_t options = support_sim_options(2);
    options.gamma_ns = 1000;
    baton_sim_t *sim = support_sim_open(&options);
    support_words_t words;
    support_words_add(&words, sim, "words");
    notes_t notes = {.sim = sim};
    uint32_t data[25] = {0};
    baton_schedule_t *s = support_sim_schedule(sim, 1, "work");
    baton_view_t view = support_view(s, data, 100);
    baton_node_t call = baton_add_call(s, note_time, &notes);
    baton_node_t sum =
        baton_add_reduce_local(s, BATON_U32, BATON_SUM, view, view, view);
    baton_node_t nop = baton_add_nop(s);
    baton_node_t end = baton_add_call(s, note_time, &notes);
    baton_before(s, call, sum);
    baton_before(s, sum, nop);
    baton_before(s, nop, end);
    support_ok(baton_schedule_commit(s));
    support_ok(baton_schedule_start(s));
    support_words_start(&words);
    support_ok(baton_sim_run(sim, -1));
    support_us(notes.times[0], 0);
    support_us(notes.times[1], 100);
    support_us(baton_schedule_ended_us(s), 100);
    support_us(baton_schedule_ended_us(words.recv), 100);
    support_us(baton_schedule_ended_us(words.send), SUPPORT_WORD_US);
    support_ok(baton_schedule_destroy(s));
    support_words_close(&words);
}

/* ---- when sends complete ------------------------------------------------- */

static void start_it(void *arg)
{
    support_ok(baton_schedule_start(arg));
}

/* The receive is posted at 30 us. The sender of a shorter message does not wait
   for it. */
TEST(test_sim_cost_sync_bytes_hold_the_sender)
{
    for (int shorter = 0; shorter < 2; shorter++) {
        baton_sim_options_t options = support_sim_options(2);
        options.sync_bytes = SUPPORT_WORD + (size_t)shorter;
        support_words_t words;
        support_words_add(&words, support_sim_open(&options), "long");
        support_ok(baton_schedule_start(words.send));
        support_ok(baton_sim_at(words.sim, 30, start_it, words.recv));
        support_ok(baton_sim_run(words.sim, -1));
        support_us(baton_schedule_ended_us(words.recv), 30);
        support_us(baton_schedule_ended_us(words.send),
                   shorter ? SUPPORT_WORD_US : 30);
        assert_int_equal(words.in, 7);
        support_words_close(&words);
    }
}

/* An eager send completes when it is posted, long before the message arrives.
   The sender owns the memory again then. */
TEST(test_sim_cost_eager_bytes_free_the_sender)
{
    for (int shorter = 0; shorter < 2; shorter++) {
        baton_sim_options_t options = support_sim_options(2);
        options.eager_bytes = SUPPORT_WORD + (size_t)shorter;
        support_words_t words;
        support_words_add(&words, support_sim_open(&options), "eager");
        support_ok(baton_schedule_run(words.send, -1));
        support_us(baton_schedule_ended_us(words.send),
                   shorter ? 0 : SUPPORT_WORD_US);
        words.out = 0;
        support_ok(baton_schedule_run(words.recv, -1));
        support_us(baton_schedule_ended_us(words.recv), SUPPORT_WORD_US);
        assert_int_equal(words.in, 7);
        support_words_close(&words);
    }
}
