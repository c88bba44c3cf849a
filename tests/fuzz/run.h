/* A program that fuzzes, but for main.c: the run of one seed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { FUZZ_FAILURE_BYTES = 512 };

typedef struct fuzz_outcome {
    bool passed;
    uint64_t digest; /* equal digests: the same happened, in the same order */
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
