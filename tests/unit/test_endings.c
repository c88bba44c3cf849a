/* Epochs that are cancelled, or whose schedule is destroyed while they run. A
   rank tells its peers of both by notices, which are short messages. */
#include "progress/state/member.h"
#include "support/cluster.h"

#include <baton/coll.h>
#include <sched.h>

/* Sets BATON_DESTROY_MS for this test and those after it. */
static void set_timeout(const char *ms)
{
    support_set_variable("BATON_DESTROY_MS", ms);
}

static baton_node_t activation(baton_schedule_t *s)
{
    return baton_add_activation(s, baton_add_on_start(s));
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

TEST_EACH(test_cancel_ends_a_local_epoch, 1)
{
    baton_async_t begun;
    baton_schedule_t *s = open_local(cluster, &begun);
    for (uint64_t epoch = 1; epoch <= 1000; epoch += 2) {
        support_ok(baton_schedule_start(s));
        support_ok(baton_schedule_cancel(s));
        support_ends(s, BATON_ERR_CANCELLED);
        assert_int_equal(baton_schedule_epoch(s), epoch);
        support_run(s);
    }
    support_ok(baton_schedule_destroy(s));
}

static baton_status_t cancel_own(void *arg, baton_call_t *call)
{
    baton_schedule_t **own = arg;
    return baton_call_epoch(call) == 1 ? baton_schedule_cancel(*own) : BATON_OK;
}

/* The call node is the last node, or the peer has already ended its part. */
TEST_EACH(test_cancel_by_a_call_node_fails_its_own_epoch, 2)
{
    baton_schedule_t **s = support_schedules_create(cluster, "own");
    uint64_t numbers[2] = {7, 0};
    support_message(s, 0, 1, &numbers[0], &numbers[1], 8);
    baton_before(s[1], (baton_node_t){0},
                 baton_add_call(s[1], cancel_own, &s[1]));
    support_schedules_commit(cluster, s);
    support_ok(baton_schedule_start(s[0]));
    support_ok(baton_schedule_start(s[1]));
    support_ends(s[1], BATON_ERR_CANCELLED);
    support_says("\"own\" epoch 1 was cancelled on rank 1");
    support_schedules_destroy(cluster, s);
}

/* A cancel interrupts a reduction in the middle. In the next epoch the
   reduction begins anew. */
TEST_MANUALLY(test_cancel_leaves_no_half_of_a_reduction, 1)
{
    enum { COUNT = 1 << 18 };
    uint64_t *one = support_alloc(COUNT, sizeof *one);
    uint64_t *sum = support_alloc(COUNT, sizeof *sum);
    baton_schedule_t *s = support_schedule(cluster->groups[0], "half");
    baton_view_t from = support_view(s, one, COUNT * sizeof *one);
    baton_view_t to = support_view(s, sum, COUNT * sizeof *sum);
    (void)baton_add_reduce_local(s, BATON_U64, BATON_SUM, to, to, from);
    support_ok(baton_schedule_commit(s));
    support_ok(baton_schedule_start(s));
    (void)baton_engine_step(cluster->engines[0]);
    support_ok(baton_schedule_cancel(s));
    support_ends(s, BATON_ERR_CANCELLED);
    for (size_t i = 0; i < COUNT; i++) {
        one[i] = i + 1;
        sum[i] = 1;
    }
    support_run(s);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(sum[i], i + 2);
    }
    support_ok(baton_schedule_destroy(s));
    free(one);
    free(sum);
}

/* Rank 1 learns how epoch 1 ended on rank 0. The messages of that epoch do not
   arrive. */
static void expect_told(support_pair_t *pair, const char *text)
{
    baton_failure_t failure;
    pair->sent = 9;
    baton_status_t status = support_run_until_failure(pair->schedules[1]);
    assert_true(status == BATON_ERR_CANCELLED || status == BATON_ERR_FAILED);
    support_says(text);
    support_ok(baton_schedule_failure(pair->schedules[1], &failure));
    assert_int_equal(failure.status, BATON_ERR_CANCELLED);
    assert_int_equal(failure.rank, 0);
    assert_int_equal(failure.epoch, 1);
    assert_non_null(strstr(failure.message, text));
    assert_int_equal(pair->got, 0);
}

