/* Faults: ranks that are slow or die, messages that are late, sends that
   fail. */
#include "support/sim.h"

#include <math.h>

static double epoch_us(baton_sim_t *sim)
{
    double us = -1;
    support_ok(baton_sim_epoch(sim, &us));
    return us;
}

/* Opens a simulation of messages. The simulator owns the schedules. */
static baton_sim_t *traffic(const baton_sim_options_t *options,
                            const support_message_t *list, size_t count)
{
    support_messages_t messages = {list, count};
    baton_sim_t *sim = support_sim_open(options);
    support_ok(
        baton_sim_build(sim, "traffic", support_sim_messages, &messages));
    return sim;
}

static const support_message_t word[] = {{0, 1, SUPPORT_WORD}};

/* ---- lag, speed --------------------------------------------------------- */

TEST(test_sim_set_lag_makes_messages_late)
{
    const baton_sim_options_t options = support_sim_options(2);
    baton_sim_t *sim = traffic(&options, word, 1);
    support_us(epoch_us(sim), SUPPORT_WORD_US);
    support_ok(baton_sim_set_lag(
        sim, (baton_distribution_t){BATON_DISTRIBUTION_CONSTANT, 100, 0}));
    support_us(epoch_us(sim), SUPPORT_WORD_US + 100);
    support_ok(baton_sim_set_lag(sim, (baton_distribution_t){0}));
    support_us(epoch_us(sim), SUPPORT_WORD_US);
    support_ok(baton_sim_destroy(sim));
}

TEST(test_sim_set_speed_divides_work)
{
    baton_sim_options_t options = support_sim_options(2);
    options.overhead_us = 4;
    options.eager_bytes = 64;
    baton_sim_t *sim = traffic(&options, word, 1);
    support_us(epoch_us(sim), 4 + SUPPORT_WORD_US + 4);
    support_ok(baton_sim_set_speed(sim, 0, 2));
    support_us(epoch_us(sim), 2 + SUPPORT_WORD_US + 4);
    support_ok(baton_sim_set_speed(sim, 1, 0.25));
    support_us(epoch_us(sim), 2 + SUPPORT_WORD_US + 16);
    support_ok(baton_sim_set_speed(sim, 0, 1));
    support_ok(baton_sim_set_speed(sim, 1, 1));
    support_us(epoch_us(sim), 4 + SUPPORT_WORD_US + 4);
    support_ok(baton_sim_destroy(sim));
}

TEST(test_sim_faults_check_their_arguments)
{
    const baton_sim_options_t options = support_sim_options(3);
    const int bad[] = {-1, 3};
    const double speeds[] = {0, 1e-10, 2e15, (double)NAN};
    const baton_distribution_t lags[] = {
        {BATON_DISTRIBUTION_CONSTANT, -1, 0},
        {(baton_distribution_kind_t)99, 1, 1},
    };
    baton_sim_t *sim = traffic(&options, word, 1);
    for (size_t i = 0; i < 2; i++) {
        support_expect(baton_sim_set_speed(sim, bad[i], 1), BATON_ERR_INVALID);
        support_expect(baton_sim_kill(sim, bad[i]), BATON_ERR_INVALID);
        support_fails(baton_sim_fail_send(sim, bad[i], 1), BATON_ERR_INVALID,
                      "is not in 0..2");
        assert_null(baton_sim_group(sim, bad[i]));
        assert_null(baton_sim_schedule(sim, bad[i]));
        support_fails(baton_sim_set_lag(sim, lags[i]), BATON_ERR_INVALID,
                      "sim: lag: ");
    }
    for (size_t i = 0; i < 4; i++) {
        support_fails(baton_sim_set_speed(sim, 0, speeds[i]), BATON_ERR_INVALID,
                      "speed is ");
    }
    /* The time is the same as before. */
    support_us(epoch_us(sim), SUPPORT_WORD_US);
    support_ok(baton_sim_destroy(sim));
}

/* ---- sends that fail ---------------------------------------------------- */

