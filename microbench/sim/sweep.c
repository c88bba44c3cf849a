/* A simulation for each value of the sweep and for each variant: a row of the
   table for each, and the plot. */
#include "sim/sim.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* ---- rows --------------------------------------------------------------- */

/* A column, and the commands that show it and write it to files. */
typedef struct column {
    unsigned shown, written;
    table_column_t as;
} column_t;

enum {
    COLLECTIVES = SIM_ALLREDUCE | SIM_BROADCAST | SIM_BARRIER,
    PARTIALS = SIM_PARTIAL | SIM_SKEW,
    SKEW = SIM_SKEW,
    SPARSE = SIM_SPARSE,
    ALL = COLLECTIVES | PARTIALS | SPARSE,
    WITH_BYTES = SIM_ALLREDUCE | SIM_BROADCAST | PARTIALS,
    WITH_TIME = ALL & ~SIM_SKEW,
    WITH_BUILD = WITH_TIME & ~SIM_SPARSE,
    WITH_RUN = ALL & ~SIM_SPARSE
};

/* The columns are in the order of fill_row's cells. The first one has the name
   of the variant, and the least and the most are shown of several epochs. */
enum { NAME = 0, LEAST = 5, MOST = 6 };

static const column_t all_columns[] = {
    {ALL, ALL, {NULL, NULL, TABLE_TEXT, 18, 0}},
    {ALL, ALL, {"ranks", "ranks", TABLE_FIXED, 7, 0}},
    {WITH_BYTES, WITH_BYTES, {"bytes", "bytes", TABLE_FIXED, 9, 0}},
    {0, ALL, {"epochs", NULL, TABLE_FIXED, 0, 0}},
    {WITH_TIME, ALL, {"us", "time us", TABLE_FIXED, 12, 3}},
    {WITH_TIME, ALL, {"low_us", "least us", TABLE_FIXED, 12, 3}},
    {WITH_TIME, ALL, {"high_us", "most us", TABLE_FIXED, 12, 3}},
    {WITH_TIME, WITH_TIME, {"formula_us", "formula us", TABLE_FIXED, 12, 3}},
    {WITH_TIME, WITH_TIME, {"difference", "relative", TABLE_TINY, 8, 0}},
    {PARTIALS, PARTIALS, {"latency_us", "mean us", TABLE_FIXED, 12, 3}},
    {SKEW, PARTIALS, {"latency_median_us", "median us", TABLE_FIXED, 12, 3}},
    {SKEW, PARTIALS, {"latency_p99_us", "p99 us", TABLE_FIXED, 12, 3}},
    {PARTIALS, PARTIALS, {"full_over_this", "full/this", TABLE_FIXED, 9, 2}},
    {PARTIALS, PARTIALS, {"active", "active", TABLE_FIXED, 9, 2}},
    {PARTIALS, PARTIALS, {"active_error", "+-", TABLE_FIXED, 6, 2}},
    {SKEW, PARTIALS, {"active_expected", "expected", TABLE_FIXED, 9, 1}},
    {COLLECTIVES, ALL, {"messages", "messages", TABLE_FIXED, 10, 0}},
    {WITH_BUILD, ALL, {"build_s", "build s", TABLE_FIXED, 7, 2}},
    {WITH_RUN, ALL, {"run_s", "run s", TABLE_FIXED, 7, 2}},
    {WITH_RUN, ALL, {"messages_per_s", "messages/s", TABLE_FIXED, 10, 0}},
    {0, SPARSE, {"n", NULL, TABLE_FIXED, 0, 0}},
    {SPARSE, SPARSE, {"density", "density", TABLE_FIXED, 8, 5}},
    {0, SPARSE, {"k", NULL, TABLE_FIXED, 0, 0}},
    {SPARSE, SPARSE, {"chosen", "chosen", TABLE_TEXT, 7, 0}},
    {SPARSE, SPARSE, {"teams", "teams", TABLE_FIXED, 5, 0}},
    {0, SPARSE, {"exchange", NULL, TABLE_TEXT, 0, 0}},
    {SPARSE, SPARSE, {"rounds", "rounds", TABLE_FIXED, 6, 0}},
    {0, SPARSE, {"rounds_formula", NULL, TABLE_FIXED, 0, 0}},
    {SPARSE, SPARSE, {"messages_sent", "messages", TABLE_FIXED, 8, 0}},
    {SPARSE, SPARSE, {"messages_formula", "formula", TABLE_FIXED, 7, 0}},
    {SPARSE, SPARSE, {"entries_sent", "entries", TABLE_FIXED, 11, 1}},
    {SPARSE, SPARSE, {"entries_formula", "formula", TABLE_FIXED, 11, 1}},
    {0, SPARSE, {"nnz", NULL, TABLE_FIXED, 0, 0}},
    {SPARSE, SPARSE, {"this_over_spardl", "/spardl", TABLE_FIXED, 7, 2}},
    {0, SPARSE, {"simulation", NULL, TABLE_TEXT, 0, 0}},
};
enum { COLUMNS = sizeof(all_columns) / sizeof(all_columns[0]) };

