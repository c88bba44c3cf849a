/* The parts of `baton-bench engine`. Each reports its results. */
#ifndef MICROBENCH_BENCH_PARTS_H
#define MICROBENCH_BENCH_PARTS_H

#include "bench/bench.h"
#include "bench/report.h"
#include "common/harness.h"

/* Time and memory of a node, in chains and fans of nops. One process. */
void bench_nodes(const bench_options_t *options, bench_report_t *report);

/* Time to commit 10,000 nodes. One process. */
void bench_commits(const bench_options_t *options, bench_report_t *report);

/* Time from start to wait of a one-nop schedule, and memory growth over many
   epochs. One process. */
void bench_epochs(const bench_options_t *options, bench_report_t *report);

/* An 8-byte all-reduce compared with MPI's, and memory growth over many.
   Collective. */
void bench_short(const harness_t *harness, const bench_options_t *options,
                 bench_report_t *report);

/* Processor time of an engine that is idle but armed. Collective. */
void bench_idle(const harness_t *harness, bench_report_t *report);

#endif
