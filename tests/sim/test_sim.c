/* How virtual time passes: run, wait, test, epoch. */
#include "support/sim.h"

#include <math.h>

/* ---- run, wait, test ---------------------------------------------------- */

TEST_WORDS(test_sim_start_lets_no_time_pass)
{
    support_words_start(words);
    support_us(baton_sim_now_us(words->sim), 0);
    assert_int_equal(baton_schedule_epoch(words->recv), 0);
    assert_int_equal(baton_sim_totals(words->sim).messages, 0);
}

TEST_WORDS(test_sim_run_goes_to_the_end)
{
    support_words_start(words);
    support_ok(baton_sim_run(words->sim, -1));
    support_us(baton_sim_now_us(words->sim), SUPPORT_WORD_US);
    support_us(baton_schedule_ended_us(words->send), SUPPORT_WORD_US);
    support_us(baton_schedule_ended_us(words->recv), SUPPORT_WORD_US);
    assert_int_equal(words->in, 7);
    support_ok(baton_sim_run(words->sim, -1)); /* no event is left */
    support_us(baton_sim_now_us(words->sim), SUPPORT_WORD_US);
}

TEST_WORDS(test_sim_run_stops_at_a_time_and_goes_on)
{
    support_words_start(words);
    support_expect(baton_sim_run(words->sim, 5.5), BATON_ERR_TIMEOUT);
    support_us(baton_sim_now_us(words->sim), 5.5);
    support_expect(baton_sim_run(words->sim, 5), BATON_ERR_TIMEOUT);
    /* Virtual time does not go back. */
    support_us(baton_sim_now_us(words->sim), 5.5);
    assert_int_equal(baton_schedule_epoch(words->recv), 0);
    support_ok(baton_sim_run(words->sim, SUPPORT_WORD_US));
    support_us(baton_sim_now_us(words->sim), SUPPORT_WORD_US);
    assert_int_equal(baton_schedule_epoch(words->recv), 1);
}

TEST(test_sim_ranks_have_hosts)
{
    static const int all[][3] = {{4, 0, 4}, {4, 1, 4}, {4, 2, 2}, {5, 2, 3}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        baton_sim_options_t options = support_sim_options(all[i][0]);
        options.host_ranks = all[i][1];
        baton_sim_t *sim = support_sim_open(&options);
        baton_schedule_t *s = support_sim_schedule(sim, 0, "hosts");
        assert_int_equal(baton_schedule_hosts(s), all[i][2]);
        support_ok(baton_schedule_destroy(s));
        support_ok(baton_sim_destroy(sim));
    }
}

TEST(test_sim_wait_goes_no_further_than_its_epoch)
{
    support_words_t first, second;
    support_words_add(&first, support_sim_of(2), "words");
    support_words_add(&second, first.sim, "second");
    support_words_start(&first);
    support_words_start(&second);
    support_ok(baton_schedule_wait(first.recv, -1));
    support_us(baton_sim_now_us(first.sim), SUPPORT_WORD_US);
    assert_int_equal(baton_schedule_epoch(second.recv), 0);
    support_ok(baton_schedule_wait(second.recv, -1));
    support_us(baton_sim_now_us(first.sim),
               2 * SUPPORT_WORD_US); /* both messages use the same port */
    support_words_remove(&second);
    support_words_close(&first);
}

TEST(test_sim_timeouts_are_virtual)
{
    baton_sim_options_t options = support_sim_options(2);
    options.link.alpha_us = 1e9; /* 1e9 us are about a quarter of an hour */
    support_words_t words;
    support_words_add(&words, support_sim_open(&options), "slow");
    support_words_start(&words);
    support_expect(baton_schedule_wait(words.recv, 0), BATON_ERR_TIMEOUT);
    support_us(baton_sim_now_us(words.sim), 0);
    support_expect(baton_schedule_wait(words.recv, 900000), BATON_ERR_TIMEOUT);
    support_us(baton_sim_now_us(words.sim), 9e8);
    support_says("recv#0 from rank 0");
    support_says("gave up after 900000 ms");
    support_ok(baton_schedule_wait(words.recv, 100001));
    support_us(baton_sim_now_us(words.sim), 1e9 + SUPPORT_WORD);
    support_words_close(&words);
}

