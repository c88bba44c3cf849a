/* Schedules that are started again before their last epoch has ended: examples
   of each rule, and random programs of up to five ranks, which are compared
   with a model. Also waits beside which a program polls something else. */
#include "support/sim.h"

#include <baton/coll.h>
#include <poll.h>
#include <sched.h>

enum { TOTAL = 40, MOST_RANKS = 5 };

/* ---- a rank of a random program --------------------------------------- */

/* Each epoch has a source and a target of its own. */
typedef struct part {
    int rank, size;
    uint32_t depth;
    baton_schedule_t *schedule;
    uint64_t sources[TOTAL + 1], targets[TOTAL + 1];
    uint64_t started;
    uint64_t failing; /* the epoch that fails on this rank, or 0 */
    bool stopped;     /* the rank's schedule has failed */
    /* The driver writes these fields. They are read when all epochs have
       ended. */
    atomic_ullong ended;
    atomic_int outcomes[TOTAL + 1];
    atomic_bool wrong;
} part_t;

static void note_end(void *arg, uint64_t epoch, baton_status_t status)
{
    part_t *part = arg;
    if (epoch != atomic_load(&part->ended) + 1 || epoch > TOTAL) {
        atomic_store(&part->wrong, true);
        return;
    }
    atomic_store(&part->outcomes[epoch], (int)status);
    atomic_store(&part->ended, epoch);
}

static baton_status_t fail_if_asked(void *arg, baton_call_t *call)
{
    const part_t *part = arg;
    return baton_call_epoch(call) == part->failing ? BATON_ERR_SYSTEM
                                                   : BATON_OK;
}

static uint64_t value(int rank, uint64_t epoch)
{
    return ((uint64_t)rank + 1) * 1000 + epoch;
}

static uint64_t sum(int size, uint64_t epoch)
{
    uint64_t all = 0;
    for (int r = 0; r < size; r++) {
        all += value(r, epoch);
    }
    return all;
}

/* call -> all-reduce */
static void make(part_t *part, baton_group_t *group)
{
    baton_schedule_t *s = support_schedule(group, "queued");
    baton_view_t source = {baton_buffer_bind_input(s, NULL, 8), 0, 8};
    baton_view_t target = {baton_buffer_bind(s, NULL, 8), 0, 8};
    baton_node_t call = baton_add_call(s, fail_if_asked, part);
    baton_node_t last = baton_add_nop(s);
    baton_enclosure_t enclosure = baton_enclose_begin(s);
    baton_add_allreduce(
        s, &(baton_allreduce_args_t){.size = sizeof(baton_allreduce_args_t),
                                     .source = source,
                                     .target = target,
                                     .dtype = BATON_U64,
                                     .op = BATON_SUM});
    baton_enclose_end(s, enclosure, call, last);
    baton_schedule_set_depth(s, part->depth);
    baton_schedule_on_end(s, note_end, part);
    support_ok(baton_schedule_commit(s));
    part->schedule = s;
}

static void start_one(part_t *part)
{
    uint64_t epoch = part->started + 1;
    if (part->stopped || epoch > TOTAL) {
        return;
    }
    uint64_t before = baton_schedule_epoch(part->schedule);
    part->sources[epoch] = value(part->rank, epoch);
    baton_status_t status = baton_schedule_rebind(
        part->schedule, &part->sources[epoch], &part->targets[epoch]);
    if (status == BATON_OK) {
        status = baton_schedule_start(part->schedule);
    }
    switch ((int)status) {
    case BATON_OK:
        part->started = epoch;
        assert_true(epoch - baton_schedule_epoch(part->schedule) <=
                    part->depth);
        break;
    case BATON_ERR_BUSY:
        assert_true(part->started - before >= part->depth);
        break;
    default:
        support_expect(status, BATON_ERR_FAILED);
        part->stopped = true;
    }
    assert_int_equal(baton_schedule_started(part->schedule), part->started);
}

/* Checks an epoch that has ended or failed. */
static void check_epoch(const part_t *part, uint64_t epoch,
                        baton_status_t status)
{
    if (status == BATON_OK) {
        assert_int_equal(part->targets[epoch], sum(part->size, epoch));
    } else {
        support_expect(status, BATON_ERR_SYSTEM);
    }
}

