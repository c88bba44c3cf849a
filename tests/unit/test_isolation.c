/* Schedules of the same ranks are independent. Each takes only its own
   messages, whatever happens to the others, and in whatever order ranks create
   them. */
#include "support/cluster.h"

enum { RANKS = 2, EPOCHS = 200 };

/* Two ranks exchange their numbers. */
typedef struct exchange {
    baton_schedule_t *schedule;
    uint64_t sent, got;
} exchange_t;

static void open_exchange(exchange_t *exchange, baton_group_t *group,
                          const char *name)
{
    baton_schedule_t *s = support_schedule(group, name);
    int peer = 1 - baton_group_rank(group);
    exchange->schedule = s;
    (void)baton_add_send(s, peer, support_view(s, &exchange->sent, 8));
    (void)baton_add_recv(s, peer, support_view(s, &exchange->got, 8));
    support_ok(baton_schedule_commit(s));
}

/* Runs epochs of an exchange on both ranks, from the main thread. */
static void expect_works(exchange_t exchanges[RANKS], uint64_t number)
{
    for (int rank = 0; rank < RANKS; rank++) {
        exchanges[rank].sent = number + (uint64_t)rank;
        support_ok(baton_schedule_start(exchanges[rank].schedule));
    }
    for (int rank = 0; rank < RANKS; rank++) {
        support_ends(exchanges[rank].schedule, BATON_OK);
        assert_int_equal(exchanges[rank].got, number + 1 - (uint64_t)rank);
    }
}

static void close_exchanges(exchange_t exchanges[RANKS])
{
    for (int rank = 0; rank < RANKS; rank++) {
        support_ok(baton_schedule_destroy(exchanges[rank].schedule));
    }
}

/* ---- another order ----------------------------------------------------- */

/* Rank 0 makes A, then B. Rank 1 makes B, then A. */
TEST_EACH(test_other_order_of_commits_swaps_no_data, RANKS)
{
    static const char *const names[] = {"A", "B"};
    exchange_t both[2][RANKS] = {{{0}}};
    for (int k = 0; k < 2; k++) {
        for (int rank = 0; rank < RANKS; rank++) {
            int which = rank == 0 ? k : 1 - k;
            open_exchange(&both[which][rank], cluster->groups[rank],
                          names[which]);
        }
    }
    for (uint64_t number = 1; number <= 20; number++) {
        expect_works(both[number % 2], number);
    }
    close_exchanges(both[0]);
    close_exchanges(both[1]);
}

/* ---- an unmatched receive ---------------------------------------------- */

/* Rank 0 waits in "lonely", which rank 1 never creates. Rank 0 must not take
   the messages of another schedule. */
TEST_EACH(test_unmatched_receive_takes_no_other_message, RANKS)
{
    exchange_t good[RANKS] = {{0}};
    uint64_t place = 5;
    baton_schedule_t *lonely = support_schedule(cluster->groups[0], "lonely");
    (void)baton_add_recv(lonely, 1, support_view(lonely, &place, 8));
    support_ok(baton_schedule_commit(lonely));
    support_ok(baton_schedule_start(lonely));
    for (int rank = 0; rank < RANKS; rank++) {
        open_exchange(&good[rank], cluster->groups[rank], "good");
    }
    for (uint64_t number = 1; number <= EPOCHS; number++) {
        expect_works(good, number);
    }
    support_times_out(lonely, 0, "\"lonely\"");
    support_says("recv#0 from rank 1");
    assert_int_equal(place, 5);
    support_ok(baton_schedule_cancel(lonely));
    support_ends(lonely, BATON_ERR_CANCELLED);
    support_ok(baton_schedule_destroy(lonely));
    expect_works(good, 1);
    close_exchanges(good);
}

/* ---- schedules that differ --------------------------------------------- */

/* The messages from rank 0 to rank 1 as each of the two has them, and the terms
   that each rank's builder states. */
static const struct {
    int counts[RANKS];
    size_t bytes[RANKS];
    const char *says;
    const char *terms[RANKS];
} differences[] = {
    {{2, 1}, {8, 8}, .says = "rank"},
    {{1, 0}, {8, 8}, .says = "rank"},
    {{1, 1}, {8, 16}, .says = "which receives 1 message of 16 bytes"},
    {{1, 1}, {100001, 100000}, .says = "receives 1 message of 100000 bytes"},
    {{1, 1}, {8, 8}, " has f32", {"tree, root 0, f32", "tree, root 0, f64"}},
    {{1, 1},
     {8, 8},
     " (both have \"sum\" before it)",
     {"sum, f32", "sum, f64"}},
    {{1, 1}, {8, 16}, " has nothing", {"sum", "sum, f64"}},
    {{1, 1}, {8, 8}, ": (by ring)", {"(by ring), root 0", "(by tree), root 1"}},
};

