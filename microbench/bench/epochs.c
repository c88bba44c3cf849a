/* The cost of an epoch that does almost nothing: time and memory. */
#include "bench/memory.h"
#include "bench/parts.h"
#include <baton/inproc.h>
#include <inttypes.h>
#include <stdlib.h>

enum { STARTS_A_REPETITION = 20000, MIDDLE_NODES = 10 };

/* An engine and a group of one rank with one schedule. */
typedef struct single {
    baton_engine_t *engine;
    baton_group_t *group;
    baton_schedule_t *schedule;
} single_t;

/* nop -> `middle` nops -> nop, or a single nop if `middle` is 0. */
static void build(baton_schedule_t *schedule, int middle)
{
    baton_node_t first = baton_add_nop(schedule);
    if (middle == 0) {
        return;
    }
    baton_node_t last = baton_add_nop(schedule);
    for (int i = 0; i < middle; i++) {
        baton_node_t node = baton_add_nop(schedule);
        baton_before(schedule, first, node);
        baton_before(schedule, node, last);
    }
}

static void open_single(baton_progress_t progress, int middle, single_t *out)
{
    baton_engine_options_t options = BATON_ENGINE_OPTIONS;
    options.progress = progress;
    harness_require(baton_engine_open(&options, &out->engine),
                    "open an engine");
    harness_require(baton_group_create_self(out->engine, &out->group),
                    "create a group");
    harness_require(baton_schedule_create(out->group, "nops", &out->schedule),
                    "create");
    build(out->schedule, middle);
    harness_require(baton_schedule_commit(out->schedule), "commit");
}

static void close_single(single_t *single)
{
    (void)!baton_schedule_destroy(single->schedule);
    harness_require(baton_group_destroy(single->group), "destroy the group");
    harness_require(baton_engine_close(single->engine), "close the engine");
}

static bench_value_t measure_start(baton_progress_t progress,
                                   size_t repetitions)
{
    single_t single;
    open_single(progress, 0, &single);
    double *start_us = harness_alloc(repetitions, sizeof(*start_us));
    harness_run_epochs(single.schedule, STARTS_A_REPETITION);
    for (size_t i = 0; i < repetitions; i++) {
        double begin_us = clock_now_us();
        harness_run_epochs(single.schedule, STARTS_A_REPETITION);
        start_us[i] = (clock_now_us() - begin_us) / STARTS_A_REPETITION;
    }
    bench_value_t value = bench_value(start_us, repetitions);
    free(start_us);
    close_single(&single);
    return value;
}

static void measure_growth(const bench_options_t *options,
                           bench_report_t *report)
{
    single_t single;
    open_single(BATON_PROGRESS_MANUAL, MIDDLE_NODES, &single);
    harness_run_epochs(single.schedule, 1000);
    double allocated = memory_allocated();
    double resident = memory_resident();
    harness_run_epochs(single.schedule, options->epochs);
    allocated = memory_allocated() - allocated;
    resident = memory_resident() - resident;
    close_single(&single);

    char text[80];
    (void)snprintf(text, sizeof(text), "memory allocated by %" PRIu64 " epochs",
                   options->epochs);
    bench_report_add(report, "growth_allocated", text,
                     bench_value_single(allocated), "bytes");
    (void)snprintf(text, sizeof(text),
                   "resident memory, growth in %" PRIu64 " epochs",
                   options->epochs);
    bench_report_add(report, "growth_resident", text,
                     bench_value_single(resident), "bytes");
}

void bench_epochs(const bench_options_t *options, bench_report_t *report)
{
    size_t repetitions = (size_t)options->repetitions;
    bench_report_add(report, "start_manual",
                     "one nop, start to wait, manual mode",
                     measure_start(BATON_PROGRESS_MANUAL, repetitions), "us");
    bench_report_add(report, "start_thread",
                     "one nop, start to wait, progress thread",
                     measure_start(BATON_PROGRESS_THREAD, repetitions), "us");
    measure_growth(options, report);
}
