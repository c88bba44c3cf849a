/* Units of lib/coll/kit/pattern.h: what the proofs and costs of the builders do
   not show. */
#include "support/cmocka.h"
#include <stdbool.h>

#include "coll/kit/pattern.h"

TEST(test_rank_shift_wraps_both_ways)
{
    assert_int_equal(baton__rank_shift(0, 1, 5), 1);
    assert_int_equal(baton__rank_shift(4, 1, 5), 0);
    assert_int_equal(baton__rank_shift(0, -1, 5), 4);
    assert_int_equal(baton__rank_shift(2, -13, 5), 4);
    assert_int_equal(baton__rank_shift(2, 13, 5), 0);
    assert_int_equal(baton__rank_shift(0, -7, 1), 0);
    assert_int_equal(
        baton__rank_shift(INT32_MAX - 1, (int64_t)1 << 30, INT32_MAX),
        (1 << 30) - 1);
}

TEST(test_log2_ceil_covers_every_rank)
{
    assert_int_equal(baton__log2_ceil(1), 0);
    assert_int_equal(baton__log2_ceil(2), 1);
    assert_int_equal(baton__log2_ceil(INT32_MAX), 31);
    for (int size = 2; size < 5000; size++) {
        int rounds = baton__log2_ceil(size);
        assert_true(1 << rounds >= size);
        assert_true(1 << (rounds - 1) < size);
    }
}

TEST(test_block_example_of_its_comment)
{
    static const size_t counts[] = {3, 3, 3, 2};
    for (size_t i = 0; i < 4; i++) {
        baton__block_t block = baton__block_of(11, 4, i);
        assert_int_equal(block.count, counts[i]);
        assert_int_equal(block.first, 3 * i);
    }
}

TEST(test_block_parts_tile_the_vector)
{
    for (size_t count = 0; count < 70; count++) {
        for (size_t parts = 1; parts < 40; parts++) {
            size_t next = 0;
            size_t last = SIZE_MAX;
            for (size_t i = 0; i < parts; i++) {
                baton__block_t block = baton__block_of(count, parts, i);
                assert_int_equal(block.first, next);
                assert_true(block.count == count / parts ||
                            block.count == count / parts + 1);
                assert_true(block.count <= last);
                last = block.count;
                next += block.count;
            }
            assert_int_equal(next, count);
        }
    }
}

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

TEST(test_a_twin_tree_has_each_rank_once)
{
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

TEST(test_no_rank_is_an_inner_one_of_both_trees)
{
    for (int size = 2; size <= MOST; size++) {
        for (int rank = 0; rank < size; rank++) {
            baton__tree_t first = baton__twin_of(rank, size, 0);
            baton__tree_t second = baton__twin_of(rank, size, 1);
            assert_false(is_inner(&first) && is_inner(&second));
        }
    }
}

TEST(test_twin_positions_are_a_permutation)
{
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

/* Each number is at least half of the one before, and there are ceil(log2 P)
   of them. */
TEST(test_circulant_numbers_halve)
{
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

RUN_TESTS()
