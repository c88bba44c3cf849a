/* The reduction kernels: one table for each instruction set that the library
   was built for. */
#pragma once

#include "ops/select.h"

#include <baton/build.h>

/* The instruction sets. They are in the order in which BATON_ISA lists them
   after "auto", and each is preferred to those before it. */
#define BATON__ISA_LIST(X)                                                     \
    X(BASELINE, baseline)                                                      \
    X(AVX2, avx2)                                                              \
    X(AVX512, avx512)

typedef enum baton__isa {
#define BATON__ISA_ENUM(NAME, name) BATON__ISA_##NAME,
    BATON__ISA_LIST(BATON__ISA_ENUM)
#undef BATON__ISA_ENUM
        BATON__ISA_COUNT
} baton__isa_t;

typedef enum baton__op_kind {
#define BATON__OP_ENUM(NAME, name) BATON__OP_##NAME,
    BATON_OP_LIST(BATON__OP_ENUM)
#undef BATON__OP_ENUM
        BATON__OP_COUNT
} baton__op_kind_t;

/* Sets target[i] to left[i] (op) right[i]. Operands may overlap as
   baton/build.h says, and need no alignment. */
typedef void (*baton__kernel_fn)(void *target, const void *left,
                                 const void *right, size_t count);

typedef struct baton__kernels {
    const char *name;
    /* NULL if the operation does not support the type. */
    baton__kernel_fn reduce[BATON_DTYPE_COUNT][BATON__OP_COUNT];
    /* Sets target[i] to (left[i] + right[i]) / ranks. NULL for types that are
       not floats. */
    void (*average[BATON_DTYPE_COUNT])(void *target, const void *left,
                                       const void *right, size_t count,
                                       double ranks);
} baton__kernels_t;

/* The tables; those of instruction sets that this build lacks do not exist. */
#define BATON__ISA_TABLES(NAME, name)                                          \
    extern const baton__kernels_t baton__kernels_##name;                       \
    extern const baton__select_kernels_t baton__select_kernels_##name;
BATON__ISA_LIST(BATON__ISA_TABLES)
#undef BATON__ISA_TABLES

/* Returns the kernels of one instruction set; NULL if this build or processor
   lacks the set. All sets give the same bits for the same operands. */
const baton__kernels_t *baton__kernels_of(baton__isa_t isa);

/* Returns the kernels in use: those of BATON_ISA, or the best ones of this
   processor if that is not set. */
const baton__kernels_t *baton__kernels(void);

/* For tests: makes the next call of baton__kernels choose again. Must not be
   called while another thread reduces. */
void baton__kernels_forget(void);
