/* The built-in reductions, and the choice of all kernels at run time. */
#include "ops/kernels.h"

#include "base/config.h"
#include "base/error.h"
#include "base/half.h"
#include "base/log.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#if defined(BATON__X86_KERNELS)
#include <cpuid.h>
#endif

/* ---- the choice ------------------------------------------------------- */

/* kernels.cmake defines BATON__X86_KERNELS if it also builds the tables for
   AVX2 and later instruction sets. */
#if defined(BATON__X86_KERNELS)
/* Asks the processor itself whether it has f16c, since __builtin_cpu_supports
   of clang 14 does not know that name. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

/* kernels.cmake compiles two tables for sets of x86 instructions. has_avx2 and
   has_avx512 check for exactly these sets. __builtin_cpu_supports also checks
   that the operating system saves the registers. */
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

/* Returns the best kernels that this processor supports, of an instruction set
   not above `limit`. The baseline always exists. */
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
    /* Word 0 of BATON_ISA is "auto"; the other words are in the order of
       baton__isa_t. */
    int64_t asked = baton__config_number(BATON__CONFIG_ISA) - 1;
    const baton__kernels_t *best =
        best_kernels(asked < 0 ? BATON__ISA_COUNT - 1 : asked);
    if (asked >= 0 && best != baton__kernels_of((baton__isa_t)asked)) {
        baton__log(BATON_LOG_WARN,
                   "BATON_ISA is %s, which this build or this processor does "
                   "not support; the %s kernels are used",
                   baton__config_text(BATON__CONFIG_ISA), best->name);
    }
    return best;
}

/* The kernels in use. Relaxed accesses suffice, because the table is constant.
   Threads that choose at the same time choose the same table. */
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