static void test_one(part_t *part, support_random_t *random)
{
    uint64_t flight = part->started < part->depth ? part->started : part->depth;
    if (flight == 0) {
        return;
    }
    uint64_t epoch = part->started - support_random_below(random, flight);
    bool done = false;
    baton_status_t status =
        baton_schedule_test_epoch(part->schedule, epoch, &done);
    if (status != BATON_OK || done) {
        check_epoch(part, epoch, status);
    }
}

static void finish(part_t *part)
{
    if (part->started == 0) {
        return;
    }
    uint64_t oldest =
        part->started > part->depth ? part->started - part->depth + 1 : 1;
    for (uint64_t epoch = oldest; epoch <= part->started; epoch++) {
        baton_status_t status =
            baton_schedule_wait_epoch(part->schedule, epoch, SUPPORT_WAIT_MS);
        check_epoch(part, epoch, status);
        while (atomic_load(&part->ended) < epoch) {
            (void)!baton_schedule_wait(part->schedule, 0);
        }
        assert_int_equal(atomic_load(&part->outcomes[epoch]), status);
    }
    assert_false(atomic_load(&part->wrong));
    assert_int_equal(atomic_load(&part->ended), part->started);
}

/* Checks what can still be learned of how each epoch ended, after epoch
   `failing` has failed. */
static void check_outcomes(const part_t *part, uint64_t failing)
{
    bool failed = false;
    for (uint64_t epoch = 1; epoch <= part->started; epoch++) {
        int status = atomic_load(&part->outcomes[epoch]);
        check_epoch(part, epoch, (baton_status_t)status);
        assert_true(epoch >= failing || status == BATON_OK);
        assert_true(epoch != failing || status == BATON_ERR_SYSTEM);
        /* After a failed epoch, at least the epochs that had been started by
           then fail, too. A rank that is alone in its group can go on. */
        assert_true(part->size == 1 || !failed || status == BATON_ERR_SYSTEM);
        failed |= status != BATON_OK;
    }
}

static bool is_over(const part_t *parts, int size)
{
    for (int r = 0; r < size; r++) {
        if (!parts[r].stopped && parts[r].started < TOTAL) {
            return false;
        }
    }
    return true;
}

static void run_round(part_t *parts, support_cluster_t *cluster,
                      support_random_t *random, uint64_t failing)
{
    while (!is_over(parts, cluster->size)) {
        part_t *part =
            &parts[support_random_below(random, (uint64_t)cluster->size)];
        switch (support_random_below(random, 8)) {
        case 0:
        case 1:
            test_one(part, random);
            break;
        case 2: /* start as many as the depth allows */
            for (uint32_t i = 0; i < part->depth; i++) {
                start_one(part);
            }
            break;
        default:
            start_one(part);
        }
    }
    for (int r = 0; r < cluster->size; r++) {
        finish(&parts[r]);
        check_outcomes(&parts[r], failing);
    }
}

static void recover(part_t *parts, support_cluster_t *cluster)
{
    for (int r = 0; r + 1 < cluster->size; r++) {
        (void)!baton_group_recover(cluster->groups[r], 0);
    }
    for (int r = cluster->size - 1; r >= 0; r--) {
        support_ok(baton_group_recover(cluster->groups[r], SUPPORT_WAIT_MS));
        parts[r].started = 0;
        parts[r].failing = 0;
        parts[r].stopped = false;
        atomic_store(&parts[r].ended, 0);
        memset(parts[r].targets, 0, sizeof parts[r].targets);
    }
}

static void fuzz(int size, int variant, uint64_t seed)
{
    static const uint32_t depths[] = {1, 2, 8};
    static part_t parts[MOST_RANKS];
    support_random_t random = support_random(seed, (uint64_t)variant);
    support_cluster_t *cluster = support_cluster_open(size, variant);
    memset(parts, 0, sizeof parts);
    for (int r = 0; r < size; r++) {
        parts[r].rank = r;
        parts[r].size = size;
        parts[r].depth = depths[support_random_below(&random, 3)];
        make(&parts[r], cluster->groups[r]);
    }
    uint64_t failing = 1 + support_random_below(&random, TOTAL);
    parts[support_random_below(&random, (uint64_t)size)].failing = failing;
    run_round(parts, cluster, &random, failing);
    recover(parts, cluster);
    run_round(parts, cluster, &random, UINT64_MAX);
    for (int r = 0; r < size; r++) {
        support_ok(baton_schedule_destroy(parts[r].schedule));
    }
    support_cluster_close(cluster);
}

