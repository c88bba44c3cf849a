/* The conservation law over MPI, checked exactly (support/conserve.h), with
   ranks that sleep at random. Rank 0 prints a line for each row and mode; the
   exit code is the result. */
#include "support/conserve.h"
#include "support/mpi.h"
#include "support/sanitized.h"

#include <stdio.h>

static void conserve(support_row_t row, baton_partial_mode_t mode)
{
    /* With more ranks than processors epochs get slower. */
    uint64_t steps = world.size <= 4 ? 3000 : world.size <= 8 ? 1500 : 600;
    conserve_options_t options = {.row = row,
                                  .options = support_collective_options(row),
                                  .seed = world.seed + 10 * mode + row,
                                  .steps = SUPPORT_REPEAT(steps),
                                  .sleep_us = 200};
    conserve_totals_t mine, all[CONSERVE_RANKS];
    double began = MPI_Wtime();
    options.steps /= mode >= BATON_FULL ? 4 : 1;
    options.options.mode = mode;
    options.options.mode_ranks =
        mode == BATON_QUORUM ? (uint32_t)world.size / 2 + 1 : 0;
    const char *what = conserve_run(world.group, &options, &mine);
    if (what != NULL) {
        support_mpi_die(what);
    }
    MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, all, sizeof(mine), MPI_BYTE,
                  MPI_COMM_WORLD);
    what = conserve_compare(row, all, world.size);
    if (what != NULL) {
        support_mpi_die(what);
    }
    if (world.rank == 0) {
        printf("mpi_partial: %s, mode %d: nothing lost, %.1f s\n",
               support_row_names[row], (int)mode, MPI_Wtime() - began);
    }
}

int main(int argc, char **argv)
{
    support_mpi_begin(argc, argv);
    support_mpi_open();
    for (int mode = BATON_SOLO; mode <= BATON_QUORUM; mode++) {
        conserve(SUPPORT_PARTIAL, (baton_partial_mode_t)mode);
        conserve(SUPPORT_PARTIAL_LATEST, (baton_partial_mode_t)mode);
    }
    conserve(SUPPORT_PARTIAL_SPARSE, BATON_SOLO);
    support_mpi_end();
    return 0;
}