TEST_WORDS(test_sim_fail_send_fails_the_kth)
{
    support_ok(baton_sim_fail_send(words->sim, 0, 1));
    /* A number of 0 cancels the planned failure. */
    support_ok(baton_sim_fail_send(words->sim, 0, 0));
    support_ok(baton_sim_fail_send(words->sim, 0, 3));
    for (int epoch = 1; epoch <= 2; epoch++) {
        support_words_start(words);
        support_ok(baton_sim_run(words->sim, -1));
    }
    support_words_start(words);
    support_fails(baton_schedule_wait(words->send, -1), BATON_ERR_TRANSPORT,
                  "epoch 3");
    support_says("send#0");
    support_expect(baton_schedule_start(words->send), BATON_ERR_FAILED);
    /* The receiver gets the sender's error message. */
    support_fails(baton_schedule_wait(words->recv, -1), BATON_ERR_TRANSPORT,
                  "\"words\" epoch 3 failed at send#0 on rank 0");
    support_expect(baton_schedule_start(words->recv), BATON_ERR_FAILED);
}

/* Both ranks send twice. Rank 0 receives after its sends, and rank 1 at
   once. */
static void build_exchange(void *arg, baton_schedule_t *s)
{
    const int rank = baton_schedule_rank(s);
    baton_node_t nodes[4];
    for (int i = 0; i < 4; i++) {
        baton_view_t view = support_scratch(s, SUPPORT_WORD);
        nodes[i] = i < 2 ? baton_add_send(s, 1 - rank, view)
                         : baton_add_recv(s, 1 - rank, view);
        if (rank == 0 && i >= 2) {
            baton_before(s, nodes[1], nodes[i]);
        }
    }
}

static void start_first(void *arg)
{
    support_ok(baton_schedule_start(baton_sim_schedule(arg, 0)));
}

/* A message arrives in the step in which rank 0's second send fails, and
   another one while the first send still occupies its processor. The epoch
   can't take either of them yet. */
TEST(test_sim_fail_send_when_a_message_comes)
{
    baton_sim_options_t options = support_sim_options(2);
    options.overhead_us = 4;
    options.eager_bytes = 64;
    baton_sim_t *sim = support_sim_open(&options);
    support_ok(baton_sim_build(sim, "exchange", build_exchange, NULL));
    support_ok(baton_sim_fail_send(sim, 0, 2));
    support_ok(baton_schedule_start(baton_sim_schedule(sim, 1)));
    support_ok(baton_sim_at(sim, 4 + SUPPORT_WORD_US, start_first, sim));
    support_ok(baton_sim_run(sim, -1));
    support_fails(baton_schedule_wait(baton_sim_schedule(sim, 0), 0),
                  BATON_ERR_TRANSPORT, "send#1");
    support_ok(baton_sim_destroy(sim));
}

/* Ranks that share a plan have no memory for notices before one fails. */
TEST(test_sim_fail_send_where_ranks_share_a_plan)
{
    baton_sim_options_t options = support_sim_options(2);
    options.cost_only = true;
    const support_message_t both[] = {{0, 1, 8}, {1, 0, 8}};
    baton_sim_t *sim = traffic(&options, both, 2);
    support_ok(baton_sim_fail_send(sim, 1, 1));
    support_expect(baton_sim_epoch(sim, NULL), BATON_ERR_TRANSPORT);
    support_fails(baton_schedule_wait(baton_sim_schedule(sim, 0), 0),
                  BATON_ERR_TRANSPORT, "on rank 1");
    support_ok(baton_sim_destroy(sim));
}

/* ---- deaths ------------------------------------------------------------- */

static void kill_one(void *arg)
{
    support_ok(baton_sim_kill(arg, 1));
}

/* If the sender of a message in flight dies, the message arrives. If the
   receiver dies, the message fails. */
TEST(test_sim_kill_while_a_message_moves)
{
    const baton_sim_options_t options = support_sim_options(2);
    for (int from = 0; from < 2; from++) {
        const support_message_t message = {from, 1 - from, SUPPORT_WORD};
        baton_sim_t *sim = traffic(&options, &message, 1);
        double us = -1;
        support_ok(baton_sim_at(sim, 3, kill_one, sim));
        support_expect(baton_sim_epoch(sim, &us),
                       from == 0 ? BATON_ERR_TRANSPORT : BATON_OK);
        support_us(baton_sim_now_us(sim), SUPPORT_WORD_US);
        support_ok(baton_sim_destroy(sim));
    }
}

TEST(test_sim_epoch_of_the_dead_takes_no_time)
{
    const baton_sim_options_t options = support_sim_options(1);
    baton_sim_t *sim = traffic(&options, NULL, 0);
    double us = -1;
    support_ok(baton_sim_kill(sim, 0));
    support_ok(baton_sim_epoch(sim, &us));
    support_us(us, 0);
    support_ok(baton_sim_destroy(sim));
}

