#include "sim/sim.h"
#include <baton/partial.h>
#include <baton/sparse.h>
#include <baton/tuning.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *sim_allreduce_names[CLI_MOST_ITEMS + 1];
const char *const sim_broadcast_names[] = {"binomial", NULL};
const char *const sim_barrier_names[] = {"dissemination", NULL};
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
         count < CLI_MOST_ITEMS && baton_algorithm_get(i, &algorithm); i++) {
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
    WITH_DATA = DENSE & ~SIM_BARRIER,
    /* This bit stands for no command. It marks options that --sweep can
       vary. */
    AXIS = 1 << 8
};

#define AT(member) offsetof(sim_options_t, member)
#define MAX_RANKS  (1 << 24)
#define MAX_BYTES  0x1p40
#define EPOCHS     CLI_COUNT(1, 1000000)
#define COST(unit) CLI_REAL(unit, 0, 1e9)
#define GBIT       CLI_REAL("GBIT/S", 1e-6, 1e6)

static const cli_option_t table[] = {
    {SIM_ALLREDUCE, "algorithm", 'a', AT(variants),
     CLI_WORDS(sim_allreduce_names), "all", "Algorithms to compare"},
    {SIM_SPARSE, "algorithm", 'a', AT(variants), CLI_WORDS(sim_sparse_names),
     "all", "Algorithms to compare, or all"},
    {SIM_SPARSE, "count", 'n', AT(count), CLI_SIZE(1, 1, UINT32_MAX), "15M",
     "Elements of the gradient, of 4 bytes"},
    {SIM_SPARSE | AXIS, "density", 'd', AT(density), CLI_REAL("RATIO", 1e-9, 1),
     "0.01", "Selected entries as a fraction of all elements"},
    {SIM_SPARSE | AXIS, "teams", 0, AT(teams), CLI_COUNT(0, MAX_RANKS), "1",
     "Teams of spardl, a divisor of the ranks; 0 chooses the cheapest"},
    {SIM_SPARSE, "exchange", 0, AT(exchange), CLI_WORD("NAME", exchange_names),
     "auto",
     "How teams exchange; auto is rsag for a power of two of teams, else "
     "bsag"},
    {SIM_PARTIAL, "mode", 'm', AT(variants), CLI_WORDS(mode_names),
     "full,solo,majority,quorum,any,all", "Modes to compare"},
    {SIM_PARTIAL, "mode-ranks", 0, AT(mode_ranks), CLI_COUNT(1, MAX_RANKS),
     NULL, "Ranks of a quorum, or candidates; by default half of the ranks"},
    {ALL | AXIS, "ranks", 'p', AT(ranks), CLI_COUNT(1, MAX_RANKS), "32",
     "Number of ranks"},
    {WITH_DATA | AXIS, "bytes", 'b', AT(bytes), CLI_SIZE(8, 0, MAX_BYTES),
     "64K", "Bytes that each rank contributes"},
    {SIM_ALLREDUCE, "chunk-bytes", 0, AT(chunk_bytes),
     CLI_SIZE(8, 8, MAX_BYTES), NULL,
     "Size of a pipelined chunk; by default the library chooses"},
    {SIM_BROADCAST, "root", 0, AT(root), CLI_COUNT(0, MAX_RANKS - 1), "0",
     "Rank that has the data to broadcast"},
    {DENSE, "epochs", 'e', AT(epochs), EPOCHS, "1", "Number of epochs"},
    {SIM_SPARSE, "steps", 's', AT(epochs), EPOCHS, "1",
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
    {ALL, "sync-bytes", 0, AT(sync_bytes), CLI_SIZE(1, 1, MAX_BYTES), NULL,
     "Sends of at least SIZE bytes complete when their receive is posted"},

    {ALL, "Output:", 0, 0, CLI_HEADING, NULL, NULL},
    {ALL, "sweep", 0, AT(sweep), CLI_TEXT("AXIS=VALUES"), NULL,
     "Simulate each value of an axis: ranks=2..1024 (doubling) or "
     "bytes=64,4K,1M; for sparse all-reduces also density=0.001,0.01 or "
     "teams=1,2,7,14"},
    {ALL, "csv", 0, AT(files.csv), CLI_TEXT("FILE"), NULL,
     "Write a CSV file, with more columns"},
    {ALL, "json", 0, AT(files.json), CLI_TEXT("FILE"), NULL,
     "Write a JSON file, likewise"},
    {ALL, "plot", 0, AT(files.plot), CLI_PLOT, NULL,
     "Plot the sweep; needs gnuplot"},
    {ALL, "trace", 0, AT(trace), CLI_TEXT("FILE"), NULL,
     "Write the activity of ports and processors in Chrome's trace format "
     "(for ui.perfetto.dev)"},
    {0}};

/* ---- the sweep ---------------------------------------------------------- */

/* Sets the axis, the row of the table whose option --sweep varies, and its
   values. */
static void resolve_sweep(const cli_parser_t *parser, sim_options_t *opts)
{
    if (opts->sweep == NULL) {
        return;
    }
    size_t length = strcspn(opts->sweep, "=");
    for (size_t i = 0; table[i].name != NULL; i++) {
        if ((table[i].commands & AXIS) != 0 &&
            (table[i].commands & opts->command->bit) != 0 &&
            strlen(table[i].name) == length &&
            strncmp(table[i].name, opts->sweep, length) == 0) {
            opts->axis = &table[i];
        }
    }
    if (opts->axis == NULL || opts->sweep[length] == '\0') {
        cli_refuse(parser,
                   "--sweep: '%s' is not ranks=VALUES or another axis of this "
                   "command, see --help",
                   opts->sweep);
    }
    if (cli_is_set(parser, opts->axis->name)) {
        cli_refuse(parser, "--%s: --sweep=%s is given already",
                   opts->axis->name, opts->axis->name);
    }
    cli_type_t type = opts->axis->type;
    type.list = true;
    cli_read(parser, "--sweep", &type, opts->sweep + length + 1, &opts->values);
}

void sim_options_set(sim_options_t *options, size_t value)
{
    if (options->axis != NULL) {
        memcpy((char *)options + options->axis->offset,
               &options->values.numbers[value], sizeof(uint64_t));
    }
}

/* ---- the model ---------------------------------------------------------- */

static void resolve_model(const cli_parser_t *parser, sim_options_t *opts)
{
    baton_sim_options_t *model = &opts->model;
    static const char *const of_hosts[] = {"host-alpha-us", "host-gbit"};
    for (size_t i = 0; i < 2; i++) {
        if (opts->host_ranks == 1 && cli_is_set(parser, of_hosts[i])) {
            cli_refuse(parser, "--%s: needs --host-ranks", of_hosts[i]);
        }
    }
    model->cost_only = !opts->payload && !opts->prove;
    model->link.beta_ns = 8 / opts->gbit;
    model->host_link.beta_ns = 8 / opts->host_gbit;
    model->host_ranks = (int)opts->host_ranks;
    model->sync_bytes = (size_t)opts->sync_bytes;
    if (opts->skew != NULL && opts->spacing_ms > 0) {
        cli_refuse(parser, "--skew-ms: --skew is given already");
    }
    const struct {
        const char *option, *text;
        baton_distribution_t *out;
    } samples[] = {{"--skew", opts->skew, &model->skew},
                   {"--lag", opts->lag, &model->lag},
                   {"--speed", opts->speed, &model->speed}};
    for (size_t i = 0; i < 3; i++) {
        if (samples[i].text != NULL &&
            baton_distribution_parse(samples[i].text, samples[i].out) !=
                BATON_OK) {
            cli_refuse(parser, "%s: %s", samples[i].option,
                       baton_error_message());
        }
    }
}

/* ---- options that depend on each other ---------------------------------- */

static void resolve_files(const cli_parser_t *parser, const sim_options_t *opts)
{
    if (opts->trace != NULL &&
        (opts->axis != NULL || opts->variants.count != 1)) {
        cli_refuse(parser, "--trace: needs a single simulation, so no --sweep, "
                           "and one variant instead of several");
    }
    if (opts->trace != NULL && opts->model.multi_ported) {
        cli_refuse(parser, "--trace: can't be used with --multi-ported: it "
                           "shows one message at a time in each port");
    }
    if (opts->files.plot != NULL && opts->axis == NULL) {
        cli_refuse(parser, "--plot: needs --sweep");
    }
}

static bool has_segments(const sim_options_t *opts)
{
    for (size_t i = 0; i < opts->variants.count; i++) {
        const char *name =
            opts->command->variant_names[opts->variants.words[i]];
        if (strcmp(name, "ring") == 0 ||
            sim_algorithm(BATON_COLLECTIVE_ALLREDUCE, name).segmented) {
            return true;
        }
    }
    return false;
}

static void resolve_algorithm(const cli_parser_t *parser, sim_options_t *opts)
{
    if (opts->chunk_bytes != 0 && !has_segments(opts)) {
        cli_refuse(parser, "--chunk-bytes: needs an --algorithm that has "
                           "chunks, such as ring");
    }
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < opts->values.count; i++) {
        sim_options_set(opts, i);
        least = opts->ranks < least ? opts->ranks : least;
    }
    if (opts->root >= least) {
        cli_refuse(parser, "--root: '%" PRIu64 "' is not from 0 to %" PRIu64,
                   opts->root, least - 1);
    }
}