static unsigned char sent[100001], received[2][100001];

static void build_different(baton_schedule_t *s, size_t which)
{
    int rank = baton_schedule_rank(s);
    size_t bytes = differences[which].bytes[rank];
    if (differences[which].terms[rank] != NULL) {
        baton_schedule_agree(s, "%s", differences[which].terms[rank]);
    }
    for (int k = 0; k < differences[which].counts[rank]; k++) {
        (void)(rank == 0
                   ? baton_add_send(s, 1, support_view(s, sent, bytes))
                   : baton_add_recv(s, 0, support_view(s, received[k], bytes)));
    }
    if (differences[which].counts[rank] == 0) {
        /* The ranks also exchange messages. */
        (void)baton_add_send(s, 0, support_scratch(s, 8));
    }
}

/* Either the start fails, or the first epoch does: the rank that commits last
   learns of the difference first. The wait returns the error in both cases. */
static void expect_disagreement(baton_schedule_t *s, const char *says)
{
    baton_failure_t failure;
    (void)!baton_schedule_start(s);
    support_ends(s, BATON_ERR_MISMATCH);
    support_says("\"unequal\"");
    support_says("rank 0");
    support_says("rank 1");
    support_says(says);
    support_ok(baton_schedule_failure(s, &failure));
    assert_int_equal(failure.status, BATON_ERR_MISMATCH);
}

/* Both ranks fail with a message that names both of them. No vector is written,
   and a recovery does not help. Other schedules go on. */
TEST_EACH(test_mismatch_fails_both_and_names_them, RANKS)
{
    exchange_t good[RANKS] = {{0}};
    memset(sent, 0x5a, sizeof sent);
    for (int rank = 0; rank < RANKS; rank++) {
        open_exchange(&good[rank], cluster->groups[rank], "good");
    }
    for (size_t i = 0; i < sizeof differences / sizeof *differences; i++) {
        baton_schedule_t **s = support_schedules_create(cluster, "unequal");
        build_different(s[0], i);
        build_different(s[1], i);
        support_schedules_commit(cluster, s);
        expect_disagreement(s[0], differences[i].says);
        expect_disagreement(s[1], differences[i].says);
        expect_works(good, i);
        support_expect(baton_group_recover(cluster->groups[0], 0),
                       BATON_ERR_TIMEOUT);
        for (int rank = 1; rank >= 0; rank--) {
            support_fails(
                baton_group_recover(cluster->groups[rank], SUPPORT_WAIT_MS),
                BATON_ERR_FAILED, "\"unequal\" can't be recovered: ");
            expect_disagreement(s[rank], differences[i].says);
        }
        expect_works(good, i);
        support_schedules_destroy(cluster, s);
    }
    for (size_t i = 0; i < sizeof received; i++) {
        assert_int_equal(received[i / sizeof *received][i % sizeof *received],
                         0);
    }
    close_exchanges(good);
}

#define LONG                                                                   \
    "a term that fits into the notice of a rank but not with a remark as "     \
    "long"

/* The terms of the first pair of ranks fit into a notice. Those of the second
   pair do not. */
static const char *const remarked[][RANKS] = {
    {"sum, f32, lr 0.1", "(chosen), sum, (by tree), f32, lr 0.2"},
    {"(" LONG "), " LONG ", f32, lr 0.1", LONG ", (by tree), f32, lr 0.2"}};

/* A term in parentheses is a remark, which may differ between ranks. Checks the
   whole message, whichever rank finds the difference: it must not count a
   remark as a difference. */
TEST_EACH(test_mismatch_passes_over_remarks, RANKS)
{
    static const char *const differ[] = {"lr 0.1", "lr 0.2"};
    static const char *const before[] = {"sum, f32", LONG ", f32"};
    for (size_t i = 0; i < 2; i++) {
        baton_schedule_t **s = support_schedules_create(cluster, "unequal");
        support_message(s, 0, 1, sent, received[0], 8);
        baton_schedule_agree(s[0], "%s", remarked[i][0]);
        baton_schedule_agree(s[1], "%s", remarked[i][1]);
        support_schedules_commit(cluster, s);
        for (int rank = 0; rank < RANKS; rank++) {
            char text[320];
            (void)!baton_schedule_start(s[rank]);
            support_ends(s[rank], BATON_ERR_MISMATCH);
            int by = strstr(baton_error_message(), "on rank 1 and on") != NULL;
            (void)snprintf(text, sizeof text,
                           "\"unequal\" on rank %d and on rank %d differ: rank "
                           "%d has %s where rank %d has %s (both have \"%s\" "
                           "before it); must be the same on all ranks",
                           by, !by, by, differ[by], !by, differ[!by],
                           before[i]);
            const char *told = strstr(baton_error_message(), "\"unequal\" on");
            assert_non_null(told);
            assert_string_equal(told, text);
        }
        support_schedules_destroy(cluster, s);
    }
}

