/* Schedules that are destroyed, in each state that they and their messages can
   have, and simulators that are destroyed. */
#include "support/sim.h"

/* ---- messages ----------------------------------------------------------- */

enum { LONG = 100, SHORT = 16 };

/* Rank 0 sends a long message and then a short one. They take 102 us and 18
   us. */
typedef struct twin {
    baton_sim_t *sim;
    baton_schedule_t *send, *recv;
    unsigned char out[2][LONG], in[2][LONG];
} twin_t;

static void open_twin(twin_t *twin, const baton_sim_options_t *options)
{
    *twin = (twin_t){.sim = support_sim_open(options)};
    twin->send = support_sim_schedule(twin->sim, 0, "twin");
    twin->recv = support_sim_schedule(twin->sim, 1, "twin");
    for (int i = 0; i < 2; i++) {
        size_t bytes = i == 0 ? LONG : SHORT;
        /* if the library read this memory as a time, the time would never
           come */
        memset(twin->out[i], 0x7e, bytes);
        (void)baton_add_send(twin->send, 1,
                             support_view(twin->send, twin->out[i], bytes));
        (void)baton_add_recv(twin->recv, 0,
                             support_view(twin->recv, twin->in[i], bytes));
    }
    support_ok(baton_schedule_commit(twin->send));
    support_ok(baton_schedule_commit(twin->recv));
    /* the ranks compare their messages here */
    support_ok(baton_sim_run(twin->sim, -1));
}

static bool is_all(const unsigned char *data, size_t bytes, unsigned char value)
{
    size_t same = 0;
    while (same < bytes && data[same] == value) {
        same++;
    }
    return same == bytes;
}

static support_trace_t trace;
/* number of events in the trace when the sender is destroyed */
static size_t told;

/* At `at_us` the sender's schedule is destroyed, and its memory overwritten.
   The receiver starts at `recv_us`. */
static void open_without_sender(twin_t *twin,
                                const baton_sim_options_t *options,
                                double at_us, double recv_us)
{
    open_twin(twin, options);
    trace.count = 0;
    baton_sim_trace(twin->sim, support_trace, &trace);
    support_ok(baton_schedule_start(twin->send));
    if (recv_us <= at_us) {
        support_ok(baton_schedule_start(twin->recv));
    }
    baton_status_t status = baton_sim_run(twin->sim, at_us);
    assert_true(status == BATON_OK || status == BATON_ERR_TIMEOUT);
    support_ok(baton_schedule_destroy(twin->send));
    told = trace.count;
    memset(twin->out, 0, sizeof twin->out);
    if (recv_us > at_us) {
        status = baton_sim_run(twin->sim, recv_us);
        assert_true(status == BATON_OK || status == BATON_ERR_TIMEOUT);
        support_ok(baton_schedule_start(twin->recv));
    }
}

static void close_receiver(const twin_t *twin)
{
    /* The simulator must not use the memory of what was destroyed. */
    for (size_t i = told; i < trace.count; i++) {
        assert_int_equal(trace.events[i].rank, 1);
    }
    support_ok(baton_schedule_destroy(twin->recv));
    support_ok(baton_sim_destroy(twin->sim));
}

/* The sender's schedule is destroyed after its epoch. Its sends are eager, so
   the epoch has ended, and the messages arrive. A later epoch of the receiver
   fails. */
static void sender_goes_after_its_epoch(const baton_sim_options_t *options,
                                        double at_us, double recv_us,
                                        double ended_us)
{
    twin_t twin;
    open_without_sender(&twin, options, at_us, recv_us);
    support_ok(baton_schedule_wait(twin.recv, -1));
    support_us(baton_schedule_ended_us(twin.recv), ended_us);
    assert_true(is_all(twin.in[0], LONG, 0x7e));
    assert_true(is_all(twin.in[1], SHORT, 0x7e));
    assert_true(is_all(twin.in[1] + SHORT, LONG - SHORT, 0));
    support_ok(baton_sim_run(twin.sim, -1));
    support_fails(baton_schedule_start(twin.recv), BATON_ERR_FAILED,
                  "\"twin\" was destroyed on rank 0");
    close_receiver(&twin);
}

