/* Random numbers of tests: one seed a run, printed, so that a run can be
   repeated with BATON_SEED. */
#ifndef TESTS_SUPPORT_RANDOM_H
#define TESTS_SUPPORT_RANDOM_H

#include <stdint.h>

/* BATON_SEED when it is set, else one from the clock; prints it the first
   time. */
uint64_t support_seed(void);

typedef struct support_random {
    uint64_t state;
} support_random_t;

/* A generator of its own for each `stream` of one seed. */
support_random_t support_random(uint64_t seed, uint64_t stream);

uint64_t support_random_next(support_random_t *random);

/* 0 to bound - 1. */
uint64_t support_random_below(support_random_t *random, uint64_t bound);

#endif
