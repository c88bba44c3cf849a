#include "support/reduce_cases.h"

#include "support/cmocka.h"
#include "support/reference.h"

#include <baton/build.h>

#define OP_ADDRESS(NAME, name) BATON_##NAME,
static const baton_op_t *const ops[] = {BATON_OP_LIST(OP_ADDRESS) BATON_AVG};

/* ---- one comparison ---------------------------------------------------- */

/* Which operands share memory. */
typedef enum alias {
    ALIAS_NONE,
    ALIAS_LEFT,     /* target and left are the same vector */
    ALIAS_RIGHT,    /* target and right are the same vector */
    ALIAS_OPERANDS, /* left and right are the same vector */
    ALIAS_ALL,
    ALIAS_COUNT
} alias_t;

#define GUARD_BYTES ((size_t)64)
#define GUARD       0xa5

/* The distances, in bytes, of target, left and right from a multiple of 16
   bytes. */
typedef struct shift {
    size_t elements[3];
    size_t bytes[3];
} shift_t;

static const shift_t shifts[] = {
    {{0, 0, 0}, {0, 0, 0}},
    {{1, 1, 1}, {0, 0, 0}}, /* the three are aligned after a few elements */
    {{15, 15, 15}, {0, 0, 0}},
    {{0, 1, 2}, {0, 0, 0}},
    {{0, 0, 0}, {1, 2, 3}}, /* no element is aligned */
};

typedef struct trial {
    const reduce_subject_t *subject;
    baton__op_kind_t kind;
    baton_dtype_t dtype;
    alias_t alias;
    size_t count;
    const shift_t *shift;
} trial_t;

/* Returns whether two elements are the same. If `open`, a NaN that a sum or
   product makes of NaNs may have another payload, which is unspecified. */
static bool is_same(const trial_t *trial, const void *a, const void *b,
                    bool open)
{
    baton_dtype_t part = baton__part_of(trial->dtype);
    bool same = memcmp(a, b, baton_dtype_size(trial->dtype)) == 0;
    if (same || !open ||
        (trial->kind > BATON__OP_PROD && trial->kind != BATON__OP_COUNT) ||
        (part != BATON_F32 && part != BATON_F64)) {
        return same;
    }
    same = true;
    for (size_t i = 0; i < (part != trial->dtype ? 2 : 1); i++) {
        uint64_t x = reference_load(a, i, part), y = reference_load(b, i, part);
        same = same && (x == y || (reference_is_nan(part, x) &&
                                   reference_is_nan(part, y)));
    }
    return same;
}

static unsigned char *vector_at(const trial_t *trial, int i)
{
    return trial->subject->memory + (size_t)i * (REDUCE_BYTES / 3) +
           GUARD_BYTES + trial->shift->bytes[i] +
           trial->shift->elements[i] * baton_dtype_size(trial->dtype);
}

/* Reduces copies of left and right as the trial says. Returns the target. */
static const unsigned char *run_kernel(const trial_t *trial, const void *left,
                                       const void *right)
{
    size_t bytes = trial->count * baton_dtype_size(trial->dtype);
    const reduce_subject_t *subject = trial->subject;
    memset(subject->memory, GUARD, REDUCE_BYTES);
    unsigned char *l = vector_at(trial, 1);
    bool same = trial->alias == ALIAS_OPERANDS || trial->alias == ALIAS_ALL;
    unsigned char *r = same ? l : vector_at(trial, 2);
    memcpy(l, left, bytes);
    if (!same) {
        memcpy(r, right, bytes);
    }
    unsigned char *t = trial->alias == ALIAS_RIGHT ? r : vector_at(trial, 0);
    t = trial->alias == ALIAS_LEFT || trial->alias == ALIAS_ALL ? l : t;
    subject->reduce(subject, trial->kind, trial->dtype, t, l, r, trial->count);
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        assert_int_equal(t[bytes + i], GUARD);
        assert_int_equal(t[-1 - (ptrdiff_t)i], GUARD);
    }
    if (t != l) {
        assert_memory_equal(l, left, bytes);
    }
    if (t != r && !same) {
        assert_memory_equal(r, right, bytes);
    }
    return t;
}