TEST(test_queued_random_programs)
{
    enum { ROUNDS = 4 };
    for (uint64_t round = 0; round < ROUNDS; round++) {
        for (int size = 1; size <= MOST_RANKS; size++) {
            for (int variant = 0; variant < SUPPORT_VARIANTS; variant++) {
                fuzz(size, variant,
                     support_seed() + round * 100 + (uint64_t)size);
            }
        }
    }
}

/* ---- examples ---------------------------------------------------------- */

/* Rank 1 sends to rank 0, as in a support_pair, but with a depth above 1. */
typedef struct queue {
    baton_schedule_t *schedules[2];
    baton_buffer_t buffers[2];
    uint64_t ends[2];
    baton_status_t last[2];
} queue_t;

static void count_end(void *arg, uint64_t epoch, baton_status_t status)
{
    uint64_t *ends = arg;
    /* The engine is manual, so this runs in the test's thread. */
    assert_int_equal(epoch, *ends + 1);
    ++*ends;
}

static void queue_open(queue_t *queue, support_cluster_t *cluster,
                       uint32_t depth)
{
    memset(queue, 0, sizeof *queue);
    for (int r = 0; r < 2; r++) {
        baton_schedule_t *s = support_schedule(cluster->groups[r], "queue");
        queue->buffers[r] = baton_buffer_bind(s, NULL, 8);
        baton_view_t view = baton_view(queue->buffers[r], 0, 8);
        (void)(r == 0 ? baton_add_recv(s, 1, view)
                      : baton_add_send(s, 0, view));
        baton_schedule_set_depth(s, depth);
        baton_schedule_on_end(s, count_end, &queue->ends[r]);
        support_ok(baton_schedule_commit(s));
        queue->schedules[r] = s;
    }
}

static void queue_close(const queue_t *queue)
{
    support_ok(baton_schedule_destroy(queue->schedules[0]));
    support_ok(baton_schedule_destroy(queue->schedules[1]));
}

static void queue_start(const queue_t *queue, int rank, uint64_t *word)
{
    support_ok(baton_buffer_rebind(queue->schedules[rank], queue->buffers[rank],
                                   word));
    support_ok(baton_schedule_start(queue->schedules[rank]));
}

TEST_MANUALLY(test_queued_starts_pair_by_their_number, 2)
{
    queue_t queue;
    uint64_t sent[3] = {5, 6, 7}, got[3] = {0};
    bool done = true;
    queue_open(&queue, cluster, 3);
    for (int i = 0; i < 3; i++) {
        queue_start(&queue, 0, &got[i]);
    }
    support_fails(baton_schedule_start(queue.schedules[0]), BATON_ERR_BUSY,
                  "3 epochs have been started");
    assert_int_equal(baton_schedule_started(queue.schedules[0]), 3);
    queue_start(&queue, 1, &sent[0]);
    support_expect(
        baton_schedule_wait_epoch(queue.schedules[0], 1, SUPPORT_WAIT_MS),
        BATON_OK);
    assert_int_equal(got[0], 5);
    support_ok(baton_schedule_test_epoch(queue.schedules[0], 2, &done));
    assert_false(done);
    support_expect(baton_schedule_wait(queue.schedules[0], 0),
                   BATON_ERR_TIMEOUT);
    queue_start(&queue, 1, &sent[1]);
    queue_start(&queue, 1, &sent[2]);
    support_ends(queue.schedules[0], BATON_OK);
    support_ends(queue.schedules[1], BATON_OK);
    assert_int_equal(got[1], 6);
    assert_int_equal(got[2], 7);
    assert_int_equal(queue.ends[0], 3);
    queue_close(&queue);
}

