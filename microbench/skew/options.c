#include "skew/options.h"

#define MAX_BYTES      (UINT64_C(1) << 30)
#define MAX_ITERATIONS UINT64_C(100000)

static const char doc[] =
    "Measures the latency of all-reduce when ranks arrive one after another "
    "(Li et al. 2020, figures 8 and 9). Run it under mpirun."
    "\vIn each iteration rank r arrives (r+1) * skew after a barrier, and the "
    "time from its call to its completion is measured. The systems take turns "
    "inside each iteration. Every result is checked: it tells exactly "
    "which contributions of which iterations it contains.\n\n"
    "Example: mpirun -np 8 --oversubscribe baton-skew --plot skew.svg";

static const char *const system_names[] = {
#define KIND_NAME(id, name, label) (name),
    SKEW_KIND_LIST(KIND_NAME)
#undef KIND_NAME
        NULL};

const char *skew_kind_name(skew_kind_t kind)
{
    return system_names[kind];
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

#define AT(member) offsetof(skew_options_t, member)

static const cli_option_t options[] = {
    {CLI_ANY, "systems", 's', AT(systems),
     CLI_WORDS(system_names, SKEW_KIND_COUNT, AT(system_count)), NULL,
     "Systems to compare"},
    {CLI_ANY, "bytes", 'b', AT(bytes),
     CLI_SIZES(8, 8, MAX_BYTES, SKEW_MAX_SIZES, AT(size_count)),
     "64,4096,65536", "Message sizes"},
    {CLI_ANY, "skew-ms", 'k', AT(skew_ms), CLI_REAL("MS", 0, 10000), "1",
     "Milliseconds between the arrivals of neighbours"},
    {CLI_ANY, "iterations", 'i', AT(iterations), CLI_COUNT(1, MAX_ITERATIONS),
     "64", "Measured iterations of each system"},
    {CLI_ANY, "warmup", 'w', AT(warmup), CLI_COUNT(0, MAX_ITERATIONS), "8",
     "Iterations before the measured ones"},
    {CLI_ANY, "seed", 0, AT(seed), CLI_COUNT(0, UINT64_MAX), NULL,
     "Seed of elections, contributions and turns; by default BATON_SEED, else "
     "1"},
    {CLI_ANY, "csv", 0, AT(csv), CLI_FILE, NULL, "Write the results as CSV"},
    {CLI_ANY, "json", 0, AT(json), CLI_FILE, NULL, "Write the results as JSON"},
    {CLI_ANY, "plot", 0, AT(plot), CLI_PLOT, NULL,
     "Draw the mean latencies, which needs gnuplot"},
};

cli_verdict_t skew_options_parse(int argc, char **argv, bool speak,
                                 skew_options_t *out)
{
    static const cli_program_t program = {
        .doc = doc,
        .options = options,
        .option_count = sizeof(options) / sizeof(options[0]),
        .command = CLI_ANY,
    };
    *out = (skew_options_t){.seed = cli_default_seed()};
    return cli_parse(&program, argc, argv, speak, out);
}