/* Rank 0 commits late, and waits for a rank that knows nothing of it and has
   ended an epoch. */
TEST_MANUALLY(test_mismatch_reaches_a_late_rank, 3)
{
    uint64_t numbers[3] = {1, 0, 0};
    baton_schedule_t **s = support_schedules_create(cluster, "late");
    support_message(s, 1, 2, &numbers[0], &numbers[1], 8);
    (void)baton_add_recv(s[0], 1, support_view(s[0], &numbers[2], 8));
    for (int rank = 1; rank < 3; rank++) {
        support_ok(baton_schedule_commit(s[rank]));
        support_ok(baton_schedule_start(s[rank]));
    }
    support_ok(baton_schedule_wait(s[2], SUPPORT_WAIT_MS));
    support_ok(baton_schedule_commit(s[0]));
    support_ok(baton_schedule_start(s[0]));
    support_expect(baton_schedule_wait(s[0], 1000), BATON_ERR_MISMATCH);
    support_schedules_destroy(cluster, s);
}

/* Rank 2 commits after the two ranks that differ have destroyed their
   schedules. */
TEST_EACH(test_mismatch_is_told_when_it_is_over, 3)
{
    static unsigned char memory[3][16];
    baton_schedule_t **s = support_schedules_create(cluster, "unequal");
    (void)baton_add_send(s[0], 1, support_view(s[0], memory[0], 8));
    (void)baton_add_recv(s[1], 0, support_view(s[1], memory[1], 16));
    (void)baton_add_send(s[0], 2, support_view(s[0], memory[0], 8));
    (void)baton_add_recv(s[2], 0, support_view(s[2], memory[2], 8));
    for (int rank = 0; rank < 2; rank++) {
        support_ok(baton_schedule_commit(s[rank]));
    }
    expect_disagreement(s[0], "differ");
    expect_disagreement(s[1], "differ");
    for (int rank = 0; rank < 2; rank++) {
        support_ok(baton_schedule_destroy(s[rank]));
        s[rank] = NULL;
    }
    support_ok(baton_schedule_commit(s[2]));
    expect_disagreement(s[2], "differ");
    support_schedules_destroy(cluster, s);
}

/* The second schedule of a name matches the other rank's second one, also when
   the first ones are destroyed. */
TEST_EACH(test_attempts_of_a_name_belong_together, RANKS)
{
    exchange_t first[RANKS] = {{0}};
    exchange_t second[RANKS] = {{0}};
    open_exchange(&first[0], cluster->groups[0], "again");
    open_exchange(&second[0], cluster->groups[0], "again");
    first[0].sent = 1;
    second[0].sent = 2;
    support_ok(baton_schedule_start(second[0].schedule));
    support_ok(baton_schedule_start(first[0].schedule));
    open_exchange(&first[1], cluster->groups[1], "again");
    first[1].sent = 3;
    support_run(first[1].schedule);
    assert_int_equal(first[1].got, 1);
    support_ends(first[0].schedule, BATON_OK);
    assert_int_equal(first[0].got, 3);
    close_exchanges(first);
    open_exchange(&second[1], cluster->groups[1], "again");
    second[1].sent = 4;
    support_run(second[1].schedule);
    assert_int_equal(second[1].got, 2);
    support_ends(second[0].schedule, BATON_OK);
    assert_int_equal(second[0].got, 4);
    close_exchanges(second);
}

/* Rank 1 waits for a schedule that rank 0 does not commit. Rank 0 destroys it,
   creates it only later, or destroys its group without having created it. Rank
   1 gets an error. */
TEST_EACH(test_peer_of_one_never_committed_is_told, RANKS)
{
    enum { CREATED, CREATED_LATER, NOT_CREATED, CASES };
    support_set_variable("BATON_DESTROY_MS", "100");
    for (int i = 0; i < CASES; i++) {
        exchange_t exchange = {0};
        baton_schedule_t *never = NULL;
        if (i == CREATED) {
            never = support_schedule(cluster->groups[0], "never");
        }
        open_exchange(&exchange, cluster->groups[1], "never");
        support_expect(baton_schedule_run(exchange.schedule, 50),
                       BATON_ERR_TIMEOUT);
        if (i == CREATED_LATER) {
            never = support_schedule(cluster->groups[0], "never");
        }
        support_ok(baton_schedule_destroy(never));
        if (i == NOT_CREATED) {
            support_ok(baton_group_destroy(cluster->groups[0]));
            cluster->groups[0] = NULL;
        }
        support_ends(exchange.schedule, BATON_ERR_STATE);
        support_says(i == NOT_CREATED
                         ? "the group, which lacked the schedule, was "
                           "destroyed on rank 0"
                         : "\"never\" was destroyed on rank 0");
        support_ok(baton_schedule_destroy(exchange.schedule));
    }
}