TEST_MANUALLY(test_queued_cancel_gives_up_all, 2)
{
    queue_t queue;
    uint64_t words[2] = {0};
    queue_open(&queue, cluster, 2);
    queue_start(&queue, 0, &words[0]);
    queue_start(&queue, 0, &words[1]);
    support_ok(baton_schedule_cancel(queue.schedules[0]));
    support_expect(
        baton_schedule_wait_epoch(queue.schedules[0], 1, SUPPORT_WAIT_MS),
        BATON_ERR_CANCELLED);
    support_ends(queue.schedules[0], BATON_ERR_CANCELLED);
    assert_int_equal(queue.ends[0], 2);
    support_expect(baton_schedule_start(queue.schedules[0]), BATON_ERR_FAILED);
    support_drain(cluster);
    support_expect(baton_schedule_start(queue.schedules[1]), BATON_ERR_FAILED);
    queue_close(&queue);
    assert_int_equal(queue.ends[0], 2);
}

TEST_MANUALLY(test_queued_recovery_ends_all, 2)
{
    queue_t queue;
    uint64_t sent = 9, words[2] = {0};
    queue_open(&queue, cluster, 2);
    queue_start(&queue, 0, &words[0]);
    queue_start(&queue, 0, &words[1]);
    (void)!baton_group_recover(cluster->groups[1], 0);
    support_ok(baton_group_recover(cluster->groups[0], SUPPORT_WAIT_MS));
    support_ok(baton_group_recover(cluster->groups[1], SUPPORT_WAIT_MS));
    assert_int_equal(queue.ends[0], 2);
    support_expect(baton_schedule_wait_epoch(queue.schedules[0], 2, 0),
                   BATON_ERR_CANCELLED);
    assert_int_equal(baton_schedule_started(queue.schedules[0]), 0);
    queue.ends[0] = 0;
    queue_start(&queue, 0, &words[1]);
    support_expect(baton_schedule_wait_epoch(queue.schedules[0], 2, 0),
                   BATON_ERR_STATE);
    queue_start(&queue, 1, &sent);
    support_ends(queue.schedules[0], BATON_OK);
    assert_int_equal(words[1], 9);
    queue_close(&queue);
}

static void add_end(void *arg, uint64_t epoch, baton_status_t status)
{
    (void)atomic_fetch_add((atomic_int *)arg, 1);
}

static void cancel(void *schedule)
{
    support_ok(baton_schedule_cancel(schedule));
}

/* The schedule has many buffers, so that a start takes as long as a cancel. */
TEST_WITH(test_queued_start_beside_a_failure, 2, SUPPORT_OWN_ENGINES)
{
    enum { BUFFERS = 50000, ROUNDS = 40 };
    uint64_t words[2];
    atomic_int ends = 0;
    baton_schedule_t **s = support_schedules_create(cluster, "beside");
    support_message(s, 1, 0, &words[1], &words[0], 8);
    for (int i = 0; i < BUFFERS; i++) {
        (void)baton_buffer_bind(s[0], words, 8);
    }
    for (int r = 0; r < 2; r++) {
        baton_schedule_set_depth(s[r], 2);
    }
    baton_schedule_on_end(s[0], add_end, &ends);
    support_schedules_commit(cluster, s);
    for (int i = 0; i < ROUNDS; i++) {
        ends = 0;
        support_ok(baton_schedule_start(s[0]));
        support_thread_t *thread = support_thread_start(cancel, s[0]);
        int expected = 1 + (baton_schedule_start(s[0]) == BATON_OK);
        support_thread_join(thread);
        for (int ms = 0; ends < expected && ms < SUPPORT_WAIT_MS; ms++) {
            (void)poll(NULL, 0, 1);
        }
        assert_int_equal(ends, expected);
        support_cluster_recover(cluster);
    }
    support_schedules_destroy(cluster, s);
}

TEST_MANUALLY(test_queued_destroy_ends_all, 2)
{
    queue_t queue;
    uint64_t words[3] = {0};
    support_set_variable("BATON_DESTROY_MS", "40");
    queue_open(&queue, cluster, 3);
    for (int i = 0; i < 3; i++) {
        queue_start(&queue, 0, &words[i]);
    }
    queue_close(&queue);
    support_set_variable("BATON_DESTROY_MS", NULL);
    assert_int_equal(queue.ends[0], 3);
    assert_int_equal(queue.ends[1], 0);
}

/* In a schedule without messages, a failed epoch and those after it retire, and
   others may follow. */
