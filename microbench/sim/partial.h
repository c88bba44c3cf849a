/* Simulations of partial all-reduces: latencies, active ranks, results. */
#ifndef MICROBENCH_SIM_PARTIAL_H
#define MICROBENCH_SIM_PARTIAL_H

#include "sim/watch.h"

/* Simulates the case. Returns false after printing what failed. */
bool sim_run_partial(const sim_case_t *c, sim_watch_t *watch,
                     sim_result_t *out);

#endif
