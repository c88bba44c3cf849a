/* The conservation law of partial all-reduces over MPI, checked exactly, with
   ranks that sleep at random. Rank 0 prints one line; the exit code is the
   result. */
#include "support/conserve.h"
#include "support/mpi.h"
#include "support/random.h"
#include "support/sanitized.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, size;
static uint64_t seed;

/* With more ranks than processors epochs get slower. */
static uint64_t steps_of(baton_partial_mode_t mode)
{
    uint64_t steps = size <= 4 ? 3000 : size <= 8 ? 1500 : 600;
    return SUPPORT_REPEAT(mode >= BATON_FULL ? steps / 4 : steps);
}

static uint64_t conserve(baton_group_t *group,
                         const conserve_options_t *options)
{
    conserve_totals_t mine, all[CONSERVE_RANKS];
    const char *what = conserve_run(group, options, &mine);
    if (what != NULL) {
        support_mpi_die(what);
    }
    MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, all, sizeof(mine), MPI_BYTE,
                  MPI_COMM_WORLD);
    what = conserve_compare(all, size);
    if (what != NULL) {
        support_mpi_die(what);
    }
    return options->steps;
}

int main(int argc, char **argv)
{
    static const char *const modes[] = {"solo", "majority", "full", "quorum"};
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    seed = rank == 0 ? support_seed() : 0;
    MPI_Bcast(&seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);

    baton_engine_t *engine;
    baton_group_t *group;
    support_mpi_expect(baton_engine_open(NULL, &engine), BATON_OK);
    support_mpi_expect(baton_group_create_mpi(engine, MPI_COMM_WORLD, &group),
                       BATON_OK);
    double began = MPI_Wtime();
    uint64_t epochs = 0;
    for (int mode = 0; mode < 4; mode++) {
        double since = MPI_Wtime();
        for (int variant = 0; variant < 2; variant++) {
            const conserve_options_t options = {
                .mode = (baton_partial_mode_t)mode,
                .keep = variant == 0 ? BATON_KEEP_LATEST : BATON_KEEP_ALL,
                .inner = variant == mode % 2
                             ? baton_allreduce_recursive_doubling
                             : baton_allreduce_ring,
                .seed = seed + (uint64_t)(10 * mode + variant),
                .steps = steps_of((baton_partial_mode_t)mode),
                .sleep_us = 200,
            };
            epochs += conserve(group, &options);
        }
        if (rank == 0) {
            printf("mpi_partial: %s, %.1f s\n", modes[mode],
                   MPI_Wtime() - since);
        }
    }
    if (rank == 0) {
        printf("mpi_partial: %d ranks, %d epochs, nothing lost, %.1f s\n", size,
               (int)epochs, MPI_Wtime() - began);
    }
    support_mpi_expect(baton_group_destroy(group), BATON_OK);
    support_mpi_expect(baton_engine_close(engine), BATON_OK);
    MPI_Finalize();
    return 0;
}
