/* P ranks as P threads, on engines of their own and on a shared one:
   collectives over many epochs. */
#include "base/config.h"
#include "support/cluster.h"
#include "support/cmocka.h"
#include "support/random.h"
#include "support/sanitized.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST 8
#define COUNT   33

static const int sizes[] = {1, 2, 3, 5, 8};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

typedef struct work {
    baton_allreduce_fn build;
    baton_schedule_t *schedules[LARGEST];
    float source[LARGEST][COUNT];
    float target[3][LARGEST][COUNT]; /* of an epoch and those around it */
    uint64_t seed;
    uint64_t epochs;
} work_t;

/* Values that differ from rank to rank and round differently in each order. */
static void fill(const work_t *work, float *vector, int rank, uint64_t epoch)
{
    support_random_t random =
        support_random(work->seed, epoch * LARGEST + (uint64_t)rank);
    for (size_t i = 0; i < COUNT; i++) {
        vector[i] = (float)(support_random_below(&random, 1 << 20)) / 3.0f;
    }
}

/* Sums within rounding. */
static bool check(support_worker_t *worker, const work_t *work, uint64_t epoch)
{
    float vector[COUNT];
    double sum[COUNT] = {0.0};
    for (int rank = 0; rank < worker->cluster->size; rank++) {
        fill(work, vector, rank, epoch);
        for (size_t i = 0; i < COUNT; i++) {
            sum[i] += (double)vector[i];
        }
    }
    const float *mine = work->target[epoch % 3][worker->rank];
    for (size_t i = 0; i < COUNT; i++) {
        double error = (double)mine[i] - sum[i];
        if (error > 1.0 || error < -1.0) {
            return support_worker_check(
                worker, false, "epoch %d element %d is %g, not %g", (int)epoch,
                (int)i, (double)mine[i], sum[i]);
        }
    }
    return true;
}

/* Compares the bits of two ranks one epoch later, when they are written: a rank
   that has ended epoch e knows that all have begun it, and so have ended e - 1.
 */
static bool compare(support_worker_t *worker, const work_t *work,
                    uint64_t epoch)
{
    int other = (worker->rank + 1) % worker->cluster->size;
    const void *mine = work->target[epoch % 3][worker->rank];
    const void *theirs = work->target[epoch % 3][other];
    return support_worker_check(
        worker, memcmp(mine, theirs, sizeof(work->target[0][0])) == 0,
        "epoch %d: not the bits of rank %d", (int)epoch, other);
}

/* The target of each epoch is bound before it starts. A rank compares the
   vectors of e between its epochs e + 1 and e + 2. No rank ends e + 2 before
   that, and with three vectors e + 3 is the first epoch to write them again. */
static void run_worker(support_worker_t *worker)
{
    work_t *work = worker->arg;
    int rank = worker->rank;
    baton_schedule_t *s;
    if (!support_worker_ok(worker,
                           baton_schedule_create(worker->group, "sum", &s))) {
        return;
    }
    baton_buffer_t source =
        baton_buffer_bind_input(s, work->source[rank], sizeof(work->source[0]));
    baton_buffer_t target = baton_buffer_bind(s, NULL, sizeof(work->source[0]));
    baton_allreduce_t args = {
        .size = sizeof(args),
        .source = baton_view(source, 0, sizeof(work->source[0])),
        .target = baton_view(target, 0, sizeof(work->source[0])),
        .dtype = BATON_F32,
        .op = BATON_SUM,
        .chunk_bytes = 16,
    };
    work->build(s, &args);
    bool well = support_worker_ok(worker, baton_schedule_commit(s));
    for (uint64_t epoch = 1; epoch <= work->epochs && well; epoch++) {
        fill(work, work->source[rank], rank, epoch);
        well = support_worker_ok(
                   worker, baton_buffer_rebind(
                               s, target, work->target[epoch % 3][rank])) &&
               support_worker_ok(worker, baton_schedule_start(s));
        if (epoch % 7 == (uint64_t)rank) {
            sched_yield(); /* computing */
        }
        well = well && support_worker_ok(
                           worker, baton_schedule_wait(s, SUPPORT_WAIT_MS));
        well = well && check(worker, work, epoch) &&
               (epoch == 1 || compare(worker, work, epoch - 1));
    }
    (void)support_worker_ok(worker, baton_schedule_destroy(s));
}

