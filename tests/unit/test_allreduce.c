/* The all-reduces, on the inproc transport: P ranks in one thread. */
#include "support/cluster.h"
#include "support/cmocka.h"
#include "support/values.h"
#include <stdlib.h>
#include <string.h>

#define EPOCHS 3
#define GUARD  ((unsigned char)0xa5)

/* ---- one all-reduce, checked ------------------------------------------- */

typedef struct allreduce_case {
    baton_allreduce_fn build;
    support_op_t op;
    baton_dtype_t dtype;
    size_t count;
    size_t chunk_bytes;
    bool in_place;
    bool any_bits; /* no oracle for these values: ranks must agree */
} allreduce_case_t;

/* A rank's memory: a vector between guards, at an alignment that differs from
   rank to rank, which must not change the result. */
typedef struct allreduce_rank {
    unsigned char *memory;
    size_t total; /* bytes of memory */
    size_t bytes; /* bytes of a vector */
    size_t source;
    size_t target;        /* where the vectors are in memory */
    unsigned char *input; /* what source was before */
} allreduce_rank_t;

static void open_rank(allreduce_rank_t *mine, const allreduce_case_t *test,
                      int rank)
{
    size_t element = baton_dtype_size(test->dtype);
    size_t gap = 64 + (size_t)(rank % 5) * element;
    mine->bytes = test->count * element;
    mine->source = gap;
    mine->target = test->in_place ? gap : gap + mine->bytes + gap;
    mine->total = mine->target + mine->bytes + 64;
    mine->memory = aligned_alloc(64, (mine->total + 63) / 64 * 64);
    mine->input = malloc(mine->bytes + 1);
    assert_non_null(mine->memory);
    assert_non_null(mine->input);
}

static void build_rank(allreduce_rank_t *mine, const allreduce_case_t *test,
                       baton_schedule_t *schedule)
{
    baton_buffer_t memory =
        baton_buffer_bind(schedule, mine->memory, mine->total);
    baton_allreduce_t args = {
        .size = sizeof(args),
        .source = baton_view(memory, mine->source, mine->bytes),
        .target = baton_view(memory, mine->target, mine->bytes),
        .dtype = test->dtype,
        .op = support_op(test->op),
        .chunk_bytes = test->chunk_bytes,
    };
    test->build(schedule, &args);
}

static void fill_rank(allreduce_rank_t *mine, const allreduce_case_t *test,
                      int rank, support_random_t *random)
{
    if (test->any_bits) {
        support_fill_bits(mine->input, mine->bytes, random);
    } else {
        support_fill_exact(mine->input, test->count, test->dtype, test->op,
                           rank, random);
    }
    memset(mine->memory, GUARD, mine->total);
    memcpy(mine->memory + mine->source, mine->input, mine->bytes);
}

static bool all_guards(const unsigned char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (from[i] != GUARD) {
            return false;
        }
    }
    return true;
}

static void check_rank(const allreduce_rank_t *mine,
                       const allreduce_case_t *test, const void *expected)
{
    assert_memory_equal(mine->memory + mine->target, expected, mine->bytes);
    assert_true(all_guards(mine->memory, mine->source));
    size_t end = mine->target + mine->bytes;
    assert_true(all_guards(mine->memory + end, mine->total - end));
    if (!test->in_place) {
        size_t gap = mine->source + mine->bytes;
        assert_memory_equal(mine->memory + mine->source, mine->input,
                            mine->bytes);
        assert_true(all_guards(mine->memory + gap, mine->target - gap));
    }
}

static void expect_all(allreduce_rank_t *all, const allreduce_case_t *test,
                       int size)
{
    unsigned char *expected = malloc(all[0].bytes + 1);
    assert_non_null(expected);
    if (test->any_bits) {
        memcpy(expected, all[0].memory + all[0].target, all[0].bytes);
    } else {
        memcpy(expected, all[0].input, all[0].bytes);
        for (int rank = 1; rank < size; rank++) {
            support_reduce(expected, all[rank].input, test->count, test->dtype,
                           test->op);
        }
    }
    for (int rank = 0; rank < size; rank++) {
        check_rank(&all[rank], test, expected);
    }
    free(expected);
}