static void set_columns(const sim_options_t *options,
                        table_column_t columns[COLUMNS])
{
    for (size_t i = 0; i < COLUMNS; i++) {
        const column_t *column = &all_columns[i];
        bool hidden = (i == LEAST || i == MOST) && options->epochs == 1;
        columns[i] = column->as;
        if (i == NAME) {
            columns[i].key = columns[i].heading =
                (options->command & PARTIALS) != 0 ? "mode" : "algorithm";
        }
        if ((column->shown & options->command) == 0 || hidden) {
            columns[i].heading = NULL;
        }
        if ((column->written & options->command) == 0) {
            columns[i].key = NULL;
        }
    }
}

/* The relative difference of the time from the formula. */
static double difference(const sim_result_t *result)
{
    double difference = result->mean_us - result->formula_us;
    return difference == 0 ? 0 : difference / result->formula_us;
}

/* The place of a variant among those that have run, this one included, or -1.
 */
static int find_variant(const sim_case_t *c, size_t place, size_t variant)
{
    for (size_t i = 0; i <= place; i++) {
        if (c->options->variants[i] == variant) {
            return (int)i;
        }
    }
    return -1;
}

static void fill_row(const sim_case_t *c, const sim_result_t *results,
                     size_t place, table_t *table)
{
    const sim_result_t *result = &results[place];
    const baton_sparse_cost_t *cost = &result->cost;
    const double entry = (double)baton_entry_bytes(BATON_F32);
    int full = find_variant(c, place, SIM_FULL);
    int spardl = find_variant(c, place, BATON_SPARSE_SPARDL);
    const table_cell_t cells[COLUMNS] = {
        table_text(c->name),
        table_number(c->ranks),
        table_number((double)c->bytes),
        table_number((double)c->options->epochs),
        table_number(result->mean_us),
        table_number(result->low_us),
        table_number(result->high_us),
        table_number(result->formula_us),
        table_number(difference(result)),
        table_number(result->latency_us),
        table_number(result->latency_median_us),
        table_number(result->latency_p99_us),
        table_number(full < 0 ? NAN
                              : results[full].latency_us / result->latency_us),
        table_number(result->active),
        table_number(result->active_error),
        table_number(result->active_expected),
        table_number((double)result->messages),
        table_number(result->build_s),
        table_number(result->run_s),
        table_number((double)result->messages / result->run_s),
        table_number((double)c->options->count),
        table_number(c->density),
        table_number(result->k),
        table_text(baton_sparse_algorithm_name(cost->algorithm)),
        table_number(cost->teams),
        table_text(cost->teams == 1                     ? "none"
                   : cost->exchange == BATON_TEAMS_RSAG ? "rsag"
                                                        : "bsag"),
        table_number(result->rounds),
        table_number(cost->rounds),
        table_number(result->sent),
        table_number(cost->messages),
        table_number(result->sent_bytes / entry),
        table_number(cost->bytes / entry),
        table_number(result->nnz),
        table_number(spardl < 0 ? NAN
                                : result->mean_us / results[spardl].mean_us),
        table_text(c->options->payload ? "real data" : "full blocks")};
    table_row(table, cells);
}

/* ---- the plot ----------------------------------------------------------- */

/* What all simulations of the plot have in common, besides the model. */
static void describe(const sim_options_t *options, char *text,
                     size_t text_bytes)
{
    char size[16];
    if (options->command == SIM_SPARSE) {
        char density[32] = "";
        char ranks[32] = "";
        if (options->axis != SIM_AXIS_DENSITY) {
            (void)snprintf(density, sizeof(density), ", density %g",
                           options->density);
        }
        if (options->axis != SIM_AXIS_RANKS) {
            (void)snprintf(ranks, sizeof(ranks), ", %" PRIu64 " ranks",
                           options->ranks);
        }
        (void)snprintf(text, text_bytes, ", %s elements%s%s",
                       cli_format_bytes(options->count, size, sizeof(size)),
                       density, ranks);
    } else if (!sim_options_has_bytes(options)) {
        text[0] = '\0';
    } else if (options->axis == SIM_AXIS_BYTES) {
        (void)snprintf(text, text_bytes, ", %" PRIu64 " ranks", options->ranks);
    } else {
        (void)snprintf(text, text_bytes, ", %s bytes",
                       cli_format_bytes(options->bytes, size, sizeof(size)));
    }
}

