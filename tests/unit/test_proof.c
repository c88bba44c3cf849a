/* Sets of contributors (baton/proof.h): their unions, and the errors of their
   check. */
#include "base/alloc.h"
#include "support/cluster.h"

#include <baton/proof.h>

enum { RANKS = 5, COUNT = 4 };

static baton_proof_t *proof;

static int open_proof(void **state)
{
    support_ok(baton_proof_create(RANKS, &proof));
    return 0;
}

static int close_proof(void **state)
{
    assert_int_equal(baton_proof_destroy(proof), BATON_OK);
    return 0;
}

typedef struct vector {
    uint32_t elements[COUNT];
} vector_t;

static vector_t of_rank(int rank)
{
    vector_t vector;
    support_ok(baton_proof_fill(proof, rank, 0, COUNT, vector.elements));
    return vector;
}

static vector_t unite(vector_t left, vector_t right)
{
    const baton_op_t *op = baton_proof_op(proof);
    vector_t both;
    op->reduce(op->arg, both.elements, left.elements, right.elements, COUNT,
               BATON_U32);
    return both;
}

static vector_t empty(void)
{
    const baton_op_t *op = baton_proof_op(proof);
    vector_t vector;
    memset(&vector, 0xff, sizeof(vector));
    op->identity(op->arg, vector.elements, COUNT, BATON_U32);
    return vector;
}

static vector_t of_all(void)
{
    vector_t all = empty();
    for (int rank = 0; rank < RANKS; rank++) {
        all = unite(all, of_rank(rank));
    }
    return all;
}

static void holds(vector_t vector, const bool *contributors)
{
    support_ok(
        baton_proof_check(proof, contributors, 0, COUNT, vector.elements));
}

static void lies(vector_t vector, const bool *contributors, const char *says)
{
    support_expect(
        baton_proof_check(proof, contributors, 0, COUNT, vector.elements),
        BATON_ERR_MISMATCH);
    assert_string_equal(baton_error_message(), says);
}

/* ---- proofs that hold -------------------------------------------------- */

TEST_BETWEEN(test_union_of_all_ranks_holds_in_any_order, open_proof,
             close_proof)
{
    vector_t up = of_all();
    vector_t down = of_rank(4);
    for (int rank = 3; rank >= 0; rank--) {
        down = unite(of_rank(rank), down);
    }
    vector_t pairs = unite(unite(of_rank(3), of_rank(0)),
                           unite(of_rank(2), unite(of_rank(4), of_rank(1))));
    holds(up, NULL);
    /* Equal sets have equal words, so that results can be compared. */
    assert_memory_equal(&up, &down, sizeof(up));
    assert_memory_equal(&up, &pairs, sizeof(up));
}

TEST_BETWEEN(test_empty_set_is_neutral, open_proof, close_proof)
{
    static const bool nobody[RANKS] = {false};
    vector_t one = of_rank(2);
    vector_t left = unite(empty(), one);
    vector_t right = unite(one, empty());
    assert_memory_equal(&left, &one, sizeof(one));
    assert_memory_equal(&right, &one, sizeof(one));
    holds(unite(empty(), empty()), nobody);
}

/* Fills and checks parts of a vector, from an index on. */
TEST_BETWEEN(test_elements_have_their_places, open_proof, close_proof)
{
    vector_t parts;
    support_ok(baton_proof_fill(proof, 0, 100, 2, parts.elements));
    support_ok(baton_proof_fill(proof, 0, 102, 2, parts.elements + 2));
    static const bool first[RANKS] = {true};
    support_ok(baton_proof_check(proof, first, 100, 4, parts.elements));
    support_ok(baton_proof_check(proof, first, 103, 1, parts.elements + 3));
    support_ok(baton_proof_check(proof, NULL, 0, 0, NULL));
    support_expect(baton_proof_check(proof, first, 101, 3, parts.elements),
                   BATON_ERR_MISMATCH);
    assert_string_equal(baton_error_message(),
                        "proof: element 101 has element 100 in its place");
}

/* Sets that do not fit a word. The last rank is in a word of its own. */
TEST_BETWEEN(test_many_ranks, open_proof, close_proof)
{
    static const int sizes[] = {1, 63, 64, 65, 128, 129};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        baton_proof_t *many;
        support_ok(baton_proof_create(sizes[i], &many));
        const baton_op_t *op = baton_proof_op(many);
        uint32_t all = 0, one = 0;
        for (int rank = 0; rank < sizes[i]; rank++) {
            if (rank > 0) {
                support_expect(baton_proof_check(many, NULL, 9, 1, &all),
                               BATON_ERR_MISMATCH);
            }
            support_ok(baton_proof_fill(many, rank, 9, 1, &one));
            op->reduce(op->arg, &all, &all, &one, 1, BATON_U32);
        }
        support_ok(baton_proof_check(many, NULL, 9, 1, &all));
        op->reduce(op->arg, &all, &one, &all, 1, BATON_U32);
        support_expect(baton_proof_check(many, NULL, 9, 1, &all),
                       BATON_ERR_MISMATCH);
        char says[64];
        (void)snprintf(says, sizeof(says), "proof: element 9 has rank %d twice",
                       sizes[i] - 1);
        assert_string_equal(baton_error_message(), says);
        assert_int_equal(baton_proof_destroy(many), BATON_OK);
    }
}

