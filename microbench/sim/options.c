#include "sim/sim.h"
#include <baton/sparse.h>
#include <baton/tuning.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const char *sim_allreduce_names[SIM_MAX_VARIANTS + 1];
const char *const sim_broadcast_names[] = {"binomial", NULL};
const char *const sim_barrier_names[] = {"dissemination", NULL};
const char *const sim_partial_names[] = {"solo", "majority", "full", "quorum",
                                         "any",  "all",      NULL};
#define SPARSE_NAME(NAME, name) name,
const char *const sim_sparse_names[] = {
    "auto", BATON_SPARSE_ALGORITHM_LIST(SPARSE_NAME) NULL};
#undef SPARSE_NAME
static const char *const exchange_names[] = {"auto", "rsag", "bsag", NULL};

void sim_options_init(void)
{
    baton_algorithm_t algorithm;
    size_t count = 0;
    for (size_t i = 0;
         count < SIM_MAX_VARIANTS && baton_algorithm_get(i, &algorithm); i++) {
        if (algorithm.collective == BATON_COLLECTIVE_ALLREDUCE) {
            sim_allreduce_names[count++] = algorithm.name;
        }
    }
}

/* ---- the table ---------------------------------------------------------- */

enum {
    COLLECTIVES = SIM_ALLREDUCE | SIM_BROADCAST | SIM_BARRIER,
    DENSE = COLLECTIVES | SIM_PARTIAL,
    ALL = DENSE | SIM_SPARSE,
    WITH_DATA = DENSE & ~SIM_BARRIER
};

#define AT(member)      offsetof(sim_options_t, member)
#define MAX_RANKS       (UINT64_C(1) << 24)
#define MAX_BYTES       (UINT64_C(1) << 40)
#define MAX_COUNT       UINT32_MAX
#define MAX_EPOCHS      UINT64_C(1000000)
#define COST(unit)      CLI_REAL(unit, 0, 1e9)
#define GBIT            CLI_REAL("GBIT/S", 1e-6, 1e6)
#define VARIANTS(names) CLI_WORDS(names, SIM_MAX_VARIANTS, AT(variant_count))

