/* Contributor sets when the n-th allocation fails, for each n. */
#include "support/trial.h"

/* More sets and more values than there is room for at first. */
enum { RANKS = 20, FEW = 3, MANY = 50 };

static void create_and_fill(void)
{
    baton_proof_t *poor = NULL;
    uint32_t elements[MANY] = {0};
    static const bool contributors[RANKS] = {false, true};
    trial_begin();
    baton_status_t status = baton_proof_create(RANKS, &poor);
    if (status == BATON_OK) {
        status = baton_proof_fill(poor, 1, 0, MANY, elements);
    }
    trial_end(status);
    if (poor == NULL) {
        return;
    }
    if (status != BATON_OK) {
        assert_int_equal(elements[0], 0);
        support_ok(baton_proof_fill(poor, 1, 0, MANY, elements));
    }
    support_ok(baton_proof_check(poor, contributors, 0, MANY, elements));
    assert_int_equal(baton_proof_destroy(poor), BATON_OK);
}

/* A union that has no memory is a flaw, and check returns it. */
static void unite_all(void)
{
    baton_proof_t *poor;
    uint32_t elements[RANKS][FEW], all[FEW] = {0};
    support_ok(baton_proof_create(RANKS, &poor));
    const baton_op_t *op = baton_proof_op(poor);
    for (int rank = 0; rank < RANKS; rank++) {
        support_ok(baton_proof_fill(poor, rank, 0, FEW, elements[rank]));
    }
    trial_begin();
    for (int rank = 0; rank < RANKS; rank++) {
        op->reduce(op->arg, all, all, elements[rank], FEW, BATON_U32);
    }
    trial_end(baton_proof_check(poor, NULL, 0, FEW, all));
    op->identity(op->arg, all, FEW, BATON_U32);
    for (int rank = 0; rank < RANKS; rank++) {
        op->reduce(op->arg, all, elements[rank], all, FEW, BATON_U32);
    }
    support_ok(baton_proof_check(poor, NULL, 0, FEW, all));
    assert_int_equal(baton_proof_destroy(poor), BATON_OK);
}

static void test_memory_of_a_proof(void **state)
{
    (void)state;
    try_each(create_and_fill);
    try_each(unite_all);
}

int main(void)
{
    malloc_watch();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_of_a_proof),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
