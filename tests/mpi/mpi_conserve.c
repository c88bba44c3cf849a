/* The law of conservation over MPI, checked exactly (support/conserve.h), with
   ranks that sleep at random: sparse all-reduces by every algorithm, and
   partial all-reduces in every mode. Rank 0 prints a line for each of them. The
   exit code is the result. */
#include "support/conserve.h"
#include "support/mpi.h"
#include "support/sanitized.h"

/* Ranks of several hosts are slow, so they make only a part of the epochs. */
static uint64_t fewer = 1;

static void conserve(support_row_t row, const baton_sparse_options_t *sparse,
                     uint64_t steps, uint64_t failures)
{
    const conserve_options_t options = {.row = row,
                                        .options = *sparse,
                                        .seed = world.seed + 10 * sparse->mode +
                                                row,
                                        .steps = SUPPORT_REPEAT(steps),
                                        .sleep_us = 200,
                                        .failures = SUPPORT_REPEAT(failures)};
    static char running[100];
    conserve_totals_t mine, all[CONSERVE_RANKS];
    double began = MPI_Wtime();
    (void)snprintf(running, sizeof running,
                   "%s, mode %d, %s, %d teams, exchange %d",
                   support_row_names[row], (int)sparse->mode,
                   baton_sparse_algorithm_name(sparse->algorithm),
                   sparse->teams, (int)sparse->exchange);
    support_mpi_running = running;
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
        printf("mpi_conserve: %s: nothing lost, %.1f s\n", running,
               MPI_Wtime() - began);
    }
}

static void conserve_partial(support_row_t row, baton_partial_mode_t mode,
                             bool wide)
{
    /* If there are more ranks than processors, epochs are slower, so there are
       fewer. */
    uint64_t steps = world.size <= 4 ? 3000 : 1500;
    steps = world.size <= 8 ? steps : 600;
    steps = wide ? 40 : steps;
    baton_sparse_options_t options = support_collective_options(row);
    options.mode = mode;
    options.seed = wide ? SUPPORT_WIDE : (uint64_t)mode + row;
    options.mode_ranks =
        mode == BATON_QUORUM ? (uint32_t)world.size / 2 + 1 : 0;
    conserve(row, &options, steps / fewer / (mode >= BATON_FULL ? 4 : 1), 0);
}

/* Every algorithm, and SparDL with every number of teams. Vectors are long, so
   that some messages are sent in one piece, and others in many. */
static void conserve_sparse(void)
{
    baton_sparse_options_t options = support_collective_options(SUPPORT_SPARSE);
    options.count = CONSERVE_MOST;
    options.k = 300;
    for (int i = BATON_SPARSE_SPARDL; i < BATON_SPARSE_COUNT; i++) {
        options.algorithm = (baton_sparse_algorithm_t)i;
        conserve(SUPPORT_SPARSE, &options, 20, 0);
    }
    options.algorithm = BATON_SPARSE_SPARDL;
    for (options.teams = 2; options.teams <= world.size; options.teams++) {
        for (int shares = 0; shares < 2; shares++) {
            options.exchange =
                shares == 0 ? BATON_EXCHANGE_AUTO : BATON_EXCHANGE_BSAG;
            if (world.size % options.teams == 0) {
                conserve(SUPPORT_SPARSE, &options, 20, 0);
            }
        }
    }
}

/* Some ranks fail in epochs that other ranks have completed. */
static void conserve_failures(void)
{
    static const baton_sparse_algorithm_t algorithms[] = {
        BATON_SPARSE_SPARDL, BATON_SPARSE_TOPKA, BATON_SPARSE_TOPKDSA,
        BATON_SPARSE_GTOPK};
    baton_sparse_options_t options =
        support_collective_options(SUPPORT_PARTIAL_SPARSE);
    baton_sparse_options_t plain = support_collective_options(SUPPORT_SPARSE);
    plain.count = options.count = CONSERVE_MOST;
    plain.k = options.k = 300;
    for (int i = 0; i < 5; i++) {
        plain.algorithm = i < 4 ? algorithms[i] : BATON_SPARSE_OKTOPK;
        plain.teams = i == 0 && world.size % 2 == 0 ? 2 : 1;
        plain.warmup = 200; /* the first steps are dense */
        plain.in_place = i == 0 && world.size % 3 == 2;
        conserve(SUPPORT_SPARSE, &plain, 20, 200 / fewer);
    }
    for (int i = 0; i < 4; i++) {
        options.algorithm = algorithms[i];
        options.teams = i == 0 && world.size % 2 == 0 ? 2 : 1;
        options.mode = i % 2 == 0 ? BATON_SOLO : BATON_MAJORITY;
        options.warmup = 50;
        conserve(SUPPORT_PARTIAL_SPARSE, &options, 20, 200 / fewer);
    }
}

int main(int argc, char **argv)
{
    support_mpi_begin(argc, argv);
    if (argc > 1) {
        fewer = strtoull(argv[1], NULL, 10);
    }
    support_mpi_open();
    conserve_sparse();
    for (int mode = BATON_SOLO; mode <= BATON_QUORUM; mode++) {
        conserve_partial(SUPPORT_PARTIAL, (baton_partial_mode_t)mode, false);
        conserve_partial(SUPPORT_PARTIAL, (baton_partial_mode_t)mode, true);
        conserve_partial(SUPPORT_PARTIAL_LATEST, (baton_partial_mode_t)mode,
                         false);
    }
    conserve_partial(SUPPORT_PARTIAL_SPARSE, BATON_SOLO, false);
    conserve_failures();
    support_mpi_end();
    return 0;
}