static const cli_option_t table[] = {
    {SIM_ALLREDUCE, "algorithm", 'a', AT(variants),
     VARIANTS(sim_allreduce_names), "all", "Algorithms to compare"},
    {SIM_SPARSE, "algorithm", 'a', AT(variants), VARIANTS(sim_sparse_names),
     "all", "Algorithms to compare, or all"},
    {SIM_SPARSE, "count", 'n', AT(count), CLI_SIZE(1, 1, MAX_COUNT), "15M",
     "Elements of the gradient, of 4 bytes"},
    {SIM_SPARSE, "density", 'd', AT(density), CLI_REAL("RATIO", 1e-9, 1),
     "0.01", "Selected entries as a fraction of all elements"},
    {SIM_SPARSE, "teams", 0, AT(teams), CLI_COUNT(0, MAX_RANKS), "1",
     "Teams of spardl, a divisor of the ranks; 0 chooses the cheapest"},
    {SIM_SPARSE, "exchange", 0, AT(exchange), CLI_WORD("NAME", exchange_names),
     "auto",
     "How teams exchange; auto is rsag for a power of two of teams, else "
     "bsag"},
    {SIM_PARTIAL, "mode", 'm', AT(variants), VARIANTS(sim_partial_names),
     "full,solo,majority,quorum,any,all", "Modes to compare"},
    {SIM_PARTIAL, "mode-ranks", 0, AT(mode_ranks), CLI_COUNT(1, MAX_RANKS),
     NULL, "Ranks of a quorum, or candidates; by default half of the ranks"},
    {ALL, "ranks", 'p', AT(ranks), CLI_COUNT(1, MAX_RANKS), "32",
     "Number of ranks"},
    {WITH_DATA, "bytes", 'b', AT(bytes), CLI_SIZE(8, 0, MAX_BYTES), "64K",
     "Bytes that each rank contributes"},
    {SIM_ALLREDUCE, "chunk-bytes", 0, AT(chunk_bytes),
     CLI_SIZE(8, 8, MAX_BYTES), NULL,
     "Size of a pipelined chunk; by default the library chooses"},
    {SIM_BROADCAST, "root", 0, AT(root), CLI_COUNT(0, MAX_RANKS - 1), "0",
     "Rank that has the data to broadcast"},
    {DENSE, "epochs", 'e', AT(epochs), CLI_COUNT(1, MAX_EPOCHS), "1",
     "Number of epochs"},
    {SIM_SPARSE, "steps", 's', AT(epochs), CLI_COUNT(1, MAX_EPOCHS), "1",
     "Number of steps, after a first one that is not counted"},
    {SIM_PARTIAL, "skew-ms", 0, AT(spacing_ms), CLI_REAL("MS", 0.001, 10000),
     NULL,
     "Milliseconds between arrivals of consecutive ranks; replaces --skew"},
    {ALL, "seed", 0, AT(model.seed), CLI_COUNT(0, UINT64_MAX), NULL,
     "Seed of all random numbers; by default BATON_SEED, else 1"},
    {SIM_SPARSE, "payload", 0, AT(payload), CLI_FLAG, NULL,
     "Move and reduce data, and check every result"},
    {WITH_DATA, "prove", 0, AT(prove), CLI_FLAG, NULL,
     "Move and reduce sets of contributors, and check whose data is in each "
     "element"},

    {ALL, "Model:", 0, 0, CLI_HEADING, NULL, NULL},
    {ALL, "alpha-us", 0, AT(model.link.alpha_us), COST("US"), "1.5",
     "Latency of a message in microseconds"},
    {ALL, "gbit", 0, AT(gbit), GBIT, "100",
     "Bandwidth of a link, the inverse of the cost of a byte"},
    {DENSE, "gamma-ns", 0, AT(model.gamma_ns), COST("NS"), "0",
     "Nanoseconds to reduce a byte"},
    {ALL, "overhead-us", 0, AT(model.overhead_us), COST("US"), "0",
     "Processor time per message at each end, in microseconds"},
    {ALL, "host-ranks", 0, AT(host_ranks), CLI_COUNT(1, MAX_RANKS), "1",
     "Ranks per host; links inside a host are faster"},
    {ALL, "host-alpha-us", 0, AT(model.host_link.alpha_us), COST("US"), "0.3",
     "Latency of a message inside a host in microseconds"},
    {ALL, "host-gbit", 0, AT(host_gbit), GBIT, "400",
     "Bandwidth of a link inside a host"},
    {DENSE, "skew", 0, AT(skew), CLI_TEXT("DIST"), NULL,
     "Microseconds by which a rank is late to an epoch, sampled for each"},
    {ALL, "lag", 0, AT(lag), CLI_TEXT("DIST"), NULL,
     "Microseconds that a message takes beyond its transfer, sampled for each"},
    {ALL, "speed", 0, AT(speed), CLI_TEXT("DIST"), NULL,
     "Speed of a rank's processor, sampled once; 1 is normal"},
    {ALL, "multi-ported", 0, AT(model.multi_ported), CLI_FLAG, NULL,
     "Let a rank send and receive any number of messages at once"},
    {ALL, "eager-bytes", 0, AT(eager_bytes), CLI_SIZE(1, 1, MAX_BYTES), NULL,
     "Sends of fewer bytes complete when they are posted"},
    {ALL, "sync-bytes", 0, AT(sync_bytes), CLI_SIZE(1, 1, MAX_BYTES), NULL,
     "Sends of at least SIZE bytes complete when their receive is posted"},

    {ALL, "Output:", 0, 0, CLI_HEADING, NULL, NULL},
    {ALL, "sweep", 0, AT(sweep), CLI_TEXT("AXIS=VALUES"), NULL,
     "Simulate each value of an axis: ranks=2..1024 (doubling) or "
     "bytes=64,4K,1M; for sparse all-reduces also density=0.001,0.01 or "
     "teams=1,2,7,14"},
    {ALL, "csv", 0, AT(files.csv), CLI_FILE, NULL,
     "Write a CSV file, with more columns"},
    {ALL, "json", 0, AT(files.json), CLI_FILE, NULL,
     "Write a JSON file, likewise"},
    {ALL, "plot", 0, AT(files.plot), CLI_PLOT, NULL,
     "Plot the sweep; needs gnuplot"},
    {ALL, "trace", 0, AT(trace), CLI_FILE, NULL,
     "Write the activity of ports and processors in Chrome's trace format "
     "(for ui.perfetto.dev)"},
};

