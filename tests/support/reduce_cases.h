/* Compares reductions with an independent reference. The kernels of each
   instruction set (unit/test_reduce.c) and those of libbaton_cuda
   (cuda/test_reduce.cpp) use the same table of cases. Failures are reported to
   cmocka. */
#pragma once

#include "ops/kernels.h"

/* REDUCE_MOST is the most elements of a vector, and REDUCE_BYTES the bytes of
   memory for three such vectors. */
#define REDUCE_MOST  ((size_t)4200)
#define REDUCE_BYTES (3 * (REDUCE_MOST * 16 + 256))

/* The number of ranks by which averages divide. An average has no operation
   kind of its own: BATON__OP_COUNT stands for it. */
#define REDUCE_RANKS 7

/* The kernels under test. */
typedef struct reduce_subject {
    const char *name;
    /* Reduces elements in `memory`, which may have any alignment. */
    void (*reduce)(const struct reduce_subject *self, baton__op_kind_t kind,
                   baton_dtype_t dtype, void *target, const void *left,
                   const void *right, size_t count);
    /* Returns whether there is a kernel. NULL: there is one for every type that
       the operation supports. */
    bool (*has)(baton__op_kind_t kind, baton_dtype_t dtype);
    /* The kernels under test, if they are kernels of the CPU. */
    const baton__kernels_t *kernels;
    /* Memory of REDUCE_BYTES, aligned to 16 bytes. The CPU can access it. */
    unsigned char *memory;
} reduce_subject_t;

/* Tests every operation with each type that it supports: with vectors that are
   the same memory or differ in alignment, with all values of short types, and
   with special values. */
void reduce_cases_run(const reduce_subject_t *subject);
