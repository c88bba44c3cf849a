/* The cost model: exact times of small schedules. A message of n bytes takes
   2 + n us (support_sim_options). */
#include "support/cmocka.h"
#include "support/sim.h"

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

static void expect_at(const support_trace_t *trace, baton_sim_what_t what,
                      int rank, size_t k, double begin_us, double end_us)
{
    const baton_sim_event_t *event = support_event(trace, what, rank, k);
    support_us(event->begin_us, begin_us);
    support_us(event->end_us, end_us);
}

/* ---- transfers ---------------------------------------------------------- */

static void test_sim_cost_of_a_message(void **state)
{
    static const size_t sizes[] = {0, 1, 16, 17, 1000000};
    const baton_sim_options_t options = support_sim_options(2);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        const support_message_t message = {0, 1, sizes[i]};
        support_trace_t trace;
        double us = 2 + (double)sizes[i];
        support_us(support_sim_traffic(&options, &message, 1, &trace), us);
        expect_at(&trace, BATON_SIM_SEND, 0, 0, 0, us);
        expect_at(&trace, BATON_SIM_RECV, 1, 0, 0, us);
    }
}

static void test_sim_cost_of_a_message_to_itself(void **state)
{
    const baton_sim_options_t options = support_sim_options(1);
    const support_message_t message = {0, 0, 5};
    support_trace_t trace;
    support_us(support_sim_traffic(&options, &message, 1, &trace), 7);
}

static const support_message_t out_of_one[] = {{0, 1, 8}, {0, 2, 3}},
                               into_one[] = {{1, 0, 8}, {2, 0, 3}};

static void test_sim_cost_sender_sends_one_at_a_time(void **state)
{
    const baton_sim_options_t options = support_sim_options(3);
    support_trace_t trace;
    support_us(support_sim_traffic(&options, out_of_one, 2, &trace), 15);
    expect_at(&trace, BATON_SIM_SEND, 0, 0, 0, 10);
    expect_at(&trace, BATON_SIM_SEND, 0, 1, 10, 15);
    expect_at(&trace, BATON_SIM_RECV, 2, 0, 10, 15);
}

/* The second sender's port is free before the receiver's, where its message
 * waits. */
static void test_sim_cost_receiver_takes_one_at_a_time(void **state)
{
    const baton_sim_options_t options = support_sim_options(3);
    support_trace_t trace;
    support_us(support_sim_traffic(&options, into_one, 2, &trace), 15);
    expect_at(&trace, BATON_SIM_RECV, 0, 0, 0, 10);
    expect_at(&trace, BATON_SIM_SEND, 2, 0, 0, 5);
    expect_at(&trace, BATON_SIM_RECV, 0, 1, 10, 15);
    expect_at(&trace, BATON_SIM_EPOCH, 2, 0, 0, 5);
}

static void test_sim_cost_multi_ported(void **state)
{
    baton_sim_options_t options = support_sim_options(3);
    options.multi_ported = true;
    support_trace_t trace;
    support_us(support_sim_traffic(&options, out_of_one, 2, &trace), 10);
    expect_at(&trace, BATON_SIM_SEND, 0, 1, 0, 5);
    support_us(support_sim_traffic(&options, into_one, 2, &trace), 10);
    expect_at(&trace, BATON_SIM_RECV, 0, 0, 0, 5); /* the one that ends first */
}

/* Sending and receiving have a port each. */
static void test_sim_cost_both_ways_at_once(void **state)
{
    const baton_sim_options_t options = support_sim_options(2);
    const support_message_t list[] = {{0, 1, 8}, {1, 0, 8}};
    support_trace_t trace;
    support_us(support_sim_traffic(&options, list, 2, &trace), 10);
}

/* ---- links -------------------------------------------------------------- */

/* Ranks 0 to 3 and 4 to 5 share hosts. */
static void test_sim_cost_within_a_host(void **state)
{
    baton_sim_options_t options = support_sim_options(6);
    options.host_ranks = 4;
    options.host_link = (baton_sim_link_t){.alpha_us = 1, .beta_ns = 500};
    static const struct {
        int from, to;
        double us;
    } cases[] = {{0, 3, 5}, {3, 0, 5}, {3, 4, 10}, {4, 5, 5}, {5, 0, 10}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        const support_message_t message = {cases[i].from, cases[i].to, 8};
        support_trace_t trace;
        support_us(support_sim_traffic(&options, &message, 1, &trace),
                   cases[i].us);
    }
}

/* ---- processors --------------------------------------------------------- */

static void test_sim_cost_of_overhead(void **state)
{
    baton_sim_options_t options = support_sim_options(3);
    options.overhead_us = 4;
    support_trace_t trace;
    const support_message_t one = {0, 1, 8};
    support_us(support_sim_traffic(&options, &one, 1, &trace), 4 + 10 + 4);
    expect_at(&trace, BATON_SIM_SEND, 0, 0, 4, 14);
    expect_at(&trace, BATON_SIM_EPOCH, 0, 0, 0, 14);
    /* Two sends: the second one is ready while the first one moves. */
    support_us(support_sim_traffic(&options, out_of_one, 2, &trace),
               4 + 10 + 5 + 4);
    expect_at(&trace, BATON_SIM_SEND, 0, 1, 14, 19);
    /* Two receives, 5 apart. */
    support_us(support_sim_traffic(&options, into_one, 2, &trace),
               4 + 10 + 5 + 4);
}

