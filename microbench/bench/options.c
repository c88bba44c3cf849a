#include "bench/bench.h"
#include <string.h>

/* ---- commands ----------------------------------------------------------- */

static const char doc[] =
    "Measures Baton: collectives against MPI's, overlap with computation, "
    "sparse steps, the engine, and kernels."
    "\vCommands:\n"
    "  allreduce, bcast, reduce, allgather, reduce_scatter, alltoall, gather,\n"
    "  scatter, barrier\n"
    "           a dense collective of Baton and of MPI: sizes, memory, in\n"
    "           place or not, activity of the application meanwhile\n"
    "  sparse   a step of each sparse all-reduce, against dense ones\n"
    "  engine   nodes, commits, epochs, idling\n"
    "  kernels  f32 sum against a plain loop at -O3 -march=native;\n"
    "           accumulation and selection in two steps and in one pass\n"
    "\n"
    "Each takes --help, and runs under mpirun with any number of ranks; with "
    "one, measurements that need peers are skipped.\n\n"
    "Example: mpirun -np 2 --bind-to none baton-bench allreduce --plot a.svg";

#define END                                                                    \
    "docs/bench.md describes the measurements and the columns. Run this "      \
    "under mpirun; with fewer ranks than processors add --bind-to none.\n\n"   \
    "Example: mpirun -np 2 --bind-to none baton-bench "

static const char collective_doc[] =
    "Compares MPI's calls of a collective with Baton's algorithms."
    "\vTimes are per call: the mean over the calls of a turn, on the slowest "
    "rank. The median over turns is shown. Every turn's result is checked.\n"
    "Systems: mpi is the blocking call; impi the nonblocking one and "
    "MPI_Wait; persistent is MPIX_..._init, MPI_Start and MPI_Wait; "
    "libnbc_ring the same with Open MPI's ring (all-reduce only); baton is "
    "Baton's own choice; baton:ALGORITHM is that algorithm, as baton-info "
    "--choices names it.\n"
    "Ways: wait is always measured. With unwaited the application does nothing "
    "until the end. With together it starts all --layers, and waits for all; "
    "with sleep and processor it also sleeps or computes after each "
    "start.\n\n" END
    "allreduce --bytes 64K..64M --systems mpi,impi,baton,baton:ring";

static const char sparse_doc[] =
    "Compares a step of each sparse all-reduce with dense ones."
    "\vTimes are per step, with selection, on the slowest rank. The median "
    "over turns is shown. Every result is checked.\n"
    "Algorithms: Baton's; mpi is MPI_Allreduce; mpi_residual is mpi and the "
    "pass that adds the gradient to a residual, as a sparse step does.\n\n" END
    "sparse --density 0.01,0.001 --algorithm spardl,oktopk,mpi_residual";

static const char other_doc[] =
    "Measures one part of Baton.\v" END "engine --json bench.json";

typedef struct entry {
    const char *name;
    bench_command_t command;
    baton_collective_t collective;
    const char *doc;
} entry_t;

#define DENSE(name, id)                                                        \
    {                                                                          \
        (name), BENCH_COLLECTIVE, BATON_COLLECTIVE_##id, collective_doc        \
    }
#define OTHER(name, id, doc)                                                   \
    {                                                                          \
        (name), BENCH_##id, BATON_COLLECTIVE_ALLREDUCE, doc                    \
    }

static const entry_t entries[] = {
    DENSE("allreduce", ALLREDUCE),
    DENSE("bcast", BROADCAST),
    DENSE("reduce", REDUCE),
    DENSE("allgather", ALLGATHER),
    DENSE("reduce_scatter", REDUCE_SCATTER),
    DENSE("alltoall", ALLTOALL),
    DENSE("gather", GATHER),
    DENSE("scatter", SCATTER),
    DENSE("barrier", BARRIER),
    OTHER("engine", ENGINE, other_doc),
    OTHER("sparse", SPARSE, sparse_doc),
    OTHER("kernels", KERNELS, other_doc),
};
enum { ENTRIES = sizeof(entries) / sizeof(entries[0]) };

/* ---- systems ------------------------------------------------------------ */

/* The names of the systems, in the order of bench_system_kind_t. */
static const char *const system_names[] = {"mpi",         "impi",  "persistent",
                                           "libnbc_ring", "baton", NULL};

