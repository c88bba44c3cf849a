/* Simulates each value of the sweep with each variant, and makes the rows of
   the table and the plot. */
#include "common/progress.h"
#include "sim/sim.h"
#include <baton/sparse.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- rows --------------------------------------------------------------- */

enum {
    COLLECTIVES = SIM_ALLREDUCE | SIM_BROADCAST | SIM_BARRIER,
    PARTIALS = SIM_PARTIAL,
    SPARSE = SIM_SPARSE,
    ALL = COLLECTIVES | PARTIALS | SPARSE,
    WITH_BYTES = SIM_ALLREDUCE | SIM_BROADCAST | PARTIALS,
    WITH_RUN = ALL & ~SIM_SPARSE
};

/* Returns how much the time differs from the formula, relative to the
   formula. */
static double difference(const sim_result_t *result)
{
    double difference = result->mean_us - result->formula_us;
    return difference == 0 ? 0 : difference / result->formula_us;
}

/* A cell that the commands in `shown` print on the screen, and the commands in
   `written` write to files. */
#define KEY(written, key)       (command & (written) ? (key) : NULL)
#define HEADING(shown, heading) (command & (shown) ? (heading) : NULL)
#define ADD(shown, written, key, heading, width, decimals, number)             \
    NUMBER(KEY(written, key), HEADING(shown, heading), width, decimals, number)
#define ADD_TEXT(shown, written, key, heading, width, text)                    \
    TEXT(KEY(written, key), HEADING(shown, heading), width, text)

/* Adds the row of a case. `results` are those of the variants at the sweep's
   current value. */
static void fill_row(const sim_case_t *c, const sim_result_t *results,
                     table_t *table)
{
    const unsigned command = c->options->command->bit;
    const sim_result_t *r = &results[c->variant];
    const baton_sparse_cost_t *cost = &r->cost;
    const double entry = (double)baton_entry_bytes(BATON_F32);
    const char *exchange =
        cost->exchange == BATON_EXCHANGE_RSAG ? "rsag" : "bsag";
    const char *variant = (command & PARTIALS) != 0 ? "mode" : "algorithm";
    /* If ranks arrive one after another, the table has latencies: an epoch's
       time then mostly consists of the ranks' delays. */
    unsigned apart = c->options->spacing_ms > 0 ? SIM_PARTIAL : 0;
    unsigned timed = ALL & ~apart;
    unsigned several = c->options->epochs > 1 ? timed : 0;
    int width = (command & COLLECTIVES) != 0 ? 18 : 9;
    const table_cell_t cells[] = {
        ADD_TEXT(ALL, ALL, variant, variant, width, c->name),
        ADD(ALL, ALL, "ranks", "ranks", 7, 0, c->ranks),
        ADD(WITH_BYTES, WITH_BYTES, "bytes", "bytes", 9, 0, c->bytes),
        ADD(0, ALL, "epochs", "", 0, 0, c->options->epochs),
        ADD(timed, ALL, "us", "time us", 12, 3, r->mean_us),
        ADD(PARTIALS, PARTIALS, "latency_us", "mean us", 12, 3,
            r->latency.mean),
        ADD(PARTIALS, PARTIALS, "full_over_this", "full/this", 9, 2,
            results[BATON_FULL].latency.mean / r->latency.mean),
        ADD(PARTIALS, PARTIALS, "active", "active", 9, 2, r->active),
        ADD(PARTIALS, PARTIALS, "active_error", "+-", 6, 2, r->active_error),
        ADD(apart, PARTIALS, "active_expected", "expected", 9, 1,
            r->active_expected),
        ADD(apart, PARTIALS, "latency_median_us", "median us", 12, 3,
            r->latency.median),
        ADD(apart, PARTIALS, "latency_p99_us", "p99 us", 12, 3, r->latency.p99),
        ADD(several, ALL, "low_us", "least us", 12, 3, r->low_us),
        ADD(several, ALL, "high_us", "most us", 12, 3, r->high_us),
        ADD(timed, timed, "formula_us", "formula us", 12, 3, r->formula_us),
        ADD(timed, timed, "difference", "relative", 8, TABLE_TINY,
            difference(r)),
        ADD(SPARSE, SPARSE, "this_over_spardl", "/spardl", 7, 2,
            r->mean_us / results[BATON_SPARSE_SPARDL].mean_us),
        ADD(COLLECTIVES, ALL, "messages", "messages", 10, 0, r->messages),
        ADD(timed & WITH_RUN, ALL, "build_s", "build s", 7, 2, r->build_s),
        ADD(WITH_RUN, ALL, "run_s", "run s", 7, 2, r->run_s),
        ADD(WITH_RUN, ALL, "messages_per_s", "messages/s", 10, 0,
            (double)r->messages / r->run_s),
        ADD(0, SPARSE, "n", "", 0, 0, c->options->count),
        ADD(SPARSE, SPARSE, "density", "density", 8, 5, c->options->density),
        ADD(0, SPARSE, "k", "", 0, 0, r->k),
        ADD_TEXT(SPARSE, SPARSE, "chosen", "chosen", 7,
                 baton_sparse_algorithm_name(cost->algorithm)),
        ADD(SPARSE, SPARSE, "teams", "teams", 5, 0, cost->teams),
        ADD_TEXT(0, SPARSE, "exchange", NULL, 0,
                 cost->teams == 1 ? "none" : exchange),
        ADD(SPARSE, SPARSE, "rounds", "rounds", 6, 0, r->rounds),
        ADD(0, SPARSE, "rounds_formula", "", 0, 0, cost->rounds),
        ADD(SPARSE, SPARSE, "messages_sent", "messages", 8, 0, r->sent),
        ADD(SPARSE, SPARSE, "messages_formula", "formula", 7, 0,
            cost->messages),
        ADD(SPARSE, SPARSE, "entries_sent", "entries", 11, 1,
            r->sent_bytes / entry),
        ADD(SPARSE, SPARSE, "entries_formula", "formula", 11, 1,
            cost->bytes / entry),
        ADD(0, SPARSE, "nnz", "", 0, 0, r->nnz),
        ADD_TEXT(0, SPARSE, "simulation", NULL, 0,
                 c->options->payload ? "real data" : "full blocks"),
    };
    table_row(table, cells, sizeof cells / sizeof *cells);
}

