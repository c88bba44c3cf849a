/* The built-in reductions, and the choice of their kernels at run time. */
#include "ops/kernels.h"

#include "base/config.h"
#include "base/log.h"

#include <assert.h>
#include <baton/baton.h>
#include <stdatomic.h>
#include <string.h>

#if defined(BATON__X86_KERNELS)
#include <cpuid.h>
#endif

/* ---- the choice ------------------------------------------------------- */

/* kernels.cmake sets BATON__X86_KERNELS where it builds the wider tables. */
extern const baton__kernels_t baton__kernels_baseline;
#if defined(BATON__X86_KERNELS)
extern const baton__kernels_t baton__kernels_avx2, baton__kernels_avx512;

/* clang 14's __builtin_cpu_supports does not know f16c. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

/* Exactly the instruction sets that kernels.cmake compiles for; the builtin
   also asks whether the system saves their registers. */
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && has_f16c();
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
#endif

const baton__kernels_t *baton__kernels_of(baton__isa_t isa)
{
#if defined(BATON__X86_KERNELS)
    if (isa == BATON__ISA_AVX2) {
        return has_avx2() ? &baton__kernels_avx2 : NULL;
    }
    if (isa == BATON__ISA_AVX512) {
        return has_avx512() ? &baton__kernels_avx512 : NULL;
    }
#endif
    return isa == BATON__ISA_BASELINE ? &baton__kernels_baseline : NULL;
}

/* The best at or below `limit`; the baseline is always there. */
static const baton__kernels_t *best_kernels(int64_t limit)
{
    const baton__kernels_t *best = NULL;
    for (int64_t isa = limit; best == NULL; isa--) {
        best = baton__kernels_of((baton__isa_t)isa);
    }
    return best;
}

static const baton__kernels_t *choose_kernels(void)
{
    /* Word 0 is "auto", the others are in the order of baton__isa_t. */
    int64_t asked = baton__config_number(BATON__CONFIG_ISA) - 1;
    if (asked < 0) {
        return best_kernels(BATON__ISA_COUNT - 1);
    }
    const baton__kernels_t *best = best_kernels(asked);
    if (best != baton__kernels_of((baton__isa_t)asked)) {
        baton__log(BATON_LOG_WARN,
                   "BATON_ISA is %s, which this build or processor lacks; the "
                   "kernels are %s",
                   baton__config_text(BATON__CONFIG_ISA), best->name);
    }
    return best;
}

/* Points to constant tables, which need no ordering: relaxed. Threads that
   choose at the same time choose the same. */
static _Atomic(const baton__kernels_t *) chosen;

const baton__kernels_t *baton__kernels(void)
{
    const baton__kernels_t *kernels =
        atomic_load_explicit(&chosen, memory_order_relaxed);
    if (kernels == NULL) {
        kernels = choose_kernels();
        atomic_store_explicit(&chosen, kernels, memory_order_relaxed);
    }
    return kernels;
}

void baton__kernels_forget(void)
{
    atomic_store_explicit(&chosen, NULL, memory_order_relaxed);
}

const char *baton_kernels_name(void)
{
    return baton__kernels()->name;
}

/* ---- identities ------------------------------------------------------- */

/* Bits of the neutral elements. That of a float sum is -0, as +0 would make +0
   of a contributed -0. */
static const uint64_t identities[BATON__OP_COUNT][BATON_DTYPE_COUNT] = {
    [BATON__OP_SUM] = {[BATON_F16] = 0x8000,
                       [BATON_BF16] = 0x8000,
                       [BATON_F32] = 0x80000000,
                       [BATON_F64] = UINT64_C(0x8000000000000000)},
    [BATON__OP_PROD] = {[BATON_I8] = 1,
                        [BATON_I16] = 1,
                        [BATON_I32] = 1,
                        [BATON_I64] = 1,
                        [BATON_U8] = 1,
                        [BATON_U16] = 1,
                        [BATON_U32] = 1,
                        [BATON_U64] = 1,
                        [BATON_F16] = 0x3c00,
                        [BATON_BF16] = 0x3f80,
                        [BATON_F32] = 0x3f800000,
                        [BATON_F64] = 0x3ff0000000000000},
    [BATON__OP_MIN] = {[BATON_I8] = INT8_MAX,
                       [BATON_I16] = INT16_MAX,
                       [BATON_I32] = INT32_MAX,
                       [BATON_I64] = INT64_MAX,
                       [BATON_U8] = UINT8_MAX,
                       [BATON_U16] = UINT16_MAX,
                       [BATON_U32] = UINT32_MAX,
                       [BATON_U64] = UINT64_MAX,
                       [BATON_F16] = 0x7c00,
                       [BATON_BF16] = 0x7f80,
                       [BATON_F32] = 0x7f800000,
                       [BATON_F64] = 0x7ff0000000000000},
    [BATON__OP_MAX] = {[BATON_I8] = (uint64_t)INT8_MIN,
                       [BATON_I16] = (uint64_t)INT16_MIN,
                       [BATON_I32] = (uint64_t)INT32_MIN,
                       [BATON_I64] = (uint64_t)INT64_MIN,
                       [BATON_F16] = 0xfc00,
                       [BATON_BF16] = 0xff80,
                       [BATON_F32] = 0xff800000,
                       [BATON_F64] = 0xfff0000000000000},
};

static void fill_identity(baton__op_kind_t kind, void *target, size_t count,
                          baton_dtype_t dtype)
{
    assert(dtype > BATON_DTYPE_NONE && dtype < BATON_DTYPE_COUNT);
    uint64_t bits = identities[kind][dtype];
    size_t size = baton_dtype_size(dtype);
    /* The element, in this processor's order of bytes. */
    uint8_t bits8 = (uint8_t)bits;
    uint16_t bits16 = (uint16_t)bits;
    uint32_t bits32 = (uint32_t)bits;
    const void *from = size == 1   ? (const void *)&bits8
                       : size == 2 ? (const void *)&bits16
                       : size == 4 ? (const void *)&bits32
                                   : (const void *)&bits;
    for (size_t i = 0; i < count; i++) {
        memcpy((unsigned char *)target + i * size, from, size);
    }
}

/* ---- the operations --------------------------------------------------- */

/* The kind is in the function, not in `arg`: then a caller may pass any. */
#define DEFINE_OP(KIND, op)                                                    \
    static void reduce_##op(void *arg, void *target, const void *left,         \
                            const void *right, size_t count,                   \
                            baton_dtype_t dtype)                               \
    {                                                                          \
        (void)arg;                                                             \
        assert(dtype > BATON_DTYPE_NONE && dtype < BATON_DTYPE_COUNT);         \
        baton__kernels()->reduce[KIND][dtype](target, left, right, count);     \
    }                                                                          \
    static void identity_##op(void *arg, void *target, size_t count,           \
                              baton_dtype_t dtype)                             \
    {                                                                          \
        (void)arg;                                                             \
        fill_identity(KIND, target, count, dtype);                             \
    }                                                                          \
    const baton_op_t baton_op_##op = {                                         \
        .name = #op,                                                           \
        .reduce = reduce_##op,                                                 \
        .identity = identity_##op,                                             \
        .commutative = true,                                                   \
    };

DEFINE_OP(BATON__OP_SUM, sum)
DEFINE_OP(BATON__OP_PROD, prod)
DEFINE_OP(BATON__OP_MIN, min)
DEFINE_OP(BATON__OP_MAX, max)
