/* Opening and closing engines and groups, and idle engines. */
#include "progress/driving/engine.h"
#include "support/cluster.h"
#include "transport/inproc/rank.h"

#include <baton/coll.h>
#include <poll.h>
#include <sched.h>
#include <time.h>

static void sleep_briefly(void)
{
    const struct timespec span = {0, 20000000};
    nanosleep(&span, NULL);
}

/* ---- options ---------------------------------------------------------- */

static void refuses(baton_engine_options_t options, const char *says)
{
    baton_engine_t *untouched = (baton_engine_t *)&untouched;
    baton_engine_t *engine = untouched;
    support_fails(baton_engine_open(&options, &engine), BATON_ERR_INVALID,
                  says);
    assert_ptr_equal(engine, untouched);
}

TEST(test_engine_wrong_options_are_refused)
{
    baton_engine_options_t options = BATON_ENGINE_OPTIONS;
    refuses((baton_engine_options_t){.size = 0}, "BATON_ENGINE_OPTIONS");
    refuses((baton_engine_options_t){.size = 1}, "BATON_ENGINE_OPTIONS");
    support_set_variable("BATON_STALL_MS", "-3");
    refuses(options, "BATON_STALL_MS is \"-3\"; it must be a whole number "
                     "from 1 to");
    support_set_variable("BATON_STALL_MS", NULL);
    options.progress = (baton_progress_t)7;
    refuses(options, "progress is 7");
}

TEST(test_engine_variable_chooses_the_mode)
{
    baton_engine_t *engine;
    support_set_variable("BATON_PROGRESS", "manual");
    support_ok(baton_engine_open(NULL, &engine));
    assert_false(engine->threaded);
    support_ok(baton_engine_close(engine));
    baton_engine_options_t options = BATON_ENGINE_OPTIONS;
    /* The options take precedence over the variable. */
    options.progress = BATON_PROGRESS_THREAD;
    support_ok(baton_engine_open(&options, &engine));
    assert_true(engine->threaded);
    support_ok(baton_engine_close(engine));
    support_set_variable("BATON_PROGRESS", NULL);
}

TEST(test_engine_wrong_placement_is_refused)
{
    static const char *const placements[] = {
        "",        "nowhere",     "core",           "core:",
        "core:-1", "core:x",      "core:0 ",        "core:1000",
        ":0",      "planet:0",    "core:999999999", "core:4294967296",
        "pu:1048", "no/such:0:0",
    };
    for (size_t i = 0; i < sizeof(placements) / sizeof(placements[0]); i++) {
        baton_engine_options_t options = BATON_ENGINE_OPTIONS;
        char quoted[64];
        options.progress = BATON_PROGRESS_THREAD;
        options.placement = placements[i];
        snprintf(quoted, sizeof(quoted), "\"%s\"", placements[i]);
        refuses(options, quoted);
        support_says("core:0");
    }
}

TEST(test_engine_placement_binds_the_thread)
{
    static const char *const placements[] = {"none", "core:0", "pu:0",
                                             "machine:0"};
    baton_engine_options_t options = BATON_ENGINE_OPTIONS;
    options.progress = BATON_PROGRESS_THREAD;
    for (size_t i = 0; i < 4; i++) {
        baton_engine_t *engine;
        options.placement = placements[i];
        support_ok(baton_engine_open(&options, &engine));
        if (strcmp(placements[i], "pu:0") == 0) {
            cpu_set_t set;
            assert_int_equal(
                pthread_getaffinity_np(engine->thread, sizeof(set), &set), 0);
            assert_int_equal(CPU_COUNT(&set), 1);
        }
        support_ok(baton_engine_close(engine));
    }
    /* This makes hwloc fail. */
    support_set_variable("HWLOC_COMPONENTS", "stop");
    baton_engine_t *none;
    support_fails(baton_engine_open(&options, &none), BATON_ERR_SYSTEM,
                  "hwloc can't read the topology");
    support_set_variable("HWLOC_COMPONENTS", NULL);
}

