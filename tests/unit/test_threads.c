/* Ranks as threads: epochs that nobody waits for; engines that are opened at
   the same time. */
#include "support/cluster.h"
#include "support/cmocka.h"
#include "support/sanitized.h"

#include <sched.h>
#include <stdlib.h>

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
        well = support_worker_run(worker, small) &&
               support_worker_run(worker, large) &&
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

static void test_threads_forget_short_epochs(void **state)
{
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
        cmocka_unit_test(test_threads_forget_short_epochs),
        cmocka_unit_test(test_threads_open_engines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
