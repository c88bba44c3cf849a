/* Random gradients that every rank can compute of every other. An element is a
   sum of four uniform numbers, so its distribution is close to a normal one, as
   that of gradients is. */
#ifndef MICROBENCH_GRADIENT_H
#define MICROBENCH_GRADIENT_H

#include <stddef.h>
#include <stdint.h>

/* Determines the gradient of `rank` in `step`. */
uint64_t gradient_key(uint64_t seed, uint64_t step, int rank);

/* Between -2 and 2. */
float gradient_at(uint64_t key, size_t element);

#endif
