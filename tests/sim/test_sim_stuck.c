/* The exact messages about schedules whose sends and receives do not match, and
   about epochs that can't end: because ranks wait in a cycle, for a node that
   does not fire, for a rank that has not started or has reached its limit, or
   for a dead rank. */
#include "support/stuck.h"

/* ---- schedules as text --------------------------------------------------- */

/* Adds one of a rank's nodes. The text has the nodes of a rank, separated by
   blanks. Each node is a letter:

       s r    a send or recv, followed by the peer and ":BYTES" (without it, the
              message has STUCK_BYTES)
       a A    an activate or armed recv, followed by the peer
       o n k  an on_start, a nop, or a call that skips

   The letter may be followed by marks:

       ! ?    the node is optional; the node needs any of its predecessors
       <I,J   the node comes after nodes I and J */
static baton_node_t add_node(baton_schedule_t *s, const char *text)
{
    char *end = NULL;
    int peer = (int)strtol(text + 1, &end, 10);
    size_t bytes = *end == ':' ? strtoul(end + 1, &end, 10) : STUCK_BYTES;
    switch (*text) {
    case 's':
        return baton_add_send(s, peer, support_scratch(s, bytes));
    case 'r':
        return baton_add_recv(s, peer, support_scratch(s, bytes));
    case 'a':
        return baton_add_activate(s, peer);
    case 'A':
        return baton_add_armed_recv(s, peer);
    case 'o':
        return baton_add_on_start(s);
    case 'k':
        return baton_add_call(s, support_skip, NULL);
    default:
        return baton_add_nop(s);
    }
}

/* Reads the marks after the node's kind: `!` makes it optional, `?` lets it
   start after any of its inputs, and numbers after `<` name its inputs. */
static void finish_node(baton_schedule_t *s, baton_node_t node,
                        const char *text)
{
    for (const char *at = text; *at != ' ' && *at != '\0'; at++) {
        if (*at == '!') {
            baton_set_optional(s, node);
        } else if (*at == '?') {
            baton_set_need(s, node, BATON_NEED_ANY);
        } else if (*at == '<' || *at == ',') {
            baton_before(s, (baton_node_t){(uint32_t)atoi(at + 1)}, node);
        }
    }
}

static void add_nodes(baton_schedule_t *s, const char *text)
{
    baton_node_t nodes[8];
    for (int pass = 0; pass < 2; pass++) {
        const char *at = text;
        for (size_t i = 0; at != NULL && *at != '\0'; i++) {
            if (pass == 0) {
                nodes[i] = add_node(s, at);
            } else {
                finish_node(s, nodes[i], at);
            }
            at = strchr(at, ' ');
            at += at != NULL;
        }
    }
}

enum { MOST_RANKS = 4 };

typedef struct stuck {
    const char *ranks[MOST_RANKS]; /* by rank: its nodes, as above */
    /* The error message; NULL: the epochs end well. */
    const char *says;
    /* By rank: how often it starts; if all are 0, each starts once. */
    int starts[MOST_RANKS];
    uint64_t limit; /* the last rank's limit (baton_schedule_limit), or 0 */
    int dead;       /* a rank that dies, or 0 */
    size_t sync_bytes;
} stuck_t;

static void build(void *arg, baton_schedule_t *s)
{
    const stuck_t *stuck = arg;
    add_nodes(s, stuck->ranks[baton_schedule_rank(s)]);
}

static int ranks_of(const stuck_t *stuck)
{
    int ranks = 0;
    while (ranks < MOST_RANKS && stuck->ranks[ranks] != NULL) {
        ranks++;
    }
    return ranks;
}

/* Each round starts all ranks that have to start once more. */
static baton_status_t run_rounds(const stuck_t *stuck, baton_sim_t *sim)
{
    baton_status_t status = BATON_OK;
    bool any = true;
    for (int round = 0; any; round++) {
        any = false;
        for (int rank = 0; rank < ranks_of(stuck); rank++) {
            int starts = stuck->starts[0] > 0 ? stuck->starts[rank] : 1;
            if (round < starts) {
                support_ok(baton_schedule_start(baton_sim_schedule(sim, rank)));
                any = true;
            }
        }
        status = any ? baton_sim_run(sim, -1.0) : status;
    }
    return status;
}

