/* A simulation for each value of the sweep and for each variant: a row of the
   table for each, and the plot. */
#include "common/plot.h"
#include "sim/sim.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* ---- rows --------------------------------------------------------------- */

static const table_column_t all_columns[SIM_COLUMN_COUNT] = {
    [SIM_NAME] = {NULL, NULL, TABLE_TEXT, 18, 0},
    [SIM_RANKS] = {"ranks", "ranks", TABLE_FIXED, 7, 0},
    [SIM_BYTES] = {"bytes", "bytes", TABLE_FIXED, 9, 0},
    [SIM_EPOCHS] = {"epochs", "epochs", TABLE_FIXED, 6, 0},
    [SIM_MEAN] = {"us", "time us", TABLE_FIXED, 12, 3},
    [SIM_LOW] = {"low_us", "least us", TABLE_FIXED, 12, 3},
    [SIM_HIGH] = {"high_us", "most us", TABLE_FIXED, 12, 3},
    [SIM_FORMULA] = {"formula_us", "formula us", TABLE_FIXED, 12, 3},
    [SIM_DIFFERENCE] = {"difference", "relative", TABLE_TINY, 8, 0},
    [SIM_LATENCY] = {"latency_us", "mean us", TABLE_FIXED, 12, 3},
    [SIM_MEDIAN] = {"latency_median_us", "median us", TABLE_FIXED, 12, 3},
    [SIM_P99] = {"latency_p99_us", "p99 us", TABLE_FIXED, 12, 3},
    [SIM_RATIO] = {"full_over_this", "full/this", TABLE_FIXED, 9, 2},
    [SIM_PAPER] = {"paper", "paper", TABLE_FIXED, 5, 2},
    [SIM_ACTIVE] = {"active", "active", TABLE_FIXED, 9, 2},
    [SIM_ERROR] = {"active_error", "+-", TABLE_FIXED, 6, 2},
    [SIM_EXPECTED] = {"active_expected", "expected", TABLE_FIXED, 9, 1},
    [SIM_MESSAGES] = {"messages", "messages", TABLE_FIXED, 10, 0},
    [SIM_BUILD] = {"build_s", "build s", TABLE_FIXED, 7, 2},
    [SIM_RUN] = {"run_s", "run s", TABLE_FIXED, 7, 2},
    [SIM_RATE] = {"messages_per_s", "messages/s", TABLE_FIXED, 10, 0},
    [SIM_COUNT] = {"n", "n", TABLE_FIXED, 9, 0},
    [SIM_DENSITY] = {"density", "density", TABLE_FIXED, 8, 5},
    [SIM_SELECTED] = {"k", "k", TABLE_FIXED, 8, 0},
    [SIM_CHOSEN] = {"chosen", "chosen", TABLE_TEXT, 7, 0},
    [SIM_TEAMS] = {"teams", "teams", TABLE_FIXED, 5, 0},
    [SIM_EXCHANGE] = {"exchange", "exchange", TABLE_TEXT, 8, 0},
    [SIM_ROUNDS] = {"rounds", "rounds", TABLE_FIXED, 6, 0},
    [SIM_ROUNDS_FORMULA] = {"rounds_formula", "formula", TABLE_FIXED, 7, 0},
    [SIM_SENT] = {"messages_sent", "messages", TABLE_FIXED, 8, 0},
    [SIM_SENT_FORMULA] = {"messages_formula", "formula", TABLE_FIXED, 7, 0},
    [SIM_ENTRIES] = {"entries_sent", "entries", TABLE_FIXED, 11, 1},
    [SIM_ENTRIES_FORMULA] = {"entries_formula", "formula", TABLE_FIXED, 11, 1},
    [SIM_NNZ] = {"nnz", "nnz", TABLE_FIXED, 8, 0},
    [SIM_OVER_SPARDL] = {"this_over_spardl", "/spardl", TABLE_FIXED, 7, 2},
    [SIM_PAPER_SPARSE] = {"paper", "paper", TABLE_FIXED, 5, 1},
    [SIM_KIND] = {"simulation", "simulation", TABLE_TEXT, 11, 0},
};

