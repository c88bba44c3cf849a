/* Random numbers for tests. A run prints its seed, and BATON_SEED repeats the
   run. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Returns BATON_SEED. If it is not set, returns a seed from the clock. The
   first call prints the seed. */
uint64_t support_seed(void);

typedef struct support_random {
    uint64_t state;
} support_random_t;

/* Returns the generator of one of the many streams of random numbers that a
   seed has. */
support_random_t support_random(uint64_t seed, uint64_t stream);

uint64_t support_random_next(support_random_t *random);

/* Returns a number from 0 to bound - 1. */
uint64_t support_random_below(support_random_t *random, uint64_t bound);

/* Returns true with a probability of 1 / n. */
bool support_once_in(support_random_t *random, uint64_t n);

/* Returns a number from 0 up to, but not including, `limit`. */
double support_random_real(support_random_t *random, double limit);
