/* Reports of hangs: the error of a wait that times out, and the warning about a
   stall. */
#include "base/clock.h"
#include "progress/membership/inquiry.h"
#include "support/cluster.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#define BYTES 64

/* Rank 0 has recv#0 from rank 1, and then nop#1. Rank 1 has the send. */
static baton_schedule_t **open_waiting(support_cluster_t *cluster,
                                       char memory[2][BYTES])
{
    baton_schedule_t **s = support_schedules_create(cluster, "awaited");
    support_message(s, 1, 0, memory[1], memory[0], BYTES);
    baton_before(s[0], (baton_node_t){0}, baton_add_nop(s[0]));
    support_schedules_commit(cluster, s);
    return s;
}

static const char *const awaited[] = {
    "\"awaited\"", "epoch 2", "rank 0 of 2", "recv#0 from rank 1",
    "64 bytes",    "tag ",    "nop#1",
};
#define AWAITED (sizeof(awaited) / sizeof(awaited[0]))

TEST_EACH(test_timeout_names_what_is_awaited, 2)
{
    static const int timeouts[] = {0, 5, 0};
    char memory[2][BYTES] = {{0}};
    baton_schedule_t **schedules = open_waiting(cluster, memory);
    support_schedules_run(cluster, schedules);

    support_ok(baton_schedule_start(schedules[0]));
    do { /* until the driver has taken the start */
        support_times_out(schedules[0], 0, "epoch 2");
    } while (strstr(baton_error_message(), "has not begun") != NULL);
    for (size_t t = 0; t < sizeof(timeouts) / sizeof(timeouts[0]); t++) {
        support_times_out(schedules[0], timeouts[t], awaited[0]);
        for (size_t a = 1; a < AWAITED; a++) {
            support_says(awaited[a]);
        }
        char text[64];
        snprintf(text, sizeof(text), "gave up after %d ms", timeouts[t]);
        bool says = strstr(baton_error_message(), text) != NULL;
        assert_int_equal(says, timeouts[t] > 0);
    }
    snprintf(memory[1], BYTES, "late, but here");
    support_run(schedules[1]);
    support_ends(schedules[0], BATON_OK);
    assert_string_equal(memory[0], "late, but here");
    support_schedules_destroy(cluster, schedules);
}

/* If many nodes wait, the error names the first eight, and four of the nodes
   after these. */
TEST_MANUALLY(test_timeout_names_some_of_many, 2)
{
    enum { MANY = 10 };
    char memory[2][MANY] = {{0}};
    baton_schedule_t **s = support_schedules_create(cluster, "many");
    for (int i = 0; i < MANY; i++) {
        support_message(s, 1, 0, memory[1], &memory[0][i], 1);
    }
    for (int i = 0; i < MANY; i++) {
        baton_before(s[0], (baton_node_t){i >= 6}, baton_add_nop(s[0]));
    }
    support_schedules_commit(cluster, s);
    support_ok(baton_schedule_start(s[0]));
    support_times_out(s[0], 0, "\"many\" epoch 1 has made no progress");
    support_says(" on rank 0 of 2\n"
                 "    waiting: recv#0 from rank 1, 1 bytes, tag 0; after it: "
                 "nop#10, nop#11, nop#12, nop#13 and 2 more\n"
                 "    waiting: recv#1 from rank 1, 1 bytes, tag 1; after it: "
                 "nop#16, nop#17, nop#18, nop#19\n"
                 "    waiting: recv#2 from rank 1, 1 bytes, tag 2\n");
    support_says("    waiting: recv#7 from rank 1, 1 bytes, tag 7\n"
                 "    and 2 more");
    support_ok(baton_schedule_start(s[1]));
    support_ends(s[0], BATON_OK);
    support_schedules_destroy(cluster, s);
}

/* Nothing is in flight, but a required node can never fire. */
static baton_status_t refuse(void *arg, baton_call_t *call)
{
    return BATON_SKIP;
}

