/* Commits that fail: the message names the nodes, and the schedule and its
   group stay usable. A commit that fails because of the transport takes nothing
   from the group. Hazards: test_hazard.c. */
#include "base/error.h"
#include "support/refusal.h"
#include "transport/inproc/rank.h"
#include <limits.h>

/* ---- commit: nodes ----------------------------------------------------- */

TEST(test_commit_refuses_what_can_never_fire)
{
    for (int edges = 0; edges < 4; edges++) {
        baton_schedule_t *s = refusal_begin();
        baton_node_t nops[3];
        for (int i = 0; i < 3; i++) {
            nops[i] = baton_add_nop(s);
        }
        for (int i = 0; i < edges; i++) { /* the third edge equals the first */
            baton_before(s, nops[i % 2], nops[2]);
        }
        baton_set_need(s, nops[2], edges == 0 ? BATON_NEED_ANY : 3);
        char says[64];
        (void)snprintf(says, sizeof says,
                       "nop#2 can never fire: it needs %d of %d incoming",
                       edges == 0 ? 1 : 3, edges < 2 ? edges : 2);
        refused(s, BATON_ERR_UNREACHABLE, says);
    }
}

/* nop ===> call <-- recv: the call needs two of two edges, so the doubled edge
   from nop alone does not suffice. */
TEST(test_commit_doubled_edges_satisfy_once)
{
    uint64_t calls = 0;
    support_cluster_t *ranks = refusal_ranks();
    baton_schedule_t **s = support_schedules_create(ranks, "doubled");
    baton_node_t nop = baton_add_nop(s[0]);
    baton_node_t recv = baton_add_recv(s[0], 1, support_scratch(s[0], 4));
    baton_node_t call = baton_add_call(s[0], support_count, &calls);
    baton_before(s[0], nop, call);
    baton_before(s[0], recv, call);
    baton_before(s[0], nop, call);
    baton_set_need(s[0], call, 2);
    (void)baton_add_send(s[1], 0, support_scratch(s[1], 4));
    support_schedules_commit(ranks, s);
    support_ok(baton_schedule_start(s[0]));
    support_drain(ranks);
    assert_int_equal(calls, 0);
    support_run(s[1]);
    support_ends(s[0], BATON_OK);
    assert_int_equal(calls, 1);
    support_schedules_destroy(ranks, s);
}

TEST(test_commit_refuses_edge_into_entry)
{
    for (int armed = 0; armed < 2; armed++) {
        baton_schedule_t *s = refusal_begin();
        baton_node_t nop = baton_add_nop(s);
        baton_before(
            s, nop, armed ? baton_add_armed_recv(s, 1) : baton_add_on_start(s));
        refused(s, BATON_ERR_INVALID,
                armed ? "armed_recv#1 begins a branch, and must have no "
                        "incoming edge; it has 1"
                      : "on_start#1 begins a branch, and must have no incoming "
                        "edge; it has 1");
    }
}

TEST(test_commit_refuses_to_write_inputs)
{
    static const char *const names[] = {"recv#0", "copy#0", "reduce#0"};
    for (int kind = 0; kind < 3; kind++) {
        baton_schedule_t *s = refusal_begin();
        baton_view_t part = refusal_part(0, 8);
        baton_view_t in =
            baton_view(baton_buffer_bind_input(s, "1234567", 8), 0, 8);
        if (kind == 0) {
            (void)baton_add_recv(s, 1, in);
        } else if (kind == 1) {
            (void)baton_add_copy(s, in, part);
        } else {
            (void)baton_add_reduce_local(s, BATON_F32, BATON_SUM, in, in, part);
        }
        refuses(s, BATON_ERR_INVALID, "writes buffer 1, which was");
        refused(s, BATON_ERR_INVALID, names[kind]);
    }
}

/* ---- cycles ------------------------------------------------------------ */

/* A ring of `length` nops, which begin with node 2, and further nodes: 0 leads
   to the ring, which leads to 1 and to a chain of nops. */
static void refuse_ring(uint32_t length, const char *text)
{
    baton_schedule_t *s = refusal_begin();
    baton_node_t before = baton_add_nop(s);
    baton_node_t after = baton_add_nop(s);
    baton_node_t first = baton_add_nop(s);
    for (uint32_t i = 1; i < length; i++) {
        (void)baton_add_nop(s);
    }
    baton_node_t tail = baton_add_nop(s);
    for (uint32_t i = 0; i < length; i++) {
        baton_node_t node = {first.index + i};
        baton_node_t next = {first.index + (i + 1) % length};
        baton_before(s, before, node);
        baton_before(s, node, after);
        baton_before(s, node, next);
    }
    baton_before(s, after, tail);
    refuses(s, BATON_ERR_CYCLE, "dependency cycle\n    ");
    /* The list may begin with any node of the ring. */
    const char *list = strstr(baton_error_message(), "\n    ") + 5;
    char twice[256];
    (void)snprintf(twice, sizeof twice, "%s%s", text, text);
    assert_non_null(strstr(twice, list));
    assert_int_equal(strlen(list), strlen(text) + strlen("nop#2"));
    support_ok(baton_schedule_destroy(s));
}

TEST(test_commit_prints_the_whole_cycle)
{
    refuse_ring(1, "nop#2 -> ");
    refuse_ring(2, "nop#2 -> nop#3 -> ");
    refuse_ring(5, "nop#2 -> nop#3 -> nop#4 -> nop#5 -> nop#6 -> ");
}

/* BATON_NEED_ANY does not help. The node before the ring would suffice to fire
   the ring's first node, but the nodes of a ring have no order. */
