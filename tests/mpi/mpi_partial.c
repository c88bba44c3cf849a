/* The conservation law over MPI, checked exactly (support/conserve.h), with
   ranks that sleep at random. Rank 0 prints a line for each row and mode; the
   exit code is the result. */
#include "support/conserve.h"
#include "support/mpi.h"
#include "support/random.h"
#include "support/sanitized.h"

#include <stdio.h>

static int rank, size;

static void conserve(baton_group_t *group, support_row_t row,
                     baton_partial_mode_t mode, uint64_t seed)
{
    /* With more ranks than processors epochs get slower. */
    uint64_t steps = size <= 4 ? 3000 : size <= 8 ? 1500 : 600;
    conserve_options_t options = {.row = row,
                                  .options = support_collective_options(row),
                                  .seed = seed + 10 * mode + row,
                                  .steps = SUPPORT_REPEAT(steps),
                                  .sleep_us = 200};
    conserve_totals_t mine, all[CONSERVE_RANKS];
    double began = MPI_Wtime();
    options.steps /= mode >= BATON_FULL ? 4 : 1;
    options.options.mode = mode;
    options.options.mode_ranks =
        mode == BATON_QUORUM ? (uint32_t)size / 2 + 1 : 0;
    const char *what = conserve_run(group, &options, &mine);
    if (what != NULL) {
        support_mpi_die(what);
    }
    MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, all, sizeof(mine), MPI_BYTE,
                  MPI_COMM_WORLD);
    what = conserve_compare(row, all, size);
    if (what != NULL) {
        support_mpi_die(what);
    }
    if (rank == 0) {
        printf("mpi_partial: %s, mode %d: nothing lost, %.1f s\n",
               support_row_names[row], (int)mode, MPI_Wtime() - began);
    }
}

int main(int argc, char **argv)
{
    int level;
    uint64_t seed;
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
    for (int mode = BATON_SOLO; mode <= BATON_QUORUM; mode++) {
        conserve(group, SUPPORT_PARTIAL, (baton_partial_mode_t)mode, seed);
        conserve(group, SUPPORT_PARTIAL_LATEST, (baton_partial_mode_t)mode,
                 seed);
    }
    conserve(group, SUPPORT_PARTIAL_SPARSE, BATON_SOLO, seed);
    support_mpi_expect(baton_group_destroy(group), BATON_OK);
    support_mpi_expect(baton_engine_close(engine), BATON_OK);
    MPI_Finalize();
    return 0;
}