TEST(test_branch_not_taken_fails_without_a_timeout)
{
    for (int i = 0; i < SUPPORT_VARIANTS; i++) {
        support_cluster_t *cluster = support_cluster_open(1, i);
        baton_schedule_t *s = support_schedule(cluster->groups[0], "branch");
        baton_node_t call = baton_add_call(s, refuse, NULL);
        baton_before(s, call, baton_add_nop(s));
        if (i % 2 == 1) {
            baton_before(s, baton_add_on_start(s), call);
        }
        support_ok(baton_schedule_commit(s));
        for (int epoch = 1; epoch <= 3; epoch++) {
            char text[128];
            support_expect(baton_schedule_run(s, -1), BATON_ERR_UNREACHABLE);
            snprintf(text, sizeof(text),
                     "\"branch\" epoch %d can't end on rank 0: nop#1 will not "
                     "fire: call#0 skipped",
                     epoch);
            support_says(text);
        }
        support_ok(baton_schedule_destroy(s));
        support_cluster_close(cluster);
    }
}

/* A call that blocks until it is released. */
typedef struct gate {
    atomic_bool inside, released;
} gate_t;

static baton_status_t pass_gate(void *arg, baton_call_t *call)
{
    gate_t *gate = arg;
    atomic_store(&gate->inside, true);
    while (!atomic_load(&gate->released)) {
        sched_yield();
    }
    atomic_store(&gate->inside, false);
    return BATON_OK;
}

/* With a progress thread a wait times out also while the engine runs a call of
   this schedule or of another one. */
TEST_VARIANTS(test_timeout_beside_a_long_call, 2, 1, SUPPORT_VARIANTS)
{
    for (int round = 0; round < 5; round++) {
        char memory[2][BYTES] = {{0}};
        gate_t gate = {false, false};
        baton_schedule_t **waiting = open_waiting(cluster, memory);
        baton_schedule_t *s = support_schedule(cluster->groups[0], "long");
        (void)baton_add_call(s, pass_gate, &gate);
        support_ok(baton_schedule_commit(s));
        support_ok(baton_schedule_start(waiting[0]));
        /* This start does not run the call. */
        support_ok(baton_schedule_start(s));
        while (!atomic_load(&gate.inside)) {
            sched_yield();
        }
        support_expect(baton_schedule_wait(s, 10), BATON_ERR_TIMEOUT);
        assert_true(atomic_load(&gate.inside));
        support_says("\"long\"");
        support_expect(baton_schedule_wait(waiting[0], 10), BATON_ERR_TIMEOUT);
        assert_true(atomic_load(&gate.inside));
        support_says("\"awaited\"");
        atomic_store(&gate.released, true);
        support_ends(s, BATON_OK);
        support_run(waiting[1]);
        support_ends(waiting[0], BATON_OK);
        support_ok(baton_schedule_destroy(s));
        support_schedules_destroy(cluster, waiting);
    }
}

/* The waiting thread itself takes the message before the call, and leaves the
   call to the progress thread. */
TEST_WITH(test_timeout_of_a_wait_that_drives_up_to_a_long_call, 2,
          SUPPORT_OWN_ENGINES)
{
    for (int round = 0; round < 5; round++) {
        baton_schedule_t **s = support_schedules_create(cluster, "long");
        gate_t gate = {false, false};
        support_message(s, 1, 0, NULL, NULL, 0);
        baton_before(s[0], (baton_node_t){0},
                     baton_add_call(s[0], pass_gate, &gate));
        support_schedules_commit(cluster, s);
        support_expect(baton_schedule_run(s[0], 1), BATON_ERR_TIMEOUT);
        support_ok(baton_schedule_start(s[1]));
        do {
            support_expect(baton_schedule_wait(s[0], 10), BATON_ERR_TIMEOUT);
        } while (!atomic_load(&gate.inside));
        support_expect(baton_schedule_wait(s[0], 10), BATON_ERR_TIMEOUT);
        assert_true(atomic_load(&gate.inside));
        atomic_store(&gate.released, true);
        support_ends(s[0], BATON_OK);
        support_ends(s[1], BATON_OK);
        support_schedules_destroy(cluster, s);
    }
}

/* ---- the end of the chain --------------------------------------------- */

enum { CHAIN = 4 };

/* Rank 0 waits for rank 3, rank 1 for rank 0, rank 2 for rank 1. (A circle is
   one of test_mistakes.c.) */
static void add_chain(baton_schedule_t **s)
{
    for (int from = 3; from < 3 + CHAIN - 1; from++) {
        support_message(s, from % CHAIN, (from + 1) % CHAIN, NULL, NULL, 0);
    }
    for (int rank = 0; rank < CHAIN - 1; rank++) {
        baton_before(s[rank], (baton_node_t){0},
                     rank < 2 ? (baton_node_t){1} : baton_add_nop(s[rank]));
    }
}

