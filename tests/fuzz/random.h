/* Random numbers of the fuzzer, which sees public headers alone. Each part of a
   run has a generator of its own, so that its numbers do not depend on the
   other parts. */
#ifndef TESTS_FUZZ_RANDOM_H
#define TESTS_FUZZ_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

typedef struct fuzz_random {
    uint64_t state;
} fuzz_random_t;

/* SplitMix64 (Steele, Lea, Flood 2014). */
static inline uint64_t fuzz_next(fuzz_random_t *random)
{
    uint64_t z = random->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* The generator of one `stream` of a seed. */
static inline fuzz_random_t fuzz_stream(uint64_t seed, uint64_t stream)
{
    fuzz_random_t mixed = {seed};
    fuzz_random_t random = {fuzz_next(&mixed) +
                            stream * UINT64_C(0xd1342543de82ef95)};
    return random;
}

/* 0 to bound - 1. */
static inline uint64_t fuzz_below(fuzz_random_t *random, uint64_t bound)
{
    return fuzz_next(random) % bound;
}

/* true once in `n` times. */
static inline bool fuzz_once_in(fuzz_random_t *random, uint64_t n)
{
    return fuzz_below(random, n) == 0;
}

/* 0 to `limit`, not included. */
static inline double fuzz_real(fuzz_random_t *random, double limit)
{
    return (double)(fuzz_next(random) >> 11) * 0x1p-53 * limit;
}

#endif
