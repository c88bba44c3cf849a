/* Partial sparse all-reduces over MPI: ranks that sleep at random. Results are
   the same on all ranks, and no gradient is lost: gradients are integers, so
   all of them equal all results plus all residuals. */
#include "support/mpi.h"
#include "support/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COUNT = 301, STEPS = 150, LONGEST_US = 300, WAIT_MS = 60000 };

static int rank, size;
static uint64_t seed;

static void doze(support_random_t *random)
{
    if (support_random_below(random, 6) == 0) {
        const struct timespec span = {
            0, (long)support_random_below(random, LONGEST_US) * 1000};
        nanosleep(&span, NULL);
    }
}

/* Sums over steps, of this rank; the results' are the same on all. */
typedef struct totals {
    double gradients[COUNT], results[COUNT], residual[COUNT];
    uint64_t hash; /* of the results, in their order */
} totals_t;

static void step(baton_sparse_t *sparse, support_random_t *random,
                 totals_t *totals)
{
    static double vector[COUNT];
    baton_sparse_result_t result;
    for (int i = 0; i < COUNT; i++) {
        vector[i] = (double)support_random_below(random, 201) - 100;
        totals->gradients[i] += vector[i];
    }
    doze(random);
    support_mpi_expect(baton_sparse_start(sparse, vector), BATON_OK);
    memset(vector, 0xff, sizeof vector); /* it is the caller's again */
    support_mpi_expect(baton_sparse_wait(sparse, WAIT_MS, &result), BATON_OK);
    support_mpi_expect(baton_sparse_dense(sparse, vector), BATON_OK);
    for (int i = 0; i < COUNT; i++) {
        uint64_t bits;
        memcpy(&bits, &vector[i], sizeof bits);
        totals->hash = (totals->hash ^ bits) * UINT64_C(0x100000001b3);
        totals->results[i] += vector[i];
    }
}

static void expect_conserved(const totals_t *mine)
{
    static double gradients[COUNT], residuals[COUNT];
    uint64_t least, most;
    MPI_Allreduce(mine->gradients, gradients, COUNT, MPI_DOUBLE, MPI_SUM,
                  MPI_COMM_WORLD);
    MPI_Allreduce(mine->residual, residuals, COUNT, MPI_DOUBLE, MPI_SUM,
                  MPI_COMM_WORLD);
    MPI_Allreduce(&mine->hash, &least, 1, MPI_UINT64_T, MPI_MIN,
                  MPI_COMM_WORLD);
    MPI_Allreduce(&mine->hash, &most, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    if (least != most) {
        support_mpi_die("results differ across ranks");
    }
    for (int i = 0; i < COUNT; i++) {
        if (gradients[i] != mine->results[i] + residuals[i]) {
            support_mpi_die("results and residuals are not the gradients");
        }
    }
}

static void run(baton_group_t *group, baton_sparse_options_t options)
{
    static char what[100];
    static totals_t totals;
    (void)snprintf(what, sizeof what, "%s, mode %d of %u (BATON_SEED=%llu)",
                   baton_sparse_algorithm_name(options.algorithm),
                   (int)options.mode, options.mode_ranks,
                   (unsigned long long)seed);
    support_mpi_running = what;
    memset(&totals, 0, sizeof totals);
    support_random_t random =
        support_random(seed, 1000 * (uint64_t)options.mode + (uint64_t)rank);
    baton_sparse_t *sparse;
    options.partial = true;
    options.count = COUNT;
    options.k = 20;
    options.dtype = BATON_F64;
    support_mpi_expect(baton_sparse_create(group, &options, WAIT_MS, &sparse),
                       BATON_OK);
    for (int i = 0; i < STEPS; i++) {
        step(sparse, &random, &totals);
    }
    MPI_Barrier(MPI_COMM_WORLD); /* no epoch runs any more */
    support_mpi_expect(baton_sparse_residual(sparse, totals.residual),
                       BATON_OK);
    expect_conserved(&totals);
    support_mpi_expect(baton_sparse_destroy(sparse), BATON_OK);
}

int main(int argc, char **argv)
{
    int provided;
    baton_engine_t *engine;
    baton_group_t *group;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    seed = rank == 0 ? support_seed() : 0;
    MPI_Bcast(&seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    support_mpi_expect(baton_engine_open(NULL, &engine), BATON_OK);
    support_mpi_expect(baton_group_create_mpi(engine, MPI_COMM_WORLD, &group),
                       BATON_OK);
    baton_sparse_options_t options = BATON_SPARSE_OPTIONS;
    run(group, options); /* solo */
    options.teams = size % 2 == 0 ? 2 : 1;
    run(group, options);
    options.mode = BATON_MAJORITY;
    run(group, options);
    options.mode = BATON_QUORUM;
    options.mode_ranks = (uint32_t)(size + 1) / 2;
    options.sync_every = 10;
    run(group, options);
    options = (baton_sparse_options_t)BATON_SPARSE_OPTIONS;
    options.algorithm = BATON_SPARSE_GTOPK;
    options.max_staleness = 2;
    run(group, options);
    support_mpi_expect(baton_group_destroy(group), BATON_OK);
    support_mpi_expect(baton_engine_close(engine), BATON_OK);
    MPI_Finalize();
    return 0;
}