/* Waits for an epoch that can't end, until the error contains this text. Each
   wait asks the other ranks anew. On a loaded machine answers take long, so the
   waits get longer. */
static void expect_chain(baton_schedule_t *schedule, const char *text)
{
    int timeout_ms = 50;
    do {
        timeout_ms = timeout_ms < 2000 ? 2 * timeout_ms : timeout_ms;
        support_expect(baton_schedule_wait(schedule, timeout_ms),
                       BATON_ERR_TIMEOUT);
    } while (strstr(baton_error_message(), text) == NULL);
}

static baton_status_t begin_late(void *arg, baton_call_t *call,
                                 baton_async_t async)
{
    *(baton_async_t *)arg = async;
    return BATON_OK;
}

TEST_EACH(test_timeout_names_the_rank_at_the_end_of_the_chain, CHAIN)
{
    static const baton_async_ops_t late = {.start = begin_late};
    baton_async_t async;
    baton_schedule_t *s[CHAIN];
    for (int rank = 0; rank < CHAIN - 1; rank++) {
        s[rank] = support_schedule(cluster->groups[rank], "chain");
    }
    s[3] = support_schedule(cluster->groups[3], "other");
    add_chain(s);
    for (int rank = 0; rank < CHAIN - 1; rank++) {
        support_ok(baton_schedule_commit(s[rank]));
        support_ok(baton_schedule_start(s[rank]));
    }
    expect_chain(s[2], "\n    rank 3 has not created it; ranks 0, 1, 2 "
                       "have");
    support_ok(baton_schedule_destroy(s[3]));
    s[3] = support_schedule(cluster->groups[3], "chain");
    baton_node_t begun = baton_add_async(s[3], &late, &async);
    baton_before(s[3], begun,
                 baton_add_send(s[3], 0, support_view(s[3], NULL, 0)));
    expect_chain(s[2], "\n    rank 3 has not committed it; ranks 0, 1, 2 "
                       "have");
    support_ok(baton_schedule_commit(s[3]));
    expect_chain(s[1], "\n    rank 3 has not started epoch 1 of \"chain\"; "
                       "ranks 0, 1 have");
    support_ok(baton_schedule_start(s[3]));
    expect_chain(s[0], "\n    rank 3 has not ended async#0, which was "
                       "begun; rank 0 has");
    support_ok(baton_async_complete(async, BATON_OK));
    for (int rank = 0; rank < CHAIN; rank++) {
        support_ends(s[rank], BATON_OK);
    }
    support_ok(baton_schedule_start(s[1]));
    support_ok(baton_schedule_start(s[0]));
    expect_chain(s[1], "\n    rank 3 has not started epoch 2 of \"chain\"; "
                       "ranks 0, 1 have");
    support_ok(baton_schedule_cancel(s[0]));
    for (int rank = 0; rank < CHAIN; rank++) {
        support_ok(baton_schedule_destroy(s[rank]));
    }
}

/* Rank 1 waits in another schedule, which the message names. */
TEST_EACH(test_timeout_names_the_other_wait_of_a_rank, 3)
{
    baton_schedule_t **a = support_schedules_create(cluster, "a");
    baton_schedule_t **b = support_schedules_create(cluster, "b");
    support_message(a, 1, 0, NULL, NULL, 0);
    support_message(b, 2, 1, NULL, NULL, 0);
    support_ok(baton_schedule_commit(a[0]));
    support_schedules_commit(cluster, b);
    support_ok(baton_schedule_start(b[1]));
    support_ok(baton_schedule_start(a[0]));
    atomic_store(&baton__task_of(b[1])->waiters, 1); /* as if a thread waited */
    expect_chain(a[0], "rank 1 has not committed it (in a wait for epoch 1 of "
                       "\"b\"); rank 0 has");
    support_ok(baton_schedule_commit(a[1]));
    expect_chain(a[0], "rank 1 has not started epoch 1 of \"a\" (in a wait for "
                       "epoch 1 of \"b\"); rank 0 has");
    atomic_store(&baton__task_of(b[1])->waiters, 0);
    support_ok(baton_schedule_start(b[2]));
    support_ends(b[1], BATON_OK);
    support_ok(baton_schedule_start(a[1]));
    support_ends(a[0], BATON_OK);
    support_schedules_destroy(cluster, a);
    support_schedules_destroy(cluster, b);
}

