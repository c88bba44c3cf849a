/* The parts of `baton-bench engine`. Each reports its lines. */
#ifndef MICROBENCH_BENCH_PARTS_H
#define MICROBENCH_BENCH_PARTS_H

#include "bench/bench.h"
#include "bench/report.h"
#include "common/harness.h"

/* ns and bytes a node: chains and fans of nops. One process. */
void bench_nodes(const bench_options_t *options, bench_report_t *report);

/* Commits of 10,000 nodes. One process. */
void bench_commits(const bench_options_t *options, bench_report_t *report);

/* Start to wait of a one-nop schedule, and memory over many epochs. One
   process. */
void bench_epochs(const bench_options_t *options, bench_report_t *report);

/* An 8-byte all-reduce against MPI's, and memory over many. Collective. */
void bench_short(const harness_t *harness, const bench_options_t *options,
                 bench_report_t *report);

/* Processor time of an engine that waits for its peers. Collective. */
void bench_idle(const harness_t *harness, bench_report_t *report);

#endif