/* ---- the sweep ---------------------------------------------------------- */

static bool run_case(sim_case_t *c, sim_result_t *result)
{
    baton_sim_options_t model = c->options->model;
    *result = (sim_result_t){.formula_us = NAN, .active_expected = NAN};
    model.ranks = c->ranks;
    model.on_progress = sim_case_progress;
    sim_case_begin(c);
    bool passed = sim_ok(baton_sim_create(&model, &c->sim)) &&
                  c->options->command->run(c, result);
    sim_case_end(passed);
    /* After Ctrl-C the process ends without destroying the simulation, since
       ending its epochs would take long. */
    return !progress_interrupted() && sim_ok(baton_sim_destroy(c->sim)) &&
           passed;
}

int sim_sweep(const sim_command_t *command, int argc, char **argv)
{
    bool passed = true, partial = command->bit == SIM_PARTIAL;
    /* Results of the variants at the sweep's current value, by the index of the
       variant's name. A variant that has not run yet has none. */
    static sim_result_t results[CLI_MOST_ITEMS];
    static table_t table;
    static sim_options_t options;
    FILE *trace = NULL;
    sim_options_parse(command, argc, argv, &options);
    for (int i = 0, end = 0; i < argc && end < (int)sizeof(table.title); i++) {
        end += snprintf(table.title + end, sizeof(table.title) - (size_t)end,
                        "%s%s", i > 0 ? " " : "", argv[i]);
    }
    table.x = options.axis != NULL ? options.axis->name : NULL;
    table.y = partial ? "latency_us" : "us";
    table.series = partial ? "mode" : "algorithm";
    table.columns = terminal_columns(STDOUT_FILENO);
    if (!table_open(&table, &options.files) ||
        !output_open(options.trace, &trace)) {
        return EXIT_FAILURE;
    }
    sim_options_print(&options, table.title);
    size_t count = options.variants.count;
    for (size_t i = 0; passed && i < options.values.count * count; i++) {
        size_t place = i % count, variant = options.variants.words[place];
        sim_options_set(&options, i / count);
        for (size_t v = 0; place == 0 && v < CLI_MOST_ITEMS; v++) {
            results[v] = (sim_result_t){.mean_us = NAN, .latency.mean = NAN};
        }
        sim_case_t c = {.options = &options,
                        .variant = variant,
                        .name = command->variant_names[variant],
                        .ranks = (int)options.ranks,
                        .bytes = options.bytes,
                        .trace = trace};
        passed = run_case(&c, &results[variant]);
        if (passed) {
            fill_row(&c, results, &table);
        }
    }
    passed = table_close(&table, passed);
    passed &= output_close(trace, options.trace);
    return passed ? EXIT_SUCCESS : EXIT_FAILURE;
}
