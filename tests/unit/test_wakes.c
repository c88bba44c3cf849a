/* No wake-up is lost: epochs that nobody waits for end at once, whatever other
   threads do with the engine meanwhile. No timer makes good one that is lost
   (support/cluster.c), so such a bug is a hang. */
#include "progress/engine.h"
#include "support/cluster.h"
#include "support/cmocka.h"
#include "support/sanitized.h"

#include <pthread.h>
#include <semaphore.h>

enum { THREADS = 3, ROUNDS = SUPPORT_REPEAT(3000), POLLS = 3 };

/* A schedule whose last node posts the semaphore. */
typedef struct task {
    baton_schedule_t *schedule;
    sem_t ended;
    int polls_left;
    bool holds; /* and then waits until it is released */
} task_t;

static sem_t released;

static baton_status_t post(void *arg, baton_call_t *call)
{
    task_t *task = arg;
    (void)sem_post(&task->ended);
    if (task->holds) {
        (void)sem_wait(&released);
    }
    return BATON_OK;
}

static baton_status_t begin(void *arg, baton_call_t *call, baton_async_t async)
{
    task_t *task = arg;
    task->polls_left = POLLS;
    return BATON_OK;
}

static baton_status_t look(void *arg)
{
    task_t *task = arg;
    return task->polls_left-- > 0 ? BATON_AGAIN : BATON_OK;
}

static const baton_async_ops_t polled = {.start = begin, .poll = look};

static task_t tasks[THREADS];
static pthread_barrier_t together;

static void open_task(task_t *task, baton_group_t *group, bool polls)
{
    (void)sem_init(&task->ended, 0, 0);
    task->schedule = support_schedule(group, "task");
    baton_node_t call = baton_add_call(task->schedule, post, task);
    if (polls) {
        baton_node_t node = baton_add_async(task->schedule, &polled, task);
        baton_before(task->schedule, node, call);
    }
    support_ok(baton_schedule_commit(task->schedule));
}

static void close_task(task_t *task)
{
    support_ok(baton_schedule_destroy(task->schedule));
    (void)sem_destroy(&task->ended);
}

static void start_task(void *arg)
{
    task_t *task = arg;
    support_ok(baton_schedule_start(task->schedule));
}

/* All threads start at about the same time, and block outside of the library
   until their epochs have run: so none finds what another's start has left. */
static void start_and_block(void *arg)
{
    task_t *task = arg;
    for (int round = 0; round < ROUNDS; round++) {
        (void)pthread_barrier_wait(&together);
        start_task(task);
        (void)sem_wait(&task->ended);
        (void)pthread_barrier_wait(&together);
        support_ok(baton_schedule_wait(task->schedule, SUPPORT_WAIT_MS));
    }
}

static void run_tasks(bool polls)
{
    support_cluster_t *cluster = support_cluster_open(1, SUPPORT_ONE_THREAD);
    support_thread_t *threads[THREADS];
    (void)pthread_barrier_init(&together, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        open_task(&tasks[i], cluster->groups[0], polls);
    }
    for (int i = 0; i < THREADS; i++) {
        threads[i] = support_thread_start(start_and_block, &tasks[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        support_thread_join(threads[i]);
        close_task(&tasks[i]);
    }
    (void)pthread_barrier_destroy(&together);
    support_cluster_close(cluster);
}

TEST(test_wakes_for_mail_of_many_threads)
{
    run_tasks(false);
}

TEST(test_wakes_for_what_is_polled)
{
    run_tasks(true);
}

/* While a call keeps the engine from it, more than one letter comes. */
TEST(test_wakes_for_all_mail_that_came_meanwhile)
{
    support_cluster_t *cluster = support_cluster_open(1, SUPPORT_ONE_THREAD);
    (void)sem_init(&released, 0, 0);
    for (int i = 0; i < THREADS; i++) {
        open_task(&tasks[i], cluster->groups[0], false);
        tasks[i].holds = i == 0;
    }
    support_thread_t *first = support_thread_start(start_task, &tasks[0]);
    (void)sem_wait(&tasks[0].ended);
    start_task(&tasks[1]);
    start_task(&tasks[2]);
    (void)sem_post(&released);
    support_thread_join(first);
    for (int i = 0; i < THREADS; i++) {
        support_ok(baton_schedule_wait(tasks[i].schedule, SUPPORT_WAIT_MS));
        close_task(&tasks[i]);
    }
    support_cluster_close(cluster);
}

static baton_async_t pending;
static bool hinted;

static baton_status_t pend(void *arg, baton_call_t *call, baton_async_t async)
{
    pending = async;
    return BATON_OK;
}

static void see_hint(baton_schedule_t *schedule, bool waits_soon)
{
    hinted = waits_soon;
    baton__real_driver.start(schedule, waits_soon);
}

/* That a wait has come soon once is no hint where nobody waits any more. */
TEST(test_starts_are_not_waited_for_for_ever)
{
    static const baton_async_ops_t ops = {.start = pend};
    support_cluster_t *cluster = support_cluster_open(1, SUPPORT_MANUAL);
    baton_group_t *group = cluster->groups[0];
    baton__driver_t driver = baton__real_driver;
    driver.start = see_hint;
    group->engine->driver = &driver;
    baton_schedule_t *s = support_schedule(group, "task");
    (void)baton_add_async(s, &ops, NULL);
    support_ok(baton_schedule_commit(s));
    atomic_store(&s->shared.waits_soon, true);
    for (uint64_t epoch = 1; epoch <= 3; epoch++) {
        support_ok(baton_schedule_start(s));
        assert_int_equal(hinted, epoch == 1);
        support_ok(baton_async_complete(pending, BATON_OK));
        while (baton_schedule_epoch(s) < epoch) {
            (void)baton_engine_step(group->engine);
        }
    }
    support_ok(baton_schedule_destroy(s));
    group->engine->driver = &baton__real_driver;
    support_cluster_close(cluster);
}

RUN_TESTS()
