/* The loop transport alone: its medium, its limits, its errors. All ranks are
   turns of one thread here. */
#include "base/alloc.h"
#include "transport/loop_internal.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 2 };

typedef struct pair {
    baton_loop_t *loop;
    const baton_transport_t *port;
    void *ends[RANKS];
} pair_t;

static pair_t open_pair(int64_t messages)
{
    pair_t pair;
    assert_int_equal(baton_loop_create(RANKS, &pair.loop), BATON_OK);
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(
            baton__loop_join(pair.loop, i, &pair.port, &pair.ends[i]),
            BATON_OK);
        assert_int_equal(pair.port->reserve(pair.ends[i], messages), BATON_OK);
    }
    return pair;
}

static void close_pair(pair_t *pair)
{
    for (int i = 0; i < RANKS; i++) {
        pair->port->close(pair->ends[i]);
    }
    baton_loop_destroy(pair->loop);
}

static baton_token_t token(uint32_t node)
{
    return (baton_token_t){NULL, node};
}

static size_t polled(pair_t *pair, int rank)
{
    baton_completion_t done[8];
    return pair->port->poll(pair->ends[rank], done, 8);
}

static void test_loop_create_refuses_bad_arguments(void **state)
{
    (void)state;
    baton_loop_t *loop = NULL;
    assert_int_equal(baton_loop_create(0, &loop), BATON_ERR_INVALID);
    assert_int_equal(baton_loop_create(2, NULL), BATON_ERR_INVALID);
    assert_null(loop);
    baton_loop_destroy(NULL);
}

static void test_loop_join_refuses_bad_ranks(void **state)
{
    (void)state;
    pair_t pair = open_pair(1);
    const baton_transport_t *port;
    void *end;
    assert_int_equal(baton__loop_join(NULL, 0, &port, &end), BATON_ERR_INVALID);
    assert_int_equal(baton__loop_join(pair.loop, -1, &port, &end),
                     BATON_ERR_INVALID);
    assert_int_equal(baton__loop_join(pair.loop, 2, &port, &end),
                     BATON_ERR_INVALID);
    assert_non_null(strstr(baton_error_message(), "0 to 1"));
    assert_int_equal(baton__loop_join(pair.loop, 1, &port, &end),
                     BATON_ERR_INVALID);
    assert_non_null(strstr(baton_error_message(), "joined already"));
    close_pair(&pair);
}

static void test_loop_rank_is_free_again_after_close(void **state)
{
    (void)state;
    pair_t pair = open_pair(1);
    pair.port->close(pair.ends[1]);
    assert_int_equal(baton__loop_join(pair.loop, 1, &pair.port, &pair.ends[1]),
                     BATON_OK);
    close_pair(&pair);
}

static void test_loop_destroy_keeps_what_is_in_use(void **state)
{
    (void)state;
    pair_t pair = open_pair(1);
    pair.port->close(pair.ends[0]);
    baton_loop_destroy(pair.loop);
    assert_non_null(strstr(baton_error_message(), "rank 1"));
    pair.port->close(pair.ends[1]);
    baton_loop_destroy(pair.loop);
}

static void test_loop_posting_beyond_the_reserve_is_an_error(void **state)
{
    (void)state;
    pair_t pair = open_pair(1);
    baton_status_t status = BATON_OK;
    uint32_t posted = 0;
    while (!status && posted < 1000) {
        status = pair.port->recv(pair.ends[0], token(posted++), 1, 0, NULL, 0);
    }
    assert_int_equal(status, BATON_ERR_LIMIT);
    for (uint32_t node = 0; node + 1 < posted; node++) {
        assert_true(pair.port->withdraw(pair.ends[0], token(node)));
    }
    close_pair(&pair);
}

static void test_loop_peer_out_of_range_is_an_error(void **state)
{
    (void)state;
    pair_t pair = open_pair(2);
    assert_int_equal(pair.port->send(pair.ends[0], token(0), RANKS, 0, NULL, 0),
                     BATON_ERR_INVALID);
    assert_int_equal(pair.port->recv(pair.ends[0], token(0), -1, 0, NULL, 0),
                     BATON_ERR_INVALID);
    close_pair(&pair);
}

static void test_loop_a_large_send_waits_for_its_receiver(void **state)
{
    (void)state;
    static unsigned char out[257];
    static unsigned char in[257];
    pair_t pair = open_pair(2);
    out[256] = 7;
    assert_int_equal(pair.port->send(pair.ends[0], token(0), 1, 0, out, 257),
                     BATON_OK);
    assert_int_equal(polled(&pair, 0), 0);
    assert_int_equal(pair.port->recv(pair.ends[1], token(1), 0, 0, in, 257),
                     BATON_OK);
    assert_int_equal(polled(&pair, 0), 1);
    assert_int_equal(polled(&pair, 1), 1);
    assert_int_equal(in[256], 7);
    close_pair(&pair);
}

static void test_loop_an_early_message_outlives_its_sender(void **state)
{
    (void)state;
    pair_t pair = open_pair(2);
    unsigned char byte = 9;
    assert_int_equal(pair.port->send(pair.ends[0], token(0), 1, 0, &byte, 1),
                     BATON_OK);
    assert_int_equal(polled(&pair, 0), 1);
    pair.port->close(pair.ends[0]);
    byte = 0;
    assert_int_equal(pair.port->recv(pair.ends[1], token(1), 0, 0, &byte, 1),
                     BATON_OK);
    assert_int_equal(polled(&pair, 1), 1);
    assert_int_equal(byte, 9);
    pair.port->close(pair.ends[1]);
    baton_loop_destroy(pair.loop);
}

