/* Reductions against an independent reference: one table of cases for the
   kernels of each instruction set (unit/test_reduce.c) and for those of
   libbaton_cuda (cuda/test_reduce.cpp). Failures are cmocka's. */
#pragma once

#include "ops/kernels.h"

/* Elements of the longest vector; bytes of memory for three vectors of them. */
#define REDUCE_MOST  ((size_t)4200)
#define REDUCE_BYTES (3 * (REDUCE_MOST * 16 + 256))

/* What averages divide by; their kind is BATON__OP_COUNT. */
#define REDUCE_RANKS 7

/* What is tested. */
typedef struct reduce_subject {
    const char *name;
    /* Elements of any alignment, in `memory`. */
    void (*reduce)(const struct reduce_subject *self, baton__op_kind_t kind,
                   baton_dtype_t dtype, void *target, const void *left,
                   const void *right, size_t count);
    /* NULL: all that the operations take. */
    bool (*has)(baton__op_kind_t kind, baton_dtype_t dtype);
    const baton__kernels_t *kernels; /* the subject's own */
    unsigned char *memory; /* REDUCE_BYTES, aligned to 16; the host sees it */
} reduce_subject_t;

/* Every operation of those types that it takes, vectors that are aliases of one
   another or aligned in different ways; all values of short types, and special
   values. */
void reduce_cases_run(const reduce_subject_t *subject);
