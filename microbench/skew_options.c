#include "skew_options.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

enum { ITEM_BYTES = 32 };

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

static bool find_kind(const char *name, skew_kind_t *out)
{
    for (int kind = 0; kind < SKEW_KIND_COUNT; kind++) {
        if (strcmp(name, skew_kind_name((skew_kind_t)kind)) == 0) {
            *out = (skew_kind_t)kind;
            return true;
        }
    }
    return false;
}

static bool has_kind(const skew_options_t *opts, skew_kind_t kind)
{
    for (size_t i = 0; i < opts->system_count; i++) {
        if (opts->systems[i] == kind) {
            return true;
        }
    }
    return false;
}

static error_t parse_systems(skew_options_t *opts, const char *list,
                             struct argp_state *state)
{
    char item[ITEM_BYTES];
    opts->system_count = 0;
    while (cli_next_item(&list, item, sizeof(item))) {
        skew_kind_t kind;
        if (!find_kind(item, &kind)) {
            return cli_bad(state, "--systems", item,
                           "is not one of mpi, mpi-nb, full, solo, majority");
        }
        if (has_kind(opts, kind)) {
            return cli_bad(state, "--systems", item, "is in the list twice");
        }
        opts->systems[opts->system_count++] = kind;
    }
    return 0;
}

static error_t parse_sizes(skew_options_t *opts, const char *list,
                           struct argp_state *state)
{
    char item[ITEM_BYTES];
    opts->size_count = 0;
    while (cli_next_item(&list, item, sizeof(item))) {
        uint64_t bytes = 0;
        if (!cli_bytes(item, 8, MAX_BYTES, &bytes) || bytes % 8 != 0) {
            return cli_bad(state, "--bytes", item,
                           "is not a multiple of 8 from 8 to 1G");
        }
        if (opts->size_count == SKEW_MAX_SIZES) {
            return cli_bad(state, "--bytes", item,
                           "is one too many: at most 16 sizes");
        }
        opts->bytes[opts->size_count++] = bytes;
    }
    return 0;
}

/* gnuplot's terminal follows from the name, so a wrong one must not surface
   after minutes of measuring. */
static error_t parse_plot(skew_options_t *opts, const char *name,
                          struct argp_state *state)
{
    const char *dot = strrchr(name, '.');
    if (dot == NULL || (strcmp(dot, ".svg") != 0 && strcmp(dot, ".png") != 0)) {
        return cli_bad(state, "--plot", name,
                       "is not a name that ends in .svg or .png");
    }
    opts->plot = name;
    return 0;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    skew_options_t *opts = state->input;
    switch (key) {
    case KEY_SYSTEMS:
        return parse_systems(opts, arg, state);
    case KEY_BYTES:
        return parse_sizes(opts, arg, state);
    case KEY_SKEW:
        return cli_real(arg, 0, MAX_SKEW_MS, &opts->skew_ms)
                   ? 0
                   : cli_bad(state, "--skew-ms", arg,
                             "is not a number from 0 to 10000");
    case KEY_ITERATIONS:
        return cli_count(arg, 1, MAX_ITERATIONS, &opts->iterations)
                   ? 0
                   : cli_bad(state, "--iterations", arg,
                             "is not from 1 to 100000");
    case KEY_WARMUP:
        return cli_count(arg, 0, MAX_ITERATIONS, &opts->warmup)
                   ? 0
                   : cli_bad(state, "--warmup", arg, "is not from 0 to 100000");
    case KEY_SEED:
        return cli_count(arg, 0, UINT64_MAX, &opts->seed)
                   ? 0
                   : cli_bad(state, "--seed", arg,
                             "is not from 0 to 18446744073709551615");
    case KEY_PLOT:
        return parse_plot(opts, arg, state);
    case KEY_CSV:
        opts->csv = arg;
        return 0;
    case KEY_JSON:
        opts->json = arg;
        return 0;
    case CLI_KEY_HELP:
    case CLI_KEY_USAGE:
    case CLI_KEY_VERSION:
        return cli_common(key, state);
    case ARGP_KEY_ARG:
        return cli_bad(state, "argument", arg, "is not an option");
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* The library warns when BATON_SEED is not a number; here it is just not
   used. */
static uint64_t default_seed(void)
{
    uint64_t seed = 1;
    const char *text = getenv("BATON_SEED");
    if (text != NULL) {
        (void)cli_count(text, 0, UINT64_MAX, &seed);
    }
    return seed;
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
        .seed = default_seed(),
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
