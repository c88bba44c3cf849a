/* Partial sparse all-reduces among threads that sleep at random, and look at
   their residuals while peers' epochs run: no gradient is lost. */
#include "support/cluster.h"
#include "support/cmocka.h"
#include "support/random.h"
#include "support/sanitized.h"

#include <baton/sparse.h>
#include <string.h>
#include <time.h>

enum { COUNT = 97, RANKS = 5, LONGEST_US = 200 };

typedef struct trial {
    baton_sparse_options_t options;
    uint64_t seed;
    int steps;
    double gradients[RANKS][COUNT], results[RANKS][COUNT];
    baton_sparse_t *sparse[RANKS];
} trial_t;

static void doze(support_random_t *random)
{
    if (support_random_below(random, 4) == 0) {
        const struct timespec span = {
            0, (long)support_random_below(random, LONGEST_US) * 1000};
        nanosleep(&span, NULL);
    }
}

static bool run_step(trial_t *trial, int rank, support_random_t *random)
{
    double vector[COUNT];
    baton_sparse_result_t result;
    baton_sparse_t *sparse = trial->sparse[rank];
    for (int i = 0; i < COUNT; i++) {
        vector[i] = (double)support_random_below(random, 201) - 100;
        trial->gradients[rank][i] += vector[i];
    }
    doze(random);
    bool ok = baton_sparse_start(sparse, vector) == BATON_OK &&
              baton_sparse_wait(sparse, SUPPORT_WAIT_MS, &result) == BATON_OK &&
              baton_sparse_dense(sparse, vector) == BATON_OK;
    for (int i = 0; ok && i < COUNT; i++) {
        trial->results[rank][i] += vector[i];
    }
    baton_status_t status = baton_sparse_residual(sparse, vector);
    return ok && (status == BATON_OK || status == BATON_ERR_BUSY);
}

static void run_worker(support_worker_t *worker)
{
    trial_t *trial = worker->arg;
    int rank = worker->rank;
    support_random_t random = support_random(trial->seed, (uint64_t)rank);
    bool ok = support_worker_check(
        worker,
        baton_sparse_create(worker->group, &trial->options, SUPPORT_WAIT_MS,
                            &trial->sparse[rank]) == BATON_OK,
        "create: %s", baton_error_message());
    for (int step = 0; ok && step < trial->steps; step++) {
        ok = support_worker_check(worker, run_step(trial, rank, &random),
                                  "step %d: %s", step, baton_error_message());
    }
}

static void expect_conserved(trial_t *trial)
{
    double rest[COUNT] = {0}, residual[COUNT];
    for (int rank = 0; rank < RANKS; rank++) {
        assert_memory_equal(trial->results[rank], trial->results[0],
                            sizeof rest);
        support_ok(baton_sparse_residual(trial->sparse[rank], residual));
        for (int i = 0; i < COUNT; i++) {
            rest[i] += trial->gradients[rank][i] - residual[i];
        }
    }
    assert_memory_equal(rest, trial->results[0], sizeof rest);
}

static void conserve(int variant, baton_partial_mode_t mode,
                     uint32_t mode_ranks)
{
    static trial_t trial;
    trial = (trial_t){.seed = support_seed() + (uint64_t)mode,
                      .steps = SUPPORT_REPEAT(300)};
    trial.options = (baton_sparse_options_t)BATON_SPARSE_OPTIONS;
    trial.options.count = COUNT;
    trial.options.k = 9;
    trial.options.dtype = BATON_F64;
    trial.options.partial = true;
    trial.options.mode = mode;
    trial.options.mode_ranks = mode_ranks;
    support_cluster_t *cluster = support_cluster_open(RANKS, variant);
    support_cluster_run(cluster, run_worker, &trial);
    expect_conserved(&trial);
    for (int rank = 0; rank < RANKS; rank++) {
        support_ok(baton_sparse_destroy(trial.sparse[rank]));
    }
    support_cluster_close(cluster);
}

static void test_sparse_partial_threads_conserve(void **state)
{
    conserve(SUPPORT_OWN_ENGINES, BATON_SOLO, 0);
    conserve(SUPPORT_OWN_ENGINES, BATON_MAJORITY, 0);
    conserve(SUPPORT_OWN_ENGINES, BATON_QUORUM, 3);
}

static void test_sparse_partial_threads_share_an_engine(void **state)
{
    conserve(SUPPORT_MANUAL, BATON_SOLO, 0);
    conserve(SUPPORT_ONE_THREAD, BATON_SOLO, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sparse_partial_threads_conserve),
        cmocka_unit_test(test_sparse_partial_threads_share_an_engine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
