/* Random numbers of tests. A run prints its seed, and BATON_SEED repeats it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* BATON_SEED, or else a seed from the clock. Prints it the first time. */
uint64_t support_seed(void);

typedef struct support_random {
    uint64_t state;
} support_random_t;

/* The generator of one `stream` of a seed. */
support_random_t support_random(uint64_t seed, uint64_t stream);

uint64_t support_random_next(support_random_t *random);

/* 0 to bound - 1. */
uint64_t support_random_below(support_random_t *random, uint64_t bound);

/* true once in `n` times. */
bool support_once_in(support_random_t *random, uint64_t n);

/* 0 to `limit`, not included. */
double support_random_real(support_random_t *random, double limit);