static baton_status_t begin_once(void *arg, baton_call_t *call,
                                 baton_async_t async)
{
    *(baton_async_t *)arg = async;
    return baton_call_epoch(call) == 1 ? BATON_OK : BATON_DONE;
}

TEST_MANUALLY(test_queued_failure_alone_ends_what_waits_behind, 1)
{
    const baton_async_ops_t ops = {.start = begin_once};
    baton_async_t begun;
    uint64_t ends = 0;
    baton_schedule_t *s = support_schedule(cluster->groups[0], "alone");
    (void)baton_add_async(s, &ops, &begun);
    /* More epochs than are kept without a depth. */
    baton_schedule_set_depth(s, 12);
    baton_schedule_on_end(s, count_end, &ends);
    support_ok(baton_schedule_commit(s));
    for (int i = 0; i < 12; i++) {
        support_ok(baton_schedule_start(s));
    }
    support_ok(baton_async_complete(begun, BATON_ERR_SYSTEM));
    support_ends(s, BATON_ERR_SYSTEM);
    assert_int_equal(ends, 12);
    support_run(s);
    for (uint64_t epoch = 2; epoch <= 13; epoch++) {
        support_expect(baton_schedule_wait_epoch(s, epoch, 0),
                       epoch <= 12 ? BATON_ERR_SYSTEM : BATON_OK);
    }
    assert_int_equal(ends, 13);
    support_ok(baton_schedule_destroy(s));
}

/* ---- starts by calls and on_end functions ------------------------------ */

typedef struct starter {
    baton_schedule_t *schedule;
    uint64_t sources[8], targets[8];
    int starts, most;
} starter_t;

static baton_status_t start_next(starter_t *starter)
{
    int i = starter->starts++;
    starter->sources[i] = (uint64_t)i + 10;
    baton_status_t status = baton_schedule_rebind(
        starter->schedule, &starter->sources[i], &starter->targets[i]);
    return status == BATON_OK ? baton_schedule_start(starter->schedule)
                              : status;
}

static baton_status_t start_three(void *arg, baton_call_t *call)
{
    baton_status_t status = BATON_OK;
    for (int i = 0; i < 3 && status == BATON_OK; i++) {
        status = start_next(arg);
    }
    return status;
}

static void start_again(void *arg, uint64_t epoch, baton_status_t status)
{
    starter_t *starter = arg;
    support_ok(status);
    if (starter->starts < starter->most) {
        support_ok(start_next(starter));
    }
}

TEST_MANUALLY(test_queued_starts_from_calls_and_ends, 1)
{
    starter_t starter = {.most = 8};
    uint64_t nothing[2] = {0};
    support_ok(baton_allreduce_create(cluster->groups[0],
                                      &(baton_operands_t){.source = &nothing[0],
                                                          .target = &nothing[1],
                                                          .count = 1,
                                                          .dtype = BATON_U64,
                                                          .op = BATON_SUM,
                                                          .depth = 3},
                                      &starter.schedule));
    baton_schedule_on_end(starter.schedule, start_again, &starter);
    baton_schedule_t *caller = support_schedule(cluster->groups[0], "caller");
    (void)baton_add_call(caller, start_three, &starter);
    support_ok(baton_schedule_commit(caller));
    support_run(caller);
    while (baton_schedule_epoch(starter.schedule) < 8) {
        support_ends(starter.schedule, BATON_OK);
    }
    for (uint64_t i = 0; i < 8; i++) {
        assert_int_equal(starter.targets[i], i + 10);
    }
    assert_int_equal(nothing[1], 0);
    support_ok(baton_schedule_destroy(caller));
    support_ok(baton_schedule_destroy(starter.schedule));
}

/* ---- waits beside something else --------------------------------------- */

/* The third call starts the schedule for which the other rank waits. */
typedef struct beside {
    baton_schedule_t *peer, *own;
    int turns;
    baton_status_t stop; /* the status that the third call returns */
} beside_t;

static baton_status_t take_turn(void *arg)
{
    beside_t *beside = arg;
    bool done = false;
    if (++beside->turns != 3) {
        return BATON_OK;
    }
    baton_status_t status = baton_schedule_test(beside->own, &done);
    if (status == BATON_OK && !done && beside->peer != NULL) {
        status = baton_schedule_start(beside->peer);
    }
    return status == BATON_OK ? beside->stop : status;
}

