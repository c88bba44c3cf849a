/* Epochs that are cancelled, or whose schedule is destroyed while they run. */
#include "base/config.h"
#include "support/cluster.h"
#include "support/cmocka.h"
#include "support/pair.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void set_timeout(const char *ms)
{
    if (ms != NULL) {
        setenv("BATON_DESTROY_MS", ms, 1);
    } else {
        unsetenv("BATON_DESTROY_MS");
    }
    baton__config_forget();
}

/* ---- cancel ----------------------------------------------------------- */

/* An async node that in odd epochs completes only when it is cancelled. */
static baton_status_t begin_odd(void *arg, baton_call_t *call,
                                baton_async_t async)
{
    *(baton_async_t *)arg = async;
    return baton_call_epoch(call) % 2 == 1 ? BATON_OK : BATON_DONE;
}

static void complete_odd(void *arg)
{
    support_ok(baton_async_complete(*(baton_async_t *)arg, BATON_OK));
}

static const baton_async_ops_t hangs_when_odd = {.start = begin_odd,
                                                 .cancel = complete_odd};

/* Odd epochs hang until they are cancelled. */
static baton_schedule_t *open_local(support_cluster_t *cluster,
                                    baton_async_t *begun)
{
    baton_schedule_t *s = support_schedule(cluster->groups[0], "local");
    (void)baton_add_async(s, &hangs_when_odd, begun);
    support_ok(baton_schedule_commit(s));
    return s;
}

static void test_cancel_ends_a_local_epoch(void **state)
{
    for (int i = 0; i < SUPPORT_VARIANTS; i++) {
        support_cluster_t *cluster = support_cluster_open(1, i);
        baton_async_t begun;
        baton_schedule_t *s = open_local(cluster, &begun);
        for (uint64_t epoch = 1; epoch <= 1000; epoch += 2) {
            support_ok(baton_schedule_start(s));
            support_ok(baton_schedule_cancel(s));
            support_expect(baton_schedule_wait(s, SUPPORT_WAIT_MS),
                           BATON_ERR_CANCELLED);
            assert_int_equal(baton_schedule_epoch(s), epoch);
            support_run(s);
        }
        support_ok(baton_schedule_destroy(s));
        support_cluster_close(cluster);
    }
}

/* A late cancel does not affect the next epoch. */
static void test_cancel_is_for_one_epoch(void **state)
{
    for (int i = 0; i < SUPPORT_VARIANTS; i++) {
        support_cluster_t *cluster = support_cluster_open(1, i);
        baton_schedule_t *s = support_schedule(cluster->groups[0], "race");
        (void)baton_add_nop(s);
        support_ok(baton_schedule_commit(s));
        for (int round = 0; round < 5000; round++) {
            support_ok(baton_schedule_start(s));
            baton_status_t status = baton_schedule_cancel(s);
            assert_true(status == BATON_OK || status == BATON_ERR_STATE);
            status = baton_schedule_wait(s, SUPPORT_WAIT_MS);
            assert_true(status == BATON_OK || status == BATON_ERR_CANCELLED);
            support_run(s);
        }
        support_ok(baton_schedule_destroy(s));
        support_cluster_close(cluster);
    }
}

static baton_status_t cancel_own(void *arg, baton_call_t *call)
{
    baton_schedule_t **own = arg;
    return baton_call_epoch(call) == 1 ? baton_schedule_cancel(*own) : BATON_OK;
}

/* Rank 1's first epoch ends in the step that cancels it, and the next one,
   whose messages are there, begins before the cancel is seen. */
static void test_cancel_is_not_for_the_epoch_behind(void **state)
{
    support_cluster_t *cluster = support_cluster_open(2, SUPPORT_OWN_MANUAL);
    baton_schedule_t *s[2];
    uint64_t numbers[2] = {7, 0};
    for (int rank = 0; rank < 2; rank++) {
        s[rank] = support_schedule(cluster->groups[rank], "behind");
        baton_node_t begin =
            baton_add_activation(s[rank], baton_add_on_start(s[rank]));
        baton_view_t number = support_view(s[rank], &numbers[rank], 8);
        if (rank == 0) {
            baton_before(s[0], begin, baton_add_send(s[0], 1, number));
        } else {
            baton_before(s[1], baton_add_recv(s[1], 0, number),
                         baton_add_call(s[1], cancel_own, &s[1]));
        }
        support_ok(baton_schedule_commit(s[rank]));
    }
    for (int step = 0; step < 100; step++) { /* ranks meet */
        (void)baton_engine_step(cluster->engines[step % 2]);
    }
    for (int epoch = 1; epoch <= 2; epoch++) {
        support_run(s[0]);
    }
    for (int epoch = 1; epoch <= 2; epoch++) {
        support_run(s[1]);
    }
    for (int rank = 0; rank < 2; rank++) {
        support_ok(baton_schedule_destroy(s[rank]));
    }
    support_cluster_close(cluster);
}