/* A rank without a progress thread that is in no call does not answer. */
TEST_WITH(test_timeout_names_a_rank_that_does_not_answer, 2, SUPPORT_OWN_MANUAL)
{
    char memory[2][BYTES];
    baton_schedule_t **s = open_waiting(cluster, memory);
    support_ok(baton_schedule_start(s[0]));
    expect_chain(s[0], "\n    rank 1 has not answered: it may wait for a "
                       "processor, be in a long call node or in MPI, be out of "
                       "reach, or have no progress thread; rank 0 has");
    support_run(s[1]);
    support_ends(s[0], BATON_OK);
    support_schedules_destroy(cluster, s);
}

/* ---- the stall report ------------------------------------------------- */

typedef struct journal {
    pthread_mutex_t lock;
    int warnings;
    char last[1100];
} journal_t;

static void note(void *arg, baton_log_level_t level, const char *message)
{
    journal_t *journal = arg;
    pthread_mutex_lock(&journal->lock);
    if (level == BATON_LOG_WARN) {
        journal->warnings++;
        snprintf(journal->last, sizeof(journal->last), "%s", message);
    }
    pthread_mutex_unlock(&journal->lock);
}

static int warnings(journal_t *journal)
{
    pthread_mutex_lock(&journal->lock);
    int count = journal->warnings;
    pthread_mutex_unlock(&journal->lock);
    return count;
}

/* If the machine lets no rank run for two of these periods, a rank reports what
   another one would have reported. */
#define STALL_MS "300"

/* A stall is logged once. With a progress thread this also happens if no thread
   waits. It never happens for an epoch that makes progress. */
TEST(test_stall_is_reported_to_the_log)
{
    journal_t journal = {.lock = PTHREAD_MUTEX_INITIALIZER};
    baton_log_set(note, &journal);
    support_set_variable("BATON_STALL_MS", "5");
    for (int threaded = 0; threaded < 2; threaded++) {
        support_cluster_t *cluster = support_cluster_open(2, threaded);
        char memory[2][BYTES] = {{0}};
        baton_schedule_t **schedules = open_waiting(cluster, memory);
        support_schedules_run(cluster, schedules);
        int before = warnings(&journal);
        support_ok(baton_schedule_start(schedules[0]));
        for (int i = 0, after = 0; after < 20; i++) {
            assert_true(i < 1000);
            after += warnings(&journal) > before;
            if (threaded != 0) {
                sched_yield();
                nanosleep(&(struct timespec){0, 10000000}, NULL);
            } else {
                support_expect(baton_schedule_wait(schedules[0], 10),
                               BATON_ERR_TIMEOUT);
            }
        }
        assert_int_equal(warnings(&journal), before + 1);
        pthread_mutex_lock(&journal.lock);
        for (size_t a = 0; a < AWAITED; a++) {
            if (strstr(journal.last, awaited[a]) == NULL) {
                fail_msg("\"%s\" is not in: %s", awaited[a], journal.last);
            }
        }
        pthread_mutex_unlock(&journal.lock);
        support_run(schedules[1]);
        support_ends(schedules[0], BATON_OK);
        support_schedules_destroy(cluster, schedules);
        support_cluster_close(cluster);
    }
    baton_log_set(NULL, NULL);
}

/* A stall is also logged if another rank had asked about the epoch before, and
   reported nothing, since it made progress. Introductions of other schedules
   are not progress of this one. */
