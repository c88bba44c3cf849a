/* What measuring programs contribute, so that any sum of it can be checked: a
   line over the elements, element j being base + j * slope modulo 2^64, where
   base and slope are hashes that only this rank and iteration have. Sums of
   lines are lines, so what must be in a result is two numbers, and a result
   that was torn or misplaced is no line at all. */
#ifndef MICROBENCH_LINE_H
#define MICROBENCH_LINE_H

#include <stddef.h>
#include <stdint.h>

typedef struct line {
    uint64_t base;
    uint64_t slope;
} line_t;

/* What `rank` contributes in `iteration` (from 1); `salt` tells runs apart. */
line_t line_of(uint64_t salt, int rank, uint32_t iteration);

line_t line_add(line_t a, line_t b);
uint64_t line_at(line_t line, size_t element);

void line_fill(line_t line, uint64_t *data, size_t count);

/* The first element that is not on the line, `count` when all are. */
size_t line_first_off(line_t line, const uint64_t *data, size_t count);

#endif
