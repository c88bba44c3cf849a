/* Runs systems in turns, and reports rows that several benchmarks have. */
#include "bench/bench.h"
#include <math.h>
#include <stdlib.h>

/* ---- turns -------------------------------------------------------------- */

/* Runs all turns, and stores the values of the counted ones in `mine`, an array
   of [systems][measures][turns]. */
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
    double all[BENCH_MAX_REPETITIONS] = {0};
    MPI_Reduce(mine, all, (int)count, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    return stats_of(all, count);
}

/* ---- rows ---------------------------------------------------------------- */

void bench_report(bench_run_t *run, const char *name, stats_t value,
                  const char *unit)
{
    table_t *table = &run->table;
    if (!run->speak) {
        return;
    }
    const table_cell_t cells[] = {
        TEXT("name", "name", 24, name),
        NUMBER("value", "median", 12, 3, value.median),
        NUMBER("p10", "p10", 12, 3, value.p10),
        NUMBER("p90", "p90", 12, 3, value.p90),
        TEXT("unit", "unit", 6, unit),
        NUMBER("ranks", NULL, 0, 0, run->harness.size),
    };
    table_row(table, cells, sizeof cells / sizeof *cells);
}

void bench_kernel_row(bench_run_t *run, const char *const words[4],
                      size_t bytes, size_t k, stats_t us, double against_us,
                      double ratio)
{
    table_t *table = &run->table;
    const table_cell_t cells[] = {
        TEXT("op", "op", 10, words[0]),
        TEXT("dtype", "dtype", 5, words[1]),
        NUMBER("bytes", "bytes", 10, 0, bytes),
        TEXT("form", "form", 13, words[2]),
        NUMBER("k", "k", 8, 0, k > 0 ? (double)k : NAN),
        TEXT("kernels", NULL, 0, words[3]),
        NUMBER("us", "us", 12, 2, us.median),
        NUMBER("p10_us", "p10", 12, 2, us.p10),
        NUMBER("p90_us", "p90", 12, 2, us.p90),
        NUMBER("against_us", "against us", 12, 2, against_us),
        NUMBER("ratio", "ratio", 6, 3, ratio),
    };
    table_row(table, cells, sizeof cells / sizeof *cells);
}
