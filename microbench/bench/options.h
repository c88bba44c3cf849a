/* The command line of baton-bench. */
#ifndef MICROBENCH_BENCH_OPTIONS_H
#define MICROBENCH_BENCH_OPTIONS_H

#include "bench/bench.h"
#include "common/cli.h"

/* Sets of commands, for the table of options. The dense collectives are one. */
typedef enum bench_command {
    BENCH_NO_COMMAND = 0,
    BENCH_ENGINE = 1 << 0,
    BENCH_RING = 1 << 1,
    BENCH_LOOP = 1 << 2,
    BENCH_SPARSE = 1 << 3,
    BENCH_KERNELS = 1 << 4,
    BENCH_COLLECTIVE = 1 << 5,
    BENCH_OVERLAP = 1 << 6
} bench_command_t;

/* "allreduce", "bcast", ...: as the command, and in files. */
const char *bench_collective_name(baton_collective_t collective);

/* Parses the command line. `speak` is true on rank 0 only. */
cli_verdict_t bench_options_parse(int argc, char **argv, bool speak,
                                  bench_command_t *command_out,
                                  bench_options_t *out);

#endif
