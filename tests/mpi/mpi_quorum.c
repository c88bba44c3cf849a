/* QUORUM over MPI: ranks that sleep at random, 1,000 epochs of each quorum. In
   every epoch at least q ranks' contributions are included, and none is lost.
 */
#include "support/random.h"

#include <baton/mpi.h>
#include <baton/partial.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { EPOCHS = 1000, LONGEST_US = 300 };

static int rank, size;
static uint64_t seed;

static void die(const char *what)
{
    fprintf(stderr, "mpi_quorum: rank %d of %d: %s (BATON_SEED=%" PRIu64 ")\n",
            rank, size, what, seed);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void must(baton_status_t status)
{
    if (status != BATON_OK) {
        die(baton_error_message());
    }
}

static void doze(support_random_t *random)
{
    if (support_random_below(random, 8) == 0) {
        const struct timespec span = {
            0, (long)support_random_below(random, LONGEST_US) * 1000};
        nanosleep(&span, NULL);
    }
}

/* Two elements, a random value and 1: sums modulo 2^64. */
typedef struct totals {
    uint64_t contributed[2], results[2], pending[2];
} totals_t;

static void step(baton_partial_t *partial, uint32_t q, support_random_t *random,
                 totals_t *totals)
{
    const uint64_t data[2] = {support_random_next(random), 1};
    baton_partial_result_t seen;
    doze(random);
    must(baton_partial_contribute(partial, data));
    must(baton_partial_start(partial));
    must(baton_partial_wait(partial, -1, &seen));
    const uint64_t *result = seen.data;
    for (int i = 0; i < 2; i++) {
        totals->contributed[i] += data[i];
        totals->results[i] += result[i];
    }
    if (seen.active < q || result[1] < q) {
        char text[100];
        snprintf(text, sizeof text,
                 "epoch %" PRIu64 " has %u active ranks, quorum %u", seen.epoch,
                 seen.active, q);
        die(text);
    }
}

static void run(baton_group_t *group, uint32_t q)
{
    const baton_partial_options_t options = {.size = sizeof options,
                                             .mode = BATON_QUORUM,
                                             .mode_ranks = q,
                                             .keep = BATON_KEEP_ALL,
                                             .history = 8,
                                             .count = 2,
                                             .dtype = BATON_U64};
    support_random_t random = support_random(seed, 1000 * q + (uint64_t)rank);
    baton_partial_t *partial;
    totals_t mine = {0}, all;
    bool any;
    must(baton_partial_create(group, &options, &partial));
    for (int i = 0; i < EPOCHS; i++) {
        step(partial, q, &random, &mine);
    }
    MPI_Barrier(MPI_COMM_WORLD); /* no epoch takes anything any more */
    must(baton_partial_pending(partial, mine.pending, &any));
    MPI_Allreduce(&mine, &all, sizeof mine / sizeof(uint64_t), MPI_UINT64_T,
                  MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < 2; i++) {
        if (mine.results[i] + all.pending[i] != all.contributed[i]) {
            die("results and what is pending are not what was contributed");
        }
    }
    must(baton_partial_destroy(partial));
}

int main(int argc, char **argv)
{
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    seed = rank == 0 ? support_seed() : 0;
    MPI_Bcast(&seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    baton_engine_t *engine;
    baton_group_t *group;
    must(baton_engine_open(NULL, &engine));
    must(baton_group_create_mpi(engine, MPI_COMM_WORLD, &group));
    const int quorums[] = {1, 2, size / 2, size - 1, size};
    int last = 0;
    for (int i = 0; i < 5; i++) {
        if (quorums[i] > last && quorums[i] <= size) {
            last = quorums[i];
            run(group, (uint32_t)last);
        }
    }
    must(baton_group_destroy(group));
    must(baton_engine_close(engine));
    MPI_Finalize();
    return 0;
}
