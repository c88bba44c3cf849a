/* baton-bench: the costs of Baton, part by part. See `baton-bench --help`. */
#include "bench/bench.h"
#include "common/cli.h"
#include "common/harness.h"
#include "common/output.h"
#include <mpi.h>
#include <stdlib.h>

static const char doc[] =
    "Measures Baton's engine, all-reduce and reduction kernels."
    "\vCommands:\n"
    "  engine   nodes, commits, epochs, idling; an 8-byte all-reduce against "
    "MPI\n"
    "  ring     all-reduce of long vectors against MPI\n"
    "  loop     a training loop: epochs in the background, hundreds of\n"
    "           schedules, long pipelines\n"
    "  sparse   sparse all-reduces at density 1%, beside dense ones\n"
    "  kernels  f32 sum against the plain loop at -O3 -march=native; adding\n"
    "           up and selecting, in two steps and in one pass\n"
    "\n"
    "All but kernels run under mpirun with any number of ranks; with one, "
    "measurements that need peers are skipped. Open MPI 4.1 has a faster "
    "algorithm for long vectors than its default: compare also with "
    "OMPI_MCA_coll_libnbc_iallreduce_algorithm=1 in the environment.\n\n"
    "Example: mpirun -np 2 --bind-to none baton-bench engine --json bench.json";

typedef enum command {
    COMMAND_NONE,
    COMMAND_ENGINE,
    COMMAND_RING,
    COMMAND_LOOP,
    COMMAND_SPARSE,
    COMMAND_KERNELS
} command_t;

typedef struct arguments {
    command_t command;
    const char *json; /* file name, or NULL */
    bench_options_t bench;
} arguments_t;

static const cli_option_t options[] = {
    {CLI_ANY, "repetitions", 'r', offsetof(arguments_t, bench.repetitions),
     CLI_COUNT(5, 1000), "11", "Repetitions of each measurement"},
    {CLI_ANY, "epochs", 'e', offsetof(arguments_t, bench.epochs),
     CLI_COUNT(1, 1000000000), "100000",
     "engine: number of epochs over which memory must not grow"},
    {CLI_ANY, "bytes", 'b', offsetof(arguments_t, bench.bytes),
     CLI_SIZES(4, 4, UINT64_C(1) << 30, BENCH_MAX_SIZES,
               offsetof(arguments_t, bench.size_count)),
     "1M,4M,16M,64M", "ring, sparse: sizes of the vectors"},
    {CLI_ANY, "json", 0, offsetof(arguments_t, json), CLI_FILE, NULL,
     "Write the results as JSON"},
};

static error_t take_command(cli_parser_t *parser, const char *word)
{
    static const char *const words[] = {"engine", "ring",    "loop",
                                        "sparse", "kernels", NULL};
    static const cli_type_t type = CLI_WORD(NULL, words);
    arguments_t *args = parser->values;
    if (args->command != COMMAND_NONE) {
        return cli_refuse(parser, "COMMAND: '%s' is one too many", word);
    }
    size_t index = 0;
    error_t error = cli_read(parser, "COMMAND", &type, word, &index, NULL);
    if (error == 0) {
        args->command = (command_t)(COMMAND_ENGINE + index);
    }
    return error;
}

static int run(const arguments_t *args, int rank, FILE *json)
{
    switch (args->command) {
    case COMMAND_ENGINE:
        return bench_engine(&args->bench, json);
    case COMMAND_RING:
        return bench_ring(&args->bench, json);
    case COMMAND_LOOP:
        return bench_loop(&args->bench, json);
    case COMMAND_SPARSE:
        return bench_sparse(&args->bench, json);
    case COMMAND_KERNELS:
        return rank == 0 ? bench_kernels(json) : 0;
    case COMMAND_NONE:
        break;
    }
    return EXIT_FAILURE;
}

/* Rank 0 opens the file before the measurement, so that a bad path fails at
   once. */
static bool run_with_file(const arguments_t *args, int rank)
{
    FILE *json = NULL;
    if (!harness_agree(rank != 0 || output_open(args->json, &json))) {
        return false;
    }
    bool passed = run(args, rank, json) == 0;
    passed &= output_close(json, args->json);
    return harness_agree(passed);
}

int main(int argc, char **argv)
{
    static const cli_program_t program = {
        .doc = doc,
        .arguments = "COMMAND",
        .options = options,
        .option_count = sizeof(options) / sizeof(options[0]),
        .command = CLI_ANY,
        .take_argument = take_command,
    };
    arguments_t args = {.command = COMMAND_NONE};
    int level = 0;
    int rank = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    cli_verdict_t verdict = cli_parse(&program, argc, argv, rank == 0, &args);
    bool passed = verdict == CLI_DONE;
    if (verdict == CLI_RUN) {
        passed = run_with_file(&args, rank);
    }
    MPI_Finalize();
    return passed ? EXIT_SUCCESS : EXIT_FAILURE;
}