/* Threads open and close engines at the same time. */
static void open_and_close(void *arg)
{
    baton_status_t *status = arg;
    for (int i = 0; i < 200 && *status == BATON_OK; i++) {
        baton_engine_t *engine;
        *status = baton_engine_open(NULL, &engine);
        if (*status == BATON_OK) {
            *status = baton_engine_close(engine);
        }
    }
}

TEST(test_engines_of_several_threads)
{
    enum { THREADS = 3 };
    support_thread_t *threads[THREADS];
    baton_status_t status[THREADS] = {BATON_OK, BATON_OK, BATON_OK};
    for (int t = 0; t < THREADS; t++) {
        threads[t] = support_thread_start(open_and_close, &status[t]);
    }
    for (int t = 0; t < THREADS; t++) {
        support_thread_join(threads[t]);
        assert_int_equal(status[t], BATON_OK);
    }
}

/* ---- leftovers are named ---------------------------------------------- */

TEST_WITH(test_group_destroy_with_a_schedule_is_busy, 1, SUPPORT_ONE_THREAD)
{
    for (int committed = 0; committed < 2; committed++) {
        baton_schedule_t *schedule =
            support_schedule(cluster->groups[0], "left over");
        (void)baton_add_nop(schedule);
        if (committed != 0) {
            support_ok(baton_schedule_commit(schedule));
        }
        support_fails(baton_group_destroy(cluster->groups[0]), BATON_ERR_BUSY,
                      "destroy");
        if (committed != 0) {
            support_says("\"left over\"");
            support_run(schedule);
        }
        support_ok(baton_schedule_destroy(schedule));
    }
    support_ok(baton_group_destroy(NULL));
    support_ok(baton_schedule_destroy(NULL));
}

/* ---- rest ------------------------------------------------------------- */

static atomic_long polls;

static size_t counting_poll(void *endpoint, baton_event_t *out, size_t max)
{
    atomic_fetch_add(&polls, 1);
    return baton__inproc_transport.poll(endpoint, out, max);
}

/* Waits until the engine no longer polls, which may take any time. */
static void expect_rest(void)
{
    int quiet = 0;
    for (int i = 0; i < 500 && quiet < 2; i++) {
        long before = atomic_load(&polls);
        sleep_briefly();
        quiet = atomic_load(&polls) == before ? quiet + 1 : 0;
    }
    assert_int_equal(quiet, 2);
}

/* An engine with an armed schedule sleeps, also between external epochs. */
TEST(test_engine_with_an_armed_schedule_rests)
{
    baton_transport_t transport = baton__inproc_transport;
    transport.poll = counting_poll;
    support_cluster_t *cluster =
        support_cluster_through(2, SUPPORT_OWN_ENGINES, &transport);
    baton_schedule_t **schedules = support_schedules_create(cluster, "armed");
    for (int rank = 0; rank < 2; rank++) {
        (void)baton_add_activation(schedules[rank],
                                   baton_add_on_start(schedules[rank]));
    }
    support_schedules_commit(cluster, schedules);
    expect_rest();
    for (uint64_t epoch = 1; epoch <= 3; epoch++) {
        support_run(schedules[0]);
        /* Only the message wakes rank 1. */
        for (int i = 0; i < 3000 && baton_schedule_epoch(schedules[1]) < epoch;
             i++) {
            sleep_briefly();
        }
        assert_int_equal(baton_schedule_epoch(schedules[1]), epoch);
        expect_rest();
    }
    assert_true(atomic_load(&polls) > 0);
    support_schedules_destroy(cluster, schedules);
    support_cluster_close(cluster);
}

/* ---- a caller that leaves the engine leaves copies ---------------------- */

static atomic_bool copying;
static atomic_bool watching;
static pthread_t application;
static long application_polls;

static bool busy_is_copying(const void *endpoint)
{
    return atomic_load(&copying);
}

