/* What commit refuses because the transport can't do it, and that it takes
   nothing from the group then. */
#include "support/cmocka.h"
#include "support/refusal.h"
#include "transport/inproc/rank.h"

#include "base/error.h"

#include <limits.h>

/* Ranks 0 to 2 of the inproc transport, but with tighter limits. */
enum { RANKS = 3, PATIENCE_MS = 10000 };

static int64_t reserved[RANKS][2]; /* by peer: sends, receives; of rank 0 */
static int full_peer;              /* that there is no room for; -1: none */
static void *first_endpoint;

static baton_status_t tight_reserve(void *endpoint, int peer, int64_t sends,
                                    int64_t receives)
{
    if (endpoint == first_endpoint) {
        if (peer == full_peer && (sends > 0 || receives > 0)) {
            return baton__error(BATON_ERR_NO_MEMORY, "rank %d is full", peer);
        }
        reserved[peer][0] += sends;
        reserved[peer][1] += receives;
    }
    return baton__inproc_transport.reserve(endpoint, peer, sends, receives);
}

typedef struct tight {
    baton_transport_t transport;
    baton_inproc_t *medium;
    baton_group_t *groups[RANKS];
} tight_t;

static void open_tight(tight_t *tight, size_t max_bytes)
{
    full_peer = -1;
    support_ok(baton_inproc_create(RANKS, &tight->medium));
    for (int rank = 0; rank < RANKS; rank++) {
        const baton_transport_t *real;
        void *endpoint;
        support_ok(baton__inproc_join(tight->medium, rank, &real, &endpoint));
        first_endpoint = rank == 0 ? endpoint : first_endpoint;
        tight->transport = *real;
        tight->transport.name = "tight";
        tight->transport.max_bytes = max_bytes;
        tight->transport.reserve = tight_reserve;
        support_ok(baton_group_create(refusal_ranks()->engines[0],
                                      &tight->transport, endpoint, rank, RANKS,
                                      &tight->groups[rank]));
    }
}

static void close_tight(tight_t *tight)
{
    for (int rank = 0; rank < RANKS; rank++) {
        support_ok(baton_group_destroy(tight->groups[rank]));
    }
    support_ok(baton_inproc_destroy(tight->medium));
}

static void test_commit_refuses_message_over_int_max(void **state)
{
    (void)state;
    tight_t tight;
    open_tight(&tight, INT_MAX);
    baton_schedule_t *s;
    size_t bytes = (size_t)INT_MAX + 1;
    s = support_schedule(tight.groups[0], "wrong");
    baton_buffer_t large = baton_buffer_bind(s, NULL, bytes, BATON_MEMORY_HOST);
    (void)baton_add_send(s, 1, baton_view(large, 0, bytes));
    refused(s, BATON_ERR_LIMIT,
            "send#0 has 2147483648 bytes; the tight transport carries at most "
            "2147483647 a message");
    close_tight(&tight);
}

static void test_commit_takes_messages_of_the_largest_size(void **state)
{
    (void)state;
    tight_t tight;
    open_tight(&tight, REFUSAL_BYTES);
    baton_schedule_t *s = support_schedule(tight.groups[0], "wrong");
    baton_buffer_t buffer =
        baton_buffer_bind(s, refusal_memory, REFUSAL_BYTES, BATON_MEMORY_HOST);
    (void)baton_add_send(s, 1, baton_view(buffer, 0, REFUSAL_BYTES));
    support_ok(baton_schedule_commit(s));
    support_ok(baton_schedule_destroy(s));
    close_tight(&tight);
}

/* ---- room for messages ------------------------------------------------- */

/* Rank 0: 3 sends to rank 1, a receive from rank 1, 2 receives from rank 2.
   Ranks 1 and 2: the other ends. */
static baton_schedule_t *build(tight_t *tight, int rank)
{
    baton_schedule_t *s = support_schedule(tight->groups[rank], "wrong");
    baton_view_t none = support_view(s, NULL, 0);
    for (int i = 0; i < 3 && rank == 0; i++) {
        (void)baton_add_send(s, 1, none);
    }
    for (int i = 0; i < 3 && rank == 1; i++) {
        (void)baton_add_recv(s, 0, none);
    }
    if (rank == 0) {
        (void)baton_add_recv(s, 1, none);
        (void)baton_add_recv(s, 2, none);
        (void)baton_add_recv(s, 2, none);
    } else {
        (void)baton_add_send(s, 0, none);
    }
    if (rank == 2) {
        (void)baton_add_send(s, 0, none);
    }
    return s;
}

static void expect_reserved(int64_t sends_to_1, int64_t receives_from_1,
                            int64_t receives_from_2)
{
    assert_int_equal(reserved[1][0], sends_to_1);
    assert_int_equal(reserved[1][1], receives_from_1);
    assert_int_equal(reserved[2][0], 0);
    assert_int_equal(reserved[2][1], receives_from_2);
}

static void test_commit_reserves_what_messages_need(void **state)
{
    (void)state;
    tight_t tight;
    open_tight(&tight, 64);
    baton_schedule_t *s = build(&tight, 0);
    support_ok(baton_schedule_commit(s));
    expect_reserved(3, 1, 2);
    support_ok(baton_schedule_destroy(s));
    expect_reserved(0, 0, 0);
    close_tight(&tight);
}

/* The second peer has no room: what the first one gave is given back, and the
   same schedule commits and runs when there is room. */
static void test_commit_takes_no_room_when_it_fails(void **state)
{
    (void)state;
    tight_t tight;
    open_tight(&tight, 64);
    baton_schedule_t *s[RANKS];
    for (int rank = 0; rank < RANKS; rank++) {
        s[rank] = build(&tight, rank);
    }
    full_peer = 2;
    refuses(s[0], BATON_ERR_NO_MEMORY,
            "the tight transport has no room for its messages with rank 2: "
            "rank 2 is full");
    expect_reserved(0, 0, 0);
    full_peer = -1;
    for (int rank = 0; rank < RANKS; rank++) {
        support_ok(baton_schedule_commit(s[rank]));
    }
    expect_reserved(3, 1, 2);
    for (int rank = 0; rank < RANKS; rank++) {
        support_ok(baton_schedule_start(s[rank]));
    }
    for (int rank = 0; rank < RANKS; rank++) {
        support_ok(baton_schedule_wait(s[rank], PATIENCE_MS));
        support_ok(baton_schedule_destroy(s[rank]));
    }
    expect_reserved(0, 0, 0);
    close_tight(&tight);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_commit_refuses_message_over_int_max),
        cmocka_unit_test(test_commit_takes_messages_of_the_largest_size),
        cmocka_unit_test(test_commit_reserves_what_messages_need),
        cmocka_unit_test(test_commit_takes_no_room_when_it_fails),
    };
    return cmocka_run_group_tests(tests, refusal_open, refusal_close);
}