static void run_stuck(stuck_t *stuck, baton_status_t expected)
{
    int ranks = ranks_of(stuck);
    baton_sim_t *sim = stuck_open(ranks, stuck->sync_bytes);
    if (expected == BATON_ERR_MISMATCH) {
        stuck_says(baton_sim_build(sim, "x", build, stuck), expected,
                   stuck->says);
        assert_null(baton_sim_schedule(sim, 0));
        support_ok(baton_sim_destroy(sim));
        return;
    }
    support_ok(baton_sim_build(sim, "x", build, stuck));
    if (stuck->limit > 0) {
        baton_schedule_limit(baton_sim_schedule(sim, ranks - 1), stuck->limit);
    }
    if (stuck->dead > 0) {
        support_ok(baton_sim_kill(sim, stuck->dead));
    }
    baton_status_t status = run_rounds(stuck, sim);
    expected = stuck->dead > 0 ? BATON_ERR_TRANSPORT : expected;
    expected = stuck->says == NULL ? BATON_OK : expected;
    if (expected == BATON_ERR_DEADLOCK) {
        stuck_says(status, expected, stuck->says);
    }
    /* A failure reaches every rank with the same message. */
    int told = stuck->dead > 0 ? stuck->dead : ranks;
    for (int rank = 0; expected != BATON_ERR_DEADLOCK && rank < told; rank++) {
        status = baton_schedule_wait(baton_sim_schedule(sim, rank), -1);
        support_expect(status, expected);
        if (stuck->says != NULL) {
            assert_string_equal(baton_error_message(), stuck->says);
        }
    }
    support_ok(baton_sim_destroy(sim));
}

static void run_all(stuck_t *all, size_t count, baton_status_t expected)
{
    for (size_t i = 0; i < count; i++) {
        run_stuck(&all[i], expected);
    }
}
#define RUN_ALL(all, expected)                                                 \
    run_all(all, sizeof(all) / sizeof(all)[0], expected)

/* ---- mismatches ---------------------------------------------------------- */

/* A nop comes first, so that the messages have other numbers than 0. */
TEST(test_mismatch_names_both_ends)
{
#define DIFFER(zero, one, text)                                                \
    {.ranks = {"n " zero, "n " one}, .says = "\"x\": " text}
    stuck_t all[] = {
        DIFFER("s1:16", "r0:8",
               "send#1 of rank 0 has 16 bytes and its receiver, recv#1 of rank "
               "1, 8"),
        DIFFER("s1:8 s1:16 s1:32", "r0:16 r0:32",
               "send#1 of rank 0 has 8 bytes and its receiver, recv#1 of rank "
               "1, 16; 3 sends must match 2 receives"),
        DIFFER("s1:8 s1:16 s1:32", "r0:8 r0:16",
               "send#3 of rank 0 has no receive on rank 1, which has 2 from "
               "there"),
        DIFFER("s1", "",
               "send#1 of rank 0 has no receive on rank 1, which has none from "
               "there"),
        DIFFER("s1:8", "r0:8 r0:16",
               "recv#2 of rank 1 has no send on rank 0, which has 1 to there"),
        /* Activations are matched only with activations, although a message may
           have the same size. */
        DIFFER("s1:16", "A0",
               "send#1 of rank 0 has no receive on rank 1, which has none from "
               "there"),
        DIFFER("a1", "r0:16",
               "activate#1 of rank 0 has no armed receive on rank 1, which has "
               "none from there"),
        DIFFER("a1 s1:16", "r0:16 r0:16",
               "activate#1 of rank 0 has no armed receive on rank 1, which has "
               "none from there"),
        DIFFER(
            "s1:16", "A0 r0:16 r0:16",
            "armed_recv#1 of rank 1 has no activate on rank 0, which has none "
            "to there"),
        DIFFER("a1 s1:16", "A0 r0:16 r0:16",
               "recv#3 of rank 1 has no send on rank 0, which has 1 to there"),
    };
    RUN_ALL(all, BATON_ERR_MISMATCH);
}

static baton_schedule_t *commit(baton_sim_t *sim, int rank, const char *name,
                                const char *nodes)
{
    baton_schedule_t *s = support_schedule(baton_sim_group(sim, rank), name);
    add_nodes(s, nodes);
    support_ok(baton_schedule_commit(s));
    return s;
}

static const char uncommitted[] = "\"a\": send#0 of rank 0 has no receive on "
                                  "rank 1, which has not committed it";

TEST(test_mismatch_of_a_schedule_that_one_rank_lacks)
{
    baton_sim_t *sim = stuck_open(2, 0);
    baton_schedule_t *a = commit(sim, 0, "a", "s1");
    stuck_says(baton_sim_run(sim, -1.0), BATON_ERR_MISMATCH, uncommitted);
    baton_schedule_t *b = commit(sim, 1, "a", "r0");
    support_ok(baton_sim_run(sim, -1.0));
    support_ok(baton_schedule_destroy(a));
    support_ok(baton_schedule_destroy(b));
    support_ok(baton_sim_destroy(sim));
}

