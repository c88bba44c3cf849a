/* Element types: BATON_I8 and so on. f16 is IEEE binary16, bf16 the upper half
   of a binary32; both compute in f32. c64 and c128 are complex. The last five
   are a value and its i32 index, as MPI_FLOAT_INT and so on. */
#ifndef BATON_DTYPES_H
#define BATON_DTYPES_H

/* Lists by class, for code that is made for each type: enumerator suffix, name,
   bytes, C type, and how many bits the largest natural number has up to which
   all are exact. f16 and bf16 have the C type of their bits. A complex number
   has instead the C type and the suffix of its parts, a pair those of its
   value. */
/* clang-format off */
#define BATON_SIGNED_LIST(X)                                                   \
    X(I8, i8, 1, int8_t, 7) X(I16, i16, 2, int16_t, 15)                        \
    X(I32, i32, 4, int32_t, 31) X(I64, i64, 8, int64_t, 63)
#define BATON_UNSIGNED_LIST(X)                                                 \
    X(U8, u8, 1, uint8_t, 8) X(U16, u16, 2, uint16_t, 16)                      \
    X(U32, u32, 4, uint32_t, 32) X(U64, u64, 8, uint64_t, 64)
#define BATON_FLOAT_LIST(X)                                                    \
    X(F16, f16, 2, uint16_t, 11) X(BF16, bf16, 2, uint16_t, 8)                 \
    X(F32, f32, 4, float, 24) X(F64, f64, 8, double, 53)
#define BATON_COMPLEX_LIST(X)                                                  \
    X(C64, c64, 8, float, F32) X(C128, c128, 16, double, F64)
#define BATON_PAIR_LIST(X)                                                     \
    X(I16_I32, i16_i32, 8, int16_t, I16) X(I32_I32, i32_i32, 8, int32_t, I32)  \
    X(I64_I32, i64_i32, 16, int64_t, I64)                                      \
    X(F32_I32, f32_i32, 8, float, F32) X(F64_I32, f64_i32, 16, double, F64)
#define BATON_DTYPE_LIST(X)                                                    \
    BATON_SIGNED_LIST(X) BATON_UNSIGNED_LIST(X) BATON_FLOAT_LIST(X)            \
    X(BOOL, bool, 1, uint8_t, 1) BATON_COMPLEX_LIST(X) BATON_PAIR_LIST(X)
/* clang-format on */

/* BATON_I8 to BATON_F64_I32. 0 is no type, so that a forgotten dtype is an
   error. */
typedef enum baton_dtype {
    BATON_DTYPE_NONE = 0,
#define BATON_DTYPE_ENUM(NAME, ...) BATON_##NAME,
    BATON_DTYPE_LIST(BATON_DTYPE_ENUM)
#undef BATON_DTYPE_ENUM
        BATON_DTYPE_COUNT
} baton_dtype_t;

#endif
