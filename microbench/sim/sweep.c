#include "sim/sweep.h"
#include "common/output.h"
#include "sim/plot.h"
#include "sim/row.h"
#include <math.h>
#include <stdlib.h>

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
    sim_row_columns(shown, sweep->command->written, sweep->command->compared,
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
        sim_plot_write(&sweep->plot, sweep->command, sweep->options,
                       sweep->results);
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
        sim_row_fill(c, results, place, cells);
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
    sweep_t sweep = {.command = command, .options = options};
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