TEST_WORDS(test_sim_test_lets_time_pass)
{
    support_words_start(words);
    bool done = false;
    for (int calls = 0; !done; calls++) {
        assert_in_range(calls, 0, 10);
        support_ok(baton_schedule_test(words->recv, &done));
    }
    support_us(baton_sim_now_us(words->sim), SUPPORT_WORD_US);
}

TEST_WORDS(test_sim_wait_goes_on_after_a_deadlock)
{
    support_expect(baton_schedule_run(words->recv, -1), BATON_ERR_DEADLOCK);
    support_expect(baton_sim_run(words->sim, -1), BATON_ERR_DEADLOCK);
    support_ok(baton_schedule_start(words->send));
    support_ok(baton_schedule_wait(words->recv, -1));
}

/* ---- the time of work --------------------------------------------------- */

/* One rank reduces 8 bytes into itself: 8 us with a gamma of 1 us a byte. */
static void add_sum(void *arg, baton_schedule_t *schedule)
{
    baton_view_t view = support_view(schedule, arg, 8);
    (void)baton_add_reduce_local(schedule, BATON_U32, BATON_SUM, view, view,
                                 view);
}

static baton_sim_t *working_sim(int ranks)
{
    baton_sim_options_t options = support_sim_options(ranks);
    options.gamma_ns = 1000;
    return support_sim_open(&options);
}

TEST(test_sim_epoch_ends_when_its_work_does)
{
    uint32_t data[2] = {1, 2};
    baton_sim_t *sim = working_sim(1);
    baton_schedule_t *s = support_sim_schedule(sim, 0, "work");
    add_sum(data, s);
    support_ok(baton_schedule_commit(s));
    support_ok(baton_schedule_start(s));
    support_expect(baton_sim_run(sim, 7), BATON_ERR_TIMEOUT);
    bool done = true;
    assert_int_equal(baton_schedule_epoch(s), 0);
    support_expect(baton_schedule_start(s), BATON_ERR_BUSY);
    support_ok(baton_schedule_wait(s, -1));
    support_us(baton_sim_now_us(sim), 8);
    support_us(baton_schedule_ended_us(s), 8);
    support_ok(baton_schedule_test(s, &done));
    assert_true(done);
    support_ok(baton_schedule_destroy(s));
    support_ok(baton_sim_destroy(sim));
}

TEST(test_sim_epochs_follow_each_other)
{
    uint32_t data[2] = {0};
    baton_sim_t *sim = working_sim(1);
    support_ok(baton_sim_build(sim, "work", add_sum, data));
    for (int epoch = 1; epoch <= 3; epoch++) {
        double us = 0;
        support_ok(baton_sim_epoch(sim, &us));
        support_us(us, 8);
        support_us(baton_sim_now_us(sim), 8.0 * epoch);
    }
    support_ok(baton_sim_destroy(sim));
}

/* ---- several at once, late starts, totals -------------------------------- */

TEST(test_sim_schedules_share_the_ports)
{
    enum { PAIRS = 5 };
    baton_sim_t *sim = support_sim_of(2);
    support_words_t words[PAIRS];
    for (int i = 0; i < PAIRS; i++) {
        support_words_add(&words[i], sim, "one of many");
    }
    /* The schedules are started in another order. */
    for (int i = PAIRS - 1; i >= 0; i--) {
        support_words_start(&words[i]);
    }
    support_ok(baton_sim_run(sim, -1));
    for (int i = 0; i < PAIRS; i++) {
        support_us(baton_schedule_ended_us(words[i].recv),
                   SUPPORT_WORD_US * (PAIRS - i));
        assert_int_equal(words[i].in, 7);
        support_words_remove(&words[i]);
    }
    support_ok(baton_sim_destroy(sim));
}