static void run_case(int size, const allreduce_case_t *test)
{
    static uint64_t stream;
    support_random_t random = support_random(support_seed(), stream++);
    support_cluster_t *ranks = support_cluster_of(size);
    allreduce_rank_t all[SUPPORT_LARGEST];
    baton_schedule_t **schedules = support_schedules_create(ranks, "test");
    for (int rank = 0; rank < size; rank++) {
        open_rank(&all[rank], test, rank);
        build_rank(&all[rank], test, schedules[rank]);
    }
    support_schedules_commit(ranks, schedules);
    for (int epoch = 1; epoch <= EPOCHS; epoch++) {
        for (int rank = 0; rank < size; rank++) {
            fill_rank(&all[rank], test, rank, &random);
        }
        support_schedules_run(ranks, schedules);
        expect_all(all, test, size);
    }
    support_schedules_destroy(ranks, schedules);
    for (int rank = 0; rank < size; rank++) {
        free(all[rank].memory);
        free(all[rank].input);
    }
}

/* ---- all-reduce -------------------------------------------------------- */

static void check_counts(baton_allreduce_fn build, size_t chunk_bytes)
{
    for (size_t i = 0; i < SUPPORT_SIZES; i++) {
        size_t size = (size_t)support_sizes[i];
        size_t counts[] = {0, 1, size - 1, size, size + 1, 2 * size + 1, 101};
        for (size_t j = 0; j < sizeof(counts) / sizeof(counts[0]); j++) {
            allreduce_case_t test = {
                .build = build,
                .dtype = BATON_I32,
                .count = counts[j],
                .chunk_bytes = chunk_bytes,
            };
            run_case(support_sizes[i], &test);
            test.in_place = true;
            run_case(support_sizes[i], &test);
        }
    }
}

static void test_recursive_doubling_any_ranks_any_count(void **state)
{
    check_counts(baton_allreduce_recursive_doubling, 0);
}

static void test_binomial_any_ranks_any_count(void **state)
{
    check_counts(baton_allreduce_binomial, 0);
}

static void test_ring_any_ranks_any_count(void **state)
{
    check_counts(baton_allreduce_ring, 0);
}

/* Chunks of one element, and of three bytes, which is less than an element. */
static void test_ring_any_ranks_any_count_in_chunks(void **state)
{
    check_counts(baton_allreduce_ring, 4);
    check_counts(baton_allreduce_ring, 3);
}

static void check_types(baton_allreduce_fn build, size_t chunk_bytes)
{
    static const int sizes[] = {1, 2, 3, 5, 8, 17};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int dtype = 0; dtype < (int)BATON_DTYPE_COUNT; dtype++) {
            for (int op = 0; op < (int)SUPPORT_OP_COUNT; op++) {
                allreduce_case_t test = {
                    .build = build,
                    .op = (support_op_t)op,
                    .dtype = (baton_dtype_t)dtype,
                    .count = 149,
                    .chunk_bytes = chunk_bytes,
                };
                run_case(sizes[i], &test);
                test.in_place = true;
                run_case(sizes[i], &test);
            }
        }
    }
}

static void test_recursive_doubling_any_type_any_op(void **state)
{
    check_types(baton_allreduce_recursive_doubling, 0);
}

static void test_binomial_any_type_any_op(void **state)
{
    check_types(baton_allreduce_binomial, 0);
}

static void test_ring_any_type_any_op(void **state)
{
    check_types(baton_allreduce_ring, 64);
}

/* NaNs with payloads, infinities, rounding: all ranks must agree bit for bit.
 */
static void check_identity(baton_allreduce_fn build)
{
    for (size_t i = 0; i < SUPPORT_SIZES; i++) {
        for (int dtype = BATON_F16; dtype <= (int)BATON_F64; dtype++) {
            for (int op = SUPPORT_SUM; op <= (int)SUPPORT_MAX; op++) {
                allreduce_case_t test = {
                    .build = build,
                    .op = (support_op_t)op,
                    .dtype = (baton_dtype_t)dtype,
                    .count = 211,
                    .chunk_bytes = 32,
                    .any_bits = true,
                    .in_place = (op + dtype) % 2 == 0,
                };
                run_case(support_sizes[i], &test);
            }
        }
    }
}

