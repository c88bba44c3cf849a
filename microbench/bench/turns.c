/* Runs systems in turns, and reports rows of single values. */
#include "bench/bench.h"
#include <stdlib.h>

/* ---- turns -------------------------------------------------------------- */

/* Runs all turns and stores the values of the counted ones in `mine`,
   [systems][measures][turns]. */
static void bench_turns_take_all(const bench_run_t *run,
                                 const bench_turns_t *turns, double *mine)
{
    double *values = harness_alloc(turns->measures, sizeof(double));
    size_t all = turns->warm_up + turns->turns;
    for (size_t turn = 0; turn < all; turn++) {
        if (run->speak) {
            double part = (double)turn / (double)all;
            (void)progress_show(((double)run->done + part) /
                                    (double)run->points,
                                "baton-bench");
        }
        if (turns->begin != NULL) {
            turns->begin(turns->arg, turn);
        }
        for (size_t i = 0; i < turns->systems; i++) {
            size_t system = (turn + i) % turns->systems;
            turns->take(turns->arg, system, turn, values);
            for (size_t m = 0; turn >= turns->warm_up && m < turns->measures;
                 m++) {
                mine[(system * turns->measures + m) * turns->turns + turn -
                     turns->warm_up] = values[m];
            }
        }
    }
    free(values);
}

void bench_turns(bench_run_t *run, const bench_turns_t *turns, stats_t *out)
{
    size_t rows = turns->systems * turns->measures;
    double *mine = harness_alloc(rows * turns->turns, sizeof(double));
    bench_turns_take_all(run, turns, mine);
    run->done++;
    (void)progress_end();
    for (size_t i = 0; i < rows; i++) {
        out[i] = bench_slowest(&mine[i * turns->turns], turns->turns);
    }
    free(mine);
    harness_barrier(&run->harness);
}

stats_t bench_slowest(double *mine, size_t count)
{
    double *all = harness_alloc(count, sizeof(*all));
    MPI_Reduce(mine, all, (int)count, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    stats_t value = stats_of(all, count);
    free(all);
    return value;
}

/* ---- rows of single values ---------------------------------------------- */

void bench_report(bench_run_t *run, const char *name, const char *text,
                  stats_t value, const char *unit)
{
    table_t *table = &run->table;
    if (!run->speak) {
        return;
    }
    table_text(table, "name", NULL, 0, name);
    table_text(table, NULL, "what", 52, text);
    table_number(table, "value", "median", 12, 3, value.median);
    table_number(table, "p10", "p10", 12, 3, value.p10);
    table_number(table, "p90", "p90", 12, 3, value.p90);
    table_text(table, "unit", "unit", 6, unit);
    table_number(table, "ranks", NULL, 0, 0, run->harness.size);
    table_row(table);
}

void bench_note(const bench_run_t *run, const char *text)
{
    if (run->speak) {
        (void)printf("%s\n", text);
        (void)fflush(stdout);
    }
}
