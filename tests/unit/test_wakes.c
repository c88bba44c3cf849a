/* No wake-up is lost: an epoch that no thread waits for ends at once, whatever
   other threads do with the engine meanwhile. Nor is an interrupt of a wait
   lost. No timer makes up for a lost wake-up here (support/cluster.c), so such
   a bug causes a hang. */
#include "progress/driving/engine.h"
#include "support/cluster.h"
#include "support/sanitized.h"

#include <baton/partial.h>
#include <baton/tensors.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { THREADS = 3, ROUNDS = SUPPORT_REPEAT(3000), POLLS = 3 };

/* A schedule whose last node posts the semaphore. */
typedef struct task {
    baton_schedule_t *schedule;
    sem_t ended;
    int polls_left;
    bool holds; /* the node then also waits until it is released */
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
   until their epochs have run. So no thread can do the work that another's
   start has left. */
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

static void run_tasks(const support_cluster_t *cluster, bool polls)
{
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
}

TEST_WITH(test_wakes_for_mail_of_many_threads, 1, SUPPORT_ONE_THREAD)
{
    run_tasks(cluster, false);
}

TEST_WITH(test_wakes_for_what_is_polled, 1, SUPPORT_ONE_THREAD)
{
    run_tasks(cluster, true);
}

/* While a call occupies the engine, more than one letter arrives in its
   mailbox. */
TEST_WITH(test_wakes_for_all_mail_that_came_meanwhile, 1, SUPPORT_ONE_THREAD)
{
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
}

static baton_async_t pending;
static bool hinted;

static baton_status_t pend(void *arg, baton_call_t *call, baton_async_t async)
{
    pending = async;
    return BATON_OK;
}

static bool see_hint(baton_schedule_t *schedule, baton__next_t next)
{
    hinted = next == BATON__NEXT_WAIT;
    return baton__real_driver.start(schedule, next);
}

/* Returns a group whose starts record the hints that they get. */
static baton_group_t *show_hints(const support_cluster_t *cluster)
{
    static baton__driver_t driver;
    driver = baton__real_driver;
    driver.start = see_hint;
    cluster->groups[0]->engine->driver = &driver;
    return cluster->groups[0];
}

/* A wait has once come soon after a start. If no thread waits any more, this
   does not make later starts expect a wait. */
TEST_MANUALLY(test_starts_are_not_waited_for_for_ever, 1)
{
    static const baton_async_ops_t ops = {.start = pend};
    baton_group_t *group = show_hints(cluster);
    baton_schedule_t *s = support_schedule(group, "task");
    (void)baton_add_async(s, &ops, NULL);
    support_ok(baton_schedule_commit(s));
    atomic_store(&baton__task_of(s)->expected, BATON__NEXT_WAIT);
    for (uint64_t epoch = 1; epoch <= 3; epoch++) {
        support_ok(baton_schedule_start(s));
        assert_int_equal(hinted, epoch == 1);
        support_ok(baton_async_complete(pending, BATON_OK));
        while (baton_schedule_epoch(s) < epoch) {
            (void)baton_engine_step(group->engine);
        }
    }
    support_ok(baton_schedule_destroy(s));
}

/* The driver's start gets a hint whether a wait will follow. If ranks share
   processors, a start yields as a wait does. So there the hint becomes false if
   no wait came after the last start, even if the epoch ended in that start. */
TEST_MANUALLY(test_starts_that_yield_are_told_who_waits, 1)
{
    baton_group_t *group = show_hints(cluster);
    baton_schedule_t *s = support_schedule(group, "task");
    (void)baton_add_nop(s);
    support_ok(baton_schedule_commit(s));
    for (int shares = 0; shares < 2; shares++) {
        group->engine->idle.scarce = shares;
        for (int waits = 1; waits >= 0; waits--) {
            support_ok(baton_schedule_start(s));
            if (waits) {
                support_ok(baton_schedule_wait(s, SUPPORT_WAIT_MS));
                atomic_store(&baton__task_of(s)->expected, BATON__NEXT_WAIT);
            }
        }
        assert_true(hinted);
        support_ok(baton_schedule_start(s));
        assert_int_equal(hinted, !shares);
        support_ok(baton_schedule_wait(s, SUPPORT_WAIT_MS));
    }
    support_ok(baton_schedule_destroy(s));
}

enum { MANY_POLLS = 100 }; /* more polls than a start makes before a wait */

static int polls_left;

static baton_status_t pend_for_polls(void *arg, baton_call_t *call,
                                     baton_async_t async)
{
    polls_left = MANY_POLLS;
    return BATON_OK;
}

static baton_status_t count_polls(void *arg)
{
    return --polls_left > 0 ? BATON_AGAIN : BATON_OK;
}

/* A start that will be followed by a little work and a wait ends a short epoch
   itself, unless ranks share processors, or the wait follows at once. */
TEST_MANUALLY(test_starts_before_a_little_work_end_their_epochs, 1)
{
    static const baton_async_ops_t ops = {.start = pend_for_polls,
                                          .poll = count_polls};
    const struct {
        baton__next_t expected;
        bool scarce, ends;
    } cases[] = {{BATON__NEXT_WAIT, false, false},
                 {BATON__NEXT_WAIT_SOON, false, true},
                 {BATON__NEXT_WAIT_SOON, true, false}};
    baton_group_t *group = cluster->groups[0];
    baton__idle_t *idle = &group->engine->idle;
    idle->spins = 1;
    idle->wake_ns = UINT64_C(1000000) * SUPPORT_WAIT_MS;
    baton_schedule_t *s = support_schedule(group, "task");
    (void)baton_add_async(s, &ops, NULL);
    support_ok(baton_schedule_commit(s));
    for (uint64_t i = 0; i < 3; i++) {
        idle->scarce = cases[i].scarce;
        atomic_store(&baton__task_of(s)->expected, cases[i].expected);
        support_ok(baton_schedule_start(s));
        assert_int_equal(baton_schedule_epoch(s) == i + 1, cases[i].ends);
        support_ok(baton_schedule_wait(s, SUPPORT_WAIT_MS));
    }
    support_ok(baton_schedule_destroy(s));
}

/* ---- interrupts --------------------------------------------------------- */

/* The objects and events that a thread can wait for. None of them ends on rank
   0 without rank 1. */
enum { SCHEDULE, PARTIAL, SPARSE, TENSORS, RECOVERY, CONDITION, KINDS };
/* COUNT is so large that the contribution is lent. */
enum { COUNT = (1 << 18) + 1, TENSOR = 64 };
static struct {
    support_cluster_t *cluster;
    baton_schedule_t **schedules;
    baton_partial_t *partials[2];
    baton_sparse_t *sparse[2];
    baton_tensors_t *sets[2];
    atomic_bool ready;
    int kind;
} of;
static float vector[COUNT];

static bool is_ready(const void *arg)
{
    return atomic_load((const atomic_bool *)arg);
}

static void start(int rank)
{
    switch (of.kind) {
    case SCHEDULE:
        support_ok(baton_schedule_start(of.schedules[rank]));
        break;
    case PARTIAL:
        support_ok(baton_partial_contribute_lent(of.partials[rank], vector));
        support_ok(baton_partial_start(of.partials[rank]));
        break;
    case SPARSE:
        support_ok(baton_sparse_start(of.sparse[rank], vector));
        break;
    case TENSORS:
        support_ok(baton_tensors_ready(of.sets[rank], 0, vector));
        break;
    case CONDITION:
        atomic_store(&of.ready, rank == 1);
        baton_engine_notify(of.cluster->engines[0]);
        break;
    default: /* recover itself begins the recovery */
        break;
    }
}

static baton_status_t wait(int rank, int ms)
{
    baton_partial_result_t sum = {.epoch = 0};
    baton_sparse_result_t entries;
    baton_status_t status = BATON_OK;
    switch (of.kind) {
    case SCHEDULE:
        return baton_schedule_wait(of.schedules[rank], ms);
    case PARTIAL:
        status = baton_partial_wait(of.partials[rank], ms, &sum);
        assert_true(status != BATON_OK ||
                    ((const float *)sum.data)[COUNT - 1] == 2);
        return status;
    case SPARSE:
        return baton_sparse_wait(of.sparse[rank], ms, &entries);
    case TENSORS:
        return baton_tensors_wait(of.sets[rank], 0, ms, &entries);
    case RECOVERY:
        return baton_group_recover(of.cluster->groups[rank], ms);
    default:
        return baton_engine_wait(of.cluster->engines[rank], is_ready, &of.ready,
                                 ms);
    }
}

static void open_rank(support_worker_t *worker)
{
    const int rank = worker->rank;
    static const baton_tensor_t tensor = {.count = TENSOR};
    const baton_tensors_options_t tensors = BATON_TENSORS_OPTIONS;
    baton_partial_options_t partial = BATON_PARTIAL_OPTIONS;
    baton_sparse_options_t sparse = BATON_SPARSE_OPTIONS;
    partial.mode = BATON_FULL;
    partial.dtype = BATON_F32;
    partial.count = COUNT;
    sparse.count = TENSOR;
    sparse.k = 1;
    (void)(support_worker_ok(worker,
                             baton_partial_create(worker->group, &partial,
                                                  &of.partials[rank])) &&
           support_worker_ok(worker,
                             baton_sparse_create(worker->group, &sparse, -1,
                                                 &of.sparse[rank])) &&
           support_worker_ok(worker, baton_tensors_create(worker->group,
                                                          &tensor, 1, &tensors,
                                                          -1, &of.sets[rank])));
}

static void open_waits(support_cluster_t *cluster)
{
    memset(&of, 0, sizeof of);
    of.cluster = cluster;
    of.schedules = support_schedules_create(cluster, "awaited");
    support_message(of.schedules, 1, 0, NULL, NULL, 0);
    support_schedules_commit(cluster, of.schedules);
    support_cluster_run(cluster, open_rank, NULL);
    for (size_t i = 0; i < COUNT; i++) {
        vector[i] = 1;
    }
}

static void close_waits(void)
{
    for (int r = 0; r < 2; r++) {
        support_ok(baton_tensors_destroy(of.sets[r]));
        support_ok(baton_sparse_destroy(of.sparse[r]));
        support_ok(baton_partial_destroy(of.partials[r]));
    }
    support_schedules_destroy(of.cluster, of.schedules);
}

static void run_rank_1(void *arg)
{
    start(1);
    baton_status_t status = wait(1, SUPPORT_WAIT_MS);
    /* An earlier interrupt is reported to a thread that has started nothing. */
    support_ok(status == BATON_ERR_INTERRUPTED && of.kind >= RECOVERY
                   ? wait(1, SUPPORT_WAIT_MS)
                   : status);
}

static void interrupt(int signal)
{
    baton_engine_interrupt(of.cluster->engines[0]);
}

typedef struct interrupter {
    /* Raises a signal in this thread, unless `directly` is true. */
    pthread_t by_signal;
    bool directly;
    int yields;
} interrupter_t;

static void interrupt_soon(void *arg)
{
    const interrupter_t *self = arg;
    for (int i = 0; i < self->yields; i++) {
        (void)sched_yield();
    }
    if (self->directly) {
        interrupt(0);
    } else {
        (void)pthread_kill(self->by_signal, SIGUSR1);
    }
}

static void pass_barrier(void *arg)
{
    support_ok(baton_barrier_now(arg));
}

/* Interrupts come before a wait, or at any point in it, from a signal handler
   on the waiting thread, or from another thread. The wait ends, nothing is
   lost, and the thread is told once. A call that could not be continued is not
   interrupted, and leaves the interrupt to the next wait. */
TEST_EACH(test_interrupts_end_all_waits, 2)
{
    const struct sigaction action = {.sa_handler = interrupt};
    struct sigaction before;
    support_ok(sigaction(SIGUSR1, &action, &before));
    open_waits(cluster);
    for (; of.kind < KINDS; of.kind++) {
        int rounds = of.kind == SCHEDULE ? SUPPORT_REPEAT(100) : 5;
        for (int i = 0; i < rounds; i++) {
            interrupter_t soon = {pthread_self(), i % 2 == 1, i * i % 67};
            support_thread_t *thread =
                support_thread_start(interrupt_soon, &soon);
            start(0);
            support_expect(wait(0, -1), BATON_ERR_INTERRUPTED);
            support_thread_join(thread);
            support_expect(wait(0, 0), BATON_ERR_TIMEOUT);
            thread = support_thread_start(run_rank_1, NULL);
            support_ok(wait(0, SUPPORT_WAIT_MS));
            support_thread_join(thread);
        }
    }
    support_ok(sigaction(SIGUSR1, &before, NULL));
    interrupt(0);
    support_thread_t *thread =
        support_thread_start(pass_barrier, cluster->groups[1]);
    pass_barrier(cluster->groups[0]);
    support_thread_join(thread);
    support_ok(baton_schedule_start(of.schedules[0]));
    support_ends(of.schedules[0], BATON_ERR_INTERRUPTED);
    support_run(of.schedules[1]);
    support_ends(of.schedules[0], BATON_OK);
    close_waits();
}

/* ---- event loops --------------------------------------------------------- */

enum { MANY = 40 };

static baton_schedule_t **many[MANY]; /* by rank: its schedules */

/* Sends all messages, in a new order each time. */
static void send_all(void *arg)
{
    const int round = *(const int *)arg;
    for (int i = 0; i < MANY; i++) {
        for (int k = 0; k < (i + round) % 5; k++) {
            (void)sched_yield();
        }
        support_ok(baton_schedule_start(many[(i * 7 + round) % MANY][1]));
    }
}

/* Waits only by epoll_wait, and without a timeout. */
static void gather_all(baton_engine_t *engine, int epoll)
{
    bool over[MANY] = {false};
    for (int left = MANY; left > 0;) {
        struct epoll_event event;
        int fd, before = left;
        support_ok(baton_engine_arm(engine, &fd));
        for (int i = 0; i < MANY; i++) {
            if (!over[i]) {
                support_ok(baton_schedule_test(many[i][0], &over[i]));
                left -= over[i];
            }
        }
        if (left == before) {
            assert_int_equal(epoll_wait(epoll, &event, 1, -1), 1);
        }
    }
}

/* Many epochs end in random order, and no end is missed. */
TEST_VARIANTS(test_event_loop_misses_nothing, 2, SUPPORT_ONE_THREAD,
              SUPPORT_VARIANTS)
{
    int fd = -1, epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    for (int i = 0; i < MANY; i++) {
        many[i] = support_schedules_create(cluster, "one of many");
        support_message(many[i], 1, 0, NULL, NULL, 0);
        support_schedules_commit(cluster, many[i]);
    }
    support_ok(baton_engine_arm(cluster->engines[0], &fd));
    support_ok(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
    for (int round = 0; round < SUPPORT_REPEAT(200); round++) {
        for (int i = 0; i < MANY; i++) {
            support_ok(baton_schedule_start(many[i][0]));
        }
        support_thread_t *thread = support_thread_start(send_all, &round);
        gather_all(cluster->engines[0], epoll);
        support_thread_join(thread);
        for (int i = 0; i < MANY; i++) {
            support_ends(many[i][1], BATON_OK);
        }
    }
    (void)close(epoll);
    for (int i = 0; i < MANY; i++) {
        support_schedules_destroy(cluster, many[i]);
    }
}
