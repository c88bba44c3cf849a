/* Units of lib/coll/kit/pattern.h. */
#include "support/cmocka.h"
#include <stddef.h>
#include <stdint.h>

#include "coll/kit/pattern.h"

static void test_rank_shift_wraps_both_ways(void **state)
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

static void test_log2_ceil_covers_every_rank(void **state)
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

static void test_block_example_of_its_comment(void **state)
{
    static const size_t counts[] = {3, 3, 3, 2};
    for (size_t i = 0; i < 4; i++) {
        baton__block_t block = baton__block_of(11, 4, i);
        assert_int_equal(block.count, counts[i]);
        assert_int_equal(block.first, 3 * i);
    }
}

static void test_block_parts_tile_the_vector(void **state)
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

static void test_fold_core_is_largest_power_of_two(void **state)
{
    for (int size = 1; size < 1100; size++) {
        baton__fold_t fold = baton__fold_of(0, size);
        assert_int_equal(fold.core & (fold.core - 1), 0);
        assert_true(fold.core <= size && size < 2 * fold.core);
        assert_int_equal(fold.extra, size - fold.core);
    }
}

static void test_fold_ids_are_ranks_in_order(void **state)
{
    for (int size = 1; size < 130; size++) {
        int id = 0;
        for (int rank = 0; rank < size; rank++) {
            baton__fold_t fold = baton__fold_of(rank, size);
            if (fold.id < 0) {
                continue;
            }
            assert_int_equal(fold.id, id++);
            assert_int_equal(baton__fold_rank(&fold, fold.id), rank);
        }
        assert_int_equal(id, baton__fold_of(0, size).core);
    }
}

static void test_fold_pairs_are_mutual(void **state)
{
    for (int size = 1; size < 130; size++) {
        for (int rank = 0; rank < size; rank++) {
            baton__fold_t fold = baton__fold_of(rank, size);
            if (fold.partner < 0) {
                assert_true(fold.id >= 0);
                continue;
            }
            baton__fold_t other = baton__fold_of(fold.partner, size);
            assert_int_equal(other.partner, rank);
            assert_true((fold.id < 0) != (other.id < 0));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rank_shift_wraps_both_ways),
        cmocka_unit_test(test_log2_ceil_covers_every_rank),
        cmocka_unit_test(test_block_example_of_its_comment),
        cmocka_unit_test(test_block_parts_tile_the_vector),
        cmocka_unit_test(test_fold_core_is_largest_power_of_two),
        cmocka_unit_test(test_fold_ids_are_ranks_in_order),
        cmocka_unit_test(test_fold_pairs_are_mutual),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
