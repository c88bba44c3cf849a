#include "skew/options.h"

enum {
    KEY_SYSTEMS = 's',
    KEY_BYTES = 'b',
    KEY_SKEW = 'k',
    KEY_ITERATIONS = 'i',
    KEY_WARMUP = 'w',
    KEY_CSV = 256,
    KEY_JSON,
    KEY_PLOT,
    KEY_SEED
};

#define MAX_BYTES      (UINT64_C(1) << 30)
#define MAX_ITERATIONS UINT64_C(100000)
#define MAX_SKEW_MS    10000.0

static const char doc[] =
    "Measures the latency of all-reduce when ranks arrive one after another "
    "(Li et al. 2020, figures 8 and 9). Run it under mpirun."
    "\vIn each iteration rank r arrives (r+1) * skew after a barrier, and the "
    "time from its call to the completion counts. The systems take turns "
    "inside each iteration, and every result is checked: it shows exactly "
    "whose contributions, of which iterations, are in it.\n\n"
    "Example: mpirun -np 8 --oversubscribe baton-skew --plot skew.svg";

static const struct argp_option options[] = {
    {"systems", KEY_SYSTEMS, "LIST", 0,
     "Of mpi, mpi-nb, full, solo, majority (default: all)", 0},
    {"bytes", KEY_BYTES, "LIST", 0,
     "Message sizes, multiples of 8, with K, M or G (default 64,4096,65536)",
     0},
    {"skew-ms", KEY_SKEW, "MS", 0,
     "Between the arrivals of neighbours, 0 to 10000 (default 1)", 0},
    {"iterations", KEY_ITERATIONS, "N", 0,
     "Counted iterations of each system, 1 to 100000 (default 64)", 0},
    {"warmup", KEY_WARMUP, "N", 0,
     "Iterations before those, 0 to 100000 (default 8)", 0},
    {"seed", KEY_SEED, "N", 0,
     "Of the draws, contributions and turns (default: BATON_SEED, else 1)", 0},
    {"csv", KEY_CSV, "FILE", 0, "Write the results as CSV", 1},
    {"json", KEY_JSON, "FILE", 0, "Write the results as JSON", 1},
    {"plot", KEY_PLOT, "FILE", 0,
     "Draw the mean latencies, to a .svg or .png file (needs gnuplot)", 1},
    CLI_COMMON_OPTIONS,
    {0}};

const char *skew_kind_name(skew_kind_t kind)
{
    static const char *const names[] = {
#define KIND_NAME(id, name, label) [SKEW_##id] = (name),
        SKEW_KIND_LIST(KIND_NAME)
#undef KIND_NAME
    };
    return names[kind];
}

const char *skew_kind_label(skew_kind_t kind)
{
    static const char *const labels[] = {
#define KIND_LABEL(id, name, label) [SKEW_##id] = (label),
        SKEW_KIND_LIST(KIND_LABEL)
#undef KIND_LABEL
    };
    return labels[kind];
}

static error_t parse_systems(skew_options_t *opts, const char *list,
                             struct argp_state *state)
{
    static const char *const names[] = {
#define KIND_NAME(id, name, label) (name),
        SKEW_KIND_LIST(KIND_NAME)
#undef KIND_NAME
            NULL};
    size_t kinds[SKEW_KIND_COUNT];
    error_t error = cli_word_list(state, "--systems", list, names, kinds,
                                  &opts->system_count);
    for (size_t i = 0; error == 0 && i < opts->system_count; i++) {
        opts->systems[i] = (skew_kind_t)kinds[i];
    }
    return error;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    static const cli_sizes_t sizes = {8, 8, MAX_BYTES, SKEW_MAX_SIZES};
    skew_options_t *opts = state->input;
    switch (key) {
    case KEY_SYSTEMS:
        return parse_systems(opts, arg, state);
    case KEY_BYTES:
        return cli_size_list(state, "--bytes", arg, &sizes, opts->bytes,
                             &opts->size_count);
    case KEY_SKEW:
        return cli_real_option(state, "--skew-ms", arg, 0, MAX_SKEW_MS,
                               &opts->skew_ms);
    case KEY_ITERATIONS:
        return cli_count_option(state, "--iterations", arg, 1, MAX_ITERATIONS,
                                &opts->iterations);
    case KEY_WARMUP:
        return cli_count_option(state, "--warmup", arg, 0, MAX_ITERATIONS,
                                &opts->warmup);
    case KEY_SEED:
        return cli_count_option(state, "--seed", arg, 0, UINT64_MAX,
                                &opts->seed);
    case KEY_PLOT:
        return cli_plot_option(state, arg, &opts->plot);
    case KEY_CSV:
        opts->csv = arg;
        return 0;
    case KEY_JSON:
        opts->json = arg;
        return 0;
    default:
        return cli_default(key, arg, state);
    }
}

static skew_options_t defaults(void)
{
    skew_options_t opts = {
        .bytes = {64, 4096, 65536},
        .size_count = 3,
        .system_count = SKEW_KIND_COUNT,
        .skew_ms = 1,
        .iterations = 64,
        .warmup = 8,
        .seed = cli_default_seed(),
    };
    for (int kind = 0; kind < SKEW_KIND_COUNT; kind++) {
        opts.systems[kind] = (skew_kind_t)kind;
    }
    return opts;
}

cli_verdict_t skew_options_parse(int argc, char **argv, bool speak,
                                 skew_options_t *out)
{
    static const struct argp parser = {options, parse_option, NULL, doc,
                                       NULL,    NULL,         NULL};
    *out = defaults();
    return cli_parse(&parser, argc, argv, speak, out);
}
