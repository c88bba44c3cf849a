/* Element types, reductions, kinds of memory: what a node can compute on. */
#ifndef BATON_TYPES_H
#define BATON_TYPES_H

#include <baton/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Element types: enumerator suffix, bytes. f16 is IEEE binary16, bf16 the upper
   half of a binary32; both compute in f32 and round to nearest even after each
   reduction. bool is C's, of one byte. c64 and c128 are complex: two f32 or
   f64, the real part first. The others are a value and its i32 index, as C lays
   out a struct of the two, and MPI MPI_2INT, MPI_SHORT_INT, MPI_LONG_INT,
   MPI_FLOAT_INT and MPI_DOUBLE_INT. */
#define BATON_DTYPE_LIST(X)                                                    \
    X(I8, i8, 1)                                                               \
    X(I16, i16, 2)                                                             \
    X(I32, i32, 4)                                                             \
    X(I64, i64, 8)                                                             \
    X(U8, u8, 1)                                                               \
    X(U16, u16, 2)                                                             \
    X(U32, u32, 4)                                                             \
    X(U64, u64, 8)                                                             \
    X(F16, f16, 2)                                                             \
    X(BF16, bf16, 2)                                                           \
    X(F32, f32, 4)                                                             \
    X(F64, f64, 8)                                                             \
    X(BOOL, bool, 1)                                                           \
    X(C64, c64, 8)                                                             \
    X(C128, c128, 16)                                                          \
    X(I16_I32, i16_i32, 8)                                                     \
    X(I32_I32, i32_i32, 8)                                                     \
    X(I64_I32, i64_i32, 16)                                                    \
    X(F32_I32, f32_i32, 8)                                                     \
    X(F64_I32, f64_i32, 16)

/* 0 is no type: where a type is needed, one that was forgotten is an error. */
typedef enum baton_dtype {
    BATON_DTYPE_NONE = 0,
#define BATON_DTYPE_ENUM(NAME, name, bytes) BATON_##NAME,
    BATON_DTYPE_LIST(BATON_DTYPE_ENUM)
#undef BATON_DTYPE_ENUM
        BATON_DTYPE_COUNT
} baton_dtype_t;

/* Bytes of one element; 0 for a value that is no type. */
size_t baton_dtype_size(baton_dtype_t dtype);

/* "i8" ... "f64_i32"; "none" for 0, and "?" for another value that is no type.
 */
const char *baton_dtype_name(baton_dtype_t dtype);

/* target[i] = left[i] (op) right[i] for count elements. target may equal left
   or right; it never overlaps them in another way. Runs on the engine's driving
   thread, in the default floating-point mode (round to nearest, subnormals
   kept); it must not call into Baton and should not block. */
typedef void (*baton_reduce_fn)(void *arg, void *target, const void *left,
                                const void *right, size_t count,
                                baton_dtype_t dtype);

/* Fills count elements with the reduction's neutral element. */
typedef void (*baton_identity_fn)(void *arg, void *target, size_t count,
                                  baton_dtype_t dtype);

/* A reduction: associative up to rounding. Builders keep one order of operands
   on all ranks, so that results are bit-identical. Users fill one of their own
   (usually static const); it must outlive every schedule that uses it. */
typedef struct baton_op {
    const char *name;
    baton_reduce_fn reduce;
    baton_identity_fn identity; /* NULL where no partial collective uses it */
    void *arg;
    /* Whether left (op) right = right (op) left. If not, builders reduce in the
       order of ranks, and those that can't (the ring) refuse. */
    bool commutative;
    /* The size of an element, if it is not the element type's: of a pair of
       value and index, for example. 0 means the type's. The functions get the
       type in any case. */
    size_t element_bytes;
    /* The types that it takes, a bit 1u << dtype for each. 0 means all. */
    uint32_t dtypes;
} baton_op_t;

/* Bytes of an element that `op` reduces. 0 when `dtype` is not a type. */
size_t baton_op_element_bytes(const baton_op_t *op, baton_dtype_t dtype);

static inline bool baton_op_takes(const baton_op_t *op, baton_dtype_t dtype)
{
    return op->dtypes == 0 ||
           ((unsigned)dtype < 32 && (op->dtypes >> (unsigned)dtype & 1) != 0);
}

/* Whether op and dtype can be reduced with: BATON_ERR_INVALID for an op that is
   NULL or has no function, for what is no type, and for an op that does not
   take the type; the message says which built-in ones do. All that is given an
   op and a dtype checks this. */
BATON_CHECKED baton_status_t baton_op_check(const baton_op_t *op,
                                            baton_dtype_t dtype);

/* The built-in reductions, and what they take:

       SUM, PROD          integers, floats, complex
       MIN, MAX           integers, floats
       BAND, BOR, BXOR    integers, bool: bitwise
       LAND, LOR, LXOR    integers, bool: logical
       MINLOC, MAXLOC     pairs

   Integer sums and products wrap modulo 2^bits. The neutral element of a float
   sum is -0, as x + -0 is x for every x: a sum that nobody contributed to is
   -0, which equals 0. MIN and MAX of floats: a NaN operand gives a NaN; of a
   zero and a negative zero, MIN is the negative one and MAX the positive.

   For LAND, LOR and LXOR 0 is false and all else is true; of two elements they
   make 0 or 1. MINLOC and MAXLOC of pairs: the value is MIN or MAX of the two
   values, and the index that of the operand whose value is less or greater, or
   the lower one where the values are equal, as zeros of either sign are. A NaN
   comes before all other values in both. Padding becomes 0.

   A complex product is (ac - bd) + (ad + bc)i, as computed: infinite factors
   may give NaNs. Its neutral element, 1, keeps finite numbers, but not the sign
   of every zero. */
#define BATON_OP_LIST(X)                                                       \
    X(SUM, sum)                                                                \
    X(PROD, prod)                                                              \
    X(MIN, min)                                                                \
    X(MAX, max)                                                                \
    X(BAND, band)                                                              \
    X(BOR, bor)                                                                \
    X(BXOR, bxor)                                                              \
    X(LAND, land)                                                              \
    X(LOR, lor)                                                                \
    X(LXOR, lxor)                                                              \
    X(MINLOC, minloc)                                                          \
    X(MAXLOC, maxloc)

#define BATON_OP_DECLARATION(NAME, name)                                       \
    extern const baton_op_t baton_op_##name;
BATON_OP_LIST(BATON_OP_DECLARATION)
#undef BATON_OP_DECLARATION
#define BATON_SUM    (&baton_op_sum)
#define BATON_PROD   (&baton_op_prod)
#define BATON_MIN    (&baton_op_min)
#define BATON_MAX    (&baton_op_max)
#define BATON_BAND   (&baton_op_band)
#define BATON_BOR    (&baton_op_bor)
#define BATON_BXOR   (&baton_op_bxor)
#define BATON_LAND   (&baton_op_land)
#define BATON_LOR    (&baton_op_lor)
#define BATON_LXOR   (&baton_op_lxor)
#define BATON_MINLOC (&baton_op_minloc)
#define BATON_MAXLOC (&baton_op_maxloc)

/* Where a buffer's bytes are: see device.h. */
typedef enum baton_memory {
    BATON_MEMORY_HOST,
    BATON_MEMORY_DEVICE
} baton_memory_t;

#ifdef __cplusplus
}
#endif
#endif
