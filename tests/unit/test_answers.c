/* Answers: how a rank learns whether a rank for which it waits still lives. It
   asks by connecting to the rank's listener, at which a thread of the rank's
   process answers (answers.h). */
#include "support/cluster.h"
#include "transport/mpi/answers.h"
#include "transport/mpi/links.h"

#include "base/clock.h"
#include "base/config.h"

#include <arpa/inet.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 20, ASKS = 17, ANSWERS = 3 };

static baton__answers_t asks, answers;
static struct sockaddr_in to;
static int listener;

/* Opens the answers of two ranks. If `answering` is false, no thread reads what
   arrives at the second rank. */
static void open_both(const char *timeout_ms, bool answering)
{
    uint16_t unused;
    (void)setenv("BATON_PEER_TIMEOUT_MS", timeout_ms, 1);
    baton__config_forget();
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listener = baton__links_listen(NULL, RANKS, &to.sin_port);
    assert_true(listener >= 0);
    support_ok(baton__answers_open(
        &asks, baton__links_listen(NULL, RANKS, &unused), ASKS, RANKS, NULL));
    if (answering) {
        support_ok(
            baton__answers_open(&answers, listener, ANSWERS, RANKS, NULL));
        asks.places[ANSWERS] = answers.places[ANSWERS];
    }
}

static int close_both(void **state)
{
    baton__answers_close(&asks);
    (void)unsetenv("BATON_PEER_TIMEOUT_MS");
    baton__config_forget();
    return 0;
}

#define ANSWERS_TEST(name) TEST_BETWEEN(name, NULL, close_both)

static baton__reply_t ask(void)
{
    return baton__answers_ask(&asks, ANSWERS, (const struct sockaddr *)&to,
                              sizeof to);
}

/* Asks until the reply is the expected one. */
static void ask_until(baton__reply_t expected)
{
    while (ask() != expected) {
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

static bool prove(uint64_t ms)
{
    return baton__answers_prove(&asks, ANSWERS, (const struct sockaddr *)&to,
                                sizeof to, baton__clock_ns() + ms * 1000000);
}

/* First another process listens at the address. Then none does, which the rank
   notices at once. */
ANSWERS_TEST(test_answers_prove_an_address)
{
    open_both("1000000", true);
    assert_true(prove(1000000));
    asks.places[ANSWERS].key++;
    asks.asked[ANSWERS].asked_ns = 0;
    assert_false(prove(20));
    baton__answers_close(&answers);
    assert_false(prove(1000000));
}

ANSWERS_TEST(test_answers_of_a_rank_that_runs_and_ends)
{
    open_both("1000000", true);
    for (int i = 0; i < 3; i++) { /* the answer can be repeated */
        asks.asked[ANSWERS].asked_ns = 0;
        assert_int_equal(ask(), BATON__REPLY_NONE);
        while (asks.asked[ANSWERS].silent_ns > 0) {
            assert_int_equal(ask(), BATON__REPLY_NONE);
        }
    }
    baton__answers_lose(&answers, ASKS + 1, false);
    asks.asked[ANSWERS].asked_ns = 0;
    while (!asks.any_lost) {
        assert_int_equal(ask(), BATON__REPLY_NONE);
    }
    assert_int_equal(baton__answers_next_lost(&asks, 0), ASKS + 1);
    assert_int_equal(baton__answers_next_lost(&asks, ASKS + 2), -1);
    baton__answers_lose(&answers, ASKS, false);
    asks.asked[ANSWERS].asked_ns = 0;
    ask_until(BATON__REPLY_DISOWNED);
    baton__answers_lose(&answers, 0, true);
    asks.asked[ANSWERS].asked_ns = 0;
    ask_until(BATON__REPLY_REFUSED);
    /* Rank 0 is not lost to this rank. */
    assert_int_equal(baton__answers_next_lost(&asks, 0), ASKS + 1);
    baton__answers_close(&answers);
    asks.asked[ANSWERS].asked_ns = 0;
    ask_until(BATON__REPLY_REFUSED);
}

/* No connection can be made. That does not show whether the rank lives. */
ANSWERS_TEST(test_answers_of_a_rank_without_a_connection)
{
    open_both("1000000", false);
    to.sin_addr.s_addr = htonl(INADDR_BROADCAST);
    assert_int_equal(ask(), BATON__REPLY_NONE);
    (void)close(listener);
}

ANSWERS_TEST(test_answers_of_a_rank_that_is_stopped)
{
    open_both("20", false);
    ask_until(BATON__REPLY_LATE);
    /* The rank asks no more until its next group. */
    baton__answers_hang_up(&asks);
    assert_int_equal(ask(), BATON__REPLY_NONE);
    (void)close(listener);
}

/* The thread answers for a rank as long as the rank's driver returns from its
   calls, and not if the driver stays in one. */
ANSWERS_TEST(test_answers_of_a_rank_that_loops_in_mpi)
{
    open_both("2000", true);
    for (int i = 0; i < 21; i++) { /* in sum longer than the timeout */
        asks.asked[ANSWERS].asked_ns = 0;
        baton__answers_count(&answers.begun);
        do {
            assert_int_equal(ask(), BATON__REPLY_NONE);
            (void)nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        } while (asks.asked[ANSWERS].silent_ns > 0);
        baton__answers_count(&answers.returned);
    }
    baton__answers_count(&answers.begun);
    ask_until(BATON__REPLY_INSIDE);
    assert_non_null(strstr(asks.inside, "in a call of MPI for 2.0 s"));
    baton__answers_count(&answers.returned);
    for (int i = 0; i < 3; i++) {
        asks.asked[ANSWERS].asked_ns = 0;
        assert_int_equal(ask(), BATON__REPLY_NONE);
        while (asks.asked[ANSWERS].silent_ns > 0) {
            assert_int_equal(ask(), BATON__REPLY_NONE);
        }
    }
    baton__answers_close(&answers);
}

/* Another process has got the port of the rank. Its answers do not count. */
ANSWERS_TEST(test_answers_of_strangers_do_not_count)
{
    open_both("20", true);
    asks.places[ANSWERS].key++;
    ask_until(BATON__REPLY_LATE);
    baton__answers_close(&answers);
}

/* A rank that was itself stopped for longer than the timeout does not count
   others as lost at once. */
ANSWERS_TEST(test_answers_count_only_looks)
{
    open_both("100000", false);
    assert_int_equal(ask(), BATON__REPLY_NONE);
    asks.asked[ANSWERS].looked_ns -= UINT64_C(200000000000);
    assert_int_equal(ask(), BATON__REPLY_NONE);
    (void)close(listener);
}