static void test_loop_bell_rings_once_a_rest(void **state)
{
    (void)state;
    pair_t pair = open_pair(4);
    struct pollfd bell = {.fd = pair.port->descriptor(pair.ends[1]),
                          .events = POLLIN};
    assert_int_equal(pair.port->rest(pair.ends[1]), BATON_SLEEP_FOREVER);
    assert_true(pair.port->sleep(pair.ends[1]));
    assert_int_equal(poll(&bell, 1, 0), 0);
    assert_int_equal(pair.port->send(pair.ends[0], token(0), 1, 0, NULL, 0),
                     BATON_OK);
    assert_int_equal(poll(&bell, 1, 0), 1);
    pair.port->hush(pair.ends[1]);
    assert_int_equal(pair.port->send(pair.ends[0], token(1), 1, 0, NULL, 0),
                     BATON_OK);
    assert_int_equal(poll(&bell, 1, 0), 0);
    pair.port->awake(pair.ends[1]);
    close_pair(&pair);
}

/* A message to a rank that rests is noted, and not rung. */
static void test_loop_note_keeps_from_sleeping(void **state)
{
    (void)state;
    pair_t pair = open_pair(4);
    struct pollfd bell = {.fd = pair.port->descriptor(pair.ends[1]),
                          .events = POLLIN};
    pair.port->rest(pair.ends[1]);
    assert_int_equal(pair.port->send(pair.ends[0], token(0), 1, 0, NULL, 0),
                     BATON_OK);
    assert_int_equal(poll(&bell, 1, 0), 0);
    assert_false(pair.port->sleep(pair.ends[1]));
    pair.port->rest(pair.ends[1]);
    assert_true(pair.port->sleep(pair.ends[1]));
    pair.port->awake(pair.ends[1]);
    assert_false(pair.port->sleep(pair.ends[1]));
    close_pair(&pair);
}

/* A sender that rests on the completion of a large send is woken by it. */
static void test_loop_bell_rings_when_a_send_completes(void **state)
{
    (void)state;
    static unsigned char out[1000];
    static unsigned char in[1000];
    pair_t pair = open_pair(2);
    struct pollfd bell = {.fd = pair.port->descriptor(pair.ends[0]),
                          .events = POLLIN};
    assert_int_equal(pair.port->send(pair.ends[0], token(0), 1, 0, out, 1000),
                     BATON_OK);
    pair.port->rest(pair.ends[0]);
    assert_true(pair.port->sleep(pair.ends[0]));
    assert_int_equal(pair.port->recv(pair.ends[1], token(0), 0, 0, in, 1000),
                     BATON_OK);
    assert_int_equal(poll(&bell, 1, 0), 1);
    assert_int_equal(polled(&pair, 0), 1);
    close_pair(&pair);
}

static void test_loop_send_fails_when_a_test_says_so(void **state)
{
    (void)state;
    pair_t pair = open_pair(4);
    baton__loop_fail_send(pair.ends[0], 2);
    for (uint32_t i = 1; i <= 3; i++) {
        assert_int_equal(pair.port->send(pair.ends[0], token(i), 1, 0, NULL, 0),
                         i == 2 ? BATON_ERR_TRANSPORT : BATON_OK);
    }
    assert_int_equal(polled(&pair, 0), 2);
    close_pair(&pair);
}

/* The n-th allocation fails, until none does. */
static void test_loop_every_allocation_may_fail(void **state)
{
    (void)state;
    bool made = false;
    for (int64_t nth = 1; !made && nth < 100; nth++) {
        baton_loop_t *loop = NULL;
        const baton_transport_t *port;
        void *end;
        baton__alloc_fail_nth(nth);
        baton_status_t status = baton_loop_create(2, &loop);
        if (!status) {
            assert_int_equal(baton__loop_join(loop, 0, &port, &end), BATON_OK);
            status = port->reserve(end, 5000);
            made = status == BATON_OK;
            port->close(end);
        }
        baton__alloc_fail_nth(0);
        assert_true(made || status == BATON_ERR_NO_MEMORY);
        baton_loop_destroy(loop);
    }
    assert_true(made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loop_create_refuses_bad_arguments),
        cmocka_unit_test(test_loop_join_refuses_bad_ranks),
        cmocka_unit_test(test_loop_rank_is_free_again_after_close),
        cmocka_unit_test(test_loop_destroy_keeps_what_is_in_use),
        cmocka_unit_test(test_loop_posting_beyond_the_reserve_is_an_error),
        cmocka_unit_test(test_loop_peer_out_of_range_is_an_error),
        cmocka_unit_test(test_loop_a_large_send_waits_for_its_receiver),
        cmocka_unit_test(test_loop_an_early_message_outlives_its_sender),
        cmocka_unit_test(test_loop_bell_rings_once_a_rest),
        cmocka_unit_test(test_loop_note_keeps_from_sleeping),
        cmocka_unit_test(test_loop_bell_rings_when_a_send_completes),
        cmocka_unit_test(test_loop_send_fails_when_a_test_says_so),
        cmocka_unit_test(test_loop_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