static void run_beside(void *arg)
{
    beside_t *beside = arg;
    beside->stop =
        baton_schedule_wait_with(beside->own, 0, -1, take_turn, beside);
}

TEST_EACH(test_wait_with_calls_while_it_waits, 2)
{
    support_pair_t pair;
    support_pair_open(&pair, cluster, "pair");
    beside_t beside = {.peer = pair.schedules[1], .own = pair.schedules[0]};
    for (uint64_t epoch = 1; epoch <= 3; epoch++) {
        beside.turns = 0;
        support_ok(baton_schedule_start(beside.own));
        support_ok(baton_schedule_wait_with(beside.own, epoch, SUPPORT_WAIT_MS,
                                            take_turn, &beside));
        assert_true(beside.turns >= 3);
        support_ends(beside.peer, BATON_OK);
    }
    support_pair_close(&pair);
}

TEST_EACH(test_wait_with_ends_by_its_function, 2)
{
    support_pair_t pair;
    support_pair_open(&pair, cluster, "pair");
    beside_t beside = {.own = pair.schedules[0], .stop = BATON_DONE};
    support_ok(baton_schedule_start(beside.own));
    support_expect(baton_schedule_wait_with(beside.own, 0, SUPPORT_WAIT_MS,
                                            take_turn, &beside),
                   BATON_DONE);
    assert_int_equal(beside.turns, 3);
    do { /* until the error can name the awaited message */
        support_expect(
            baton_schedule_wait_with(beside.own, 0, 1, take_turn, &beside),
            BATON_ERR_TIMEOUT);
    } while (strstr(baton_error_message(), "the engine is busy") != NULL);
    support_says("recv#0 from rank 1");
    assert_true(beside.turns > 3);
    support_ok(baton_schedule_start(pair.schedules[1]));
    support_ends(beside.own, BATON_OK);
    beside.turns = 0;
    support_ok(baton_schedule_wait_with(beside.own, 1, -1, take_turn, &beside));
    assert_int_equal(beside.turns, 0); /* the epoch had ended already */
    support_expect(baton_schedule_wait_with(beside.own, 2, -1, take_turn, NULL),
                   BATON_ERR_STATE);
    support_pair_close(&pair);
}

/* If two threads wait, one of them drives. The function of the other one is
   called, too. */
TEST_WITH(test_wait_with_calls_beside_another_wait, 2, SUPPORT_OWN_ENGINES)
{
    support_pair_t pair;
    support_pair_open(&pair, cluster, "pair");
    beside_t beside[2] = {
        {.own = pair.schedules[0]},
        {.own = pair.schedules[0], .peer = pair.schedules[1]}};
    support_ok(baton_schedule_start(pair.schedules[0]));
    support_thread_t *first = support_thread_start(run_beside, &beside[0]);
    support_thread_t *second = support_thread_start(run_beside, &beside[1]);
    support_thread_join(first);
    support_thread_join(second);
    support_ok(beside[0].stop);
    support_ok(beside[1].stop);
    support_ends(pair.schedules[1], BATON_OK);
    support_pair_close(&pair);
}

/* A thread that polls leaves nothing armed. The progress thread takes over when
   it no longer polls. */
TEST_WITH(test_step_leaves_work_for_the_thread, 2, SUPPORT_OWN_ENGINES)
{
    support_pair_t pair;
    support_pair_open(&pair, cluster, "pair");
    for (uint64_t epoch = 1; epoch <= 20; epoch++) {
        support_ok(baton_schedule_start(pair.schedules[0]));
        (void)baton_engine_step(cluster->engines[0]);
        support_ok(baton_schedule_start(pair.schedules[1]));
        (void)baton_engine_step(cluster->engines[1]);
        while (baton_schedule_epoch(pair.schedules[0]) < epoch) {
            if (epoch % 2 == 0) {
                (void)baton_engine_step(cluster->engines[0]);
            } else {
                (void)sched_yield();
            }
        }
        support_ends(pair.schedules[1], BATON_OK);
    }
    support_pair_close(&pair);
}

/* ---- misuse ------------------------------------------------------------ */

