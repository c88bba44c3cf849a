/* Element types, reductions, kinds of memory: what a node can compute on. */
#ifndef BATON_TYPES_H
#define BATON_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Element types: enumerator suffix, bytes. f16 is IEEE binary16, bf16 the upper
   half of a binary32; both compute in f32 and round to nearest even after each
   reduction. */
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
    X(F64, f64, 8)

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

/* "i8" ... "f64"; "none" for 0, and "?" for another value that is no type. */
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
} baton_op_t;

/* Bytes of an element that `op` reduces. 0 when `dtype` is not a type. */
size_t baton_op_element_bytes(const baton_op_t *op, baton_dtype_t dtype);

/* The built-in reductions, for every element type. Integer sums and products
   wrap modulo 2^bits. The neutral element of a float sum is -0, as x + -0 is x
   for every x: a sum that nobody contributed to is -0, which equals 0. MIN and
   MAX of floats: a NaN operand gives a NaN; of a zero and a negative zero, MIN
   is the negative one and MAX the positive. */
extern const baton_op_t baton_op_sum, baton_op_prod, baton_op_min, baton_op_max;
#define BATON_SUM  (&baton_op_sum)
#define BATON_PROD (&baton_op_prod)
#define BATON_MIN  (&baton_op_min)
#define BATON_MAX  (&baton_op_max)

/* Where a buffer's bytes are: see device.h. */
typedef enum baton_memory {
    BATON_MEMORY_HOST,
    BATON_MEMORY_DEVICE
} baton_memory_t;

#ifdef __cplusplus
}
#endif
#endif