const baton__select_kernels_t *baton__select_kernels(void)
{
#if defined(BATON__X86_KERNELS)
    const baton__kernels_t *kernels = baton__kernels();
    if (kernels == &baton__kernels_avx512) {
        return &baton__select_kernels_avx512;
    }
    if (kernels == &baton__kernels_avx2) {
        return &baton__select_kernels_avx2;
    }
#endif
    return &baton__select_kernels_baseline;
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

/* Returns the bits of the neutral element of a type without parts. That of a
   float sum is -0, not +0: adding +0 would turn -0 into +0. */
static uint64_t identity_bits(baton__op_kind_t kind, baton_dtype_t dtype)
{
    const bool is_float = baton_select_supports(dtype);
    const size_t bytes = baton_dtype_size(dtype);
    const unsigned digits = baton__digits_of(dtype);
    const uint64_t sign = UINT64_C(1) << (8 * bytes - 1);
    const uint64_t most = is_float ? BATON__INFINITY(bytes, digits)
                                   : (UINT64_C(1) << (digits - 1)) * 2 - 1;
    switch ((int)kind) {
    case BATON__OP_SUM:
        return is_float ? sign : 0;
    case BATON__OP_PROD:
        return is_float ? most & most >> 1 : 1;
    case BATON__OP_MIN:
    case BATON__OP_MINLOC:
        return most;
    case BATON__OP_MAX:
    case BATON__OP_MAXLOC:
        return is_float ? sign | most : ~most;
    case BATON__OP_BAND:
        return dtype == BATON_BOOL ? 1 : UINT64_MAX;
    default:
        return kind == BATON__OP_LAND;
    }
}

static void fill_identity(baton__op_kind_t kind, void *target, size_t count,
                          baton_dtype_t dtype)
{
    assert(dtype > BATON_DTYPE_NONE && dtype < BATON_DTYPE_COUNT);
    const int32_t last = INT32_MAX;
    size_t size = baton_dtype_size(dtype);
    baton_dtype_t part = baton__part_of(dtype);
    size_t at = baton_dtype_size(part);
    unsigned char element[16] = {0};
    baton__put_bits(element, identity_bits(kind, part), at);
    if (kind == BATON__OP_MINLOC || kind == BATON__OP_MAXLOC) {
        memcpy(element + (at < sizeof last ? sizeof last : at), &last,
               sizeof last);
    } else if (part != dtype && kind == BATON__OP_SUM) {
        memcpy(element + at, element, at);
    } /* a complex 1 is 1 + 0i, so only the first part gets a 1 */
    for (size_t i = 0; i < count; i++) {
        memcpy((unsigned char *)target + i * size, element, size);
    }
}

/* ---- the operations --------------------------------------------------- */

static_assert(BATON_DTYPE_COUNT <= 32, "a type is a bit");
#define BIT(NAME, ...) | 1u << BATON_##NAME
#define INTEGERS       (0 BATON_SIGNED_LIST(BIT) BATON_UNSIGNED_LIST(BIT))
#define FLOATS         (0 BATON_FLOAT_LIST(BIT))
#define COMPLEX        (0 BATON_COMPLEX_LIST(BIT))
#define PAIRS          (0 BATON_PAIR_LIST(BIT))
#define BITS           (INTEGERS | 1u << BATON_BOOL)

/* Defines the two functions of an operation. Both ignore `arg`, so callers may
   pass any value. */
#define OP_FUNCTIONS(NAME, op)                                                 \
    static void reduce_##op(void *arg, void *target, const void *left,         \
                            const void *right, size_t count,                   \
                            baton_dtype_t dtype)                               \
    {                                                                          \
        assert(baton_op_takes(&baton_op_##op, dtype));                         \
        baton__kernels()->reduce[dtype][BATON__OP_##NAME](target, left, right, \
                                                          count);              \
    }                                                                          \
    static void identity_##op(void *arg, void *target, size_t count,           \
                              baton_dtype_t dtype)                             \
    {                                                                          \
        fill_identity(BATON__OP_##NAME, target, count, dtype);                 \
    }
#define OP(op, types)                                                          \
    {                                                                          \
        .name = #op, .reduce = reduce_##op, .identity = identity_##op,         \
        .commutative = true, .dtypes = (types)                                 \
    }

BATON_OP_LIST(OP_FUNCTIONS)

/* The operations. Each operation has the types for which there is a kernel. */
const baton_op_t baton_op_sum = OP(sum, INTEGERS | FLOATS | COMPLEX);
const baton_op_t baton_op_prod = OP(prod, INTEGERS | FLOATS | COMPLEX);
const baton_op_t baton_op_min = OP(min, INTEGERS | FLOATS);
const baton_op_t baton_op_max = OP(max, INTEGERS | FLOATS);
const baton_op_t baton_op_band = OP(band, BITS);
const baton_op_t baton_op_bor = OP(bor, BITS);
const baton_op_t baton_op_bxor = OP(bxor, BITS);
const baton_op_t baton_op_land = OP(land, BITS);
const baton_op_t baton_op_lor = OP(lor, BITS);
const baton_op_t baton_op_lxor = OP(lxor, BITS);
const baton_op_t baton_op_minloc = OP(minloc, PAIRS);
const baton_op_t baton_op_maxloc = OP(maxloc, PAIRS);

/* Averages a complex number as two floats. `arg` is the number of ranks. */
static void reduce_avg(void *arg, void *target, const void *left,
                       const void *right, size_t count, baton_dtype_t dtype)
{
    baton_dtype_t part = baton__part_of(dtype);
    assert(arg != NULL && baton_op_takes(BATON_AVG, dtype));
    baton__kernels()->average[part](target, left, right,
                                    part == dtype ? count : 2 * count,
                                    (double)(uintptr_t)arg);
}

#define identity_avg identity_sum
const baton_op_t baton_op_avg = OP(avg, FLOATS | COMPLEX);

#define OP_ADDRESS(NAME, name) BATON_##NAME,
static const baton_op_t *const all[] = {BATON_OP_LIST(OP_ADDRESS) BATON_AVG};
enum { OPS = sizeof all / sizeof *all };

baton_status_t baton_op_find(const char *name, const baton_op_t **out)
{
    const char *names[OPS];
    if (!baton__is_given(name, true, __func__, "name") ||
        !baton__is_given(out, true, __func__, "out")) {
        return BATON_ERR_INVALID;
    }
    for (int i = 0; i < OPS; i++) {
        names[i] = all[i]->name;
        if (strcmp(names[i], name) == 0) {
            *out = all[i];
            return BATON_OK;
        }
    }
    return baton__error_unknown("reduction", name, names, OPS);
}

baton_status_t baton_op_check(const baton_op_t *op, baton_dtype_t dtype)
{
    if (op == NULL || op->reduce == NULL) {
        return baton__error(BATON_ERR_INVALID,
                            "op%s is NULL, must be BATON_SUM, another of "
                            "baton/types.h, or your own",
                            op == NULL ? "" : "->reduce");
    }
    if (baton_dtype_size(dtype) == 0) {
        return baton__error(BATON_ERR_INVALID, BATON__WRONG_DTYPE, (int)dtype);
    }
    if (baton_op_takes(op, dtype)) {
        return BATON_OK;
    }
    baton__text_t text = BATON__TEXT(256);
    for (int i = 0; i < OPS; i++) {
        if (baton_op_takes(all[i], dtype)) {
            baton__text_add(&text, text.used > 0 ? ", %s" : "%s", all[i]->name);
        }
    }
    return baton__error(
        BATON_ERR_INVALID, "op is %s, which does not reduce %s; allowed: %s",
        op->name != NULL ? op->name : "?", baton_dtype_name(dtype), text.data);
}
