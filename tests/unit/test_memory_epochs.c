/* While epochs run, nothing is allocated, neither through lib/base/alloc.h nor
   by malloc. */
#include "base/alloc.h"
#include "progress/driving/engine.h"
#include "support/cluster.h"
#include "support/malloc.h"
#include "transport/inproc/rank.h"
#include <baton/coll.h>
#include <sched.h>

enum { RANKS = 2, WARM_UP = 100, EPOCHS = SUPPORT_REPEAT(100000), COUNT = 50 };

/* Runs a few epochs as a warm-up, and then `times` epochs, which must not
   allocate. */
static void expect_no_allocation(void (*epoch)(void *arg), void *arg, int times)
{
    for (int i = 0; i < WARM_UP; i++) {
        epoch(arg);
    }
    int64_t ours = baton__alloc_count();
    int64_t all = malloc_asked;
    for (int i = 0; i < times; i++) {
        epoch(arg);
    }
    assert_int_equal(baton__alloc_count(), ours);
    assert_int_equal(malloc_asked, all);
}

/* ---- schedules --------------------------------------------------------- */

typedef struct cluster_epochs {
    support_cluster_t *ranks;
    baton_schedule_t **schedules;
} cluster_epochs_t;

/* A call, an optional receive, and an all-reduce, on each rank. */
static void build(baton_schedule_t *s, float *data)
{
    size_t bytes = COUNT * sizeof(float);
    baton_buffer_t user = baton_buffer_bind(s, data, bytes);
    baton_buffer_t scratch = baton_buffer_scratch(s, bytes);
    baton_view_t all = baton_view(user, 0, bytes);
    baton_allreduce_args_t args = {.size = sizeof args,
                                   .source = all,
                                   .target = all,
                                   .dtype = BATON_F32,
                                   .op = BATON_MAX};
    int peer = 1 - baton_schedule_rank(s);
    baton_set_optional(s,
                       baton_add_recv(s, peer, baton_view(scratch, 0, bytes)));
    baton_node_t send = baton_add_send(s, peer, all);
    baton_node_t begin = baton_add_nop(s);
    baton_node_t end = baton_add_nop(s);
    baton_before(s, send, begin);
    baton_enclosure_t mark = baton_enclose_begin(s);
    baton_add_allreduce_recursive_doubling(s, &args);
    baton_enclose_end(s, mark, begin, end);
}

static void run_cluster(void *arg)
{
    cluster_epochs_t *epochs = arg;
    support_schedules_run(epochs->ranks, epochs->schedules);
}

TEST(test_memory_stays_over_epochs_of_a_schedule)
{
    static float data[RANKS][COUNT];
    cluster_epochs_t epochs = {.ranks = support_cluster_manual(RANKS)};
    epochs.schedules = support_schedules_create(epochs.ranks, "quiet");
    for (int rank = 0; rank < RANKS; rank++) {
        build(epochs.schedules[rank], data[rank]);
    }
    support_schedules_commit(epochs.ranks, epochs.schedules);
    expect_no_allocation(run_cluster, &epochs, EPOCHS);
    assert_int_equal(baton_schedule_epoch(epochs.schedules[0]),
                     WARM_UP + EPOCHS);
    support_schedules_destroy(epochs.ranks, epochs.schedules);
    support_cluster_close(epochs.ranks);
}

/* ---- with a progress thread -------------------------------------------- */

static void run_one(void *arg)
{
    support_run(arg);
}

static baton_status_t begin(void *arg, baton_call_t *call, baton_async_t async)
{
    *(int *)arg = 0;
    return BATON_OK;
}

static baton_status_t look(void *arg)
{
    return ++*(int *)arg < 3 ? BATON_AGAIN : BATON_OK;
}

/* Lets the progress thread go through its loop a few times, since libevent and
   the C library allocate memory for a new thread. Only that thread polls the
   node here. */