TEST_EACH(test_cancel_fails_a_schedule_with_messages, 2)
{
    support_pair_t pair;
    support_pair_open(&pair, cluster, "given up");
    support_ok(baton_schedule_start(pair.schedules[0]));
    support_ok(baton_schedule_cancel(pair.schedules[0]));
    support_ends(pair.schedules[0], BATON_ERR_CANCELLED);
    support_expect(baton_schedule_cancel(pair.schedules[0]), BATON_ERR_STATE);
    support_fails(baton_schedule_start(pair.schedules[0]), BATON_ERR_FAILED,
                  "\"given up\" epoch 1 was cancelled on rank 0; "
                  "baton_group_recover on all ranks recovers it");
    expect_told(&pair, "\"given up\" epoch 1 was cancelled on rank 0");
    support_pair_close(&pair);
}

/* ---- destroy ---------------------------------------------------------- */

/* The message never comes. After BATON_DESTROY_MS the epoch is cancelled, and
   the peer that would have sent it gets the cause. */
TEST_EACH(test_destroy_cancels_after_its_timeout, 2)
{
    for (int i = 0; i < 2; i++) {
        support_pair_t pair;
        set_timeout(i == 0 ? "0" : "10");
        support_pair_open(&pair, cluster, "abandoned");
        support_ok(baton_schedule_start(pair.schedules[0]));
        support_ok(baton_schedule_destroy(pair.schedules[0]));
        pair.schedules[0] = NULL;
        expect_told(&pair,
                    "\"abandoned\" was destroyed on rank 0 while epoch 1 ran");
        support_pair_close(&pair);
    }
}

/* Rank 1 never starts the schedule. Rank 0's activation begins its epoch, whose
   async node is completed from outside. Then rank 1 answers. activation -->
   async --> send to rank 0 */
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

TEST_EACH(test_destroy_waits_for_an_epoch_that_a_peer_began, 2)
{
    set_timeout("60000");
    for (int i = 0; i < 20; i++) {
        baton_schedule_t **s = support_schedules_create(cluster, "invited");
        invited_t invited = {.schedule = s[1], .status = BATON_ERR_FAILED};
        uint64_t numbers[2] = {0, 23};
        const baton_node_t message = {0};
        support_message(s, 1, 0, &numbers[1], &numbers[0], 8);
        baton_before(s[0], activation(s[0]), message);
        baton_node_t async = baton_add_async(s[1], &invited_ops, &invited);
        baton_before(s[1], activation(s[1]), async);
        baton_before(s[1], async, message);
        support_schedules_commit(cluster, s);
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
        support_ends(s[0], BATON_OK);
        assert_int_equal(numbers[0], 23);
        s[1] = NULL;
        support_schedules_destroy(cluster, s);
    }
}

/* ---- long messages ---------------------------------------------------- */

/* A message of this size is transferred in many parts. */
enum { LONG = 1 << 22 };

/* Rank 0 sends LONG bytes to rank 1. In memory the received bytes follow those
   that are sent. */
static baton_schedule_t **open_long(support_cluster_t *cluster, char **memory)
{
    baton_schedule_t **s = support_schedules_create(cluster, "long");
    *memory = support_alloc(2, LONG);
    support_message(s, 0, 1, *memory, *memory + LONG, LONG);
    support_schedules_commit(cluster, s);
    return s;
}

/* Withdraws a message that its receiver has not begun to take. The caller then
   owns the memory again, and values that it writes there do not arrive. */
TEST_EACH(test_destroy_takes_a_send_back, 2)
{
    char *memory;
    baton_schedule_t **s = open_long(cluster, &memory);
    set_timeout("5");
    support_expect(baton_schedule_run(s[0], 10), BATON_ERR_TIMEOUT);
    support_ok(baton_schedule_destroy(s[0]));
    memset(memory, 42, LONG);
    baton_status_t status = support_run_until_failure(s[1]);
    assert_true(status == BATON_ERR_CANCELLED || status == BATON_ERR_FAILED);
    support_says("\"long\" was destroyed on rank 0 while epoch 1 ran");
    for (size_t at = LONG; at < 2 * (size_t)LONG; at++) {
        assert_int_equal(memory[at], 0);
    }
    s[0] = NULL;
    support_schedules_destroy(cluster, s);
    free(memory);
}