TEST(test_stall_is_reported_after_a_false_alarm)
{
    journal_t journal = {.lock = PTHREAD_MUTEX_INITIALIZER};
    char memory[2][BYTES] = {{0}};
    support_set_variable("BATON_STALL_MS", "5");
    support_cluster_t *cluster = support_cluster_open(2, SUPPORT_MANUAL);
    baton_log_set(note, &journal);
    baton_schedule_t **s = open_waiting(cluster, memory);
    support_schedules_run(cluster, s);
    baton__task_of(s[0])->reporter =
        (baton__reporter_t){.schedule = baton__task_of(s[0])->identity,
                            .at_ns = baton__clock_ns(),
                            .rank = 1};
    support_expect(baton_schedule_run(s[0], 0), BATON_ERR_TIMEOUT);
    const uint64_t progress = baton__progress_of(s[0]);
    baton_schedule_t **other = support_schedules_create(cluster, "other");
    support_message(other, 1, 0, NULL, NULL, 0);
    support_schedules_commit(cluster, other);
    support_schedules_run(cluster, other);
    assert_int_equal(baton__progress_of(s[0]), progress);
    support_schedules_destroy(cluster, other);
    for (int i = 0; strstr(journal.last, "\"awaited\" epoch 2") == NULL; i++) {
        assert_true(i < 200);
        support_expect(baton_schedule_wait(s[0], 10), BATON_ERR_TIMEOUT);
    }
    baton_log_set(NULL, NULL);
    support_run(s[1]);
    support_ends(s[0], BATON_OK);
    support_schedules_destroy(cluster, s);
    support_cluster_close(cluster);
}

/* Rank 1 was the first to ask, and was stopped before its report, so rank 0
   reports. When rank 1 continues, it asks again, and leaves the report to rank
   0. */
TEST(test_stall_is_reported_if_the_first_that_asked_is_stopped)
{
    journal_t journal = {.lock = PTHREAD_MUTEX_INITIALIZER};
    const baton__rank_state_t answer = {
        .epoch = 1, .progress = 7, .first = 1, .await_count = 1, .awaits = {2}};
    support_set_variable("BATON_STALL_MS", STALL_MS);
    support_cluster_t *cluster = support_cluster_open(3, SUPPORT_OWN_MANUAL);
    baton_schedule_t **s = support_schedules_create(cluster, "stopped");
    support_message(s, 2, 0, NULL, NULL, 0);
    support_message(s, 2, 1, NULL, NULL, 0);
    support_schedules_commit(cluster, s);
    baton__task_t *first = baton__task_of(s[1]);
    support_ok(baton_schedule_start(s[0]));
    support_ok(baton_schedule_start(s[1]));
    while (first->inquiries < 2) { /* two rounds of questions */
        support_expect(baton_schedule_wait(s[1], 1), BATON_ERR_TIMEOUT);
    }
    baton_log_set(note, &journal);
    baton__inquiry_take(s[1], 0, &answer);
    first->logged_level = 0; /* a long wait may have changed this */
    baton__task_of(s[0])->reporter =
        (baton__reporter_t){.schedule = first->identity,
                            .at_ns = baton__clock_ns(),
                            .progress = baton__progress_of(s[0]),
                            .rank = 1};
    for (int i = 0; warnings(&journal) == 0; i++) {
        assert_true(i < 200);
        support_expect(baton_schedule_wait(s[0], 30), BATON_ERR_TIMEOUT);
    }
    assert_non_null(strstr(journal.last, "on rank 0 of 3"));
    for (int i = 0; first->logged_level == 0; i++) {
        support_expect(baton_schedule_wait(s[i % 2], 5), BATON_ERR_TIMEOUT);
    }
    assert_int_equal(first->logged_level, BATON_LOG_INFO);
    baton_log_set(NULL, NULL);
    support_run(s[2]);
    support_ends(s[0], BATON_OK);
    support_ends(s[1], BATON_OK);
    support_schedules_destroy(cluster, s);
    support_cluster_close(cluster);
}

/* A rank that makes progress between two of its answers has not stalled. So
   ranks that wait for it have not stalled, either. */
TEST_WITH(test_stall_is_none_while_a_peer_goes_on, 2, SUPPORT_OWN_MANUAL)
{
    char memory[2][BYTES] = {{0}};
    baton_schedule_t **s = open_waiting(cluster, memory);
    support_expect(baton_schedule_run(s[0], 0), BATON_ERR_TIMEOUT);
    baton__rank_state_t peer = {.epoch = 1, .progress = 7, .await_count = 1};
    for (int round = 0; round < 4; round++) {
        peer.progress += round == 2; /* after that it makes no progress again */
        baton__inquiry_begin(baton__task_of(s[0]), true);
        assert_int_equal(baton__inquiry_saw_progress(baton__task_of(s[0])),
                         false);
        baton__inquiry_take(s[0], 1, &peer);
        assert_int_equal(baton__inquiry_saw_progress(baton__task_of(s[0])),
                         round == 2);
    }
    support_run(s[1]);
    support_ends(s[0], BATON_OK);
    support_schedules_destroy(cluster, s);
}

