/* The rank that may begin an epoch of a majority all-reduce. */
#include "support/cmocka.h"
#include <baton/partial.h>

#include <stdbool.h>
#include <stdlib.h>

static void test_draw_is_a_permutation_of_each_block(void **state)
{
    static const int sizes[] = {1, 2, 3, 5, 8, 17, 32, 100};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        int size = sizes[i], changes = 0;
        for (uint64_t seed = 0; seed < 5; seed++) {
            int last[100] = {0};
            for (uint64_t block = 0; block < 50; block++) {
                bool elected[100] = {false};
                uint64_t sum = 0;
                for (int k = 0; k < size; k++) {
                    uint64_t epoch = block * (uint64_t)size + 1 + (uint64_t)k;
                    int rank = baton_partial_elect(seed, epoch, size);
                    assert_in_range(rank, 0, size - 1);
                    assert_false(elected[rank]);
                    elected[rank] = true;
                    sum += (uint64_t)rank + 1; /* active, when ranks come in
                                                  turn */
                    changes += last[k] != rank;
                    last[k] = rank;
                }
                assert_int_equal(2 * sum, size * (size + 1));
            }
        }
        /* The order differs from block to block, and from seed to seed. */
        assert_true(size == 1 || changes > 250 * size / 4);
    }
}

/* Every rank is the first of a block about as often. */
static void test_draw_has_no_favourite(void **state)
{
    enum { SIZE = 8, BLOCKS = 4000 };
    int first[SIZE] = {0};
    for (uint64_t block = 0; block < BLOCKS; block++) {
        first[baton_partial_elect(7, block * SIZE + 1, SIZE)]++;
    }
    for (int rank = 0; rank < SIZE; rank++) { /* 500, within 5 deviations */
        assert_in_range(first[rank], 395, 605);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_draw_is_a_permutation_of_each_block),
        cmocka_unit_test(test_draw_has_no_favourite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