static void test_recursive_doubling_floats_identical_on_all_ranks(void **state)
{
    check_identity(baton_allreduce_recursive_doubling);
}

static void test_binomial_floats_identical_on_all_ranks(void **state)
{
    check_identity(baton_allreduce_binomial);
}

static void test_ring_floats_identical_on_all_ranks(void **state)
{
    check_identity(baton_allreduce_ring);
}

/* Beyond 64 KiB receives reuse a few slots. */
static void check_long_vector(baton_allreduce_fn build)
{
    static const int sizes[] = {2, 8, 15, 17};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        allreduce_case_t test = {
            .build = build,
            .dtype = BATON_U16,
            .count = 33331,
        };
        run_case(sizes[i], &test);
        test.in_place = true;
        run_case(sizes[i], &test);
    }
}

static void test_recursive_doubling_long_vector_reuses_slots(void **state)
{
    check_long_vector(baton_allreduce_recursive_doubling);
}

static void test_binomial_long_vector_reuses_slots(void **state)
{
    check_long_vector(baton_allreduce_binomial);
}

/* Many more columns than lanes, and blocks that end in the middle of one. */
static void test_ring_long_vector_runs_in_many_columns(void **state)
{
    static const size_t chunks[] = {64, 1000, 4096, 0};
    for (int size = 2; size <= 7; size++) {
        for (size_t i = 0; i < sizeof(chunks) / sizeof(chunks[0]); i++) {
            allreduce_case_t test = {
                .build = baton_allreduce_ring,
                .dtype = BATON_F32,
                .count = 20011,
                .chunk_bytes = chunks[i],
            };
            run_case(size, &test);
            test.in_place = true;
            run_case(size, &test);
        }
    }
}

/* 2 x 2 matrices of 32-bit words: an element of 16 bytes, and a product that
   is associative (modulo 2^32) but does not commute. */
typedef struct matrix {
    uint32_t at[4];
} matrix_t;

static matrix_t times(matrix_t a, matrix_t b)
{
    return (matrix_t){{a.at[0] * b.at[0] + a.at[1] * b.at[2],
                       a.at[0] * b.at[1] + a.at[1] * b.at[3],
                       a.at[2] * b.at[0] + a.at[3] * b.at[2],
                       a.at[2] * b.at[1] + a.at[3] * b.at[3]}};
}

static void multiply(void *arg, void *target, const void *left,
                     const void *right, size_t count, baton_dtype_t dtype)
{
    for (size_t i = 0; i < count; i++) {
        ((matrix_t *)target)[i] =
            times(((const matrix_t *)left)[i], ((const matrix_t *)right)[i]);
    }
}

static const baton_op_t product_of_matrices = {
    .name = "matrix product",
    .reduce = multiply,
    .element_bytes = sizeof(matrix_t),
};

static matrix_t matrix_of(int rank, uint32_t index)
{
    return (matrix_t){{(uint32_t)rank + 2, index + 1, 3 * index, 1}};
}

/* The product in the order of ranks, whatever the number of ranks. */
static void check_order(baton_allreduce_fn build)
{
    enum { COUNT = 3 };
    static matrix_t data[SUPPORT_LARGEST][COUNT];
    for (size_t i = 0; i < SUPPORT_SIZES; i++) {
        support_cluster_t *ranks = support_cluster_of(support_sizes[i]);
        baton_schedule_t **schedules = support_schedules_create(ranks, "order");
        for (int rank = 0; rank < ranks->size; rank++) {
            for (uint32_t j = 0; j < COUNT; j++) {
                data[rank][j] = matrix_of(rank, j);
            }
            baton_view_t all =
                support_view(schedules[rank], data[rank], sizeof data[rank]);
            baton_allreduce_t args = {.size = sizeof(args),
                                      .source = all,
                                      .target = all,
                                      .dtype = BATON_U32,
                                      .op = &product_of_matrices};
            build(schedules[rank], &args);
        }
        support_schedules_commit(ranks, schedules);
        support_schedules_run(ranks, schedules);
        for (uint32_t j = 0; j < COUNT; j++) {
            matrix_t expected = matrix_of(0, j);
            for (int rank = 1; rank < ranks->size; rank++) {
                expected = times(expected, matrix_of(rank, j));
            }
            for (int rank = 0; rank < ranks->size; rank++) {
                assert_memory_equal(&data[rank][j], &expected, sizeof expected);
            }
        }
        support_schedules_destroy(ranks, schedules);
    }
}

