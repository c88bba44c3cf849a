/* baton-bench engine: first rank 0 measures alone, while the other ranks sleep
   in a barrier, then all ranks measure together. */
#include "bench/bench.h"
#include "bench/parts.h"
#include "bench/probe.h"
#include <inttypes.h>

static void report_state(bench_report_t *report, const char *name,
                         const char *text)
{
    if (report->speak) {
        bench_report_add(report, name, text,
                         bench_value_single(probe_cache_line_ns()), "ns");
    }
}

static void bench_alone(const bench_options_t *options, bench_report_t *report)
{
    bench_report_note(report, "Nodes (manual mode, one process)");
    bench_nodes(options, report);
    bench_report_note(report, "Commits (one process)");
    bench_commits(options, report);
    bench_report_note(report, "Epochs (one process)");
    bench_epochs(options, report);
}

static void bench_together(const harness_t *harness,
                           const bench_options_t *options,
                           bench_report_t *report)
{
    bench_report_note(report, "An engine with an armed solo all-reduce");
    bench_idle(harness, report);
    if (harness->size == 1) {
        bench_report_note(report, "All-reduce: skipped, it takes 2 ranks");
        return;
    }
    bench_report_note(report, "All-reduce of 8 bytes, start to wait");
    bench_short(harness, options, report);
}

int bench_engine(const bench_options_t *options, FILE *json)
{
    harness_t harness;
    harness_open(&harness);
    bench_report_t report =
        bench_report_begin(harness.rank, harness.size, json);
    if (report.speak) {
        (void)printf("baton-bench engine: %d ranks, medians of %" PRIu64
                     " repetitions (and their range)\n",
                     harness.size, options->repetitions);
    }
    report_state(&report, "line_before", "Cache line, core to core, before");
    if (harness.rank == 0) {
        bench_alone(options, &report);
    }
    harness_barrier(&harness);
    bench_together(&harness, options, &report);
    report_state(&report, "line_after", "Cache line, core to core, after");
    bench_report_end(&report);
    harness_barrier(&harness);
    harness_close(&harness);
    return 0;
}
