/* Runs systems in alternation, and reports rows that several benchmarks
   have. */
#include "bench/bench.h"
#include <baton/engine.h>
#include <math.h>
#include <stdlib.h>

/* ---- alternation -------------------------------------------------------- */

void bench_compare(bench_run_t *run, const bench_comparison_t *of, stats_t *out)
{
    size_t rows = of->systems * of->measures;
    size_t counted = (size_t)run->options.repetitions;
    size_t all = of->warm_up + counted;
    double *values = harness_alloc(of->measures, sizeof(double));
    double *mine = harness_alloc(rows * all, sizeof(double)); /* [rows][all] */
    for (size_t repetition = 0; repetition < all; repetition++) {
        double done = (double)run->done + (double)repetition / (double)all;
        (void)(run->prints &&
               progress_show(done / (double)run->points, "baton-bench"));
        if (of->begin != NULL) {
            of->begin(of->arg, repetition);
        }
        for (size_t i = 0; i < of->systems; i++) {
            size_t system = (repetition + i) % of->systems;
            of->measure(of->arg, system, values);
            for (size_t m = 0; m < of->measures; m++) {
                mine[(system * of->measures + m) * all + repetition] =
                    values[m];
            }
        }
    }
    run->done++;
    (void)progress_end();
    for (size_t i = 0; i < rows; i++) {
        out[i] = bench_slowest(&mine[i * all + of->warm_up], counted);
    }
    free(values);
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
    if (!run->prints) {
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
    table_row(&run->table, cells, sizeof cells / sizeof *cells);
}

void bench_kernel_row(bench_run_t *run, const char *op, const char *dtype,
                      const char *form, size_t bytes, size_t k, stats_t us,
                      double against_us, double ratio)
{
    bool device = run->options.memory == BENCH_MEMORY_DEVICE;
    const table_cell_t cells[] = {
        TEXT("op", "op", 10, op),
        TEXT("dtype", "dtype", 5, dtype),
        NUMBER("bytes", "bytes", 10, 0, bytes),
        TEXT("form", "form", 13, form),
        NUMBER("k", "k", 8, 0, k > 0 ? (double)k : NAN),
        TEXT("kernels", NULL, 0, device ? "device" : baton_kernels_name()),
        NUMBER("us", "us", 12, 2, us.median),
        NUMBER("p10_us", "p10", 12, 2, us.p10),
        NUMBER("p90_us", "p90", 12, 2, us.p90),
        NUMBER("against_us", "against us", 12, 2, against_us),
        NUMBER("ratio", "ratio", 6, 3, ratio),
    };
    table_row(&run->table, cells, sizeof cells / sizeof *cells);
}