TEST(test_schedules_meet_by_name_in_any_order)
{
    baton_sim_t *sim = stuck_open(2, 0);
    baton_schedule_t *s[] = {
        commit(sim, 0, "a", "s1:8"),
        commit(sim, 0, "b", "s1:16"),
        commit(sim, 1, "b", "r0:16"),
        commit(sim, 1, "a", "r0:8"),
    };
    for (int i = 0; i < 4; i++) {
        support_ok(baton_schedule_start(s[i]));
    }
    support_ok(baton_sim_run(sim, -1.0));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(baton_schedule_epoch(s[i]), 1);
        support_ok(baton_schedule_destroy(s[i]));
    }
    support_ok(baton_sim_destroy(sim));
}

/* A schedule that only one rank has does no harm, but it counts among the
   schedules of its name. */
TEST(test_mismatch_of_attempts)
{
    baton_sim_t *sim = stuck_open(2, 0);
    support_ok(baton_schedule_destroy(commit(sim, 0, "a", "s1")));
    baton_schedule_t *second = commit(sim, 0, "a", "s1");
    baton_schedule_t *first = commit(sim, 1, "a", "r0");
    stuck_says(baton_sim_run(sim, -1.0), BATON_ERR_MISMATCH, uncommitted);
    support_ok(baton_schedule_destroy(first));
    first = commit(sim, 1, "a", "r0");
    support_ok(baton_sim_run(sim, -1.0));
    support_ok(baton_schedule_destroy(first));
    support_ok(baton_schedule_destroy(second));
    support_ok(baton_sim_destroy(sim));
}

/* ---- cycles ------------------------------------------------------------- */

#define EDGE(rank, left)                                                       \
    "\n    rank " #rank ": recv#0 waits for send#1 of rank " #left             \
    ", which comes after recv#0"

TEST(test_deadlock_of_many_shows_some)
{
    static const char says[] =
        "\"x\" epoch 1 can't end on rank 0: ranks wait in a cycle" EDGE(0, 999)
            EDGE(999, 998) EDGE(998, 997) EDGE(997, 996) EDGE(996, 995)
                EDGE(995, 994) "\n    ... 993 more" EDGE(1, 0);
    double us;
    baton_sim_t *sim = stuck_open(1000, 0);
    support_ok(baton_sim_build(sim, "x", stuck_ring, NULL));
    stuck_says(baton_sim_epoch(sim, &us), BATON_ERR_DEADLOCK, says);
    support_ok(baton_sim_destroy(sim));
}

#define CANNOT(epoch, rank) "\"x\" epoch " #epoch " can't end on rank " #rank

TEST(test_deadlock_of_ranks_in_a_cycle)
{
    stuck_t all[] = {
        /* Rank 0 waits for rank 1. Ranks 1 and 2 wait for each other. */
        {.ranks = {"r1", "r2 s2<0 n<0 s0<2", "r1 s1<0"},
         .says = CANNOT(1, 0) ": ranks wait in a cycle" EDGE(1, 2) EDGE(2, 1)},
        {.ranks = {"s1 r1<0", "s0 r0<0"},
         .sync_bytes = STUCK_BYTES,
         .says = CANNOT(1, 0) ": ranks wait in a cycle\n"
                              "    rank 0: send#0 waits for recv#1 of rank 1, "
                              "which comes after send#0\n"
                              "    rank 1: send#0 waits for recv#1 of rank 0, "
                              "which comes after send#0"},
        {.ranks = {"s1 r1<0", "s0 r0<0"}, .sync_bytes = STUCK_BYTES + 1},
        /* Rank 0's sends need one of two receives, and each rank waits for
           one of these sends. */
        {.ranks = {"n?<1,3 r1 s1<0 r2 s2<0", "r0 s0<0", "r0 s0<0"},
         .says = CANNOT(1, 0) ": ranks wait in a cycle\n"
                              "    rank 0: recv#1 waits for send#1 of rank 1, "
                              "which comes after recv#0\n"
                              "    rank 1: recv#0 waits for send#2 of rank 0, "
                              "which comes after recv#1 (nop#0 needs 1 of 2)"},
    };
    RUN_ALL(all, BATON_ERR_DEADLOCK);
}

/* ---- nodes that do not fire --------------------------------------------- */

