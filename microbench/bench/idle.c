/* An idle engine: armed receives are posted on every rank, and no rank
   activates them. */
#include "bench/parts.h"
#include <baton/partial.h>
#include <mpi.h>

#define IDLE_US 2e6

static baton_partial_t *create_solo(const harness_t *harness)
{
    baton_partial_options_t options = {
        .size = sizeof(options),
        .name = "idle",
        .mode = BATON_SOLO,
        .count = 8,
        .dtype = BATON_F64,
    };
    baton_partial_t *partial = NULL;
    harness_require(baton_partial_create(harness->group, &options, &partial),
                    "create a solo all-reduce");
    return partial;
}

/* Runs one epoch on all ranks; then the receives are armed for the next one. */
static void run_once(const harness_t *harness, baton_partial_t *partial)
{
    baton_partial_result_t result;
    harness_require(baton_partial_start(partial), "start");
    harness_require(baton_partial_wait(partial, -1, &result), "wait");
    harness_barrier(harness);
}

void bench_idle(const harness_t *harness, bench_report_t *report)
{
    baton_partial_t *partial = create_solo(harness);
    run_once(harness, partial);
    double processor_us = clock_processor_us();
    clock_sleep_until(clock_now_us() + IDLE_US);
    double percent = (clock_processor_us() - processor_us) / IDLE_US * 100;

    double highest = 0;
    double sum = 0;
    MPI_Reduce(&percent, &highest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(&percent, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    bench_report_add(report, "idle_highest", "idle for 2 s, of the worst rank",
                     bench_value_single(highest), "% core");
    bench_report_add(report, "idle_mean", "idle for 2 s, mean of all ranks",
                     bench_value_single(sum / harness->size), "% core");
    harness_barrier(harness);
    (void)!baton_partial_destroy(partial);
}