static void set_columns(sim_columns_t shown, sim_columns_t written,
                        const char *compared,
                        table_column_t columns[SIM_COLUMN_COUNT])
{
    for (size_t i = 0; i < SIM_COLUMN_COUNT; i++) {
        columns[i] = all_columns[i];
        if (i == SIM_NAME) {
            columns[i].key = columns[i].heading = compared;
        }
        if ((shown >> i & 1) == 0) {
            columns[i].heading = NULL;
        }
        if ((written >> i & 1) == 0) {
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

/* Latency of full over this one's; NAN before full has run. */
static double ratio(const sim_case_t *c, const sim_result_t *results,
                    size_t place)
{
    for (size_t i = 0; i <= place; i++) {
        if (c->options->variants[i] == SIM_FULL) {
            return results[i].latency_us / results[place].latency_us;
        }
    }
    return NAN;
}

/* The same ratio in Li et al. 2020, figure 9, for 32 ranks that are 1 ms apart:
   the mean over the message sizes. */
static double ratio_of_paper(const sim_case_t *c)
{
    if (c->ranks != 32 || c->options->spacing_ms != 1) {
        return NAN;
    }
    return c->variant == SIM_SOLO       ? 53.32
           : c->variant == SIM_MAJORITY ? 2.46
                                        : NAN;
}

/* Time over that of SparDL; NAN before it has run. */
static double over_spardl(const sim_case_t *c, const sim_result_t *results,
                          size_t place)
{
    for (size_t i = 0; i <= place; i++) {
        if (c->options->variants[i] == BATON_SPARSE_SPARDL) {
            return results[place].mean_us / results[i].mean_us;
        }
    }
    return NAN;
}

/* The same ratio in Zhao et al. 2023, figure 8 (a): communication of VGG-19 by
   14 workers at a density of 1%. */
static double over_spardl_in_paper(const sim_case_t *c)
{
    if (c->ranks != 14 || c->density != 0.01) {
        return NAN;
    }
    return c->variant == BATON_SPARSE_TOPKDSA  ? 6.4
           : c->variant == BATON_SPARSE_TOPKA  ? 5.1
           : c->variant == BATON_SPARSE_OKTOPK ? 1.6
                                               : NAN;
}

static void fill_sparse(const sim_case_t *c, const sim_result_t *results,
                        size_t place, table_cell_t *cells)
{
    const sim_result_t *result = &results[place];
    const baton_sparse_cost_t *cost = &result->cost;
    const double entry = (double)baton_entry_bytes(BATON_F32);
    cells[SIM_COUNT] = table_number((double)c->options->count);
    cells[SIM_DENSITY] = table_number(c->density);
    cells[SIM_SELECTED] = table_number(result->k);
    cells[SIM_CHOSEN] =
        table_text(baton_sparse_algorithm_name(cost->algorithm));
    cells[SIM_TEAMS] = table_number(cost->teams);
    cells[SIM_EXCHANGE] =
        table_text(cost->teams == 1                     ? "none"
                   : cost->exchange == BATON_TEAMS_RSAG ? "rsag"
                                                        : "bsag");
    cells[SIM_ROUNDS] = table_number(result->rounds);
    cells[SIM_ROUNDS_FORMULA] = table_number(cost->rounds);
    cells[SIM_SENT] = table_number(result->sent);
    cells[SIM_SENT_FORMULA] = table_number(cost->messages);
    cells[SIM_ENTRIES] = table_number(result->sent_bytes / entry);
    cells[SIM_ENTRIES_FORMULA] = table_number(cost->bytes / entry);
    cells[SIM_NNZ] = table_number(result->nnz);
    cells[SIM_OVER_SPARDL] = table_number(over_spardl(c, results, place));
    cells[SIM_PAPER_SPARSE] = table_number(over_spardl_in_paper(c));
    cells[SIM_KIND] =
        table_text(c->options->payload ? "real data" : "full blocks");
}

static void fill_row(const sim_case_t *c, const sim_result_t *results,
                     size_t place, table_cell_t cells[SIM_COLUMN_COUNT])
{
    const sim_result_t *result = &results[place];
    const double numbers[SIM_COLUMN_COUNT] = {
        [SIM_RANKS] = c->ranks,
        [SIM_BYTES] = (double)c->bytes,
        [SIM_EPOCHS] = (double)c->options->epochs,
        [SIM_MEAN] = result->mean_us,
        [SIM_LOW] = result->low_us,
        [SIM_HIGH] = result->high_us,
        [SIM_FORMULA] = result->formula_us,
        [SIM_DIFFERENCE] = difference(result),
        [SIM_LATENCY] = result->latency_us,
        [SIM_MEDIAN] = result->latency_median_us,
        [SIM_P99] = result->latency_p99_us,
        [SIM_RATIO] = ratio(c, results, place),
        [SIM_PAPER] = ratio_of_paper(c),
        [SIM_ACTIVE] = result->active,
        [SIM_ERROR] = result->active_error,
        [SIM_EXPECTED] = result->active_expected,
        [SIM_MESSAGES] = (double)result->messages,
        [SIM_BUILD] = result->build_s,
        [SIM_RUN] = result->run_s,
        [SIM_RATE] = (double)result->messages / result->run_s,
    };
    for (size_t i = 0; i < SIM_COLUMN_COUNT; i++) {
        cells[i] = table_number(numbers[i]);
    }
    if (c->options->command == SIM_SPARSE) {
        fill_sparse(c, results, place, cells);
    }
    cells[SIM_NAME] = table_text(c->name);
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

static void draw(const output_plot_t *out, const sim_command_t *command,
                 const sim_options_t *options, const sim_result_t *results)
{
    static double us[SIM_MAX_VALUES * SIM_MAX_VARIANTS];
    static char series[SIM_MAX_VARIANTS][PLOT_TEXT_BYTES];
    static char ticks[SIM_MAX_VALUES][PLOT_TEXT_BYTES];
    char fixed[128];
    char title[256];
    describe(options, fixed, sizeof(fixed));
    (void)snprintf(title, sizeof(title), "Simulated %s%s, %g us, %g Gbit/s: %s",
                   command->name, fixed, options->model.link.alpha_us,
                   options->gbit, command->plotted);
    for (size_t i = 0; i < options->value_count * options->variant_count; i++) {
        us[i] = command->plot_value(&results[i]);
    }
    for (size_t i = 0; i < options->variant_count; i++) {
        (void)snprintf(series[i], PLOT_TEXT_BYTES, "%.47s",
                       options->variant_names[options->variants[i]]);
    }
    for (size_t i = 0; i < options->value_count; i++) {
        (void)sim_axis_format(options->axis, options->values[i], ticks[i],
                              PLOT_TEXT_BYTES);
    }
    const plot_t plot = {
        .title = title,
        .x_label = options->axis == SIM_AXIS_NONE
                       ? "ranks"
                       : sim_axis_name(options->axis),
        .series_count = options->variant_count,
        .x_count = options->value_count,
        .series = (const char(*)[PLOT_TEXT_BYTES])series,
        .ticks = (const char(*)[PLOT_TEXT_BYTES])ticks,
        .x = options->values,
        .values = us,
        .log_base = options->axis == SIM_AXIS_NONE      ? 0
                    : options->axis == SIM_AXIS_DENSITY ? 10
                                                        : 2,
    };
    plot_draw(out, &plot);
}

/* ---- the sweep ---------------------------------------------------------- */

/* A command that runs, with its open files. */
typedef struct sweep {
    const sim_command_t *command;
    const sim_options_t *options;
    table_column_t columns[SIM_COLUMN_COUNT];
    table_t table;
    FILE *trace;
    output_plot_t plot;
    sim_result_t results[SIM_MAX_VALUES * SIM_MAX_VARIANTS];
} sweep_t;

static bool open_files(sweep_t *sweep)
{
    const sim_options_t *options = sweep->options;
    sim_columns_t shown = sweep->command->shown;
    if (options->epochs == 1) {
        shown &= ~(SIM_COLUMN(LOW) | SIM_COLUMN(HIGH));
    }
    set_columns(shown, sweep->command->written, sweep->command->compared,
                sweep->columns);
    if (!table_open(&sweep->table, sweep->columns, SIM_COLUMN_COUNT,
                    options->csv, options->json)) {
        return false;
    }
    if (output_open(options->trace, &sweep->trace) &&
        output_plot_open(options->plot, &sweep->plot)) {
        return true;
    }
    (void)table_close(&sweep->table);
    (void)output_close(sweep->trace, options->trace);
    return false;
}

static bool close_files(sweep_t *sweep, bool passed)
{
    if (passed) {
        draw(&sweep->plot, sweep->command, sweep->options, sweep->results);
        passed = output_plot_close(&sweep->plot);
    } else {
        output_plot_abandon(&sweep->plot);
    }
    passed &= table_close(&sweep->table);
    passed &= output_close(sweep->trace, sweep->options->trace);
    return passed;
}

static bool run_case(sweep_t *sweep, const sim_case_t *c, size_t place,
                     sim_result_t *results)
{
    sim_watch_t watch;
    sim_result_t *result = &results[place];
    *result = (sim_result_t){.formula_us = NAN, .active_expected = NAN};
    sim_watch_begin(&watch, c, sweep->trace);
    bool passed = sweep->command->run(c, &watch, result);
    sim_watch_end(&watch);
    if (passed) {
        table_cell_t cells[SIM_COLUMN_COUNT];
        fill_row(c, results, place, cells);
        table_row(&sweep->table, cells);
    }
    return passed;
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

static bool run_value(sweep_t *sweep, size_t index)
{
    const sim_options_t *options = sweep->options;
    bool passed = true;
    for (size_t i = 0; passed && i < options->variant_count; i++) {
        sim_case_t c =
            case_of(options, options->variants[i], options->values[index]);
        passed = run_case(sweep, &c, i,
                          &sweep->results[index * options->variant_count]);
    }
    return passed;
}

static int sweep_all(const sim_command_t *command, const sim_options_t *options)
{
    static sweep_t sweep; /* too large for a stack */
    sweep.command = command;
    sweep.options = options;
    if (!open_files(&sweep)) {
        return EXIT_FAILURE;
    }
    sim_options_print(options, command->name);
    table_heading(&sweep.table);
    bool passed = true;
    for (size_t i = 0; passed && i < options->value_count; i++) {
        passed = run_value(&sweep, i);
    }
    passed = close_files(&sweep, passed);
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