static void check(const trial_t *trial, const void *left, const void *right)
{
    const unsigned char *target = run_kernel(trial, left, right);
    bool same = trial->alias == ALIAS_OPERANDS || trial->alias == ALIAS_ALL;
    size_t size = baton_dtype_size(trial->dtype);
    for (size_t i = 0; i < trial->count; i++) {
        const unsigned char *a = (const unsigned char *)left + i * size;
        const unsigned char *b =
            same ? a : (const unsigned char *)right + i * size;
        unsigned char expected[16];
        if (trial->kind == BATON__OP_COUNT) {
            reference_average(trial->dtype, expected, a, b, REDUCE_RANKS);
        } else {
            reference_combine(trial->kind, trial->dtype, expected, a, b);
        }
        if (!is_same(trial, target + i * size, expected, true)) {
            fail_msg(
                "%s %s of %s, alias %d, shift %d, element %zu of %zu: "
                "%llx and %llx gave %llx",
                trial->subject->name, ops[trial->kind]->name,
                baton_dtype_name(trial->dtype), (int)trial->alias,
                (int)(trial->shift - shifts), i, trial->count,
                (unsigned long long)reference_load(a, 0, trial->dtype),
                (unsigned long long)reference_load(b, 0, trial->dtype),
                (unsigned long long)reference_load(target, i, trial->dtype));
        }
    }
}

/* ---- cases ------------------------------------------------------------- */

static unsigned char left_data[REDUCE_MOST * 16];
static unsigned char right_data[REDUCE_MOST * 16];

/* Stores a special value. The indices of pairs are among a few numbers, so that
   there are ties. The padding of pairs is not 0. */
static void store_special(unsigned char *data, size_t i, baton_dtype_t dtype,
                          uint64_t which)
{
    baton_dtype_t part = baton__part_of(dtype);
    size_t size = baton_dtype_size(dtype);
    unsigned char *at = data + i * size;
    int32_t index = (int32_t)(which / 2 % 3) - 1;
    memset(at, GUARD, size);
    if (size > baton_dtype_size(part)) {
        memcpy(at + reference_index_at(dtype), &index, sizeof index);
    }
    reference_store(at, 0, part, reference_special(part, which));
    if (reference_is_complex(dtype)) {
        reference_store(at, 1, part, reference_special(part, which / 7));
    }
}

static void fill(unsigned char *data, baton_dtype_t dtype,
                 support_random_t *random)
{
    for (size_t i = 0; i < REDUCE_MOST * baton_dtype_size(dtype); i++) {
        data[i] = (unsigned char)support_random_next(random);
    }
    for (size_t i = 0; i < REDUCE_MOST; i++) {
        uint64_t bits = support_random_next(random);
        if (support_random_below(random, 3) == 0) {
            store_special(data, i, dtype, bits);
        }
    }
}

static void fill_both(const trial_t *trial)
{
    static uint64_t calls;
    support_random_t random = support_random(support_seed(), calls++);
    fill(left_data, trial->dtype, &random);
    fill(right_data, trial->dtype, &random);
}

static void run_counts(trial_t trial)
{
    static const size_t counts[] = {0,  1,   2,   3,   7,   8,    9,
                                    15, 16,  17,  31,  33,  63,   64,
                                    65, 127, 129, 255, 257, 1000, 4099};
    fill_both(&trial);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        trial.count = counts[i];
        for (int alias = 0; alias < ALIAS_COUNT; alias++) {
            trial.alias = (alias_t)alias;
            for (size_t s = 0; s < sizeof shifts / sizeof *shifts; s++) {
                trial.shift = &shifts[s];
                check(&trial, left_data, right_data);
            }
        }
    }
}

