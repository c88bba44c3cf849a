/* baton-bench: what Baton costs, part by part. See `baton-bench --help`. */
#include "bench.h"
#include "cli.h"
#include "harness.h"
#include <errno.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

static const char doc[] =
    "Measures Baton's engine, all-reduce and reduction kernels."
    "\vCommands:\n"
    "  engine   nodes, commits, epochs, idling; an 8-byte all-reduce against "
    "MPI\n"
    "  ring     all-reduce of long vectors against MPI\n"
    "  kernels  f32 sum against the plain loop at -O3 -march=native\n"
    "\n"
    "engine and ring run under mpirun with any number of ranks; what takes "
    "peers is skipped with one. The best that Open MPI 4.1 does for long "
    "vectors is not its default: compare also with "
    "OMPI_MCA_coll_libnbc_iallreduce_algorithm=1 in the environment.\n\n"
    "Example: mpirun -np 2 --bind-to none baton-bench engine --json bench.json";

enum { KEY_JSON = 256, KEY_REPETITIONS = 'r', KEY_EPOCHS = 'e' };
enum { KEY_BYTES = 'b', ITEM_BYTES = 32 };

static const struct argp_option options[] = {
    {"repetitions", KEY_REPETITIONS, "N", 0,
     "Of each measurement, 5 to 1000 (default 11)", 0},
    {"epochs", KEY_EPOCHS, "N", 0,
     "engine: over which memory must not grow, 1 to 1000000000 (default "
     "100000)",
     0},
    {"bytes", KEY_BYTES, "LIST", 0,
     "ring: sizes, multiples of 4, with K, M or G (default 1M,4M,16M,64M)", 0},
    {"json", KEY_JSON, "FILE", 0, "Write the results as JSON", 1},
    CLI_COMMON_OPTIONS,
    {0}};

typedef enum command {
    COMMAND_NONE,
    COMMAND_ENGINE,
    COMMAND_RING,
    COMMAND_KERNELS
} command_t;

typedef struct arguments {
    command_t command;
    const char *json; /* file name, NULL: none */
    bench_options_t bench;
} arguments_t;

static error_t parse_sizes(arguments_t *args, const char *list,
                           struct argp_state *state)
{
    char item[ITEM_BYTES];
    args->bench.size_count = 0;
    while (cli_next_item(&list, item, sizeof(item))) {
        uint64_t bytes = 0;
        if (!cli_bytes(item, 4, UINT64_C(1) << 30, &bytes) || bytes % 4 != 0) {
            return cli_bad(state, "--bytes", item,
                           "is not a multiple of 4 from 4 to 1G");
        }
        if (args->bench.size_count == BENCH_MAX_SIZES) {
            return cli_bad(state, "--bytes", item,
                           "is one too many: at most 16 sizes");
        }
        args->bench.bytes[args->bench.size_count++] = bytes;
    }
    return 0;
}

static error_t parse_command(arguments_t *args, const char *word,
                             struct argp_state *state)
{
    static const char *const words[] = {
        [COMMAND_NONE] = "",
        [COMMAND_ENGINE] = "engine",
        [COMMAND_RING] = "ring",
        [COMMAND_KERNELS] = "kernels",
    };
    if (args->command != COMMAND_NONE) {
        return cli_bad(state, "COMMAND", word, "is one too many");
    }
    for (int i = COMMAND_ENGINE; i <= COMMAND_KERNELS; i++) {
        if (strcmp(word, words[i]) == 0) {
            args->command = (command_t)i;
            return 0;
        }
    }
    return cli_bad(state, "COMMAND", word,
                   "is not one of engine, ring, kernels");
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    arguments_t *args = state->input;
    switch (key) {
    case KEY_REPETITIONS:
        return cli_count(arg, 5, 1000, &args->bench.repetitions)
                   ? 0
                   : cli_bad(state, "--repetitions", arg,
                             "is not from 5 to 1000");
    case KEY_EPOCHS:
        return cli_count(arg, 1, 1000000000, &args->bench.epochs)
                   ? 0
                   : cli_bad(state, "--epochs", arg,
                             "is not from 1 to 1000000000");
    case KEY_BYTES:
        return parse_sizes(args, arg, state);
    case KEY_JSON:
        args->json = arg;
        return 0;
    case CLI_KEY_HELP:
    case CLI_KEY_USAGE:
    case CLI_KEY_VERSION:
        return cli_common(key, state);
    case ARGP_KEY_ARG:
        return parse_command(args, arg, state);
    case ARGP_KEY_NO_ARGS:
        return cli_bad(state, "COMMAND", "",
                       "is not one of engine, ring, kernels");
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int run(const arguments_t *args, int rank, FILE *json)
{
    switch (args->command) {
    case COMMAND_ENGINE:
        return bench_engine(&args->bench, json);
    case COMMAND_RING:
        return bench_ring(&args->bench, json);
    case COMMAND_KERNELS:
        return rank == 0 ? bench_kernels(json) : 0;
    case COMMAND_NONE:
        break;
    }
    return EXIT_FAILURE;
}

static bool say(const char *name)
{
    (void)fprintf(stderr, "baton-bench: can't write %s: %s\n", name,
                  strerror(errno));
    return false;
}

/* The file is rank 0's, and open before the measurement: a bad path fails at
   once. */
static bool run_with_file(const arguments_t *args, int rank)
{
    FILE *json = NULL;
    bool opened = true;
    if (rank == 0 && args->json != NULL) {
        json = fopen(args->json, "we");
        opened = json != NULL || say(args->json);
    }
    if (!harness_agree(opened)) {
        return false;
    }
    bool passed = run(args, rank, json) == 0;
    if (json != NULL && fclose(json) != 0) {
        passed = say(args->json);
    }
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