/* A union that was made before takes no memory. */
TEST_BETWEEN(test_known_sets_need_no_memory, open_proof, close_proof)
{
    (void)of_all();
    int64_t before = baton__alloc_count();
    for (int i = 0; i < 100; i++) {
        holds(of_all(), NULL);
    }
    assert_int_equal(baton__alloc_count(), before);
}

/* ---- flaws that are found ---------------------------------------------- */

TEST_BETWEEN(test_a_rank_that_is_there_twice, open_proof, close_proof)
{
    vector_t some = unite(of_rank(1), of_rank(3));
    lies(unite(some, of_rank(3)), NULL, "proof: element 0 has rank 3 twice");
    vector_t all = of_all();
    all.elements[2] = unite(all, some).elements[2];
    lies(all, NULL, "proof: element 2 has rank 1 twice");
}

TEST_BETWEEN(test_elements_that_were_mixed, open_proof, close_proof)
{
    vector_t shifted;
    support_ok(baton_proof_fill(proof, 1, 7, COUNT, shifted.elements));
    lies(unite(of_rank(0), shifted), NULL,
         "proof: element 0 has elements 0 and 7 mixed");
}

TEST_BETWEEN(test_the_first_flaw_stays, open_proof, close_proof)
{
    vector_t twice = unite(of_rank(1), of_rank(1));
    vector_t mixed;
    support_ok(baton_proof_fill(proof, 1, 7, COUNT, mixed.elements));
    mixed = unite(of_rank(2), mixed);
    const char *says = "proof: element 0 has rank 1 twice";
    lies(unite(twice, of_rank(2)), NULL, says);
    lies(unite(of_rank(2), twice), NULL, says);
    lies(unite(twice, empty()), NULL, says);
    lies(unite(empty(), twice), NULL, says);
    lies(unite(twice, mixed), NULL, says);
    lies(unite(mixed, twice), NULL,
         "proof: element 0 has elements 0 and 7 mixed");
}

TEST_BETWEEN(test_memory_that_nobody_wrote, open_proof, close_proof)
{
    static const uint32_t garbage[] = {1,          2,          3,         100,
                                       0xa5a5a5a5, 0x3f800000, UINT32_MAX};
    /* There are many sets, but none has one of the numbers below. */
    (void)of_all();
    for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++) {
        char says[100];
        (void)snprintf(says, sizeof(says),
                       "proof: element 3: 0x%x, which stands for no set, was "
                       "taken for data",
                       garbage[i]);
        vector_t vector = of_all();
        vector.elements[3] = garbage[i];
        lies(vector, NULL, says);
        vector_t rest = of_rank(0);
        rest.elements[3] = of_all().elements[3];
        vector_t after = unite(vector, rest);
        assert_int_equal(after.elements[3], unite(rest, vector).elements[3]);
        memcpy(after.elements, of_all().elements, 3 * sizeof(uint32_t));
        lies(after, NULL, says);
    }
}

TEST_BETWEEN(test_another_type_is_refused_by_check, open_proof, close_proof)
{
    const baton_op_t *op = baton_proof_op(proof);
    double a[COUNT] = {1}, b[COUNT] = {1};
    vector_t all = of_all();
    op->reduce(op->arg, a, a, b, COUNT, BATON_F64);
    support_expect(baton_proof_check(proof, NULL, 0, COUNT, all.elements),
                   BATON_ERR_INVALID);
    assert_string_equal(baton_error_message(),
                        "proof: its reduction was used for f64; its elements "
                        "are u32");
}

TEST_BETWEEN(test_proof_refuses_wrong_arguments, open_proof, close_proof)
{
    baton_proof_t *none = NULL;
    vector_t vector = empty();
    support_expect(baton_proof_create(0, &none), BATON_ERR_INVALID);
    assert_string_equal(baton_error_message(),
                        "proof: ranks is 0; allowed: 1 or more");
    assert_null(none);
    support_expect(baton_proof_fill(proof, RANKS, 0, COUNT, vector.elements),
                   BATON_ERR_INVALID);
    assert_string_equal(baton_error_message(),
                        "proof: rank is 5; allowed: 0 to 4");
    support_expect(baton_proof_fill(proof, -1, 0, COUNT, vector.elements),
                   BATON_ERR_INVALID);
    /* There are more elements than numbers for them. */
    support_expect(baton_proof_fill(proof, 0, 0, SIZE_MAX / 4, vector.elements),
                   BATON_ERR_NO_MEMORY);
    assert_int_equal(vector.elements[0], 0);
    assert_int_equal(baton_proof_destroy(NULL), BATON_OK);
}