/* A reduction that a cancel cuts off in its middle begins anew in the next
   epoch. */
static void test_cancel_leaves_no_half_of_a_reduction(void **state)
{
    enum { COUNT = 1 << 18 };
    support_cluster_t *cluster = support_cluster_manual(1);
    uint64_t *one = calloc(COUNT, sizeof *one);
    uint64_t *sum = calloc(COUNT, sizeof *sum);
    assert_non_null(one);
    assert_non_null(sum);
    baton_schedule_t *s = support_schedule(cluster->groups[0], "half");
    baton_view_t from = support_view(s, one, COUNT * sizeof *one);
    baton_view_t to = support_view(s, sum, COUNT * sizeof *sum);
    (void)baton_add_reduce(s, BATON_U64, BATON_SUM, to, to, from);
    support_ok(baton_schedule_commit(s));
    support_ok(baton_schedule_start(s));
    (void)baton_engine_step(cluster->engines[0]);
    support_ok(baton_schedule_cancel(s));
    support_expect(baton_schedule_wait(s, SUPPORT_WAIT_MS),
                   BATON_ERR_CANCELLED);
    for (size_t i = 0; i < COUNT; i++) {
        one[i] = i + 1;
        sum[i] = 1;
    }
    support_run(s);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(sum[i], i + 2);
    }
    support_ok(baton_schedule_destroy(s));
    support_cluster_close(cluster);
    free(one);
    free(sum);
}

/* Runs epochs until one fails or can't be started. The peer's failure may
   arrive after some epochs have ended. */
static baton_status_t run_until_told(baton_schedule_t *schedule)
{
    baton_status_t status = BATON_OK;
    while (status == BATON_OK) {
        status = baton_schedule_start(schedule);
        if (status == BATON_OK) {
            status = baton_schedule_wait(schedule, SUPPORT_WAIT_MS);
        }
    }
    return status;
}

/* Rank 1 learns how epoch 1 of rank 0 ended, and its messages do not arrive. */
static void expect_told(support_pair_t *pair, const char *text)
{
    baton_failure_t failure;
    pair->sent = 9;
    baton_status_t status = run_until_told(pair->schedules[1]);
    assert_true(status == BATON_ERR_CANCELLED || status == BATON_ERR_FAILED);
    support_says(text);
    support_ok(baton_schedule_failure(pair->schedules[1], &failure));
    assert_int_equal(failure.status, BATON_ERR_CANCELLED);
    assert_int_equal(failure.rank, 0);
    assert_int_equal(failure.epoch, 1);
    assert_non_null(strstr(failure.message, text));
    assert_int_equal(pair->got, 0);
}

static void test_cancel_fails_a_schedule_with_messages(void **state)
{
    for (int i = 0; i < SUPPORT_VARIANTS; i++) {
        support_cluster_t *cluster = support_cluster_open(2, i);
        support_pair_t pair;
        support_pair_open(&pair, cluster, "given up");
        support_ok(baton_schedule_start(pair.schedules[0]));
        support_ok(baton_schedule_cancel(pair.schedules[0]));
        support_expect(baton_schedule_wait(pair.schedules[0], SUPPORT_WAIT_MS),
                       BATON_ERR_CANCELLED);
        support_expect(baton_schedule_cancel(pair.schedules[0]),
                       BATON_ERR_STATE);
        support_expect(baton_schedule_start(pair.schedules[0]),
                       BATON_ERR_FAILED);
        support_says("\"given up\" epoch 1 was cancelled on rank 0");
        expect_told(&pair, "\"given up\" epoch 1 was cancelled on rank 0");
        support_pair_close(&pair);
        support_cluster_close(cluster);
    }
}

/* ---- destroy ---------------------------------------------------------- */

