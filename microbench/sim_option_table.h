/* All options of all commands of baton-sim, for argp. */
#ifndef MICROBENCH_SIM_OPTION_TABLE_H
#define MICROBENCH_SIM_OPTION_TABLE_H

#include "sim_options.h"

enum {
    KEY_ALGORITHM = 'a',
    KEY_BYTES = 'b',
    KEY_EPOCHS = 'e',
    KEY_ITERATIONS = 'i',
    KEY_MODE = 'm',
    KEY_RANKS = 'p',
    KEY_CHUNK_BYTES = 0x100,
    KEY_ROOT,
    KEY_INNER,
    KEY_MODE_RANKS,
    KEY_SKEW_MS,
    KEY_ALPHA,
    KEY_GBIT,
    KEY_GAMMA,
    KEY_OVERHEAD,
    KEY_HOST_RANKS,
    KEY_HOST_ALPHA,
    KEY_HOST_GBIT,
    KEY_SKEW,
    KEY_LAG,
    KEY_SPEED,
    KEY_MULTI_PORTED,
    KEY_EAGER_BYTES,
    KEY_SYNC_BYTES,
    KEY_SEED,
    KEY_PAYLOAD,
    KEY_PROVE,
    KEY_SWEEP,
    KEY_CSV,
    KEY_JSON,
    KEY_PLOT,
    KEY_TRACE,
    KEY_DOT,
    KEY_DOT_RANK,
    KEY_GOAL
};

/* The options of a command, the common ones among them, ended as argp wants. */
enum { SIM_MAX_OPTIONS = 64 };
void sim_option_table(unsigned command,
                      struct argp_option out[SIM_MAX_OPTIONS]);

#endif