static void sim_options_resolve(const cli_parser_t *parser)
{
    sim_options_t *opts = parser->values;
    resolve_model(parser, opts);
    resolve_sweep(parser, opts);
    resolve_files(parser, opts);
    resolve_algorithm(parser, opts);
}

void sim_options_parse(const sim_command_t *command, int argc, char **argv,
                       sim_options_t *out)
{
    const cli_program_t program = {.doc = command->doc,
                                   .options = table,
                                   .command = command->bit,
                                   .resolve = sim_options_resolve};
    /* A command that has no list of variants to compare runs its first
       variant. */
    *out = (sim_options_t){
        .command = command,
        .variants = {.count = 1},
        .values = {.count = 1},
        .model = {.size = sizeof(out->model), .seed = cli_default_seed()},
    };
    cli_parse(&program, argc, argv, out);
}

/* ---- printing --------------------------------------------------------- */

static const char *describe_checks(const sim_options_t *options)
{
    if (options->prove) {
        return "every result proven";
    }
    if (!options->model.cost_only) {
        return "every result checked";
    }
    return options->command->bit == SIM_SPARSE ? "cost only, of full blocks"
                                               : "cost only";
}

void sim_options_print(const sim_options_t *options, const char *title)
{
    const baton_sim_options_t *model = &options->model;
    (void)printf("%s\nalpha %g us, %g Gbit/s, gamma %g ns; seed %" PRIu64
                 ", %s\n",
                 title, model->link.alpha_us, options->gbit, model->gamma_ns,
                 model->seed, describe_checks(options));
}