static void warm_up_thread(baton_group_t *group)
{
    static const baton_async_ops_t polled = {.start = begin, .poll = look};
    int looks = 0;
    baton_schedule_t *s = support_schedule(group, "polled");
    (void)baton_add_async(s, &polled, &looks);
    support_ok(baton_schedule_commit(s));
    for (uint64_t epoch = 1; epoch <= 8; epoch++) {
        support_ok(baton_schedule_start(s));
        while (baton_schedule_epoch(s) < epoch) {
            sched_yield();
        }
    }
    support_ok(baton_schedule_destroy(s));
}

TEST_WITH(test_memory_stays_with_a_progress_thread, 1, SUPPORT_ONE_THREAD)
{
    baton_schedule_t *s = support_schedule(cluster->groups[0], "alone");
    baton_view_t none = support_scratch(s, 0);
    (void)baton_add_send(s, 0, none);
    (void)baton_add_recv(s, 0, none);
    support_ok(baton_schedule_commit(s));
    warm_up_thread(cluster->groups[0]);
    expect_no_allocation(run_one, s, 5000);
    support_ok(baton_schedule_destroy(s));
}

/* ---- many schedules ----------------------------------------------------- */

static int notices;

static baton_status_t notify(void *endpoint, int peer,
                             const baton_header_t *header, const void *data,
                             size_t bytes)
{
    notices++;
    return baton__inproc_transport.notify(endpoint, peer, header, data, bytes);
}

static baton_schedule_t *make_barrier(baton_group_t *group)
{
    baton_schedule_t *s = support_schedule(group, "many");
    baton_add_barrier(s);
    support_ok(baton_schedule_commit(s));
    return s;
}

static void make_and_destroy(baton_group_t *group, int times)
{
    for (int i = 0; i < times; i++) {
        support_ok(baton_schedule_destroy(make_barrier(group)));
    }
}

/* These schedules need no peers, and send no notices. */
TEST(test_memory_stays_over_schedules_that_never_run)
{
    baton_transport_t counting = baton__inproc_transport;
    counting.notify = notify;
    support_cluster_t *cluster =
        support_cluster_through(3, SUPPORT_OWN_MANUAL, &counting);
    make_and_destroy(cluster->groups[0], WARM_UP);
    notices = 0;
    int64_t live = malloc_live;
    make_and_destroy(cluster->groups[0], 1000);
    assert_true(malloc_live <= live);
    assert_int_equal(notices, 0);
    for (int rank = 1; rank < 3; rank++) {
        make_and_destroy(cluster->groups[rank], WARM_UP + 1000);
    }
    baton_schedule_t *s[3];
    for (int rank = 0; rank < 3; rank++) {
        s[rank] = make_barrier(cluster->groups[rank]);
        support_ok(baton_schedule_start(s[rank]));
    }
    support_drain(cluster);
    for (int rank = 0; rank < 3; rank++) {
        support_ends(s[rank], BATON_OK);
        support_ok(baton_schedule_destroy(s[rank]));
    }
    support_cluster_close(cluster);
}

/* In a recovery, ranks report the failures of many schedules in one notice. */
TEST(test_recovery_of_many_schedules_needs_few_notices)
{
    enum { MANY = 300 };
    static baton_schedule_t **all[MANY];
    baton_transport_t counting = baton__inproc_transport;
    counting.notify = notify;
    support_cluster_t *cluster =
        support_cluster_through(2, SUPPORT_MANUAL, &counting);
    for (int i = 0; i < MANY; i++) {
        all[i] = support_schedules_create(cluster, "many");
        for (int rank = 0; rank < 2; rank++) {
            baton_add_barrier(all[i][rank]);
        }
        support_schedules_commit(cluster, all[i]);
        support_schedules_run(cluster, all[i]);
    }
    support_drain(cluster);
    notices = 0;
    (void)!baton_group_recover(cluster->groups[0], 0);
    support_ok(baton_group_recover(cluster->groups[1], -1));
    support_ok(baton_group_recover(cluster->groups[0], -1));
    assert_true(notices <= 2 * MANY / 10);
    for (int i = 0; i < MANY; i++) {
        support_schedules_run(cluster, all[i]);
        support_schedules_destroy(cluster, all[i]);
    }
    support_cluster_close(cluster);
}
