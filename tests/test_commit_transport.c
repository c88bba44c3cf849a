/* What commit refuses because the transport can't do it, and that it takes
   nothing from the group then. */
#include "support_refusal.h"
#include "transport/loop_rank.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* Ranks 0 and 1 of the loop transport, but with tighter limits. */
typedef struct tight {
    baton_transport_t transport;
    baton_loop_t *loop;
    baton_group_t *groups[2];
} tight_t;

static void open_tight(tight_t *tight, size_t max_bytes, uint32_t max_tag)
{
    support_ok(baton_loop_create(2, &tight->loop));
    for (int rank = 0; rank < 2; rank++) {
        const baton_transport_t *real;
        void *endpoint;
        support_ok(baton__loop_join(tight->loop, rank, &real, &endpoint));
        tight->transport = *real;
        tight->transport.name = "tight";
        tight->transport.max_bytes = max_bytes;
        tight->transport.max_tag = max_tag;
        support_ok(baton_group_create(refusal_ranks()->engine,
                                      &tight->transport, endpoint, rank, 2,
                                      &tight->groups[rank]));
    }
}

static void close_tight(tight_t *tight)
{
    support_ok(baton_group_destroy(tight->groups[0]));
    support_ok(baton_group_destroy(tight->groups[1]));
    baton_loop_destroy(tight->loop);
}

static void test_commit_refuses_message_over_int_max(void **state)
{
    (void)state;
    tight_t tight;
    open_tight(&tight, INT_MAX, INT_MAX);
    baton_schedule_t *s;
    size_t bytes = (size_t)INT_MAX + 1;
    support_ok(baton_schedule_create(tight.groups[0], "wrong", &s));
    baton_buffer_t large = baton_buffer_bind(s, NULL, bytes, BATON_MEMORY_HOST);
    (void)baton_add_send(s, 1, baton_view(large, 0, bytes));
    refused(s, BATON_ERR_LIMIT,
            "send#0 has 2147483648 bytes; the tight transport carries at most "
            "2147483647 a message");
    close_tight(&tight);
}

/* As many empty messages from rank 0 to 1; on both ranks. */
static baton_schedule_t *add_messages(tight_t *tight, int rank, int count)
{
    baton_schedule_t *s;
    support_ok(baton_schedule_create(tight->groups[rank], "wrong", &s));
    baton_view_t none =
        baton_view(baton_buffer_bind(s, NULL, 0, BATON_MEMORY_HOST), 0, 0);
    for (int i = 0; i < count; i++) {
        (void)(rank == 0 ? baton_add_send(s, 1, none)
                         : baton_add_recv(s, 0, none));
    }
    return s;
}

static void test_commit_refuses_more_messages_than_tags(void **state)
{
    (void)state;
    tight_t tight;
    open_tight(&tight, 64, 3);
    refused(add_messages(&tight, 0, 5), BATON_ERR_LIMIT,
            "send#4 would need tag 4 between ranks 0 and 1, the largest of the "
            "tight transport is 3");
    refused(add_messages(&tight, 1, 5), BATON_ERR_LIMIT,
            "recv#4 would need tag 4 between ranks 1 and 0");
    close_tight(&tight);
}

static void test_commit_takes_no_tags_when_it_fails(void **state)
{
    (void)state;
    tight_t tight;
    open_tight(&tight, 64, 3);
    refused(add_messages(&tight, 0, 5), BATON_ERR_LIMIT, "send#4");
    baton_schedule_t *sends = add_messages(&tight, 0, 4);
    baton_schedule_t *receives = add_messages(&tight, 1, 4);
    support_ok(baton_schedule_commit(sends));
    support_ok(baton_schedule_commit(receives));
    support_ok(baton_schedule_start(receives));
    refusal_run(sends);
    support_ok(baton_schedule_wait(receives, 10000));
    refused(add_messages(&tight, 0, 1), BATON_ERR_LIMIT, "send#0 would need");
    baton_schedule_destroy(sends);
    baton_schedule_destroy(receives);
    close_tight(&tight);
}

/* ---- armed receives that can't be posted ------------------------------- */

static const baton_transport_t *real_transport;
static int receives_left; /* until one fails; negative: none does */

static baton_status_t failing_recv(void *endpoint, baton_token_t token,
                                   int peer, uint32_t tag, void *data,
                                   size_t bytes)
{
    return receives_left-- == 0
               ? BATON_ERR_TRANSPORT
               : real_transport->recv(endpoint, token, peer, tag, data, bytes);
}

/* armed, armed --> call: all of them. */
static void test_commit_leaves_no_trace_when_arming_fails(void **state)
{
    (void)state;
    int calls = 0;
    tight_t tight;
    open_tight(&tight, 64, INT_MAX);
    real_transport = &baton__loop_transport;
    tight.transport.recv = failing_recv;
    baton_schedule_t *s;
    support_ok(baton_schedule_create(tight.groups[0], "wrong", &s));
    baton_node_t call = baton_add_call(s, refusal_count, &calls);
    baton_before(s, baton_add_armed_recv(s, 1), call);
    baton_before(s, baton_add_armed_recv(s, 1), call);
    baton_schedule_t *peer;
    support_ok(baton_schedule_create(tight.groups[1], "peer", &peer));
    baton_node_t start = baton_add_on_start(peer);
    for (int i = 0; i < 2; i++) {
        baton_before(peer, start, baton_add_activate(peer, 0));
    }
    support_ok(baton_schedule_commit(peer));
    refusal_run(peer); /* its messages wait for the armed receives */

    receives_left = 1;
    support_expect(baton_schedule_commit(s), BATON_ERR_TRANSPORT);
    support_settle(refusal_ranks());
    baton_before(s, baton_add_nop(s), call);
    receives_left = -1;
    support_ok(baton_schedule_commit(s));
    support_ok(baton_schedule_start(s));
    support_settle(refusal_ranks());
    assert_int_equal(calls, 0);
    support_ok(baton_schedule_cancel(s));
    baton_schedule_destroy(peer);
    baton_schedule_destroy(s);
    close_tight(&tight);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_commit_refuses_message_over_int_max),
        cmocka_unit_test(test_commit_refuses_more_messages_than_tags),
        cmocka_unit_test(test_commit_takes_no_tags_when_it_fails),
        cmocka_unit_test(test_commit_leaves_no_trace_when_arming_fails),
    };
    return cmocka_run_group_tests(tests, refusal_open, refusal_close);
}
