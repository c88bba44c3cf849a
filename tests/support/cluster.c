#include "support/cluster.h"

#include "base/config.h"
#include "progress/driving/engine.h"
#include "support/device_cluster.h"
#include "transport/inproc/rank.h"

#include <locale.h>
#include <pthread.h>

enum { QUIET_STEPS = 64 };

/* Prepares each test program before main. Turns off the timers by which the
   library rechecks for missed events, so that they can't hide a lost wake-up.
   Lets stalls be reported only after a day, unless the environment sets another
   time. Takes the format of numbers from the environment, since some runs of
   ctest ask for a decimal comma. */
__attribute__((constructor)) static void begin_test(void)
{
    baton__engine_rechecks = false;
    (void)setenv("BATON_STALL_MS", "86400000", 0);
    (void)setlocale(LC_NUMERIC, "");
}

const char *const support_variant_names[SUPPORT_VARIANTS] = {
    [SUPPORT_MANUAL] = "one manual engine",
    [SUPPORT_ONE_THREAD] = "one engine with a thread",
    [SUPPORT_OWN_ENGINES] = "engines with threads",
};

static support_cluster_t *open_cluster(int size, int variant,
                                       const baton_transport_t *transport,
                                       support_prepare_fn prepare, void *arg)
{
    support_cluster_t *cluster = support_alloc(1, sizeof(*cluster));
    cluster->size = size;
    cluster->engine_count = variant >= SUPPORT_OWN_ENGINES ? size : 1;
    cluster->engines = support_alloc((size_t)size, sizeof(baton_engine_t *));
    cluster->groups = support_alloc((size_t)size, sizeof(baton_group_t *));
    baton_engine_options_t options = BATON_ENGINE_OPTIONS;
    options.progress =
        variant == SUPPORT_MANUAL || variant == SUPPORT_OWN_MANUAL
            ? BATON_PROGRESS_MANUAL
            : BATON_PROGRESS_THREAD;
    support_ok(baton_inproc_create(size, &cluster->inproc));
    for (int rank = 0; rank < size; rank++) {
        if (rank < cluster->engine_count) {
            support_ok(baton_engine_open(&options, &cluster->engines[rank]));
            if (prepare != NULL) {
                prepare(arg, rank, cluster->engines[rank]);
            }
        } else {
            cluster->engines[rank] = cluster->engines[0];
        }
        const baton_transport_t *inproc;
        void *endpoint;
        support_ok(
            baton__inproc_join(cluster->inproc, rank, &inproc, &endpoint));
        support_ok(baton_group_create(
            cluster->engines[rank], transport != NULL ? transport : inproc,
            endpoint, rank, size, &cluster->groups[rank]));
    }
    return cluster;
}

support_cluster_t *support_cluster_prepare(int size, int variant,
                                           support_prepare_fn prepare,
                                           void *arg)
{
    return open_cluster(size, variant, NULL, prepare, arg);
}

support_cluster_t *support_cluster_through(int size, int variant,
                                           const baton_transport_t *transport)
{
    return open_cluster(size, variant, transport, NULL, NULL);
}

support_cluster_t *support_cluster_open(int size, int variant)
{
    if (variant >= SUPPORT_DEVICES) {
        const emulated_options_t options = {.seed = support_seed()};
        return device_cluster_open(size,
                                   variant == SUPPORT_DEVICES
                                       ? SUPPORT_OWN_ENGINES
                                       : SUPPORT_OWN_MANUAL,
                                   &options);
    }
    return open_cluster(size, variant, NULL, NULL, NULL);
}

support_cluster_t *support_cluster_manual(int size)
{
    return support_cluster_open(size, SUPPORT_MANUAL);
}

void support_cluster_close(support_cluster_t *cluster)
{
    for (int rank = 0; rank < cluster->size; rank++) {
        support_ok(baton_group_destroy(cluster->groups[rank]));
    }
    support_ok(baton_inproc_destroy(cluster->inproc));
    for (int rank = 0; rank < cluster->engine_count; rank++) {
        support_ok(baton_engine_close(cluster->engines[rank]));
    }
    free(cluster->engines);
    free(cluster->groups);
    free(cluster->devices);
    free(cluster->streams);
    free(cluster);
}

static void recover_own(support_worker_t *worker)
{
    (void)support_worker_ok(
        worker, baton_group_recover(worker->group, SUPPORT_WAIT_MS));
}

void support_cluster_recover(support_cluster_t *cluster)
{
    support_cluster_run(cluster, recover_own, NULL);
}

void support_test(void **state)
{
    const support_test_t *test = *state;
    for (int i = test->first; i < test->end; i++) {
        support_cluster_t *cluster = support_cluster_open(test->ranks, i);
        test->run(cluster);
        support_cluster_close(cluster);
    }
}