static bool busy_arm(void *endpoint, baton_arm_t how, uint32_t *sleep_us_out)
{
    return !atomic_load(&copying) &&
           baton__inproc_transport.arm(endpoint, how, sleep_us_out);
}

/* Pretends that a long message is accepted in the application's first poll. */
static size_t busy_poll(void *endpoint, baton_event_t *out, size_t max)
{
    if (atomic_load(&watching) && pthread_equal(pthread_self(), application)) {
        application_polls++;
        atomic_store(&copying, true);
    }
    return baton__inproc_transport.poll(endpoint, out, max);
}

static baton_status_t keep_async(void *arg, baton_call_t *call,
                                 baton_async_t async)
{
    *(baton_async_t *)arg = async;
    return BATON_OK;
}

/* A long message is copied, one part in each poll. Meanwhile a thread that
   leaves the engine leaves the polls to the progress thread. */
TEST(test_copies_are_left_to_the_thread)
{
    baton_transport_t transport = baton__inproc_transport;
    transport.poll = busy_poll;
    transport.arm = busy_arm;
    transport.is_copying = busy_is_copying;
    support_cluster_t *cluster =
        support_cluster_through(1, SUPPORT_ONE_THREAD, &transport);
    baton_schedule_t *schedule =
        support_schedule(cluster->groups[0], "unfinished");
    baton_async_t async = {0};
    const baton_async_ops_t ops = {.start = keep_async};
    (void)baton_add_async(schedule, &ops, &async);
    support_ok(baton_schedule_commit(schedule));
    support_ok(baton_schedule_start(schedule));
    application = pthread_self();
    atomic_store(&watching, true);
    /* Repeats the test until one has found the engine idle, and has driven
       it. */
    for (int i = 0; i < 500 && application_polls == 0; i++) {
        sleep_briefly();
        bool done;
        support_ok(baton_schedule_test(schedule, &done));
        assert_false(done);
        atomic_store(&copying, false);
    }
    atomic_store(&watching, false);
    assert_int_equal(application_polls, 1);
    support_ok(baton_async_complete(async, BATON_OK));
    support_ok(baton_schedule_wait(schedule, -1));
    support_ok(baton_schedule_destroy(schedule));
    support_cluster_close(cluster);
}

/* ---- sleeps -------------------------------------------------------------- */

static atomic_int arms;

static bool watchful_arm(void *endpoint, baton_arm_t how,
                         uint32_t *sleep_us_out)
{
    bool armed = baton__inproc_transport.arm(endpoint, how, sleep_us_out);
    *sleep_us_out = 1000 * BATON__WATCHDOG_LOOK_MS;
    atomic_fetch_add(&arms, 1);
    return armed;
}

/* A thread that all peers can wake sleeps as long as the transport lets it, and
   does not begin with short sleeps as if it had to poll. */
TEST(test_sleep_lasts_as_long_as_the_transport_allows)
{
    baton_transport_t transport = baton__inproc_transport;
    transport.arm = watchful_arm;
    support_cluster_t *cluster =
        support_cluster_through(1, SUPPORT_ONE_THREAD, &transport);
    baton_schedule_t *schedule =
        support_schedule(cluster->groups[0], "unfinished");
    baton_async_t async = {0};
    const baton_async_ops_t ops = {.start = keep_async};
    (void)baton_add_async(schedule, &ops, &async);
    support_ok(baton_schedule_commit(schedule));
    atomic_store(&arms, 0);
    support_ok(baton_schedule_start(schedule));
    while (atomic_load(&arms) == 0) { /* the thread may begin late */
        (void)sched_yield();
    }
    (void)poll(NULL, 0, BATON__WATCHDOG_LOOK_MS / 2);
    assert_in_range(atomic_load(&arms), 1, 20);
    support_ok(baton_async_complete(async, BATON_OK));
    support_ok(baton_schedule_wait(schedule, -1));
    support_ok(baton_schedule_destroy(schedule));
    support_cluster_close(cluster);
}

