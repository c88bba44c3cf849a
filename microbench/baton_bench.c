/* baton-bench: what Baton costs, part by part. See `baton-bench --help`. */
#include "bench.h"
#include "cli.h"
#include "harness.h"
#include "output.h"
#include <mpi.h>
#include <stdlib.h>

static const char doc[] =
    "Measures Baton's engine, all-reduce and reduction kernels."
    "\vCommands:\n"
    "  engine   nodes, commits, epochs, idling; an 8-byte all-reduce against "
    "MPI\n"
    "  ring     all-reduce of long vectors against MPI\n"
    "  loop     what a training loop sees: epochs that nobody waits for,\n"
    "           hundreds of schedules, long pipelines\n"
    "  sparse   sparse all-reduces at density 1%, beside dense ones\n"
    "  kernels  f32 sum against the plain loop at -O3 -march=native\n"
    "\n"
    "All but kernels run under mpirun with any number of ranks; what takes "
    "peers is skipped with one. The best that Open MPI 4.1 does for long "
    "vectors is not its default: compare also with "
    "OMPI_MCA_coll_libnbc_iallreduce_algorithm=1 in the environment.\n\n"
    "Example: mpirun -np 2 --bind-to none baton-bench engine --json bench.json";

enum { KEY_JSON = 256, KEY_REPETITIONS = 'r', KEY_EPOCHS = 'e' };
enum { KEY_BYTES = 'b' };

static const struct argp_option options[] = {
    {"repetitions", KEY_REPETITIONS, "N", 0,
     "Of each measurement, 5 to 1000 (default 11)", 0},
    {"epochs", KEY_EPOCHS, "N", 0,
     "engine: over which memory must not grow, 1 to 1000000000 (default "
     "100000)",
     0},
    {"bytes", KEY_BYTES, "LIST", 0,
     "ring, sparse: sizes, multiples of 4, with K, M or G (default "
     "1M,4M,16M,64M)",
     0},
    {"json", KEY_JSON, "FILE", 0, "Write the results as JSON", 1},
    CLI_COMMON_OPTIONS,
    {0}};

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
    const char *json; /* file name, NULL: none */
    bench_options_t bench;
} arguments_t;

static error_t parse_command(arguments_t *args, const char *word,
                             struct argp_state *state)
{
    static const char *const words[] = {"engine", "ring",    "loop",
                                        "sparse", "kernels", NULL};
    if (args->command != COMMAND_NONE) {
        return cli_bad(state, "COMMAND", word, "is one too many");
    }
    size_t index = 0;
    error_t error = cli_word_option(state, "COMMAND", word, words, &index);
    if (error == 0) {
        args->command = (command_t)(COMMAND_ENGINE + index);
    }
    return error;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    static const cli_sizes_t sizes = {4, 4, UINT64_C(1) << 30, BENCH_MAX_SIZES};
    arguments_t *args = state->input;
    switch (key) {
    case KEY_REPETITIONS:
        return cli_count_option(state, "--repetitions", arg, 5, 1000,
                                &args->bench.repetitions);
    case KEY_EPOCHS:
        return cli_count_option(state, "--epochs", arg, 1, 1000000000,
                                &args->bench.epochs);
    case KEY_BYTES:
        return cli_size_list(state, "--bytes", arg, &sizes, args->bench.bytes,
                             &args->bench.size_count);
    case KEY_JSON:
        args->json = arg;
        return 0;
    case ARGP_KEY_ARG:
        return parse_command(args, arg, state);
    case ARGP_KEY_NO_ARGS:
        return parse_command(args, "", state);
    default:
        return cli_default(key, arg, state);
    }
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

/* The file is rank 0's, and open before the measurement: a bad path fails at
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
    static const struct argp parser = {options, parse_option, "COMMAND", doc,
                                       NULL,    NULL,         NULL};
    arguments_t args = {
        .bench = {.repetitions = 11,
                  .epochs = 100000,
                  .bytes = {1 << 20, 4 << 20, 16 << 20, 64 << 20},
                  .size_count = 4},
    };
    int level = 0;
    int rank = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    cli_verdict_t verdict = cli_parse(&parser, argc, argv, rank == 0, &args);
    bool passed = verdict == CLI_DONE;
    if (verdict == CLI_RUN) {
        passed = run_with_file(&args, rank);
    }
    MPI_Finalize();
    return passed ? EXIT_SUCCESS : EXIT_FAILURE;
}
