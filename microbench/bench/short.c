/* All-reduce of one element: the cost of a call between ranks. */
#include "bench/memory.h"
#include "bench/parts.h"
#include "bench/turns.h"
#include <inttypes.h>
#include <mpi.h>

enum { TURNS = 41, CALLS = 100, WARMUP = 5 };

static baton_schedule_t *create_doubling(const harness_t *harness,
                                         double *value)
{
    baton_schedule_t *schedule = NULL;
    harness_require(baton_schedule_create(harness->group, "growth", &schedule),
                    "create an all-reduce");
    baton_buffer_t buffer = baton_buffer_bind(schedule, value, sizeof(*value));
    baton_view_t whole = baton_view(buffer, 0, sizeof(*value));
    baton_allreduce_t args = {
        .size = sizeof(args),
        .source = whole,
        .target = whole,
        .dtype = BATON_F64,
        .op = BATON_MAX,
    };
    baton_allreduce_recursive_doubling(schedule, &args);
    harness_require(baton_schedule_commit(schedule), "commit an all-reduce");
    return schedule;
}

/* This includes memory that MPI keeps for its messages. */
static void measure_growth(const harness_t *harness, uint64_t epochs,
                           bench_report_t *report)
{
    double value = harness->rank;
    baton_schedule_t *schedule = create_doubling(harness, &value);
    harness_run_epochs(schedule, 1000);
    double before = memory_allocated();
    harness_run_epochs(schedule, epochs);
    double grown = memory_allocated() - before;
    double highest = 0;
    MPI_Reduce(&grown, &highest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    char text[80];
    (void)snprintf(text, sizeof(text),
                   "memory allocated by %" PRIu64 " epochs, worst rank",
                   epochs);
    bench_report_add(report, "allreduce8_growth", text,
                     bench_value_single(highest), "bytes");
    harness_barrier(harness);
    (void)!baton_schedule_destroy(schedule);
}

void bench_short(const harness_t *harness, const bench_options_t *options,
                 bench_report_t *report)
{
    bench_turns_t plan = {
        .count = 2,
        .algo = baton_allreduce_recursive_doubling,
        .turns = TURNS,
        .calls = CALLS,
        .warmup = WARMUP,
    };
    bench_outcome_t outcome;
    bench_turns(harness, &plan, &outcome);
    bench_turns_report(report, "allreduce8", "8 bytes", &outcome);
    measure_growth(harness, options->epochs, report);
}