enum { BUCKETS = 4 };

/* A rank has waited so long that it asks, and ranks 0 to `last` answer. Returns
   true if it leaves the report to another rank. */
static bool leaves_report(support_cluster_t *cluster,
                          baton_schedule_t *schedule, int last)
{
    support_expect(baton_schedule_wait(schedule, 100), BATON_ERR_TIMEOUT);
    for (int rank = 0; rank <= last; rank++) {
        (void)baton_engine_step(cluster->engines[rank]);
    }
    (void)baton_engine_step(baton_group_engine(schedule->group));
    return baton__inquiry_leaves_report(baton__task_of(schedule));
}

/* All ranks wait for one rank, in several schedules. Each stall is reported by
   the rank that asks first, although questions about the schedules mix. This is
   also true if the awaited rank does not answer. */
TEST(test_stall_of_several_schedules_is_left_to_one)
{
    support_set_variable("BATON_STALL_MS", NULL);
    support_cluster_t *cluster = support_cluster_open(3, SUPPORT_OWN_MANUAL);
    for (int last = 0; last < 3; last += 2) {
        baton_schedule_t *s[BUCKETS][3];
        for (int k = 0; k < BUCKETS; k++) {
            for (int rank = 0; rank < 3; rank++) {
                s[k][rank] = support_schedule(cluster->groups[rank], "bucket");
            }
            support_message(s[k], 2, 0, NULL, NULL, 0);
            support_message(s[k], 2, 1, NULL, NULL, 0);
            support_schedules_commit(cluster, s[k]);
            support_ok(baton_schedule_start(s[k][0]));
            support_ok(baton_schedule_start(s[k][1]));
        }
        for (int turn = 0; turn < 4; turn++) { /* two rounds of questions */
            for (int k = 0; k < BUCKETS; k++) {
                assert_int_equal(
                    leaves_report(cluster, s[k][(turn + k) % 2], last),
                    turn % 2);
            }
        }
        for (int k = 0; k < BUCKETS; k++) {
            support_run(s[k][2]);
            support_ends(s[k][0], BATON_OK);
            support_ends(s[k][1], BATON_OK);
            for (int rank = 0; rank < 3; rank++) {
                support_ok(baton_schedule_destroy(s[k][rank]));
            }
        }
    }
    support_cluster_close(cluster);
}

/* Expects that one rank reports a stall. If the machine lets ranks run too
   rarely, another one reports it, too; then all is repeated. */
static void expect_one_report(int (*count_reports)(void))
{
    int reports = 0;
    for (int tries = 0; tries < 4 && reports != 1; tries++) {
        reports = count_reports();
    }
    assert_int_equal(reports, 1);
}

/* Two ranks wait for ranks that have not committed the schedule. One of the two
   reports it. */
static int count_reports_before_the_commit(void)
{
    journal_t journal = {.lock = PTHREAD_MUTEX_INITIALIZER};
    support_set_variable("BATON_STALL_MS", STALL_MS);
    support_cluster_t *cluster = support_cluster_open(4, SUPPORT_MANUAL);
    baton_schedule_t **s = support_schedules_create(cluster, "uncommitted");
    for (int rank = 2; rank < 4; rank++) {
        support_message(s, rank - 2, rank, NULL, NULL, 0);
        support_ok(baton_schedule_commit(s[rank]));
        support_ok(baton_schedule_start(s[rank]));
    }
    baton_log_set(note, &journal);
    for (int i = 0; i < 60; i++) { /* each round asks about one of them */
        support_expect(baton_schedule_wait(s[2], 30), BATON_ERR_TIMEOUT);
    }
    baton_log_set(NULL, NULL);
    for (int rank = 0; rank < 2; rank++) {
        support_ok(baton_schedule_commit(s[rank]));
        support_run(s[rank]);
    }
    support_ends(s[2], BATON_OK);
    support_ends(s[3], BATON_OK);
    support_schedules_destroy(cluster, s);
    support_cluster_close(cluster);
    return journal.warnings;
}

TEST(test_stall_before_the_commit_is_reported_by_one)
{
    expect_one_report(count_reports_before_the_commit);
}

/* Two ranks ask by turns about several schedules that are not committed yet.
   One of the two reports all of them. */