/* ---- the sweep ---------------------------------------------------------- */

typedef struct axis {
    unsigned commands;
    /* The axis's name, which is also the name of its option. */
    const char *name;
    cli_type_t type;
} axis_t;

static const axis_t axes[] = {
    [SIM_AXIS_NONE] = {0, "", CLI_HEADING},
    [SIM_AXIS_RANKS] = {ALL, "ranks",
                        CLI_COUNTS(1, MAX_RANKS, SIM_MAX_VALUES, 0)},
    [SIM_AXIS_BYTES] = {WITH_DATA, "bytes",
                        CLI_SIZES(8, 8, MAX_BYTES, SIM_MAX_VALUES, 0)},
    [SIM_AXIS_DENSITY] = {SIM_SPARSE, "density",
                          CLI_REALS(1e-9, 1, SIM_MAX_VALUES, 0)},
    [SIM_AXIS_TEAMS] = {SIM_SPARSE, "teams",
                        CLI_COUNTS(0, MAX_RANKS, SIM_MAX_VALUES, 0)},
};
enum { AXES = sizeof(axes) / sizeof(axes[0]) };

const char *sim_axis_name(sim_axis_t axis)
{
    return axes[axis].name;
}

/* Returns the axis of "AXIS=VALUES", or SIM_AXIS_NONE. */
static sim_axis_t find_axis(const sim_options_t *opts, const char *text)
{
    size_t length = strcspn(text, "=");
    for (size_t i = SIM_AXIS_RANKS; i < AXES && text[length] != '\0'; i++) {
        if ((axes[i].commands & opts->command) != 0 &&
            strlen(axes[i].name) == length &&
            strncmp(axes[i].name, text, length) == 0) {
            return (sim_axis_t)i;
        }
    }
    return SIM_AXIS_NONE;
}

static error_t read_values(const cli_parser_t *parser, const char *text,
                           sim_options_t *opts)
{
    const cli_type_t *type = &axes[opts->axis].type;
    uint64_t numbers[SIM_MAX_VALUES];
    bool real = type->kind == CLI_KIND_REAL;
    void *out = real ? (void *)opts->values : numbers;
    error_t error =
        cli_read(parser, "--sweep", type, text, out, &opts->value_count);
    for (size_t i = 0; error == 0 && !real && i < opts->value_count; i++) {
        opts->values[i] = (double)numbers[i];
    }
    return error;
}

static error_t resolve_sweep(const cli_parser_t *parser, sim_options_t *opts)
{
    if (opts->sweep == NULL) {
        opts->values[0] = (double)opts->ranks;
        opts->value_count = 1;
        return 0;
    }
    opts->axis = find_axis(opts, opts->sweep);
    if (opts->axis == SIM_AXIS_NONE) {
        return cli_refuse(parser,
                          "--sweep: '%s' is not ranks=VALUES or another axis "
                          "of this command, see --help",
                          opts->sweep);
    }
    const char *name = axes[opts->axis].name;
    if (cli_is_given(parser, name)) {
        return cli_refuse(parser, "--%s: --sweep=%s is given already", name,
                          name);
    }
    return read_values(parser, strchr(opts->sweep, '=') + 1, opts);
}

/* ---- the model ---------------------------------------------------------- */

static error_t read_distribution(const cli_parser_t *parser, const char *option,
                                 const char *text, baton_distribution_t *out)
{
    return text == NULL || baton_distribution_parse(text, out) == BATON_OK
               ? 0
               : cli_refuse(parser, "%s: %s", option, baton_error_message());
}

static error_t resolve_model(const cli_parser_t *parser, sim_options_t *opts)
{
    baton_sim_options_t *model = &opts->model;
    static const char *const of_hosts[] = {"host-alpha-us", "host-gbit"};
    for (size_t i = 0; i < 2; i++) {
        if (opts->host_ranks == 1 && cli_is_given(parser, of_hosts[i])) {
            return cli_refuse(parser, "--%s: needs --host-ranks", of_hosts[i]);
        }
    }
    model->cost_only = !opts->payload && !opts->prove;
    model->link.beta_ns = 8 / opts->gbit;
    model->host_link.beta_ns = 8 / opts->host_gbit;
    model->host_ranks = (int)opts->host_ranks;
    model->eager_bytes = (size_t)opts->eager_bytes;
    model->sync_bytes = (size_t)opts->sync_bytes;
    if (opts->skew != NULL && opts->spacing_ms > 0) {
        return cli_refuse(parser, "--skew-ms: --skew is given already");
    }
    error_t error =
        read_distribution(parser, "--skew", opts->skew, &model->skew);
    error = error != 0
                ? error
                : read_distribution(parser, "--lag", opts->lag, &model->lag);
    return error != 0 ? error
                      : read_distribution(parser, "--speed", opts->speed,
                                          &model->speed);
}