/* The message never comes. After BATON_DESTROY_MS the epoch is cancelled, and
   the peer that would have sent it gets the cause. */
static void test_destroy_cancels_after_its_timeout(void **state)
{
    static const char *const timeouts[] = {"0", "10"};
    for (int i = 0; i < 2 * SUPPORT_VARIANTS; i++) {
        set_timeout(timeouts[i % 2]);
        support_cluster_t *cluster = support_cluster_open(2, i / 2);
        support_pair_t pair;
        support_pair_open(&pair, cluster, "abandoned");
        support_ok(baton_schedule_start(pair.schedules[0]));
        support_ok(baton_schedule_destroy(pair.schedules[0]));
        expect_told(&pair,
                    "\"abandoned\" was destroyed on rank 0 while epoch 1 "
                    "ran");
        support_ok(baton_schedule_destroy(pair.schedules[1]));
        support_cluster_close(cluster);
    }
    set_timeout(NULL);
}

/* Rank 1 never starts: rank 0's activation begins its epoch, whose async node
   is completed from outside. Behind it rank 1 answers.

       activation --> async --> send to rank 0                               */
typedef struct invited {
    baton_async_t async;
    atomic_bool begun, destroying;
    baton_schedule_t *schedule;
    baton_status_t status;
} invited_t;

static baton_status_t begin_invited(void *arg, baton_call_t *call,
                                    baton_async_t async)
{
    invited_t *invited = arg;
    invited->async = async;
    atomic_store(&invited->begun, true);
    return BATON_OK;
}

static const baton_async_ops_t invited_ops = {.start = begin_invited};

static void destroy_invited(void *arg)
{
    invited_t *invited = arg;
    atomic_store(&invited->destroying, true);
    invited->status = baton_schedule_destroy(invited->schedule);
}

static void test_destroy_waits_for_an_epoch_that_a_peer_began(void **state)
{
    set_timeout("60000");
    for (int i = 0; i < 20 * SUPPORT_VARIANTS; i++) {
        support_cluster_t *cluster = support_cluster_open(2, i / 20);
        invited_t invited = {.status = BATON_ERR_FAILED};
        baton_schedule_t *s[2];
        uint64_t numbers[2] = {0, 23};
        for (int rank = 0; rank < 2; rank++) {
            s[rank] = support_schedule(cluster->groups[rank], "invited");
            baton_node_t begin =
                baton_add_activation(s[rank], baton_add_on_start(s[rank]));
            baton_view_t number = support_view(s[rank], &numbers[rank], 8);
            if (rank == 0) {
                baton_before(s[0], begin, baton_add_recv(s[0], 1, number));
            } else {
                baton_node_t async =
                    baton_add_async(s[1], &invited_ops, &invited);
                baton_before(s[1], begin, async);
                baton_before(s[1], async, baton_add_send(s[1], 0, number));
            }
            support_ok(baton_schedule_commit(s[rank]));
        }
        invited.schedule = s[1];
        support_ok(baton_schedule_start(s[0]));
        while (!atomic_load(&invited.begun)) {
            (void)baton_engine_step(cluster->engines[0]);
            (void)baton_engine_step(cluster->engines[1]);
        }
        support_thread_t *thread =
            support_thread_start(destroy_invited, &invited);
        while (!atomic_load(&invited.destroying)) {
            sched_yield();
        }
        support_expect(baton_schedule_wait(s[0], i % 3), BATON_ERR_TIMEOUT);
        support_ok(baton_async_complete(invited.async, BATON_OK));
        support_thread_join(thread);
        support_ok(invited.status);
        support_ok(baton_schedule_wait(s[0], SUPPORT_WAIT_MS));
        assert_int_equal(numbers[0], 23);
        support_ok(baton_schedule_destroy(s[0]));
        support_cluster_close(cluster);
    }
    set_timeout(NULL);
}

/* A local epoch that hangs, a failed one, one never started. */
static void test_destroy_in_any_state(void **state)
{
    set_timeout("5");
    for (int i = 0; i < SUPPORT_VARIANTS; i++) {
        support_cluster_t *cluster = support_cluster_open(2, i);
        baton_async_t begun;
        support_ok(baton_schedule_destroy(open_local(cluster, &begun)));
        baton_schedule_t *s = open_local(cluster, &begun);
        support_ok(baton_schedule_start(s));
        support_ok(baton_schedule_destroy(s));
        s = open_local(cluster, &begun);
        support_ok(baton_schedule_start(s));
        support_ok(baton_schedule_cancel(s));
        support_ok(baton_schedule_destroy(s));
        s = support_schedule(cluster->groups[0], "raw");
        (void)baton_add_nop(s);
        support_ok(baton_schedule_destroy(s));
        support_cluster_close(cluster);
    }
    set_timeout(NULL);
}