/* recv --> sum --> send, and a second recv that the rank sees when it is done:

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
        baton_node_t sum =
            baton_add_reduce(s, BATON_U32, BATON_SUM, large, large, large);
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

static void test_sim_cost_of_a_reduction(void **state)
{
    baton_sim_options_t options = support_sim_options(3);
    options.gamma_ns = 2000;
    support_trace_t trace;
    /* 10 us for the first message, 5 us more for the small one; 16 us of sums.
     */
    support_us(relay_us(&options, &trace), 10 + 16 + 10);
    expect_at(&trace, BATON_SIM_REDUCE, 0, 0, 10, 26);
    expect_at(&trace, BATON_SIM_RECV, 0, 1, 10, 15);
    expect_at(&trace, BATON_SIM_SEND, 0, 0, 26, 36);
    /* Without payload no byte is reduced, but times are the same. */
    options.cost_only = true;
    support_us(relay_us(&options, &trace), 10 + 16 + 10);
}

static void test_sim_cost_of_work_is_divided_by_speed(void **state)
{
    baton_sim_options_t options = support_sim_options(3);
    options.gamma_ns = 2000;
    options.overhead_us = 1;
    options.speed = (baton_distribution_t){BATON_DISTRIBUTION_CONSTANT, 0.5, 0};
    support_trace_t trace;
    /* Send, transfer, receive, sum, send, transfer, receive; the second
       message's end is behind all that rank 0 has to do. */
    support_us(relay_us(&options, &trace), 2 + 10 + 2 + 32 + 2 + 10 + 2);
    expect_at(&trace, BATON_SIM_EPOCH, 0, 0, 0, 58);
    options.speed.a = 1e-300; /* counts as 1e-9 */
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

/* call --> sum --> nop --> call: a rank that is at work when its message comes
   sees it when it is done; calls and nops take no time. */
static void test_sim_cost_busy_rank_sees_messages_later(void **state)
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
        baton_add_reduce(s, BATON_U32, BATON_SUM, view, view, view);
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

/* ---- lag, long messages ------------------------------------------------- */

static void test_sim_cost_of_lag_holds_no_port(void **state)
{
    baton_sim_options_t options = support_sim_options(3);
    options.lag = (baton_distribution_t){BATON_DISTRIBUTION_CONSTANT, 50, 0};
    support_trace_t trace;
    support_us(support_sim_traffic(&options, out_of_one, 2, &trace), 15 + 50);
    expect_at(&trace, BATON_SIM_EPOCH, 0, 0, 0, 15);
    expect_at(&trace, BATON_SIM_EPOCH, 1, 0, 0, 10 + 50);
    support_us(support_sim_traffic(&options, into_one, 2, &trace), 15 + 50);
}

static void start_it(void *arg)
{
    support_ok(baton_schedule_start(arg));
}

/* The receive is posted at 30; the sender of a shorter message does not wait.
 */
static void test_sim_cost_sync_bytes_hold_the_sender(void **state)
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

/* An eager send completes when it is posted, long before it arrives, and its
   memory is the sender's again. */
static void test_sim_cost_eager_bytes_free_the_sender(void **state)
{
    for (int shorter = 0; shorter < 2; shorter++) {
        baton_sim_options_t options = support_sim_options(2);
        options.eager_bytes = SUPPORT_WORD + (size_t)shorter;
        support_words_t words;
        support_words_add(&words, support_sim_open(&options), "eager");
        support_ok(baton_schedule_start(words.send));
        support_ok(baton_schedule_wait(words.send, -1));
        support_us(baton_schedule_ended_us(words.send),
                   shorter ? 0 : SUPPORT_WORD_US);
        words.out = 0;
        support_ok(baton_schedule_start(words.recv));
        support_ok(baton_schedule_wait(words.recv, -1));
        support_us(baton_schedule_ended_us(words.recv), SUPPORT_WORD_US);
        assert_int_equal(words.in, 7);
        support_words_close(&words);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sim_cost_of_a_message),
        cmocka_unit_test(test_sim_cost_of_a_message_to_itself),
        cmocka_unit_test(test_sim_cost_sender_sends_one_at_a_time),
        cmocka_unit_test(test_sim_cost_receiver_takes_one_at_a_time),
        cmocka_unit_test(test_sim_cost_multi_ported),
        cmocka_unit_test(test_sim_cost_both_ways_at_once),
        cmocka_unit_test(test_sim_cost_within_a_host),
        cmocka_unit_test(test_sim_cost_of_overhead),
        cmocka_unit_test(test_sim_cost_of_a_reduction),
        cmocka_unit_test(test_sim_cost_of_work_is_divided_by_speed),
        cmocka_unit_test(test_sim_cost_busy_rank_sees_messages_later),
        cmocka_unit_test(test_sim_cost_of_lag_holds_no_port),
        cmocka_unit_test(test_sim_cost_sync_bytes_hold_the_sender),
        cmocka_unit_test(test_sim_cost_eager_bytes_free_the_sender),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