static void test_recursive_doubling_reduces_in_order_of_ranks(void **state)
{
    check_order(baton_allreduce_recursive_doubling);
}

static void test_binomial_reduces_in_order_of_ranks(void **state)
{
    check_order(baton_allreduce_binomial);
}

static void test_ring_refuses_what_does_not_commute(void **state)
{
    support_cluster_t *ranks = support_cluster_of(3);
    baton_schedule_t **schedules = support_schedules_create(ranks, "ring");
    matrix_t data[4];
    baton_view_t all = support_view(schedules[0], data, sizeof data);
    baton_allreduce_t args = {.size = sizeof(args),
                              .source = all,
                              .target = all,
                              .dtype = BATON_U32,
                              .op = &product_of_matrices};
    baton_allreduce_ring(schedules[0], &args);
    support_expect(baton_schedule_commit(schedules[0]), BATON_ERR_UNSUPPORTED);
    assert_non_null(strstr(baton_error_message(), "\"matrix product\""));
    support_schedules_destroy(ranks, schedules);
}

/* Commit would fail if a node wrote the input. */
static void test_allreduce_source_may_be_an_input(void **state)
{
    static const baton_allreduce_fn builders[] = {
        baton_allreduce_recursive_doubling, baton_allreduce_binomial,
        baton_allreduce_ring};
    for (size_t b = 0; b < 3; b++) {
        for (size_t i = 0; i < SUPPORT_SIZES; i++) {
            support_cluster_t *ranks = support_cluster_of(support_sizes[i]);
            int64_t source[64], target[SUPPORT_LARGEST][64];
            for (int64_t j = 0; j < 64; j++) {
                source[j] = j * j;
            }
            baton_schedule_t **schedules =
                support_schedules_create(ranks, "input");
            for (int rank = 0; rank < ranks->size; rank++) {
                baton_schedule_t *schedule = schedules[rank];
                baton_allreduce_t args = {
                    .size = sizeof(args),
                    .source = baton_view(
                        baton_buffer_bind_input(schedule, source, 512), 0, 512),
                    .target = support_view(schedule, target[rank], 512),
                    .dtype = BATON_I64,
                    .op = BATON_SUM,
                    .chunk_bytes = 16};
                builders[b](schedule, &args);
            }
            support_schedules_commit(ranks, schedules);
            support_schedules_run(ranks, schedules);
            for (int rank = 0; rank < ranks->size; rank++) {
                for (int64_t j = 0; j < 64; j++) {
                    assert_int_equal(target[rank][j], ranks->size * j * j);
                }
            }
            support_schedules_destroy(ranks, schedules);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recursive_doubling_any_ranks_any_count),
        cmocka_unit_test(test_binomial_any_ranks_any_count),
        cmocka_unit_test(test_ring_any_ranks_any_count),
        cmocka_unit_test(test_ring_any_ranks_any_count_in_chunks),
        cmocka_unit_test(test_recursive_doubling_any_type_any_op),
        cmocka_unit_test(test_binomial_any_type_any_op),
        cmocka_unit_test(test_ring_any_type_any_op),
        cmocka_unit_test(test_recursive_doubling_floats_identical_on_all_ranks),
        cmocka_unit_test(test_binomial_floats_identical_on_all_ranks),
        cmocka_unit_test(test_ring_floats_identical_on_all_ranks),
        cmocka_unit_test(test_recursive_doubling_long_vector_reuses_slots),
        cmocka_unit_test(test_binomial_long_vector_reuses_slots),
        cmocka_unit_test(test_ring_long_vector_runs_in_many_columns),
        cmocka_unit_test(test_recursive_doubling_reduces_in_order_of_ranks),
        cmocka_unit_test(test_binomial_reduces_in_order_of_ranks),
        cmocka_unit_test(test_ring_refuses_what_does_not_commute),
        cmocka_unit_test(test_allreduce_source_may_be_an_input),
    };
    return cmocka_run_group_tests(tests, support_clusters_open,
                                  support_clusters_close);
}
