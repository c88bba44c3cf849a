/* The built-in reductions: every operation, type and instruction set of this
   processor against an independent reference. */
#include "support/cmocka.h"
#include "support/reduce_cases.h"
#include "support/reference.h"

#include <baton/baton.h>
#include <string.h>

static const baton_op_t *const ops[BATON__OP_COUNT] = {
    &baton_op_sum, &baton_op_prod, &baton_op_min, &baton_op_max};

static void reduce_by_table(const reduce_subject_t *self, baton__op_kind_t kind,
                            baton_dtype_t dtype, void *target, const void *left,
                            const void *right, size_t count)
{
    self->kernels->reduce[kind][dtype](target, left, right, count);
}

TEST(test_reduce_matches_reference_on_all_isas)
{
    static _Alignas(16) unsigned char memory[REDUCE_BYTES];
    for (int isa = 0; isa < BATON__ISA_COUNT; isa++) {
        const baton__kernels_t *kernels = baton__kernels_of((baton__isa_t)isa);
        if (kernels == NULL) {
            print_message("instruction set %d: not here, skipped\n", isa);
            continue;
        }
        reduce_cases_run(&(reduce_subject_t){.name = kernels->name,
                                             .reduce = reduce_by_table,
                                             .kernels = kernels,
                                             .memory = memory});
    }
}

TEST(test_op_reduces_by_type)
{
    const float left[3] = {1.5f, -2.0f, 4.0f}, right[3] = {2.0f, 3.0f, -1.0f};
    const float expected[BATON__OP_COUNT][3] = {{3.5f, 1.0f, 3.0f},
                                                {3.0f, -6.0f, -4.0f},
                                                {1.5f, -2.0f, -1.0f},
                                                {2.0f, 3.0f, 4.0f}};
    for (size_t kind = 0; kind < BATON__OP_COUNT; kind++) {
        float target[3] = {0};
        ops[kind]->reduce(ops[kind]->arg, target, left, right, 3, BATON_F32);
        assert_memory_equal(target, expected[kind], sizeof target);
        ops[kind]->reduce(ops[kind]->arg, NULL, NULL, NULL, 0, BATON_F32);
    }
}

TEST(test_op_identity_is_neutral)
{
    for (size_t kind = 0; kind < BATON__OP_COUNT; kind++) {
        for (int d = 1; d < BATON_DTYPE_COUNT; d++) {
            baton_dtype_t dtype = (baton_dtype_t)d;
            uint64_t neutral[5] = {0};
            ops[kind]->identity(ops[kind]->arg, neutral, 5, dtype);
            for (size_t i = 0; i < REFERENCE_SPECIALS; i++) {
                uint64_t bits = reference_special(dtype, i);
                uint64_t result = reference_reduce(
                    (baton__op_kind_t)kind, dtype,
                    reference_load(neutral, i % 5, dtype), bits);
                assert_true(result == bits || (reference_is_float(dtype) &&
                                               reference_is_nan(dtype, bits)));
            }
        }
    }
}

TEST(test_kernels_follow_baton_isa)
{
    static const char *const names[] = {"baseline", "avx2", "avx512"};
    const char *best = NULL;
    for (int isa = 0; isa < BATON__ISA_COUNT; isa++) {
        const baton__kernels_t *kernels = baton__kernels_of((baton__isa_t)isa);
        support_set_variable("BATON_ISA", names[isa]);
        baton__kernels_forget();
        best = kernels != NULL ? names[isa] : best;
        assert_string_equal(baton_kernels_name(), best);
    }
    support_set_variable("BATON_ISA", NULL);
    baton__kernels_forget();
    assert_string_equal(baton_kernels_name(), best);
}

RUN_TESTS()