TEST(test_commit_refuses_cycle_that_any_would_break)
{
    baton_schedule_t *s = refusal_begin();
    baton_node_t a = baton_add_nop(s);
    baton_node_t b = baton_add_nop(s);
    baton_node_t c = baton_add_nop(s);
    baton_before(s, a, b);
    baton_before(s, b, c);
    baton_before(s, c, b);
    baton_set_need(s, b, BATON_NEED_ANY);
    refused(s, BATON_ERR_CYCLE, "nop#");
}

/* ---- afterwards -------------------------------------------------------- */

TEST(test_commit_works_once_the_hazard_is_ordered)
{
    uint64_t calls = 0;
    baton_schedule_t *s = refusal_begin();
    baton_node_t a = baton_add_copy(s, refusal_part(0, 4), refusal_part(8, 4));
    baton_node_t b = baton_add_copy(s, refusal_part(4, 4), refusal_part(0, 4));
    baton_node_t call = baton_add_call(s, support_count, &calls);
    refuses(s, BATON_ERR_HAZARD, "copy#0 and copy#1 are unordered");
    baton_before(s, a, b);
    baton_before(s, b, call);
    refusal_memory[2] = 5;
    support_ok(baton_schedule_commit(s));
    support_run(s);
    support_run(s);
    assert_float_equal(refusal_memory[1], 5, 0);
    assert_int_equal(calls, 2);
    support_ok(baton_schedule_destroy(s));
}

/* ---- limits of the transport ---------------------------------------- */

/* Ranks 0 to 2 of the inproc transport. A wrapper limits what rank 0 can
   reserve. */
enum { RANKS = 3 };

/* By peer: the sends and the receives that rank 0 has reserved. */
static int64_t reserved[RANKS][2];
/* The peer for which nothing can be reserved, or -1. */
static int full_peer;

static baton_status_t tight_reserve(void *endpoint, int peer, int64_t sends,
                                    int64_t receives)
{
    if (((const baton__inproc_rank_t *)endpoint)->index == 0) {
        if (peer == full_peer && (sends > 0 || receives > 0)) {
            return baton__error(BATON_ERR_NO_MEMORY, "rank %d is full", peer);
        }
        reserved[peer][0] += sends;
        reserved[peer][1] += receives;
    }
    return baton__inproc_transport.reserve(endpoint, peer, sends, receives);
}

static support_cluster_t *open_tight(size_t max_bytes)
{
    static baton_transport_t transport;
    full_peer = -1;
    transport = baton__inproc_transport;
    transport.name = "tight";
    transport.max_bytes = max_bytes;
    transport.reserve = tight_reserve;
    return support_cluster_through(RANKS, SUPPORT_MANUAL, &transport);
}

TEST(test_commit_refuses_messages_above_the_limit)
{
    size_t bytes = (size_t)INT_MAX + 1;
    for (int above = 0; above < 2; above++) {
        support_cluster_t *tight = open_tight(above ? INT_MAX : bytes);
        baton_schedule_t *s = support_schedule(tight->groups[0], "wrong");
        (void)baton_add_send(s, 1, support_view(s, NULL, bytes));
        if (above) {
            refused(s, BATON_ERR_LIMIT,
                    "send#0 has 2147483648 bytes; the tight transport carries "
                    "at most 2147483647 a message");
        } else {
            support_ok(baton_schedule_commit(s));
            support_ok(baton_schedule_destroy(s));
        }
        support_cluster_close(tight);
    }
}

/* ---- room for messages ------------------------------------------------- */

/* Rank 0 has 3 sends to rank 1, a receive from rank 1, and 2 receives from rank
   2. Ranks 1 and 2 have the other ends. */
static baton_schedule_t *build(const support_cluster_t *tight, int rank)
{
    static const int sends[RANKS] = {0, 1, 2};
    baton_schedule_t *s = support_schedule(tight->groups[rank], "wrong");
    baton_view_t none = support_view(s, NULL, 0);
    for (int i = 0; i < 3; i++) {
        if (rank < 2) {
            (void)(rank == 0 ? baton_add_send(s, 1, none)
                             : baton_add_recv(s, 0, none));
        }
        for (int peer = 1; peer < RANKS; peer++) {
            if (i < sends[peer] && rank == 0) {
                (void)baton_add_recv(s, peer, none);
            } else if (i < sends[peer] && rank == peer) {
                (void)baton_add_send(s, 0, none);
            }
        }
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

TEST(test_commit_reserves_what_messages_need)
{
    support_cluster_t *tight = open_tight(64);
    baton_schedule_t *s = build(tight, 0);
    support_ok(baton_schedule_commit(s));
    expect_reserved(3, 1, 2);
    support_ok(baton_schedule_destroy(s));
    expect_reserved(0, 0, 0);
    support_cluster_close(tight);
}

/* The reservation for the second peer fails, so the one for the first peer is
   undone. When reservations no longer fail, the same schedule commits and
   runs. */
TEST(test_commit_takes_no_room_when_it_fails)
{
    support_cluster_t *tight = open_tight(64);
    baton_schedule_t *s[RANKS];
    for (int rank = 0; rank < RANKS; rank++) {
        s[rank] = build(tight, rank);
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
        support_ok(baton_schedule_wait(s[rank], SUPPORT_WAIT_MS));
        support_ok(baton_schedule_destroy(s[rank]));
    }
    expect_reserved(0, 0, 0);
    support_cluster_close(tight);
}

RUN_TESTS_BETWEEN(refusal_open, refusal_close)
