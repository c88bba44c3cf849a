/* Partial all-reduces, proven by contributor sets: a result has exactly the
   contributions that its epoch took, and each is in one result. */
#include "support/cluster.h"
#include "support/cmocka.h"
#include "support/random.h"

#include <string.h>

enum { LARGEST = 8, STEPS = 12, ELEMENTS = 5, PATIENCE_MS = 60000 };

static baton_proof_t *proof;

/* Each contribution is a rank of the proof, number `step * size + rank`. So a
   result tells its steps, and a contribution that counts twice is found. */
typedef struct model {
    support_cluster_t *ranks;
    baton_partial_mode_t mode;
    baton_partial_t *partials[LARGEST];
    bool pending[STEPS * LARGEST];
} model_t;

static void contribute(model_t *model, int step, int rank)
{
    uint32_t data[ELEMENTS];
    int which = step * model->ranks->size + rank;
    support_ok(baton_proof_fill(proof, which, 0, ELEMENTS, data));
    support_ok(baton_partial_contribute(model->partials[rank], data));
    model->pending[which] = true;
}

/* Some ranks contribute and the epoch runs, started by one rank or by all. Then
   the others contribute for a later epoch. */
static void run_step(model_t *model, int step, support_random_t *random)
{
    int size = model->ranks->size;
    int first = step % size;
    bool in_time[LARGEST];
    for (int rank = 0; rank < size; rank++) {
        in_time[rank] = support_random_below(random, 2) == 0;
        if (in_time[rank]) {
            contribute(model, step, rank);
        }
    }
    bool taken[STEPS * LARGEST];
    memcpy(taken, model->pending, sizeof(taken));
    memset(model->pending, 0, sizeof(model->pending));
    for (int rank = 0; rank < size; rank++) {
        if (model->mode == BATON_FULL || rank == first) {
            support_ok(baton_partial_start(model->partials[rank]));
        }
    }
    support_drain(model->ranks);
    for (int rank = 0; rank < size; rank++) {
        baton_partial_result_t seen;
        if (!in_time[rank]) {
            contribute(model, step, rank);
        }
        if (model->mode != BATON_FULL && rank != first) {
            support_ok(baton_partial_start(model->partials[rank]));
        }
        support_ok(
            baton_partial_wait(model->partials[rank], PATIENCE_MS, &seen));
        support_ok(baton_proof_check(proof, taken, 0, ELEMENTS, seen.data));
    }
}

/* Each rank's own contributions that no epoch took are pending. */
static void check_pending(const model_t *model)
{
    int size = model->ranks->size;
    for (int rank = 0; rank < size; rank++) {
        uint32_t data[ELEMENTS];
        bool own[STEPS * LARGEST] = {false};
        bool any;
        for (int which = rank; which < STEPS * size; which += size) {
            own[which] = model->pending[which];
        }
        support_ok(baton_partial_pending(model->partials[rank], data, &any));
        support_ok(baton_proof_check(proof, own, 0, ELEMENTS, data));
    }
}

static void prove_partial(int size, baton_partial_mode_t mode,
                          baton_allreduce_fn inner)
{
    support_random_t random = support_random(support_seed(), (uint64_t)size);
    model_t model = {.ranks = support_cluster_of(size), .mode = mode};
    support_ok(baton_proof_create(size * STEPS, &proof));
    baton_partial_options_t options = {.size = sizeof(options),
                                       .mode = mode,
                                       .count = ELEMENTS,
                                       .dtype = BATON_U32,
                                       .op = baton_proof_op(proof),
                                       .inner = inner};
    for (int rank = 0; rank < size; rank++) {
        support_ok(baton_partial_create(model.ranks->groups[rank], &options,
                                        &model.partials[rank]));
    }
    for (int step = 0; step < STEPS; step++) {
        run_step(&model, step, &random);
    }
    check_pending(&model);
    for (int rank = 0; rank < size; rank++) {
        support_ok(baton_partial_destroy(model.partials[rank]));
    }
    assert_int_equal(baton_proof_destroy(proof), BATON_OK);
}

static void test_partial_has_exactly_what_was_included(void **state)
{
    static const baton_allreduce_fn inners[] = {
        NULL, baton_allreduce_recursive_doubling, baton_allreduce_ring};
    for (int size = 1; size <= LARGEST; size++) {
        for (size_t i = 0; i < 3; i++) {
            prove_partial(size, BATON_FULL, inners[i]);
            prove_partial(size, BATON_SOLO, inners[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_partial_has_exactly_what_was_included),
    };
    return cmocka_run_group_tests(tests, support_clusters_open,
                                  support_clusters_close);
}