static bench_system_t read_system(const cli_parser_t *parser, const char *name)
{
    static const cli_type_t type = CLI_WORD(NULL, system_names);
    static const char prefix[] = "baton:";
    const bench_options_t *opts = parser->values;
    bench_system_t system = {.name = name};
    size_t kind = BENCH_SYSTEM_BATON;
    baton_algorithm_t found = {0};
    if (strncmp(name, prefix, strlen(prefix)) != 0) {
        cli_read(parser, "--systems", &type, name, &kind);
    } else if (baton_algorithm_find(opts->collective, name + strlen(prefix),
                                    &found) != BATON_OK) {
        cli_refuse(parser, "--systems: %s", baton_error_message());
    }
    system.algorithm = found.name;
    system.kind = (bench_system_kind_t)kind;
    return system;
}

/* ---- the table ---------------------------------------------------------- */

enum {
    MANY_TURNS = BENCH_ENGINE | BENCH_KERNELS,
    ALL = BENCH_COLLECTIVE | BENCH_SPARSE | MANY_TURNS
};

#define AT(member) offsetof(bench_options_t, member)
#define SIZES      CLI_SIZES(4, 4, 1 << 30)
#define TIMES      CLI_COUNT(1, BENCH_MAX_REPETITIONS)

#define SPARSE_NAME(NAME, name) name,
const char *const bench_sparse_names[] = {BENCH_SPARSE_LIST(SPARSE_NAME) NULL};
#undef SPARSE_NAME
const char *const bench_wait_names[] = {"wait",  "unwaited",  "together",
                                        "sleep", "processor", NULL};
const char *const bench_memory_names[] = {"malloc", "shared", "device", NULL};
const char *const bench_place_names[] = {"out", "in", NULL};

static const cli_option_t options[] = {
    {BENCH_COLLECTIVE, "systems", 's', AT(system_names), CLI_TEXTS,
     "mpi,impi,persistent,baton", "Systems to compare, see below"},
    {BENCH_COLLECTIVE, "bytes", 'b', AT(bytes), SIZES, "8..64M",
     "Sizes of the vectors; LOW..HIGH doubles from LOW on; none for barrier"},
    {BENCH_SPARSE, "bytes", 'b', AT(bytes), SIZES, "16M",
     "Sizes of the gradients"},
    {BENCH_SPARSE, "density", 'd', AT(densities), CLI_REALS(1e-9, 1), "0.01",
     "Selected entries as a fraction of all elements"},
    {BENCH_SPARSE, "algorithm", 'a', AT(algorithms),
     CLI_WORDS(bench_sparse_names), "all", "Algorithms to compare"},
    {BENCH_SPARSE, "teams", 't', AT(teams), CLI_COUNTS(0, 1 << 24), "1",
     "Teams of spardl, divisors of the ranks; 0 chooses the cheapest"},
    {BENCH_SPARSE, "momentum", 0, AT(momentum), CLI_REAL("M", 0, 0.999), "0",
     "Momentum of Baton's steps"},
    {BENCH_SPARSE, "short-velocity", 0, AT(short_velocity), CLI_FLAG, NULL,
     "Keep the momentum's velocity as bf16"},
    {BENCH_SPARSE, "clip", 0, AT(clip), CLI_REAL("NORM", 0, 1e9), "0",
     "Norm to which Baton's steps clip gradients; 0: none"},
    {BENCH_SPARSE, "warm-up", 0, AT(warm_up), CLI_COUNT(0, 1000000), "0",
     "Dense steps at the beginning; the first two steps are not measured"},
    {BENCH_SPARSE, "in-place", 0, AT(accumulated), CLI_FLAG, NULL,
     "Add gradients to the residual before the step: only spardl and dense"},
    {BENCH_COLLECTIVE, "ways", 'w', AT(modes), CLI_WORDS(bench_wait_names),
     "wait", "What the application does after the start, see below"},
    {BENCH_COLLECTIVE, "layers", 'l', AT(layers), CLI_COUNTS(1, 1000), "1",
     "Collectives in flight at once"},
    {BENCH_COLLECTIVE, "memory", 'm', AT(memories),
     CLI_WORDS(bench_memory_names), "malloc",
     "Memory of the vectors: shared is from baton_memory_alloc, device is "
     "a GPU's"},
    {BENCH_COLLECTIVE, "place", 'p', AT(places), CLI_WORDS(bench_place_names),
     "out",
     "For all-reduce: whether the sum goes to another vector or replaces "
     "each rank's own"},
    {BENCH_SPARSE | BENCH_KERNELS, "memory", 'm', AT(memory),
     CLI_WORD("KIND", bench_memory_names), "malloc",
     "Memory of the vectors: device is a GPU's"},
    {BENCH_COLLECTIVE, "repetitions", 'r', AT(repetitions), TIMES, "5",
     "Turns of each system, whose median is reported"},
    {BENCH_COLLECTIVE, "turn-ms", 0, AT(repetition_ms), CLI_COUNT(1, 1000),
     "50", "Length of a turn, at least one call"},
    {BENCH_SPARSE, "repetitions", 'r', AT(repetitions), TIMES, "9",
     "Turns of each system, whose median is reported"},
    {MANY_TURNS, "repetitions", 'r', AT(repetitions), TIMES, "11",
     "Repetitions of each measurement"},
    {ALL, "csv", 0, AT(files.csv), CLI_TEXT("FILE"), NULL, "Write a CSV file"},
    {ALL, "json", 0, AT(files.json), CLI_TEXT("FILE"), NULL,
     "Write a JSON file"},
    {BENCH_COLLECTIVE, "plot", 0, AT(files.plot), CLI_PLOT, NULL,
     "Plot time against size; needs gnuplot"},
    {0}};