/* ---- the floating-point mode ------------------------------------------ */

/* A start that has issued all ready nodes leaves nothing for the progress
   thread, which would be woken for it. A start that has not done so leaves the
   schedule runnable. */
TEST_MANUALLY(test_start_leaves_what_is_ready, 2)
{
    const baton__stepper_t *stepper = &cluster->engines[0]->stepper;
    char byte[2] = {1, 0};
    for (int nops = 0; nops <= 200; nops += 200) {
        baton_schedule_t **s = support_schedules_create(cluster, "starts");
        support_message(s, 0, 1, &byte[0], &byte[1], 1);
        for (int i = 0; i < nops; i++) {
            (void)baton_add_nop(s[1]);
        }
        support_schedules_commit(cluster, s);
        support_drain(cluster);
        support_ok(baton_schedule_start(s[1]));
        assert_ptr_equal(stepper->runnable_head,
                         nops > 0 ? baton__task_of(s[1]) : NULL);
        support_run(s[0]);
        support_ok(baton_schedule_wait(s[1], 10000));
        assert_true(stepper->unpolled); /* the last epoch ended in a poll */
        support_schedules_destroy(cluster, s);
    }
}

TEST_MANUALLY(test_destroy_leaves_others_their_turns, 1)
{
    baton_schedule_t *s = support_schedule(cluster->groups[0], "nops");
    baton_schedule_t *other = support_schedule(cluster->groups[0], "other");
    for (int i = 0; i < 200; i++) {
        (void)baton_add_nop(s);
    }
    (void)baton_add_nop(other);
    support_ok(baton_schedule_commit(s));
    support_ok(baton_schedule_commit(other));
    support_ok(baton_schedule_start(s));
    support_ok(baton_schedule_destroy(other));
    support_ok(baton_schedule_wait(s, 10000));
    support_ok(baton_schedule_destroy(s));
}

#if defined(__SSE__)
#include <xmmintrin.h>

/* The bits of MXCSR: flush results to zero, take subnormal operands as zero,
   round upwards. */
enum { FAST_MATH = 0x8000 | 0x0040 | 0x4000 };

static baton_status_t halve(void *arg, baton_call_t *call)
{
    volatile float *value = arg;
    *value = *value / 2;
    return BATON_OK;
}

/* The float mode that -ffast-math sets for a thread must not change results of
   epochs that it drives. */
TEST_MANUALLY(test_driving_threads_float_mode_changes_no_result, 1)
{
    const float tiny = 0x1p-140f; /* a subnormal number */
    const float more = 0x1p-24f;
    float operands[2] = {tiny, 1};
    float others[2] = {tiny, more};
    float sums[2] = {0};
    float halved = tiny;
    baton_schedule_t *schedule = support_schedule(cluster->groups[0], "floats");
    (void)baton_add_reduce_local(schedule, BATON_F32, BATON_SUM,
                                 support_view(schedule, sums, sizeof sums),
                                 support_view(schedule, operands, sizeof sums),
                                 support_view(schedule, others, sizeof sums));
    (void)baton_add_call(schedule, halve, &halved);
    support_ok(baton_schedule_commit(schedule));

    unsigned before = _mm_getcsr();
    _mm_setcsr(before | FAST_MATH);
    baton_status_t started = baton_schedule_start(schedule);
    baton_status_t ended = baton_schedule_wait(schedule, -1);
    unsigned after = _mm_getcsr();
    _mm_setcsr(before);

    support_ok(started);
    support_ok(ended);
    /* The caller's thread has its own mode again. */
    assert_true((after & FAST_MATH) == FAST_MATH);
    assert_true(sums[0] == 2 * tiny);
    /* 1 plus half of its last place is rounded to even, not upwards. */
    assert_true(sums[1] == 1);
    assert_true(halved == tiny / 2);
    support_ok(baton_schedule_destroy(schedule));
}
#endif
