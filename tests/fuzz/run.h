/* The fuzzer without its command line: the run of one seed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { FUZZ_FAILURE_BYTES = 512 };

typedef struct fuzz_outcome {
    bool passed;
    /* Two runs with equal digests have done the same in the same order. */
    uint64_t digest;
    uint64_t messages;
    char failure[FUZZ_FAILURE_BYTES];
} fuzz_outcome_t;

extern const char fuzz_name[];
extern const char fuzz_doc[];

/* Makes the cluster and the tasks that the seed stands for, runs them to their
   end, checks the results, and destroys everything. */
fuzz_outcome_t fuzz_run(uint64_t seed);

/* Prints the cluster and the tasks that the seed stands for. */
void fuzz_print(uint64_t seed, FILE *to);