/* ---- parsing ------------------------------------------------------------ */

static void resolve_sparse(const cli_parser_t *parser)
{
    const bench_options_t *opts = parser->values;
    bool has_spardl = false;
    for (size_t i = 0; i < opts->algorithms.count; i++) {
        has_spardl |= opts->algorithms.words[i] == BENCH_SPARSE_SPARDL;
    }
    if (!has_spardl && cli_is_set(parser, "teams")) {
        cli_refuse(
            parser,
            "--teams: only spardl has teams, and --algorithm does not name it");
    }
}

/* Sorts the modes of waiting by number. Adds AT_ONCE, which has the lowest
   number and is always measured. */
static void sort_modes(cli_list_t *modes)
{
    bool wanted[BENCH_WAIT_MODES] = {[BENCH_WAIT_AT_ONCE] = true};
    for (size_t i = 0; i < modes->count; i++) {
        wanted[modes->words[i]] = true;
    }
    modes->count = 0;
    for (size_t mode = 0; mode < BENCH_WAIT_MODES; mode++) {
        if (wanted[mode]) {
            modes->words[modes->count++] = mode;
        }
    }
}

static void resolve_dense(const cli_parser_t *parser)
{
    bench_options_t *opts = parser->values;
    bool sums = opts->collective == BATON_COLLECTIVE_ALLREDUCE;
    sort_modes(&opts->modes);
    if (opts->collective == BATON_COLLECTIVE_BARRIER) {
        if (cli_is_set(parser, "bytes") || opts->files.plot != NULL) {
            cli_refuse(parser, "--%s: a barrier has no size",
                       opts->files.plot != NULL ? "plot" : "bytes");
        }
        opts->bytes = (cli_list_t){.count = 1};
    }
    if (cli_is_set(parser, "place") && !sums) {
        cli_refuse(parser, "--place: only allreduce has this option");
    }
    for (; opts->system_count < opts->system_names.count;
         opts->system_count++) {
        bench_system_t *system = &opts->systems[opts->system_count];
        *system =
            read_system(parser, opts->system_names.texts[opts->system_count]);
        if (system->kind == BENCH_SYSTEM_RING && !sums) {
            cli_refuse(parser,
                       "--systems: libnbc_ring exists only for allreduce");
        }
    }
    for (size_t i = 0; i < opts->memories.count; i++) {
        opts->memory = opts->memories.words[i];
        if (opts->memory == BENCH_MEMORY_DEVICE && opts->memories.count > 1) {
            cli_refuse(parser, "--memory: device can't be measured together "
                               "with other memory");
        }
    }
}

static void bench_options_resolve(const cli_parser_t *parser)
{
    const bench_options_t *opts = parser->values;
    if (opts->command == BENCH_COLLECTIVE) {
        resolve_dense(parser);
    } else if (opts->memory == BENCH_MEMORY_SHARED) {
        cli_refuse(parser, "--memory: shared makes no difference here, since "
                           "no rank reads another rank's vectors");
    } else if (opts->command == BENCH_SPARSE) {
        resolve_sparse(parser);
    }
}

void bench_options_parse(int argc, char **argv, bench_options_t *out)
{
    const char *names[ENTRIES + 1] = {NULL};
    for (size_t i = 0; i < ENTRIES; i++) {
        names[i] = entries[i].name;
    }
    const entry_t *entry =
        &entries[cli_parse_command("baton-bench", doc, names, argc, argv)];
    const cli_program_t program = {.doc = entry->doc,
                                   .options = options,
                                   .command = entry->command,
                                   .resolve = bench_options_resolve};
    *out = (bench_options_t){.name = entry->name,
                             .command = entry->command,
                             .collective = entry->collective};
    cli_parse(&program, argc - 1, argv + 1, out);
}