/* Destroy does not wait longer than BATON_DESTROY_MS for a message whose
   receiver makes no progress. Then destroy returns an error, and other
   schedules still work. */
TEST_WITH(test_destroy_tells_of_a_message_that_moves, 2, SUPPORT_OWN_MANUAL)
{
    support_pair_t pair;
    char *memory;
    baton_schedule_t **s = open_long(cluster, &memory);
    set_timeout("5");
    memset(memory, 42, LONG);
    support_pair_open(&pair, cluster, "beside");
    support_ok(baton_schedule_start(s[0]));
    support_ok(baton_schedule_start(s[1]));
    while (memory[LONG] == 0) {
        (void)baton_engine_step(cluster->engines[0]);
        (void)baton_engine_step(cluster->engines[1]);
    }
    assert_int_equal(memory[2 * LONG - 1], 0);
    support_fails(
        baton_schedule_destroy(s[0]), BATON_ERR_TIMEOUT,
        "destroy of \"long\" on rank 0: a message or an async node has "
        "not ended within 5 ms");
    support_expect(baton_schedule_destroy(s[0]), BATON_ERR_TIMEOUT);
    assert_int_equal(memory[2 * LONG - 1], 0);

    support_ends(s[1], BATON_ERR_CANCELLED);
    support_says("\"long\" was destroyed on rank 0 while epoch 1 ran");
    /* By now the message has arrived. */
    assert_int_equal(memory[2 * LONG - 1], 42);
    while (baton_schedule_destroy(s[0]) == BATON_ERR_TIMEOUT) {
        (void)baton_engine_step(cluster->engines[0]);
    }
    s[0] = NULL;
    support_schedules_destroy(cluster, s);
    support_ok(baton_schedule_start(pair.schedules[1]));
    support_ok(baton_schedule_start(pair.schedules[0]));
    for (bool done = false; !done;) {
        support_ok(baton_schedule_test(pair.schedules[1], &done));
        support_ok(baton_schedule_test(pair.schedules[0], &done));
    }
    support_pair_close(&pair);
    free(memory);
}

static baton_status_t refuse_notice(void *endpoint, int peer,
                                    const baton_header_t *header,
                                    const void *data, size_t bytes)
{
    return BATON_AGAIN;
}

/* A message is in transfer, and there is no room to tell the peer of the
   end. */
TEST_WITH(test_destroy_leaves_no_notice_behind, 2, SUPPORT_OWN_MANUAL)
{
    char *memory;
    baton_schedule_t **s = open_long(cluster, &memory);
    baton_group_t *group = cluster->groups[0];
    const baton_transport_t *given = group->transport;
    baton_transport_t full = *given;
    full.notify = refuse_notice;
    set_timeout("5");
    memset(memory, 42, LONG);
    support_ok(baton_schedule_start(s[0]));
    support_ok(baton_schedule_start(s[1]));
    while (memory[LONG] == 0) {
        (void)baton_engine_step(cluster->engines[0]);
        (void)baton_engine_step(cluster->engines[1]);
    }
    group->transport = &full;
    support_expect(baton_schedule_destroy(s[0]), BATON_ERR_TIMEOUT);
    assert_null(baton__group_queue(group, 1)->due.head);
    assert_int_equal(baton__member_of(group)->due_count, 0);
    group->transport = given;
    while (baton_schedule_destroy(s[0]) == BATON_ERR_TIMEOUT) {
        (void)baton_engine_step(cluster->engines[0]);
        (void)baton_engine_step(cluster->engines[1]);
    }
    s[0] = NULL;
    support_schedules_destroy(cluster, s);
    free(memory);
}

/* ---- peers that commit late ---------------------------------------------- */

enum { EARLY_EPOCHS = 3 };

/* In their epochs ranks 0 and 1 need nothing from rank 2. Rank 2 receives
   nothing from them, but sends to them. */