static void set_plot(const sim_command_t *command, const sim_options_t *options,
                     plot_t *plot)
{
    char fixed[128];
    describe(options, fixed, sizeof(fixed));
    (void)snprintf(plot->title, sizeof(plot->title),
                   "Simulated %s%s, %g us, %g Gbit/s: %s", command->name, fixed,
                   options->model.link.alpha_us, options->gbit,
                   (options->command & PARTIALS) != 0 ? "mean latency"
                   : options->command == SIM_SPARSE   ? "time of a step"
                                                      : "time of an epoch");
    plot->x_label =
        options->axis == SIM_AXIS_NONE ? "ranks" : sim_axis_name(options->axis);
    plot->log_base = options->axis == SIM_AXIS_NONE      ? 0
                     : options->axis == SIM_AXIS_DENSITY ? 10
                                                         : 2;
    plot->x_bytes = options->axis == SIM_AXIS_BYTES;
}

/* ---- the sweep ---------------------------------------------------------- */

/* A command that runs, with its open files. */
typedef struct sweep {
    const sim_command_t *command;
    const sim_options_t *options;
    table_column_t columns[COLUMNS];
    table_t table;
    FILE *trace;
    sim_result_t results[SIM_MAX_VARIANTS]; /* of the value that runs */
} sweep_t;

static bool run_case(sweep_t *sweep, sim_case_t *c, double x, size_t place)
{
    const sim_options_t *options = sweep->options;
    baton_sim_options_t model = options->model;
    sim_result_t *result = &sweep->results[place];
    *result = (sim_result_t){.formula_us = NAN, .active_expected = NAN};
    model.ranks = c->ranks;
    bool passed = sim_case_ok(c, baton_sim_create(&model, &c->sim)) &&
                  sweep->command->run(c, result);
    if (passed) {
        fill_row(c, sweep->results, place, &sweep->table);
        plot_add(&sweep->table.plot, c->name, x,
                 (options->command & PARTIALS) != 0 ? result->latency_us
                                                    : result->mean_us);
    }
    return sim_case_ok(c, baton_sim_destroy(c->sim)) && passed;
}

static sim_case_t case_of(const sim_options_t *options, size_t variant,
                          double value)
{
    sim_case_t c = {
        .options = options,
        .variant = variant,
        .name = options->variant_names[variant],
        .ranks = (int)options->ranks,
        .bytes = options->bytes,
        .density = options->density,
        .teams = options->teams,
    };
    switch (options->axis) {
    case SIM_AXIS_NONE:
        break;
    case SIM_AXIS_RANKS:
        c.ranks = (int)value;
        break;
    case SIM_AXIS_BYTES:
        c.bytes = (uint64_t)value;
        break;
    case SIM_AXIS_DENSITY:
        c.density = value;
        break;
    case SIM_AXIS_TEAMS:
        c.teams = (uint64_t)value;
        break;
    }
    return c;
}

static bool run_value(sweep_t *sweep, double value)
{
    const sim_options_t *options = sweep->options;
    bool passed = true;
    for (size_t i = 0; passed && i < options->variant_count; i++) {
        sim_case_t c = case_of(options, options->variants[i], value);
        c.trace = sweep->trace;
        passed = run_case(sweep, &c, value, i);
    }
    return passed;
}

static int sweep_all(const sim_command_t *command, const sim_options_t *options)
{
    static sweep_t sweep; /* too large for a stack */
    sweep.command = command;
    sweep.options = options;
    set_columns(options, sweep.columns);
    set_plot(command, options, &sweep.table.plot);
    if (!table_open(&sweep.table, sweep.columns, COLUMNS, &options->files) ||
        !output_open(options->trace, &sweep.trace)) {
        return EXIT_FAILURE;
    }
    sim_options_print(options, command->name);
    table_heading(&sweep.table);
    bool passed = true;
    for (size_t i = 0; passed && i < options->value_count; i++) {
        passed = run_value(&sweep, options->values[i]);
    }
    passed = table_close(&sweep.table, passed);
    passed &= output_close(sweep.trace, options->trace);
    return passed ? EXIT_SUCCESS : EXIT_FAILURE;
}

int sim_sweep(const sim_command_t *command, int argc, char **argv)
{
    sim_options_t options;
    cli_verdict_t verdict =
        sim_options_parse(command->command, command->variant_names,
                          command->doc, argc, argv, &options);
    if (verdict != CLI_RUN) {
        return verdict == CLI_DONE ? EXIT_SUCCESS : CLI_EXIT_USAGE;
    }
    return sweep_all(command, &options);
}
