/* baton-bench: the costs of Baton, part by part. See `baton-bench --help`. */
#include "bench/libnbc.h"
#include "bench/options.h"
#include "common/harness.h"
#include "common/output.h"
#include <mpi.h>
#include <stdlib.h>

static int run(bench_command_t command, const bench_options_t *options,
               int rank, FILE *json)
{
    switch (command) {
    case BENCH_ENGINE:
        return bench_engine(options, json);
    case BENCH_RING:
        return bench_ring(options, json);
    case BENCH_LOOP:
        return bench_loop(options, json);
    case BENCH_SPARSE:
        return bench_sparse(options);
    case BENCH_KERNELS:
        return rank == 0 ? bench_kernels(json) : 0;
    case BENCH_COLLECTIVE:
        return bench_collective(options);
    case BENCH_OVERLAP:
        return bench_overlap(options);
    case BENCH_NO_COMMAND:
        break;
    }
    return EXIT_FAILURE;
}

/* Rank 0 opens the file before the measurement, so that a bad path fails at
   once. Commands with a table of results open their own files. */
static bool run_with_file(bench_command_t command,
                          const bench_options_t *options, int rank)
{
    bool has_table = command == BENCH_COLLECTIVE || command == BENCH_OVERLAP ||
                     command == BENCH_SPARSE;
    const char *name = has_table ? NULL : options->json;
    FILE *json = NULL;
    if (!harness_agree(rank != 0 || output_open(name, &json))) {
        return false;
    }
    bool passed = run(command, options, rank, json) == 0;
    passed &= output_close(json, name);
    return harness_agree(passed);
}

int main(int argc, char **argv)
{
    bench_command_t command = BENCH_NO_COMMAND;
    bench_options_t options;
    int level = 0;
    int rank = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    cli_verdict_t verdict =
        bench_options_parse(argc, argv, rank == 0, &command, &options);
    bool passed = verdict == CLI_DONE;
    if (verdict == CLI_RUN) {
        passed = run_with_file(command, &options, rank);
    }
    libnbc_close();
    MPI_Finalize();
    return passed ? EXIT_SUCCESS : EXIT_FAILURE;
}