static baton_schedule_t *open_uneven(baton_group_t *group)
{
    baton_schedule_t *s = support_schedule(group, "uneven");
    int rank = baton_group_rank(group);
    for (int peer = 0; peer < 2; peer++) {
        if (rank != peer) {
            (void)baton_add_send(s, peer, support_scratch(s, 1));
        }
        if (rank != peer && rank != 2) {
            (void)baton_add_recv(s, peer, support_scratch(s, 1));
        }
    }
    if (rank != 2) {
        baton_set_optional(s, baton_add_recv(s, 2, support_scratch(s, 1)));
    }
    support_ok(baton_schedule_commit(s));
    return s;
}

/* Ranks 0 and 1 destroy schedules whose epochs have ended. Rank 2 has not even
   committed the schedule yet, and runs the same epochs afterwards. The epoch
   after those fails. */
TEST_EACH(test_destroy_before_a_peer_commits, 3)
{
    baton_schedule_t *s[3] = {open_uneven(cluster->groups[0]),
                              open_uneven(cluster->groups[1])};
    for (int epoch = 0; epoch < EARLY_EPOCHS; epoch++) {
        support_ok(baton_schedule_start(s[0]));
        support_ok(baton_schedule_start(s[1]));
        support_ends(s[0], BATON_OK);
        support_ends(s[1], BATON_OK);
    }
    set_timeout("86400000"); /* destroy must not wait for the peer */
    support_ok(baton_schedule_destroy(s[0]));
    support_ok(baton_schedule_destroy(s[1]));
    s[2] = open_uneven(cluster->groups[2]);
    for (int epoch = 0; epoch < EARLY_EPOCHS; epoch++) {
        support_run(s[2]);
    }
    assert_int_not_equal(support_run_until_failure(s[2]), BATON_OK);
    support_says("was destroyed on rank");
    assert_int_equal(baton_schedule_epoch(s[2]), EARLY_EPOCHS);
    support_ok(baton_schedule_destroy(s[2]));
}

/* ---- peers that have no room for notices -------------------------------- */

enum { MANY = 200 };

/* Destroy does not wait for a peer that is busy elsewhere. The peer is told
   nevertheless. */
TEST_WITH(test_destroy_does_not_wait_for_peers, 2, SUPPORT_OWN_MANUAL)
{
    support_pair_t pairs[MANY];
    set_timeout("86400000"); /* if destroy waited, the test would not end */
    for (int i = 0; i < MANY; i++) {
        support_pair_open(&pairs[i], cluster, "one of many");
    }
    /* Ranks introduce all schedules to each other. */
    for (int i = 0; i < MANY; i++) {
        support_ok(baton_schedule_start(pairs[i].schedules[0]));
        support_ok(baton_schedule_start(pairs[i].schedules[1]));
    }
    support_drain(cluster);
    for (int i = 0; i < MANY; i++) {
        support_ok(baton_schedule_destroy(pairs[i].schedules[0]));
        pairs[i].schedules[0] = NULL;
    }
    support_drain(cluster);
    for (int i = 0; i < MANY; i++) {
        support_fails(baton_schedule_start(pairs[i].schedules[1]),
                      BATON_ERR_FAILED,
                      "\"one of many\" was destroyed on rank 0");
        support_pair_close(&pairs[i]);
    }
}

/* Rank 1 has destroyed its group before rank 0 commits. So rank 0 can never
   send the message that it holds back for rank 1. */
TEST_WITH(test_group_that_leaves_ends_who_needs_it, 2, SUPPORT_OWN_MANUAL)
{
    baton_schedule_t **s = support_schedules_create(cluster, "left");
    (void)baton_add_send(s[0], 1, support_scratch(s[0], 1));
    baton_set_optional(s[1], baton_add_recv(s[1], 0, support_scratch(s[1], 1)));
    support_ok(baton_schedule_commit(s[1]));
    support_ok(baton_schedule_start(s[1]));
    support_ends(s[1], BATON_OK);
    support_ok(baton_schedule_destroy(s[1]));
    support_ok(baton_group_destroy(cluster->groups[1]));
    cluster->groups[1] = NULL;
    s[1] = NULL;
    support_drain(cluster); /* rank 0 learns of it before it commits */
    support_ok(baton_schedule_commit(s[0]));
    baton_status_t status = baton_schedule_run(s[0], SUPPORT_WAIT_MS);
    assert_true(status != BATON_OK && status != BATON_ERR_TIMEOUT);
    support_schedules_destroy(cluster, s);
}