TEST(test_sim_destroy_lets_messages_go_on)
{
    baton_sim_options_t options = support_sim_options(2);
    options.eager_bytes = LONG + 1;
    for (int lags = 0; lags < 2; lags++) {
        double lag_us = lags * 7;
        options.lag =
            (baton_distribution_t){BATON_DISTRIBUTION_CONSTANT, lag_us, 0};
        sender_goes_after_its_epoch(&options, 1, 0, 120 + lag_us);
        sender_goes_after_its_epoch(&options, 1, 110, 120 + lag_us);
        sender_goes_after_its_epoch(&options, 110, 0, 120 + lag_us);
        sender_goes_after_its_epoch(&options, 110, 115, 120 + lag_us);
    }
}

/* The sender's schedule is destroyed in its epoch. So the receiver's epoch
   fails with that cause. Messages that were received before are complete, and
   contain nothing that was written later. */
static void sender_goes_in_its_epoch(const baton_sim_options_t *options,
                                     double at_us, double recv_us)
{
    twin_t twin;
    open_without_sender(&twin, options, at_us, recv_us);
    support_fails(baton_schedule_wait(twin.recv, -1), BATON_ERR_CANCELLED,
                  "\"twin\" was destroyed on rank 0 while epoch 1 ran");
    unsigned char before[2][LONG];
    memcpy(before, twin.in, sizeof before);
    support_ok(baton_sim_run(twin.sim, -1));
    assert_memory_equal(before, twin.in, sizeof before);
    for (int i = 0; i < 2; i++) {
        size_t bytes = i == 0 ? LONG : SHORT;
        assert_true(is_all(twin.in[i], bytes, 0) ||
                    is_all(twin.in[i], bytes, 0x7e));
    }
    support_expect(baton_schedule_start(twin.recv), BATON_ERR_FAILED);
    close_receiver(&twin);
}

TEST(test_sim_destroy_cancels_the_epoch_of_peers)
{
    baton_sim_options_t options = support_sim_options(2);
    for (int lags = 0; lags < 2; lags++) {
        options.lag =
            (baton_distribution_t){BATON_DISTRIBUTION_CONSTANT, lags * 7, 0};
        /* One message is in transfer. */
        sender_goes_in_its_epoch(&options, 1, 0);
        /* No rank waits for the message. */
        sender_goes_in_its_epoch(&options, 1, 110);
        /* One message has arrived. */
        sender_goes_in_its_epoch(&options, 110, 0);
        sender_goes_in_its_epoch(&options, 110, 115);
    }
}

/* The receiver is destroyed before its messages are transferred, meanwhile, or
   afterwards. Its memory is not written after that. If messages are eager, the
   sender's epoch has ended before it learns that the receiver was destroyed,
   and its next epoch fails. */
TEST(test_sim_destroy_of_a_receiver)
{
    static const double times_us[] = {0, 1, 101, 105};
    const baton_sim_options_t options = support_sim_options(2);
    for (size_t i = 0; i < sizeof times_us / sizeof times_us[0]; i++) {
        twin_t twin;
        open_twin(&twin, &options);
        support_ok(baton_schedule_start(twin.recv));
        support_ok(baton_schedule_start(twin.send));
        if (times_us[i] > 0) {
            support_expect(baton_sim_run(twin.sim, times_us[i]),
                           BATON_ERR_TIMEOUT);
        }
        support_ok(baton_schedule_destroy(twin.recv));
        unsigned char before[2][LONG];
        memcpy(before, twin.in, sizeof before);
        support_ok(baton_schedule_wait(twin.send, -1));
        support_us(baton_schedule_ended_us(twin.send), 120);
        support_ok(baton_sim_run(twin.sim, -1));
        assert_memory_equal(before, twin.in, sizeof before);
        support_fails(baton_schedule_start(twin.send), BATON_ERR_FAILED,
                      "\"twin\" was destroyed on rank 1");
        support_ok(baton_schedule_destroy(twin.send));
        support_ok(baton_sim_destroy(twin.sim));
    }
}