static void run_all(baton_allreduce_fn build, uint64_t epochs)
{
    static work_t work;
    for (int i = 0; i < SUPPORT_VARIANTS; i++) {
        for (size_t s = 0; s < SIZES; s++) {
            work = (work_t){
                .build = build, .seed = support_seed(), .epochs = epochs};
            support_cluster_t *cluster = support_cluster_open(sizes[s], i);
            support_cluster_run(cluster, run_worker, &work);
            support_cluster_close(cluster);
        }
    }
}

static void test_threads_allreduce_recursive_doubling(void **state)
{
    run_all(baton_allreduce_recursive_doubling, SUPPORT_REPEAT(1000));
}

/* ---- epochs that nobody waits for -------------------------------------- */

enum { LONG_BYTES = 1 << 19 };

typedef struct forget {
    char *vectors; /* by rank, of LONG_BYTES each */
    uint64_t rounds;
} forget_t;

static bool sum_of(support_worker_t *worker, void *vector, size_t bytes,
                   baton_schedule_t **out)
{
    if (!support_worker_ok(worker,
                           baton_schedule_create(worker->group, "sum", out))) {
        return false;
    }
    baton_view_t view =
        baton_view(baton_buffer_bind(*out, vector, bytes), 0, bytes);
    baton_allreduce_ring(*out,
                         &(baton_allreduce_t){.size = sizeof(baton_allreduce_t),
                                              .source = view,
                                              .target = view,
                                              .dtype = BATON_I32,
                                              .op = BATON_SUM});
    return support_worker_ok(worker, baton_schedule_commit(*out));
}

static bool start_and_wait(support_worker_t *worker, baton_schedule_t *s)
{
    return support_worker_ok(worker, baton_schedule_start(s)) &&
           support_worker_ok(worker, baton_schedule_wait(s, SUPPORT_WAIT_MS));
}

/* The thread may have gone to sleep while the long epoch was waited for; it has
   to end a short one all the same, for which the application was always there
   before. */
static void forget_short(support_worker_t *worker)
{
    const forget_t *forget = worker->arg;
    int32_t element = worker->rank;
    baton_schedule_t *large = NULL;
    baton_schedule_t *small = NULL;
    bool well =
        sum_of(worker, forget->vectors + (size_t)worker->rank * LONG_BYTES,
               LONG_BYTES, &large) &&
        sum_of(worker, &element, sizeof element, &small);
    for (uint64_t round = 1; round <= forget->rounds && well; round++) {
        well = start_and_wait(worker, small) && start_and_wait(worker, large) &&
               support_worker_ok(worker, baton_schedule_start(small));
        while (well && baton_schedule_epoch(small) < 2 * round &&
               !atomic_load(&worker->cluster->failed)) {
            (void)sched_yield();
        }
        well = well && support_worker_ok(worker, baton_schedule_wait(small, 0));
    }
    (void)support_worker_ok(worker, baton_schedule_destroy(large));
    (void)support_worker_ok(worker, baton_schedule_destroy(small));
}

/* A sleep while another thread drives does not end by itself here. */
static void test_threads_forget_short_epochs(void **state)
{
    assert_int_equal(setenv("BATON_STALL_MS", "86400000", 1), 0);
    baton__config_forget();
    for (int size = 2; size <= 3; size++) {
        forget_t forget = {.vectors = calloc((size_t)size, LONG_BYTES),
                           .rounds = SUPPORT_REPEAT(300)};
        assert_non_null(forget.vectors);
        support_cluster_t *cluster =
            support_cluster_open(size, SUPPORT_OWN_ENGINES);
        support_cluster_run(cluster, forget_short, &forget);
        support_cluster_close(cluster);
        free(forget.vectors);
    }
    assert_int_equal(unsetenv("BATON_STALL_MS"), 0);
    baton__config_forget();
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

static void test_threads_open_engines(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_allreduce_recursive_doubling),
        cmocka_unit_test(test_threads_forget_short_epochs),
        cmocka_unit_test(test_threads_open_engines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