/* An armed schedule whose epoch a peer began, and one that was never used. */
static void test_destroy_of_armed_schedules(void **state)
{
    set_timeout("5");
    for (int i = 0; i < SUPPORT_VARIANTS; i++) {
        for (int starts = 0; starts < 3; starts++) {
            support_cluster_t *cluster = support_cluster_open(3, i);
            baton_schedule_t *s[3];
            for (int rank = 0; rank < 3; rank++) {
                s[rank] = support_schedule(cluster->groups[rank], "armed");
                (void)baton_add_activation(s[rank],
                                           baton_add_on_start(s[rank]));
                support_ok(baton_schedule_commit(s[rank]));
            }
            for (int rank = 0; rank < starts; rank++) {
                support_run(s[rank]);
                support_run(s[rank]);
            }
            for (int rank = 0; rank < 3; rank++) {
                support_ok(baton_schedule_destroy(s[rank]));
            }
            support_cluster_close(cluster);
        }
    }
    set_timeout(NULL);
}

/* ---- long messages ---------------------------------------------------- */

enum { LONG = 1 << 22 }; /* moves in many parts */

/* Rank 0 sends LONG bytes to rank 1, which has them behind its own. */
static void open_long(support_cluster_t *cluster, baton_schedule_t **s,
                      char *memory)
{
    for (int rank = 0; rank < 2; rank++) {
        s[rank] = support_schedule(cluster->groups[rank], "long");
        baton_view_t view = support_view(s[rank], memory + rank * LONG, LONG);
        if (rank == 0) {
            (void)baton_add_send(s[0], 1, view);
        } else {
            (void)baton_add_recv(s[1], 0, view);
        }
        support_ok(baton_schedule_commit(s[rank]));
    }
}

/* A message that its receiver has not begun to take is withdrawn. The caller
   owns the memory again, and what it writes there does not arrive. */
static void test_destroy_takes_a_send_back(void **state)
{
    set_timeout("5");
    for (int i = 0; i < SUPPORT_VARIANTS; i++) {
        support_cluster_t *cluster = support_cluster_open(2, i);
        baton_schedule_t *s[2];
        char *memory = calloc(2, LONG);
        assert_non_null(memory);
        open_long(cluster, s, memory);
        support_ok(baton_schedule_start(s[0]));
        support_expect(baton_schedule_wait(s[0], 10), BATON_ERR_TIMEOUT);
        support_ok(baton_schedule_destroy(s[0]));
        memset(memory, 42, LONG);
        baton_status_t status = run_until_told(s[1]);
        assert_true(status == BATON_ERR_CANCELLED ||
                    status == BATON_ERR_FAILED);
        support_says("\"long\" was destroyed on rank 0 while epoch 1 ran");
        size_t arrived = 0;
        for (size_t at = LONG; at < 2 * (size_t)LONG; at++) {
            arrived += memory[at] != 0;
        }
        assert_int_equal(arrived, 0);
        support_ok(baton_schedule_destroy(s[1]));
        support_cluster_close(cluster);
        free(memory);
    }
    set_timeout(NULL);
}

/* Destroy does not wait longer for a message in flight whose receiver makes no
   progress. It returns an error, and other schedules work. */