TEST(test_stalls_before_the_commits_are_left_to_one)
{
    baton_schedule_t **s[BUCKETS];
    support_set_variable("BATON_STALL_MS", NULL);
    support_cluster_t *cluster = support_cluster_open(4, SUPPORT_OWN_MANUAL);
    for (int k = 0; k < BUCKETS; k++) {
        s[k] = support_schedules_create(cluster, "uncommitted");
        for (int rank = 2; rank < 4; rank++) {
            support_message(s[k], 0, rank, NULL, NULL, 0);
            support_ok(baton_schedule_commit(s[k][rank]));
            support_ok(baton_schedule_start(s[k][rank]));
        }
    }
    for (int rank = 2; rank < 4; rank++) {
        for (int k = 0; k < BUCKETS; k++) {
            assert_int_equal(leaves_report(cluster, s[k][rank], 0), rank == 3);
        }
    }
    for (int k = 0; k < BUCKETS; k++) {
        support_schedules_destroy(cluster, s[k]);
    }
    support_cluster_close(cluster);
}

/* Rank 1 waits for rank 0 in epoch 1, and rank 2 for rank 1 in epoch 2. Rank 1
   has asked first, so rank 2 leaves the report to rank 1, even when rank 1 has
   not asked for 6 s. But if rank 0 has made progress since rank 1 asked, rank 2
   reports. */
TEST(test_stall_in_two_epochs_is_left_to_one)
{
    support_set_variable("BATON_STALL_MS", NULL);
    support_cluster_t *cluster = support_cluster_open(3, SUPPORT_OWN_MANUAL);
    baton_schedule_t **s = support_schedules_create(cluster, "two");
    support_message(s, 0, 1, NULL, NULL, 0);
    support_message(s, 1, 2, NULL, NULL, 0);
    support_schedules_commit(cluster, s);
    support_ok(baton_schedule_start(s[1]));
    support_ok(baton_schedule_start(s[2]));
    while (baton_schedule_wait(s[2], 1) != BATON_OK) {
        (void)baton_engine_step(cluster->engines[1]);
    }
    support_ok(baton_schedule_start(s[2]));
    assert_false(leaves_report(cluster, s[1], 0));
    assert_true(leaves_report(cluster, s[2], 0));
    baton__task_of(s[0])->reporter.at_ns -= UINT64_C(6000000000);
    assert_true(leaves_report(cluster, s[2], 0));
    baton__task_of(s[0])->reporter.progress--;
    assert_false(leaves_report(cluster, s[2], 0));
    support_schedules_destroy(cluster, s);
    support_cluster_close(cluster);
}

enum { MANY = 32 };

/* Many ranks wait for one another in a chain, and one of them reports it. The
   last rank of a chain asks all others. */
static int count_reports_of_many(void)
{
    journal_t journal = {.lock = PTHREAD_MUTEX_INITIALIZER};
    support_set_variable("BATON_STALL_MS", STALL_MS);
    support_cluster_t *cluster = support_cluster_manual(MANY);
    baton_schedule_t **s = support_schedules_create(cluster, "many");
    for (int rank = 1; rank < MANY; rank++) {
        support_message(s, rank - 1, rank, NULL, NULL, 0);
        if (rank > 1) {
            baton_before(s[rank - 1], (baton_node_t){0}, (baton_node_t){1});
        }
    }
    support_schedules_commit(cluster, s);
    baton_log_set(note, &journal);
    for (int rank = 1; rank < MANY; rank++) {
        support_ok(baton_schedule_start(s[rank]));
    }
    expect_chain(s[MANY - 1], "\n    rank 0 has not started epoch 1 of "
                              "\"many\"; ranks 1, 2, 3, 4, 5, ");
    /* The schedule that was created last. */
    baton_schedule_t *last = s[1];
    for (int i = 0; i < 5 * MANY; i++) { /* each round asks about one of them */
        support_expect(baton_schedule_wait(last, 30), BATON_ERR_TIMEOUT);
    }
    baton_log_set(NULL, NULL);
    support_run(s[0]);
    support_ends(s[MANY - 1], BATON_OK);
    support_schedules_destroy(cluster, s);
    support_cluster_close(cluster);
    return journal.warnings;
}

TEST(test_stall_of_many_ranks_is_reported_by_one)
{
    expect_one_report(count_reports_of_many);
}