/* The sender dies before the second message has left it. */
TEST(test_sim_kill_keeps_what_is_queued)
{
    const baton_sim_options_t options = support_sim_options(3);
    const support_message_t list[] = {{1, 0, 4}, {1, 2, 4}};
    baton_sim_t *sim = traffic(&options, list, 2);
    double us = -1;
    support_ok(baton_sim_at(sim, 3, kill_one, sim));
    support_expect(baton_sim_epoch(sim, &us), BATON_ERR_TRANSPORT);
    assert_int_equal(baton_schedule_epoch(baton_sim_schedule(sim, 0)), 1);
    assert_int_equal(baton_schedule_epoch(baton_sim_schedule(sim, 2)), 0);
    assert_int_equal(baton_sim_totals(sim).messages, 1);
    support_ok(baton_sim_destroy(sim));
}

/* A send that waits for its receive fails when the receiver dies. */
TEST(test_sim_kill_ends_a_held_send)
{
    baton_sim_options_t options = support_sim_options(2);
    options.sync_bytes = 1;
    support_words_t words;
    support_words_add(&words, support_sim_open(&options), "held");
    support_ok(baton_schedule_start(words.send));
    support_ok(baton_sim_at(words.sim, 50, kill_one, words.sim));
    support_fails(baton_schedule_wait(words.send, -1), BATON_ERR_TRANSPORT,
                  "the other rank is dead");
    support_us(baton_schedule_ended_us(words.send), 50);
    support_words_close(&words);
}

/* Ranks that don't need the dead one run further epochs. */
TEST(test_sim_kill_lets_the_others_go_on)
{
    const baton_sim_options_t options = support_sim_options(3);
    const support_message_t list[] = {{0, 2, SUPPORT_WORD}};
    baton_sim_t *sim = traffic(&options, list, 1);
    support_ok(baton_sim_kill(sim, 1));
    support_ok(baton_sim_kill(sim, 1)); /* killing a rank again has no effect */
    support_us(epoch_us(sim), SUPPORT_WORD_US);
    support_us(epoch_us(sim), SUPPORT_WORD_US);
    assert_int_equal(baton_schedule_epoch(baton_sim_schedule(sim, 1)), 0);
    support_ok(baton_sim_destroy(sim));
}

static void kill_first(void *arg)
{
    support_ok(baton_sim_kill(arg, 0));
}

/* Rank 2 skips the message after which rank 1 must send to rank 0:

       rank 2: skip --> send (optional)
       rank 1: recv (optional) --> send        rank 0: recv */
static void build_skipped(void *arg, baton_schedule_t *s)
{
    baton_view_t view = support_scratch(s, 8);
    switch (baton_schedule_rank(s)) {
    case 0:
        (void)baton_add_recv(s, 1, view);
        break;
    case 1: {
        baton_node_t recv = baton_add_recv(s, 2, view);
        baton_set_optional(s, recv);
        baton_before(s, recv, baton_add_send(s, 0, view));
        break;
    }
    default: {
        baton_node_t send = baton_add_send(s, 1, view);
        baton_set_optional(s, send);
        baton_before(s, baton_add_call(s, support_skip, NULL), send);
        break;
    }
    }
}

/* An epoch that only an optional receive could continue also fails if it still
   has a required send to the dead rank. */
TEST(test_sim_kill_ends_what_has_not_fired)
{
    for (int dies_first = 0; dies_first < 2; dies_first++) {
        baton_sim_t *sim = support_sim_of(3);
        support_ok(baton_sim_build(sim, "skipped", build_skipped, NULL));
        if (dies_first) {
            support_ok(baton_sim_kill(sim, 0));
        }
        for (int rank = 0; rank < 3; rank++) {
            support_ok(baton_schedule_start(baton_sim_schedule(sim, rank)));
        }
        if (!dies_first) {
            support_ok(baton_sim_at(sim, 100, kill_first, sim));
        }
        support_fails(
            baton_schedule_wait(baton_sim_schedule(sim, 1), SUPPORT_WAIT_MS),
            BATON_ERR_TRANSPORT, "rank 0 is gone");
        support_ok(baton_sim_destroy(sim));
    }
}
