/* Compares reductions with an independent reference. The kernels of each
   instruction set (unit/test_reduce.c) and those of libbaton_cuda
   (cuda/test_reduce.cpp) use the same table of cases. Failures are reported to
   cmocka. */
#pragma once

#include "ops/kernels.h"

/* Elements of the longest vector, and bytes of memory for three of them. */
#define REDUCE_MOST  ((size_t)4200)
#define REDUCE_BYTES (3 * (REDUCE_MOST * 16 + 256))

/* Averages divide by this number; their kind is BATON__OP_COUNT. */
#define REDUCE_RANKS 7

/* The kernels under test. */
typedef struct reduce_subject {
    const char *name;
    /* Reduces elements of any alignment in `memory`. */
    void (*reduce)(const struct reduce_subject *self, baton__op_kind_t kind,
                   baton_dtype_t dtype, void *target, const void *left,
                   const void *right, size_t count);
    /* Returns whether there is a kernel. NULL: there is one for every type that
       the operation takes. */
    bool (*has)(baton__op_kind_t kind, baton_dtype_t dtype);
    const baton__kernels_t *kernels; /* the kernels under test, if they are the
                                        CPU's */
    unsigned char *memory; /* REDUCE_BYTES, aligned to 16; the CPU can access
                              it */
} reduce_subject_t;

/* Tests every operation with each type that it takes: vectors that are aliases
   of each other or differ in alignment, all values of short types, and special
   values. */
void reduce_cases_run(const reduce_subject_t *subject);