static void run_specials(trial_t trial)
{
    for (size_t i = 0; i < REFERENCE_SPECIALS * REFERENCE_SPECIALS; i++) {
        store_special(left_data, i, trial.dtype, i % REFERENCE_SPECIALS);
        store_special(right_data, i, trial.dtype, i / REFERENCE_SPECIALS);
    }
    trial.count = REFERENCE_SPECIALS * REFERENCE_SPECIALS;
    check(&trial, left_data, right_data);
    /* Repeats the reduction one element at a time, which uses the scalar part
       of the kernel. */
    size_t size = baton_dtype_size(trial.dtype);
    for (size_t i = 0; i < REFERENCE_SPECIALS * REFERENCE_SPECIALS; i++) {
        trial.count = 1;
        check(&trial, left_data + i * size, right_data + i * size);
    }
}

/* Tests all 2^16 pairs of 1-byte values. For f16 and bf16 tests each value with
   itself and with some others. */
static void run_all_values(trial_t trial)
{
    static const uint32_t offsets[] = {0, 1, 0x8000, 0x4321, 0x0401};
    bool halves =
        reference_is_float(trial.dtype) && baton_dtype_size(trial.dtype) == 2;
    size_t rounds = baton_dtype_size(trial.dtype) == 1;
    rounds = halves ? sizeof offsets / sizeof *offsets : rounds;
    trial.count = 4096;
    for (size_t k = 0; k < rounds; k++) {
        for (uint32_t base = 0; base < 0x10000; base += 4096) {
            for (uint32_t i = 0; i < 4096; i++) {
                uint32_t value = base + i;
                reference_store(left_data, i, trial.dtype, value);
                reference_store(right_data, i, trial.dtype,
                                halves ? value + offsets[k] : value >> 8);
            }
            check(&trial, left_data, right_data);
        }
    }
}

/* Checks what the reference can't: the bits must be those of the kernels that
   the library uses on this machine, unless both operands are NaNs. */
static void run_same_bits(trial_t trial)
{
    static unsigned char in_use[REDUCE_MOST * 16];
    fill_both(&trial);
    trial.count = REDUCE_MOST - 1;
    ops[trial.kind]->reduce((void *)REDUCE_RANKS, in_use, left_data, right_data,
                            trial.count, trial.dtype);
    const unsigned char *target = run_kernel(&trial, left_data, right_data);
    size_t size = baton_dtype_size(trial.dtype);
    for (size_t i = 0; i < trial.count; i++) {
        uint64_t a = reference_load(left_data, i, trial.dtype);
        uint64_t b = reference_load(right_data, i, trial.dtype);
        bool open = reference_is_complex(trial.dtype) ||
                    (reference_is_nan(trial.dtype, a) &&
                     reference_is_nan(trial.dtype, b));
        if (!is_same(&trial, target + i * size, in_use + i * size, open)) {
            fail_msg(
                "%s %s of %s, element %zu: %llx, and %llx in use",
                trial.subject->name, ops[trial.kind]->name,
                baton_dtype_name(trial.dtype), i,
                (unsigned long long)reference_load(target, i, trial.dtype),
                (unsigned long long)reference_load(in_use, i, trial.dtype));
        }
    }
}

void reduce_cases_run(const reduce_subject_t *subject)
{
    for (int kind = 0; kind <= BATON__OP_COUNT; kind++) {
        for (int dtype = 1; dtype < BATON_DTYPE_COUNT; dtype++) {
            const trial_t trial = {.subject = subject,
                                   .kind = (baton__op_kind_t)kind,
                                   .dtype = (baton_dtype_t)dtype,
                                   .shift = &shifts[0]};
            if (!baton_op_takes(ops[kind], trial.dtype) ||
                (subject->has != NULL &&
                 !subject->has(trial.kind, trial.dtype))) {
                continue;
            }
            run_counts(trial);
            run_specials(trial);
            run_all_values(trial);
            run_same_bits(trial);
        }
    }
}
