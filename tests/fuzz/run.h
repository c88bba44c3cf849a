/* The run of one seed. */
#ifndef TESTS_FUZZ_RUN_H
#define TESTS_FUZZ_RUN_H

#include "fuzz/cluster.h"

typedef struct fuzz_outcome {
    bool passed;
    uint64_t digest; /* equal digests: the same happened, in the same order */
    uint64_t messages;
    char failure[FUZZ_FAILURE_BYTES];
} fuzz_outcome_t;

/* Makes the cluster of a seed, runs it to its end, checks it, destroys it. */
fuzz_outcome_t fuzz_run(uint64_t seed);

#endif
