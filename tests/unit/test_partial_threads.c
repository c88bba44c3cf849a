/* Partial collectives in threads that sleep at random: no contribution is lost
   or counted twice. Also ranks that come and go. */
#include "support/conserve.h"
#include "support/sanitized.h"

#include <time.h>

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

static void conserve(int variant, support_row_t row, baton_partial_mode_t mode,
                     int size, uint64_t steps)
{
    trial_t trial = {.options = {.row = row,
                                 .options = support_collective_options(row),
                                 .seed = support_seed() + (uint64_t)size,
                                 .steps = SUPPORT_REPEAT(steps),
                                 .sleep_us = 200}};
    trial.options.options.mode = mode;
    trial.options.options.seed = (uint64_t)size;
    trial.options.options.mode_ranks =
        mode == BATON_QUORUM ? (uint32_t)size / 2 + 1 : 0;
    support_cluster_t *cluster = support_cluster_open(size, variant);
    support_cluster_run(cluster, run_worker, &trial);
    support_cluster_close(cluster);
    const char *what = conserve_compare(row, trial.totals, size);
    if (what != NULL) {
        fail_msg("%s, %d ranks, %s, mode %d: %s",
                 support_variant_names[variant], size, support_row_names[row],
                 (int)mode, what);
    }
}

/* Each rank has an engine of its own, like a process. */
TEST(test_partial_threads_conserve)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    for (int mode = BATON_SOLO; mode <= BATON_QUORUM; mode++) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            uint64_t steps = mode == BATON_FULL ? 200 : 500;
            for (int row = SUPPORT_PARTIAL; row < SUPPORT_ROWS; row++) {
                conserve(SUPPORT_OWN_ENGINES, (support_row_t)row,
                         (baton_partial_mode_t)mode, sizes[i], steps);
            }
        }
    }
}

TEST(test_partial_threads_share_an_engine)
{
    for (int variant = 0; variant < 2; variant++) {
        for (int row = SUPPORT_PARTIAL; row < SUPPORT_ROWS; row++) {
            for (int mode = 0; mode < 3; mode++) {
                conserve(variant, (support_row_t)row,
                         (baton_partial_mode_t)mode, 4, 300);
            }
        }
    }
}

static void doze(support_random_t *random)
{
    const struct timespec span = {0, (long)support_random_below(random, 300) *
                                         1000};
    nanosleep(&span, NULL);
}

/* Ranks come at random times, do a few steps, and leave as soon as these have
   ended. Other ranks may not have started theirs by then, or not even made
   their partial. */
static void come_and_go(support_worker_t *worker)
{
    const uint64_t *seed = worker->arg;
    support_random_t random = support_random(*seed, (uint64_t)worker->rank);
    const support_row_t row = SUPPORT_PARTIAL_LATEST;
    conserve_totals_t totals;
    conserve_options_t options = {.row = row,
                                  .options = support_collective_options(row),
                                  .seed = *seed,
                                  .steps = 1 + *seed % 3,
                                  .sleep_us = 300};
    options.options.mode = *seed % 2 == 0 ? BATON_SOLO : BATON_MAJORITY;
    options.options.seed = *seed / 2;
    doze(&random);
    const char *what = conserve_run(worker->group, &options, &totals);
    (void)support_worker_check(worker, what == NULL, "%s", what);
}

TEST(test_partial_threads_come_and_go)
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