TEST_MANUALLY(test_queued_refuses_what_makes_no_sense, 2)
{
    static const uint32_t wrong[] = {0, BATON_MAX_DEPTH + 1};
    for (int i = 0; i < 2; i++) {
        baton_schedule_t *s = support_schedule(cluster->groups[0], "wrong");
        baton_schedule_set_depth(s, wrong[i]);
        support_fails(baton_schedule_commit(s), BATON_ERR_INVALID,
                      "allowed: 1 to 1024");
        support_ok(baton_schedule_destroy(s));
    }
    baton_schedule_t *armed = support_schedule(cluster->groups[0], "armed");
    (void)baton_add_armed_recv(armed, 1);
    baton_schedule_set_depth(armed, 2);
    support_fails(baton_schedule_commit(armed), BATON_ERR_UNSUPPORTED,
                  "lets peers begin epochs");
    support_ok(baton_schedule_destroy(armed));
}

TEST_MANUALLY(test_queued_checks_overlaps_at_the_start, 1)
{
    uint64_t memory[4] = {1, 0, 2, 0};
    baton_schedule_t *s = support_schedule(cluster->groups[0], "copy");
    baton_buffer_t from = baton_buffer_bind_input(s, &memory[0], 8);
    baton_buffer_t to = baton_buffer_bind(s, &memory[1], 8);
    (void)baton_add_copy(s, baton_view(to, 0, 8), baton_view(from, 0, 8));
    baton_schedule_set_depth(s, 2);
    support_ok(baton_schedule_commit(s));
    support_ok(baton_schedule_rebind(s, &memory[1], &memory[1]));
    support_expect(baton_schedule_start(s), BATON_ERR_INVALID);
    support_ok(baton_schedule_rebind(s, &memory[2], &memory[3]));
    support_run(s);
    assert_int_equal(memory[3], 2);
    support_ok(baton_schedule_destroy(s));
}

/* Both vectors must be rebound. Otherwise the sums would be wrong. */
TEST_MANUALLY(test_rebind_is_in_place_as_created, 1)
{
    int64_t x[2] = {1, 2};
    int64_t y[2] = {3, 4};
    baton_operands_t on = {
        .target = x, .count = 2, .dtype = BATON_I64, .op = BATON_SUM};
    baton_schedule_t *s;
    support_ok(baton_allreduce_create(cluster->groups[0], &on, &s));
    support_fails(baton_schedule_rebind(s, x, y), BATON_ERR_INVALID,
                  "created in place");
    support_ok(baton_schedule_rebind(s, NULL, y));
    support_run(s);
    support_ok(baton_schedule_destroy(s));
    on.source = y;
    support_ok(baton_allreduce_create(cluster->groups[0], &on, &s));
    support_fails(baton_schedule_rebind(s, NULL, x), BATON_ERR_INVALID,
                  "not created in place");
    support_fails(baton_schedule_rebind(s, y, NULL), BATON_ERR_INVALID,
                  "the target is NULL");
    support_run(s);
    assert_int_equal(x[1], 4);
    support_ok(baton_schedule_destroy(s));
}

/* ---- the simulator ----------------------------------------------------- */

TEST(test_queued_in_the_simulator)
{
    baton_sim_t *sim = support_sim_of(2);
    support_cluster_t cluster = {
        .size = 2,
        .groups = (baton_group_t *[]){baton_sim_group(sim, 0),
                                      baton_sim_group(sim, 1)}};
    queue_t queue;
    uint64_t sent[2] = {3, 4}, got[2] = {0};
    queue_open(&queue, &cluster, 2);
    for (int i = 0; i < 2; i++) {
        queue_start(&queue, 0, &got[i]);
        queue_start(&queue, 1, &sent[i]);
    }
    beside_t beside = {.own = queue.schedules[0]};
    support_ok(baton_schedule_wait_with(queue.schedules[0], 1, -1, take_turn,
                                        &beside));
    assert_int_equal(beside.turns, 1);
    support_ends(queue.schedules[0], BATON_OK);
    support_ends(queue.schedules[1], BATON_OK);
    assert_int_equal(got[0], 3);
    assert_int_equal(got[1], 4);
    queue_start(&queue, 0, &got[0]);
    queue_start(&queue, 0, &got[1]);
    queue_close(&queue);
    assert_int_equal(queue.ends[0], 4);
    support_ok(baton_sim_destroy(sim));
}