/* A send waits until its receive takes the message, and is destroyed then. */
TEST(test_sim_destroy_of_a_held_sender)
{
    baton_sim_options_t options = support_sim_options(2);
    options.sync_bytes = 1;
    sender_goes_in_its_epoch(&options, 119, 120);
    twin_t twin;
    open_twin(&twin, &options);
    support_expect(baton_schedule_run(twin.send, -1), BATON_ERR_DEADLOCK);
    support_ok(baton_schedule_destroy(twin.send));
    memset(twin.out, 0, sizeof twin.out);
    support_fails(baton_schedule_run(twin.recv, -1), BATON_ERR_CANCELLED,
                  "\"twin\" was destroyed on rank 0 while epoch 1 ran");
    assert_true(is_all(twin.in[0], LONG, 0) && is_all(twin.in[1], LONG, 0));
    close_receiver(&twin);
}

/* A cancelled send is the last in a port's queue, and leaves it. Then another
   send joins the queue. */
TEST(test_sim_cancel_takes_the_last_out_of_a_queue)
{
    enum { PAIRS = 4, CANCELLED = 2 };
    baton_sim_t *sim = support_sim_of(2);
    support_words_t words[PAIRS];
    for (int i = 0; i < PAIRS; i++) {
        support_words_add(&words[i], sim, "queued");
    }
    for (int i = 0; i < PAIRS; i++) {
        support_words_start(&words[i]);
        if (i == CANCELLED) {
            support_expect(baton_sim_run(sim, 1), BATON_ERR_TIMEOUT);
            support_ok(baton_schedule_cancel(words[i].send));
            support_expect(baton_schedule_wait(words[i].send, 0),
                           BATON_ERR_CANCELLED);
        }
    }
    for (int i = 0; i < PAIRS; i++) {
        support_expect(baton_schedule_wait(words[i].recv, -1),
                       i == CANCELLED ? BATON_ERR_CANCELLED : BATON_OK);
        assert_int_equal(words[i].in, i == CANCELLED ? 0 : 7);
    }
    for (int i = 0; i < PAIRS; i++) {
        support_words_remove(&words[i]);
    }
    support_ok(baton_sim_destroy(sim));
}

/* The schedule's message has arrived, but its rank is busy and has not seen
   it. */
TEST(test_sim_destroy_of_what_its_rank_has_not_seen)
{
    baton_sim_options_t options = support_sim_options(2);
    options.gamma_ns = 1000;
    support_words_t words;
    support_words_add(&words, support_sim_open(&options), "words");
    uint32_t data[25] = {0};
    baton_schedule_t *work = support_sim_schedule(words.sim, 1, "work");
    baton_view_t view = support_view(work, data, sizeof data);
    (void)baton_add_reduce_local(work, BATON_U32, BATON_SUM, view, view, view);
    support_ok(baton_schedule_commit(work));
    support_ok(baton_schedule_start(work));
    support_words_start(&words);
    support_expect(baton_sim_run(words.sim, 50), BATON_ERR_TIMEOUT);
    support_ok(baton_schedule_destroy(words.recv));
    words.recv = NULL;
    support_ok(baton_schedule_wait(work, -1));
    support_us(baton_sim_now_us(words.sim), sizeof data);
    support_ok(baton_schedule_destroy(work));
    support_words_close(&words);
}

/* ---- simulators --------------------------------------------------------- */

TEST(test_sim_destroy_names_what_is_left)
{
    baton_sim_t *sim = support_sim_of(2);
    support_ok(baton_sim_build(sim, "built", support_sim_add_nop, NULL));
    baton_schedule_t *own = support_sim_schedule(sim, 1, "my own");
    support_fails(baton_sim_destroy(sim), BATON_ERR_BUSY, "uncommitted");
    support_ok(baton_schedule_commit(own));
    support_fails(baton_sim_destroy(sim), BATON_ERR_BUSY,
                  "1 schedules of rank 1");
    support_says("\"my own\"");
    /* The refused calls have changed nothing. */
    double us = -1;
    support_ok(baton_sim_epoch(sim, &us));
    support_ok(baton_schedule_destroy(own));
    support_ok(baton_sim_destroy(sim));
    support_ok(baton_sim_destroy(NULL));
}

TEST(test_sim_destroy_keeps_its_groups)
{
    baton_sim_t *sim = support_sim_of(2);
    support_fails(baton_group_destroy(baton_sim_group(sim, 1)), BATON_ERR_STATE,
                  "rank 1 of 2");
    support_ok(baton_sim_destroy(sim));
}