const int support_sizes[SUPPORT_SIZES] = {1,  2,  3,  4,  5,  6,  7,  8,  9,
                                          10, 11, 12, 13, 14, 15, 16, 17, 32};
static support_cluster_t *clusters[SUPPORT_LARGEST + 1];

int support_clusters_open(void **state)
{
    for (size_t i = 0; i < SUPPORT_SIZES; i++) {
        clusters[support_sizes[i]] = support_cluster_manual(support_sizes[i]);
    }
    return 0;
}

int support_clusters_close(void **state)
{
    for (size_t i = 0; i < SUPPORT_SIZES; i++) {
        support_cluster_close(clusters[support_sizes[i]]);
    }
    return 0;
}

support_cluster_t *support_cluster_of(int size)
{
    assert_in_range(size, 1, SUPPORT_LARGEST);
    assert_non_null(clusters[size]);
    return clusters[size];
}

void support_drain(support_cluster_t *cluster)
{
    for (int quiet = 0; quiet < QUIET_STEPS; quiet++) {
        for (int i = 0; i < cluster->engine_count; i++) {
            quiet = baton_engine_step(cluster->engines[i]) ? 0 : quiet;
        }
    }
}

/* ---- expectations ------------------------------------------------------ */

void support_expect_at(baton_status_t status, baton_status_t expected,
                       const char *file, int line)
{
    if (status != expected) {
        print_error("%s is not %s: %s\n", baton_status_name(status),
                    baton_status_name(expected), baton_error_message());
        _fail(file, line);
    }
}

void support_says_at(const char *text, const char *file, int line)
{
    if (strstr(baton_error_message(), text) == NULL) {
        print_error("\"%s\" is not in: %s\n", text, baton_error_message());
        _fail(file, line);
    }
}

void support_times_out_at(baton_schedule_t *schedule, int timeout_ms,
                          const char *text, const char *file, int line)
{
    do {
        support_expect_at(baton_schedule_wait(schedule, timeout_ms),
                          BATON_ERR_TIMEOUT, file, line);
    } while (strstr(baton_error_message(), "the engine is busy") != NULL);
    support_says_at(text, file, line);
}

/* ---- schedules --------------------------------------------------------- */

baton_schedule_t *support_schedule(baton_group_t *group, const char *name)
{
    baton_schedule_t *schedule = NULL;
    support_ok(baton_schedule_create(group, name, &schedule));
    return schedule;
}

baton_view_t support_view(baton_schedule_t *schedule, void *memory,
                          size_t bytes)
{
    return baton_view(baton_buffer_bind(schedule, memory, bytes), 0, bytes);
}

baton_view_t support_scratch(baton_schedule_t *schedule, size_t bytes)
{
    return baton_view(baton_buffer_scratch(schedule, bytes), 0, bytes);
}

void support_run(baton_schedule_t *schedule)
{
    support_ok(baton_schedule_run(schedule, SUPPORT_WAIT_MS));
}

baton_status_t support_run_until_failure(baton_schedule_t *schedule)
{
    baton_status_t status = BATON_OK;
    while (status == BATON_OK) {
        status = baton_schedule_run(schedule, SUPPORT_WAIT_MS);
    }
    return status;
}

baton_status_t support_count(void *arg, baton_call_t *call)
{
    ++*(uint64_t *)arg;
    return BATON_OK;
}

baton_status_t support_succeed(void *arg, baton_call_t *call)
{
    return BATON_OK;
}

baton_status_t support_skip(void *arg, baton_call_t *call)
{
    return BATON_SKIP;
}

baton_schedule_t **support_schedules_create(support_cluster_t *cluster,
                                            const char *name)
{
    baton_schedule_t **schedules =
        calloc((size_t)cluster->size, sizeof(baton_schedule_t *));
    assert_non_null(schedules);
    for (int rank = 0; rank < cluster->size; rank++) {
        schedules[rank] = support_schedule(cluster->groups[rank], name);
    }
    return schedules;
}

static void commit_own(support_worker_t *worker)
{
    baton_schedule_t **schedules = worker->arg;
    (void)support_worker_ok(worker,
                            baton_schedule_commit(schedules[worker->rank]));
}

/* Commits all schedules. With BATON_VERIFY=1 a commit waits for the commits of
   all ranks, so each commit runs in its own thread. */
void support_schedules_commit(support_cluster_t *cluster,
                              baton_schedule_t **schedules)
{
    if (baton__config_number(BATON__CONFIG_VERIFY) != 0) {
        support_cluster_run(cluster, commit_own, schedules);
        return;
    }
    for (int rank = 0; rank < cluster->size; rank++) {
        support_ok(baton_schedule_commit(schedules[rank]));
    }
}

void support_schedules_run(support_cluster_t *cluster,
                           baton_schedule_t **schedules)
{
    for (int rank = 0; rank < cluster->size; rank++) {
        support_ok(baton_schedule_start(schedules[rank]));
    }
    for (int rank = 0; rank < cluster->size; rank++) {
        support_ok(baton_schedule_wait(schedules[rank], SUPPORT_WAIT_MS));
    }
}

