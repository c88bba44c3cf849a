/* Simulations of sparse all-reduces. */
#ifndef MICROBENCH_SIM_SPARSE_H
#define MICROBENCH_SIM_SPARSE_H

#include "sim/watch.h"

/* Simulates the case; returns false after printing what failed. */
bool sim_run_sparse(const sim_case_t *c, sim_watch_t *watch, sim_result_t *out);

#endif