TEST(test_unreachable_names_the_call_that_skipped)
{
#define SKIPPED(call) call " skipped (are the nodes after it optional?)"
    stuck_t all[] = {
        {.ranks = {"r1", "s0<1 r2", "s1<1 k"},
         .says = CANNOT(1, 2) ": send#0 will not fire: " SKIPPED("call#1")},
        /* The receive needs one of two nodes, neither of which satisfies it. */
        {.ranks = {"r1", "s0<1 n?<2,3 k k"},
         .says = CANNOT(1, 1) ": send#0 will not fire: " SKIPPED("call#2")},
        {.ranks = {"n<1 k n<0"},
         .says = CANNOT(1, 0) ": nop#0 will not fire: " SKIPPED("call#1")},
    };
    RUN_ALL(all, BATON_ERR_UNREACHABLE);
}

TEST(test_deadlock_blames_the_node_that_does_not_fire)
{
    stuck_t all[] = {
        /* A rank sends a message to itself. */
        {.ranks = {"r1", "s0<1 r1 s1<3 k"},
         .says = CANNOT(1, 0) ":\n"
                              "    rank 0: recv#0 waits for send#0 of rank 1, "
                              "which comes after recv#1\n"
                              "    rank 1: recv#1 waits for send#2 of rank 1\n"
                              "    rank 1: send#2 will not fire: call#3 "
                              "skipped"},
        {.ranks = {"r1", "s0<1 A1 k a1<2"},
         .says =
             CANNOT(1, 0) ":\n"
                          "    rank 0: recv#0 waits for send#0 of rank 1\n"
                          "    rank 1: send#0 comes after armed_recv#1, and "
                          "no rank activates it"},
        {.ranks = {"A1 n<0", "k a0<0"},
         .says = CANNOT(1, 0) ":\n"
                              "    rank 0: nop#1 comes after armed_recv#0, and "
                              "no rank activates it"},
        /* The send is optional, so its rank's epoch ends without it. */
        {.ranks = {"r1", "s0!<1 k"},
         .says = CANNOT(1, 0) ":\n"
                              "    rank 0: recv#0 waits for send#0 of rank 1\n"
                              "    rank 1 has ended epoch 1 without send#0"},
    };
    RUN_ALL(all, BATON_ERR_DEADLOCK);
}

/* ---- ranks that are missing --------------------------------------------- */

TEST(test_deadlock_blames_the_rank_that_is_absent)
{
    stuck_t all[] = {
        {.ranks = {"r1", "s0<1 r2", "s1"},
         .starts = {2, 2, 1},
         .says = CANNOT(2, 0) ":\n"
                              "    rank 0: recv#0 waits for send#0 of rank 1, "
                              "which comes after recv#1\n"
                              "    rank 1: recv#1 waits for send#0 of rank 2\n"
                              "    rank 2 has not started epoch 2"},
        /* The epoch is activated, but the send requires that its rank has
           started the epoch. */
        {.ranks = {"o a1<0 r1", "o A0 s0<0"},
         .starts = {1, 0},
         .says = CANNOT(1, 0) ":\n"
                              "    rank 0: recv#2 waits for send#2 of rank 1\n"
                              "    rank 1: send#2 comes after on_start#0, and "
                              "epoch 1 was not started there"},
        {.ranks = {"k a1<0 r1", "A0 s0"},
         .starts = {1, 0},
         .says = CANNOT(1, 0) ":\n"
                              "    rank 0: recv#2 waits for send#1 of rank 1\n"
                              "    rank 1 has not started epoch 1, and no rank "
                              "activates it"},
        {.ranks = {"o a1<0 r1", "A0 s0"},
         .starts = {3, 0},
         .limit = 2,
         .says = CANNOT(3, 0) ":\n"
                              "    rank 0: recv#2 waits for send#1 of rank 1\n"
                              "    rank 1 has not started epoch 3, which is "
                              "beyond its limit"},
        {.ranks = {"r1", "s0 r2", "s1"},
         .starts = {2, 1, 0},
         .says = CANNOT(2, 0) ":\n"
                              "    rank 0: recv#0 waits for send#0 of rank 1, "
                              "still in epoch 1, which comes after recv#1\n"
                              "    rank 1: recv#1 waits for send#0 of rank 2\n"
                              "    rank 2 has not started epoch 1"},
        /* All ranks that the failure reaches get the message of the rank that
           waited for the dead one. */
        {.ranks = {"r1", "s0<1 r2", "s1<1 r3", "s2"},
         .starts = {1, 1, 1, 0},
         .dead = 2,
         .says = "\"x\" epoch 1 failed at recv#1 on rank 1: rank 2 is gone: "
                 "the other rank is dead"},
    };
    RUN_ALL(all, BATON_ERR_DEADLOCK);
}
