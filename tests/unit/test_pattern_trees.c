/* The peer arithmetic of trees and circulant graphs. */
#include "coll/kit/pattern.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>

#include <cmocka.h>

enum { MOST = 130 };

/* How many ranks lie between this one and the root, both counted. */
static int depth_of(int rank, int size, int twin)
{
    int depth = 1;
    while ((rank = baton__twin_of(rank, size, twin).parent) >= 0) {
        depth++;
        assert_true(depth <= size);
    }
    return depth;
}

static void test_a_twin_tree_has_each_rank_once(void **state)
{
    (void)state;
    for (int size = 2; size <= MOST; size++) {
        for (int twin = 0; twin < 2; twin++) {
            int roots = 0;
            for (int rank = 0; rank < size; rank++) {
                baton__tree_t tree = baton__twin_of(rank, size, twin);
                roots += tree.parent < 0;
                assert_true(tree.left < rank);
                assert_true(tree.right < 0 || tree.right > rank);
                assert_true(tree.left < 0 ||
                            baton__twin_of(tree.left, size, twin).parent ==
                                rank);
                assert_true(tree.right < 0 ||
                            baton__twin_of(tree.right, size, twin).parent ==
                                rank);
                assert_true(depth_of(rank, size, twin) <=
                            2 + baton__log2_ceil(size));
            }
            assert_int_equal(roots, 1);
        }
    }
}

static bool is_inner(const baton__tree_t *tree)
{
    return tree->left >= 0 || tree->right >= 0;
}

static void test_no_rank_is_an_inner_one_of_both_trees(void **state)
{
    (void)state;
    for (int size = 2; size <= MOST; size++) {
        for (int rank = 0; rank < size; rank++) {
            baton__tree_t first = baton__twin_of(rank, size, 0);
            baton__tree_t second = baton__twin_of(rank, size, 1);
            assert_false(is_inner(&first) && is_inner(&second));
        }
    }
}

static void test_twin_positions_are_a_permutation(void **state)
{
    (void)state;
    for (int size = 2; size <= MOST; size++) {
        for (int id = 0; id < size; id++) {
            for (int twin = 0; twin < 2; twin++) {
                int position = baton__twin_position(id, size, twin);
                assert_in_range(position, 0, size - 1);
                assert_int_equal(baton__twin_id(position, size, twin), id);
            }
        }
    }
}

static void test_binomial_spans_fit_into_their_parents(void **state)
{
    (void)state;
    for (int size = 1; size <= MOST; size++) {
        assert_int_equal(baton__binomial_span(0, size), size);
        for (int id = 1; id < size; id++) {
            int parent = baton__binomial_parent(id);
            assert_true(parent < id);
            assert_true(id + baton__binomial_span(id, size) <=
                        parent + baton__binomial_span(parent, size));
        }
    }
}

/* Each number is at least half of the one before, and there are ceil(log2 P)
   of them. */
static void test_circulant_numbers_halve(void **state)
{
    (void)state;
    for (int size = 1; size <= MOST; size++) {
        for (int doubled = 0; doubled < 2; doubled++) {
            int steps = 0;
            for (int have = size; have > 1; steps++) {
                int less = baton__circulant_less(have, doubled);
                assert_true(less < have && 2 * less >= have);
                have = less;
            }
            assert_int_equal(steps, baton__log2_ceil(size));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_twin_tree_has_each_rank_once),
        cmocka_unit_test(test_no_rank_is_an_inner_one_of_both_trees),
        cmocka_unit_test(test_twin_positions_are_a_permutation),
        cmocka_unit_test(test_binomial_spans_fit_into_their_parents),
        cmocka_unit_test(test_circulant_numbers_halve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