void support_message(baton_schedule_t **schedules, int from, int to,
                     void *source, void *target, size_t bytes)
{
    (void)baton_add_send(schedules[from], to,
                         support_view(schedules[from], source, bytes));
    (void)baton_add_recv(schedules[to], from,
                         support_view(schedules[to], target, bytes));
}

void support_schedules_destroy(support_cluster_t *cluster,
                               baton_schedule_t **schedules)
{
    for (int rank = 0; rank < cluster->size; rank++) {
        support_ok(baton_schedule_destroy(schedules[rank]));
    }
    free(schedules);
}

void support_pair_open(support_pair_t *pair, support_cluster_t *cluster,
                       const char *name)
{
    *pair =
        (support_pair_t){.cluster = cluster,
                         .schedules = support_schedules_create(cluster, name)};
    support_message(pair->schedules, 1, 0, &pair->sent, &pair->got,
                    sizeof pair->got);
    support_schedules_commit(cluster, pair->schedules);
}

void support_pair_close(support_pair_t *pair)
{
    support_schedules_destroy(pair->cluster, pair->schedules);
}

void support_pair_send(support_pair_t *pair, uint64_t value)
{
    pair->sent = value;
    support_run(pair->schedules[1]);
}

/* ---- ranks as threads -------------------------------------------------- */

static void fail_worker(support_worker_t *worker)
{
    atomic_store_explicit(&worker->cluster->failed, true, memory_order_relaxed);
}

bool support_worker_ok(support_worker_t *worker, baton_status_t status)
{
    if (status != BATON_OK && worker->failure[0] == '\0') {
        snprintf(worker->failure, sizeof(worker->failure), "rank %d: %s: %s",
                 worker->rank, baton_status_name(status),
                 baton_error_message());
        fail_worker(worker);
    }
    return !atomic_load_explicit(&worker->cluster->failed,
                                 memory_order_relaxed);
}

bool support_worker_check(support_worker_t *worker, bool right,
                          const char *format, ...)
{
    if (!right && worker->failure[0] == '\0') {
        int used = snprintf(worker->failure, sizeof(worker->failure),
                            "rank %d: ", worker->rank);
        va_list values;
        va_start(values, format);
        vsnprintf(worker->failure + used,
                  sizeof(worker->failure) - (size_t)used, format, values);
        va_end(values);
        fail_worker(worker);
    }
    return !atomic_load_explicit(&worker->cluster->failed,
                                 memory_order_relaxed);
}

bool support_worker_run(support_worker_t *worker, baton_schedule_t *schedule)
{
    return support_worker_ok(worker, baton_schedule_start(schedule)) &&
           support_worker_ok(worker,
                             baton_schedule_wait(schedule, SUPPORT_WAIT_MS));
}

typedef struct worker_thread {
    support_worker_t worker;
    support_worker_fn run;
    pthread_t thread;
} worker_thread_t;

static void *run_worker(void *arg)
{
    worker_thread_t *thread = arg;
    thread->run(&thread->worker);
    return NULL;
}

void support_cluster_run(support_cluster_t *cluster, support_worker_fn run,
                         void *arg)
{
    worker_thread_t *threads =
        support_alloc((size_t)cluster->size, sizeof(*threads));
    atomic_store(&cluster->failed, false);
    for (int rank = 0; rank < cluster->size; rank++) {
        threads[rank].worker = (support_worker_t){
            .cluster = cluster,
            .rank = rank,
            .group = cluster->groups[rank],
            .arg = arg,
        };
        threads[rank].run = run;
        assert_int_equal(pthread_create(&threads[rank].thread, NULL, run_worker,
                                        &threads[rank]),
                         0);
    }
    for (int rank = 0; rank < cluster->size; rank++) {
        pthread_join(threads[rank].thread, NULL);
        if (threads[rank].worker.failure[0] != '\0') {
            print_error("%s\n", threads[rank].worker.failure);
        }
    }
    free(threads);
    assert_false(atomic_load(&cluster->failed));
}

/* ---- a thread --------------------------------------------------------- */

struct support_thread {
    pthread_t thread;
    void (*fn)(void *arg);
    void *arg;
};

static void *thread_main(void *arg)
{
    support_thread_t *thread = arg;
    thread->fn(thread->arg);
    return NULL;
}

support_thread_t *support_thread_start(void (*fn)(void *arg), void *arg)
{
    support_thread_t *thread = support_alloc(1, sizeof(*thread));
    thread->fn = fn;
    thread->arg = arg;
    assert_int_equal(pthread_create(&thread->thread, NULL, thread_main, thread),
                     0);
    return thread;
}

void support_thread_join(support_thread_t *thread)
{
    pthread_join(thread->thread, NULL);
    free(thread);
}