static void test_destroy_tells_of_a_message_that_moves(void **state)
{
    support_cluster_t *cluster = support_cluster_open(2, SUPPORT_OWN_MANUAL);
    support_pair_t pair;
    baton_schedule_t *s[2];
    char *memory = calloc(2, LONG);
    assert_non_null(memory);
    memset(memory, 42, LONG);
    set_timeout("5");
    open_long(cluster, s, memory);
    support_pair_open(&pair, cluster, "beside");
    support_ok(baton_schedule_start(s[0]));
    support_ok(baton_schedule_start(s[1]));
    while (memory[LONG] == 0) {
        (void)baton_engine_step(cluster->engines[0]);
        (void)baton_engine_step(cluster->engines[1]);
    }
    assert_int_equal(memory[2 * LONG - 1], 0);
    support_expect(baton_schedule_destroy(s[0]), BATON_ERR_TIMEOUT);
    support_says(
        "destroy of \"long\" on rank 0: a message or an async node has "
        "not ended within 5 ms");
    assert_int_equal(memory[2 * LONG - 1], 0);

    support_expect(baton_schedule_wait(s[1], SUPPORT_WAIT_MS),
                   BATON_ERR_CANCELLED);
    support_says("\"long\" was destroyed on rank 0 while epoch 1 ran");
    assert_int_equal(memory[2 * LONG - 1], 42); /* what moved has ended */
    set_timeout(NULL);
    support_ok(baton_schedule_destroy(s[1]));
    support_ok(baton_schedule_start(pair.schedules[1]));
    support_ok(baton_schedule_start(pair.schedules[0]));
    for (bool done = false; !done;) {
        support_ok(baton_schedule_test(pair.schedules[1], &done));
        support_ok(baton_schedule_test(pair.schedules[0], &done));
    }
    support_pair_close(&pair);
    support_cluster_close(cluster);
    free(memory);
}

/* ---- peers that commit late ---------------------------------------------- */

enum { EARLY_EPOCHS = 3 };

/* Ranks 0 and 1 need nothing of rank 2 in their epochs, and it receives nothing
   of them, but sends. */
static baton_schedule_t *open_uneven(baton_group_t *group, uint64_t *number)
{
    baton_schedule_t *s = support_schedule(group, "uneven");
    baton_view_t view = support_view(s, number, sizeof *number);
    int rank = baton_group_rank(group);
    for (int peer = 0; peer < 2; peer++) {
        if (rank == 2) {
            (void)baton_add_send(s, peer, view);
        } else if (rank != peer) {
            (void)baton_add_send(s, peer, support_scratch(s, 1));
            (void)baton_add_recv(s, peer, support_scratch(s, 1));
        }
    }
    if (rank != 2) {
        baton_set_optional(s, baton_add_recv(s, 2, view));
    }
    support_ok(baton_schedule_commit(s));
    return s;
}

/* The ranks that destroy theirs have ended epochs in which a peer still may be:
   it had not even committed. Later epochs fail. */
static void test_destroy_before_a_peer_commits(void **state)
{
    for (int i = 0; i < SUPPORT_VARIANTS; i++) {
        support_cluster_t *cluster = support_cluster_open(3, i);
        uint64_t numbers[3] = {0};
        baton_schedule_t *s[3];
        for (int rank = 0; rank < 2; rank++) {
            s[rank] = open_uneven(cluster->groups[rank], &numbers[rank]);
        }
        for (int epoch = 0; epoch < EARLY_EPOCHS; epoch++) {
            support_ok(baton_schedule_start(s[0]));
            support_ok(baton_schedule_start(s[1]));
            support_ok(baton_schedule_wait(s[0], SUPPORT_WAIT_MS));
            support_ok(baton_schedule_wait(s[1], SUPPORT_WAIT_MS));
        }
        support_ok(baton_schedule_destroy(s[0]));
        support_ok(baton_schedule_destroy(s[1]));
        s[2] = open_uneven(cluster->groups[2], &numbers[2]);
        for (int epoch = 0; epoch < EARLY_EPOCHS; epoch++) {
            support_ok(baton_schedule_start(s[2]));
            support_ok(baton_schedule_wait(s[2], SUPPORT_WAIT_MS));
        }
        assert_int_not_equal(run_until_told(s[2]), BATON_OK);
        support_says("the schedule was destroyed on rank");
        assert_int_equal(baton_schedule_epoch(s[2]), EARLY_EPOCHS);
        support_ok(baton_schedule_destroy(s[2]));
        support_cluster_close(cluster);
    }
}

/* ---- peers that take no notice ------------------------------------------ */

enum { MANY = 200 };

typedef struct rank {
    baton_engine_t *engine; /* manual: nothing happens unless it is stepped */
    baton_group_t *group;
    baton_schedule_t *schedules[MANY];
    uint64_t number;
} rank_t;