TEST(test_sim_epoch_counts_from_its_first_start)
{
    baton_sim_options_t options = support_sim_options(2);
    options.skew = (baton_distribution_t){BATON_DISTRIBUTION_CONSTANT, 50, 0};
    const support_message_t message = {0, 1, SUPPORT_WORD};
    support_trace_t trace;
    support_us(support_sim_traffic(&options, &message, 1, &trace),
               SUPPORT_WORD_US);
    support_us(support_event(&trace, BATON_SIM_SEND, 0, 0)->begin_us, 50);
}

TEST(test_sim_skew_makes_ranks_late)
{
    baton_sim_options_t options = support_sim_options(8);
    options.skew = (baton_distribution_t){BATON_DISTRIBUTION_UNIFORM, 100, 200};
    support_trace_t trace;
    double us = support_sim_traffic(&options, NULL, 0, &trace);
    double first_us = INFINITY, last_us = 0;
    for (int rank = 0; rank < options.ranks; rank++) {
        double begin_us =
            support_event(&trace, BATON_SIM_EPOCH, rank, 0)->begin_us;
        first_us = fmin(first_us, begin_us);
        last_us = fmax(last_us, begin_us);
    }
    assert_true(first_us >= 100 && last_us <= 200 && first_us < last_us);
    support_us(us, last_us - first_us);
}

TEST_WORDS(test_sim_totals_count)
{
    for (uint64_t epoch = 1; epoch <= 3; epoch++) {
        support_words_start(words);
        support_ok(baton_sim_run(words->sim, -1));
        baton_sim_totals_t totals = baton_sim_totals(words->sim);
        assert_int_equal(totals.messages, epoch);
        assert_int_equal(totals.bytes, epoch * SUPPORT_WORD);
        assert_in_range(totals.events, epoch, 3 * epoch);
    }
    support_us(baton_sim_now_us(words->sim), 3 * SUPPORT_WORD_US);
}

TEST(test_sim_one_built_schedule_a_simulator)
{
    baton_sim_t *sim = support_sim_of(2);
    double us = -1;
    assert_null(baton_sim_schedule(sim, 0));
    support_expect(baton_sim_epoch(sim, &us), BATON_ERR_STATE);
    support_ok(baton_sim_build(sim, "first", support_sim_add_nop, NULL));
    support_fails(baton_sim_build(sim, "second", support_sim_add_nop, NULL),
                  BATON_ERR_STATE, "first");
    assert_string_equal(baton_schedule_name(baton_sim_schedule(sim, 1)),
                        "first");
    support_ok(baton_sim_destroy(sim));
}

/* If `arg` says so, rank 0 has one send more than rank 1 has receives. */
static void add_words(void *arg, baton_schedule_t *schedule)
{
    int sends = *(const bool *)arg ? 2 : 1;
    static uint32_t data[2];
    baton_view_t view = support_view(schedule, data, SUPPORT_WORD);
    if (baton_schedule_rank(schedule) == 1) {
        (void)baton_add_recv(schedule, 0, view);
        return;
    }
    for (int i = 0; i < sends; i++) {
        (void)baton_add_send(schedule, 1, view);
    }
}

TEST(test_sim_build_again_after_an_error)
{
    baton_sim_t *sim = support_sim_of(2);
    bool wrong = true;
    double us = -1;
    support_fails(baton_sim_build(sim, "wrong", add_words, &wrong),
                  BATON_ERR_MISMATCH, "rank 0");
    assert_null(baton_sim_schedule(sim, 0));
    wrong = false;
    support_ok(baton_sim_build(sim, "right", add_words, &wrong));
    support_ok(baton_sim_epoch(sim, &us));
    support_us(us, SUPPORT_WORD_US);
    support_ok(baton_sim_destroy(sim));
}