/* ---- options that depend on each other ---------------------------------- */

static error_t resolve_files(const cli_parser_t *parser,
                             const sim_options_t *opts)
{
    if (opts->trace != NULL &&
        (opts->axis != SIM_AXIS_NONE || opts->variant_count != 1)) {
        return cli_refuse(parser, "--trace: needs one simulation: no --sweep, "
                                  "and one variant to compare");
    }
    if (opts->trace != NULL && opts->model.multi_ported) {
        return cli_refuse(parser, "--trace: shows one message at a time in "
                                  "each port, so not --multi-ported");
    }
    if (opts->files.plot != NULL && opts->axis == SIM_AXIS_NONE) {
        return cli_refuse(parser, "--plot: needs --sweep");
    }
    return 0;
}

static bool has_segments(const sim_options_t *opts)
{
    for (size_t i = 0; i < opts->variant_count; i++) {
        const char *name = opts->variant_names[opts->variants[i]];
        if (strcmp(name, "ring") == 0 ||
            sim_algorithm(BATON_COLLECTIVE_ALLREDUCE, name).segmented) {
            return true;
        }
    }
    return false;
}

static error_t resolve_algorithm(const cli_parser_t *parser,
                                 const sim_options_t *opts)
{
    if (opts->chunk_bytes != 0 && !has_segments(opts)) {
        return cli_refuse(parser,
                          "--chunk-bytes: needs an --algorithm that has "
                          "chunks, as ring");
    }
    bool sweeps = opts->axis == SIM_AXIS_RANKS;
    double least = sweeps ? opts->values[0] : (double)opts->ranks;
    for (size_t i = 1; sweeps && i < opts->value_count; i++) {
        least = fmin(least, opts->values[i]);
    }
    return (double)opts->root < least
               ? 0
               : cli_refuse(parser, "--root: '%" PRIu64 "' is not from 0 to %g",
                            opts->root, least - 1);
}

static error_t sim_options_resolve(cli_parser_t *parser)
{
    sim_options_t *opts = parser->values;
    if (opts->variant_count == 0) {
        opts->variant_count = 1; /* the command has no variants to compare */
    }
    error_t error = resolve_model(parser, opts);
    error = error != 0 ? error : resolve_sweep(parser, opts);
    error = error != 0 ? error : resolve_files(parser, opts);
    return error != 0 ? error : resolve_algorithm(parser, opts);
}

cli_verdict_t sim_options_parse(const sim_command_t *command, int argc,
                                char **argv, sim_options_t *out)
{
    const cli_program_t program = {
        .doc = command->doc,
        .options = table,
        .option_count = sizeof(table) / sizeof(table[0]),
        .command = command->command,
        .resolve = sim_options_resolve,
    };
    *out = (sim_options_t){
        .command = command->command,
        .variant_names = command->variant_names,
        .model = {.size = sizeof(out->model), .seed = cli_default_seed()},
    };
    return cli_parse(&program, argc, argv, true, out);
}

/* ---- printing --------------------------------------------------------- */

void sim_options_print(const sim_options_t *options, int argc, char **argv)
{
    const baton_sim_options_t *model = &options->model;
    for (int i = 0; i < argc; i++) {
        (void)printf("%s%s", i > 0 ? " " : "", argv[i]);
    }
    (void)printf(
        ": alpha %g us, %g Gbit/s, gamma %g ns; seed %" PRIu64 ", %s\n",
        model->link.alpha_us, options->gbit, model->gamma_ns, model->seed,
        options->prove      ? "every result proven"
        : !model->cost_only ? "every result checked"
        : options->command == SIM_SPARSE
            ? "cost only: messages as long as full blocks make them"
            : "cost only");
}