static void open_rank(rank_t *self, baton_inproc_t *medium, int rank)
{
    baton_engine_options_t options = BATON_ENGINE_OPTIONS;
    options.progress = BATON_PROGRESS_MANUAL;
    support_ok(baton_engine_open(&options, &self->engine));
    support_ok(
        baton_group_create_inproc(self->engine, medium, rank, &self->group));
    for (int i = 0; i < MANY; i++) {
        baton_schedule_t *s = support_schedule(self->group, "one of many");
        baton_view_t view = support_view(s, &self->number, 8);
        (void)(rank == 0 ? baton_add_send(s, 1, view)
                         : baton_add_recv(s, 0, view));
        support_ok(baton_schedule_commit(s));
        self->schedules[i] = s;
    }
}

/* Destroy does not wait for a peer that is busy elsewhere, which is told all
   the same. */
static void test_destroy_does_not_wait_for_peers(void **state)
{
    baton_inproc_t *medium;
    rank_t ranks[2];
    set_timeout("86400000"); /* it would not end */
    support_ok(baton_inproc_create(2, &medium));
    for (int rank = 0; rank < 2; rank++) {
        open_rank(&ranks[rank], medium, rank);
    }
    for (int i = 0; i < 10 * MANY; i++) { /* all are introduced */
        (void)baton_engine_step(ranks[i % 2].engine);
    }
    for (int i = 0; i < MANY; i++) {
        support_ok(baton_schedule_destroy(ranks[0].schedules[i]));
    }
    for (int i = 0; i < 10 * MANY; i++) {
        (void)baton_engine_step(ranks[i % 2].engine);
    }
    for (int i = 0; i < MANY; i++) {
        support_expect(baton_schedule_start(ranks[1].schedules[i]),
                       BATON_ERR_FAILED);
        support_says("\"one of many\" was destroyed on rank 0");
        support_ok(baton_schedule_destroy(ranks[1].schedules[i]));
    }
    for (int rank = 0; rank < 2; rank++) {
        support_ok(baton_group_destroy(ranks[rank].group));
        support_ok(baton_engine_close(ranks[rank].engine));
    }
    support_ok(baton_inproc_destroy(medium));
    set_timeout(NULL);
}

/* Rank 1 is gone with its group before rank 0 commits: what rank 0 holds back
   for it has nobody to go to. */
static void test_group_that_leaves_ends_who_needs_it(void **state)
{
    support_cluster_t *cluster = support_cluster_open(2, SUPPORT_OWN_MANUAL);
    baton_schedule_t **s = support_schedules_create(cluster, "left");
    (void)baton_add_send(s[0], 1, support_scratch(s[0], 1));
    baton_set_optional(s[1], baton_add_recv(s[1], 0, support_scratch(s[1], 1)));
    support_ok(baton_schedule_commit(s[1]));
    support_ok(baton_schedule_start(s[1]));
    support_ok(baton_schedule_wait(s[1], SUPPORT_WAIT_MS));
    support_ok(baton_schedule_destroy(s[1]));
    support_ok(baton_group_destroy(cluster->groups[1]));
    cluster->groups[1] = NULL;
    s[1] = NULL;
    support_drain(cluster); /* rank 0 hears of it before it commits */
    support_ok(baton_schedule_commit(s[0]));
    baton_status_t status = baton_schedule_start(s[0]);
    if (status == BATON_OK) {
        status = baton_schedule_wait(s[0], SUPPORT_WAIT_MS);
    }
    assert_true(status != BATON_OK && status != BATON_ERR_TIMEOUT);
    support_schedules_destroy(cluster, s);
    support_cluster_close(cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cancel_ends_a_local_epoch),
        cmocka_unit_test(test_cancel_is_for_one_epoch),
        cmocka_unit_test(test_cancel_is_not_for_the_epoch_behind),
        cmocka_unit_test(test_cancel_leaves_no_half_of_a_reduction),
        cmocka_unit_test(test_cancel_fails_a_schedule_with_messages),
        cmocka_unit_test(test_destroy_cancels_after_its_timeout),
        cmocka_unit_test(test_destroy_waits_for_an_epoch_that_a_peer_began),
        cmocka_unit_test(test_destroy_in_any_state),
        cmocka_unit_test(test_destroy_of_armed_schedules),
        cmocka_unit_test(test_destroy_takes_a_send_back),
        cmocka_unit_test(test_destroy_tells_of_a_message_that_moves),
        cmocka_unit_test(test_destroy_before_a_peer_commits),
        cmocka_unit_test(test_destroy_does_not_wait_for_peers),
        cmocka_unit_test(test_group_that_leaves_ends_who_needs_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
