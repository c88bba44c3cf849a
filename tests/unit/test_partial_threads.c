/* Partial all-reduces among threads that sleep at random: no contribution is
   lost or counted twice. */
#include "support/cluster.h"
#include "support/cmocka.h"
#include "support/conserve.h"
#include "support/random.h"
#include "support/sanitized.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void doze(support_random_t *random)
{
    const struct timespec span = {0, (long)support_random_below(random, 300) *
                                         1000};
    nanosleep(&span, NULL);
}

typedef struct trial {
    conserve_options_t options;
    conserve_totals_t totals[CONSERVE_RANKS];
} trial_t;

static void run_worker(support_worker_t *worker)
{
    trial_t *trial = worker->arg;
    const char *what = conserve_run(worker->group, &trial->options,
                                    &trial->totals[worker->rank]);
    (void)support_worker_check(worker, what == NULL, "%s", what);
}

static void conserve(int variant, baton_partial_mode_t mode, baton_keep_t keep,
                     baton_allreduce_fn inner, int size, uint64_t steps)
{
    trial_t trial = {.options = {.mode = mode,
                                 .keep = keep,
                                 .inner = inner,
                                 .seed = support_seed() + (uint64_t)size,
                                 .steps = steps,
                                 .sleep_us = 200}};
    support_cluster_t *cluster = support_cluster_open(size, variant);
    support_cluster_run(cluster, run_worker, &trial);
    support_cluster_close(cluster);
    const char *what = conserve_compare(trial.totals, size);
    if (what != NULL) {
        fail_msg("%s, %d ranks, mode %d, keep %d: %s",
                 support_variant_names[variant], size, (int)mode, (int)keep,
                 what);
    }
}

/* Each rank has an engine, like a process. */
static void conserve_sizes(baton_partial_mode_t mode, uint64_t steps)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int keep = 0; keep < 2; keep++) {
            conserve(SUPPORT_OWN_ENGINES, mode, (baton_keep_t)keep,
                     i % 2 == 0 ? baton_allreduce_recursive_doubling
                                : baton_allreduce_ring,
                     sizes[i], sizes[i] == 5 ? 3 * steps : steps);
        }
    }
}

static void test_partial_threads_solo_conserves(void **state)
{
    conserve_sizes(BATON_SOLO, SUPPORT_REPEAT(500));
}

static void test_partial_threads_majority_conserves(void **state)
{
    conserve_sizes(BATON_MAJORITY, SUPPORT_REPEAT(500));
}

static void test_partial_threads_full_conserves(void **state)
{
    conserve_sizes(BATON_FULL, SUPPORT_REPEAT(200));
}

static void test_partial_threads_share_an_engine(void **state)
{
    for (int variant = 0; variant < 2; variant++) {
        for (int mode = 0; mode < 3; mode++) {
            conserve(variant, (baton_partial_mode_t)mode,
                     mode == 0 ? BATON_KEEP_LATEST : BATON_KEEP_ALL,
                     baton_allreduce_recursive_doubling, 4,
                     SUPPORT_REPEAT(300));
        }
    }
}

/* Ranks come at any time, do a step or two, and go as soon as they have ended
   it, whether or not others have started theirs, or made their partial. */
static void come_and_go(support_worker_t *worker)
{
    const uint64_t *seed = worker->arg;
    support_random_t random = support_random(*seed, (uint64_t)worker->rank);
    baton_partial_options_t options = BATON_PARTIAL_OPTIONS;
    options.name = "brief";
    options.count = 3;
    options.dtype = BATON_I64;
    options.op = BATON_SUM;
    options.mode = *seed % 2 == 0 ? BATON_SOLO : BATON_MAJORITY;
    const int64_t data[3] = {1, 2, 3};
    baton_partial_t *partial = NULL;
    doze(&random);
    baton_status_t status =
        baton_partial_create(worker->group, &options, &partial);
    for (uint64_t step = 0; status == BATON_OK && step <= *seed % 3; step++) {
        baton_partial_result_t result;
        doze(&random);
        status = baton_partial_contribute(partial, data);
        status = status == BATON_OK ? baton_partial_start(partial) : status;
        status = status == BATON_OK
                     ? baton_partial_wait(partial, SUPPORT_WAIT_MS, &result)
                     : status;
    }
    (void)support_worker_check(worker, status == BATON_OK, "a step: %s",
                               baton_error_message());
    (void)support_worker_check(worker,
                               baton_partial_destroy(partial) == BATON_OK,
                               "destroy: %s", baton_error_message());
}

static void test_partial_threads_come_and_go(void **state)
{
    uint64_t seed = support_seed();
    for (int round = 0; round < SUPPORT_REPEAT(100); round++) {
        support_cluster_t *cluster =
            support_cluster_open(2 + round % 4, SUPPORT_OWN_ENGINES);
        support_cluster_run(cluster, come_and_go, &seed);
        support_cluster_close(cluster);
        seed++;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_partial_threads_solo_conserves),
        cmocka_unit_test(test_partial_threads_majority_conserves),
        cmocka_unit_test(test_partial_threads_full_conserves),
        cmocka_unit_test(test_partial_threads_share_an_engine),
        cmocka_unit_test(test_partial_threads_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
