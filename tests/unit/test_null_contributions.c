/* Ranks with nothing to give send no payload, whoever they are; the result is
   the reduction of the others' contributions, in the order of the full
   all-reduce. And what a partial counts of that. */
#include "support/random.h"
#include "support/sim.h"
#include "support/values.h"

#include <baton/partial.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LARGEST = 17, BYTES = 64 };

typedef struct world {
    baton_sim_t *sim;
    int size;
    baton_partial_t *partials[LARGEST];
} world_t;

/* All ranks are on one host where the inner all-reduce is the default. */
static void open_world(world_t *world, int size,
                       const baton_partial_options_t *options)
{
    baton_sim_options_t model = support_sim_options(size);
    model.host_ranks = options->inner == NULL ? size : 0;
    model.host_link = model.link;
    *world = (world_t){.sim = support_sim_open(&model), .size = size};
    for (int r = 0; r < size; r++) {
        support_ok(baton_partial_create(baton_sim_group(world->sim, r), options,
                                        &world->partials[r]));
    }
}

static void close_world(world_t *world)
{
    for (int r = 0; r < world->size; r++) {
        support_ok(baton_partial_destroy(world->partials[r]));
    }
    support_ok(baton_sim_destroy(world->sim));
}

/* All start, those that are in the set have contributed. */
static void run_epoch(world_t *world, const bool *active, const void *data,
                      size_t stride, baton_partial_result_t *results)
{
    for (int r = 0; r < world->size; r++) {
        if (active[r]) {
            support_ok(baton_partial_contribute(
                world->partials[r], (const char *)data + (size_t)r * stride));
        }
    }
    for (int r = 0; r < world->size; r++) {
        support_ok(baton_partial_start(world->partials[r]));
    }
    for (int r = 0; r < world->size; r++) {
        support_ok(baton_partial_wait(world->partials[r], -1, &results[r]));
    }
}

static void check_set(world_t *world, const baton_partial_options_t *options,
                      support_op_t op, support_random_t *random, bool *active)
{
    static char data[LARGEST][BYTES];
    char expected[BYTES];
    baton_partial_result_t results[LARGEST];
    uint32_t count = 0;
    size_t bytes = options->count * baton_dtype_size(options->dtype);
    options->op->identity(NULL, expected, options->count, options->dtype);
    for (int r = 0; r < world->size; r++) {
        support_fill_exact(data[r], options->count, options->dtype, op, r,
                           random);
        if (active[r] && count++ == 0) {
            memcpy(expected, data[r], BYTES);
        } else if (active[r]) {
            support_reduce(expected, data[r], options->count, options->dtype,
                           op);
        }
    }
    run_epoch(world, active, data, BYTES, results);
    for (int r = 0; r < world->size; r++) {
        assert_int_equal(results[r].active, count);
        if (memcmp(results[r].data, expected, bytes) != 0) {
            fail_msg("rank %d of %d, %s of %s, %u active: wrong", r,
                     world->size, options->op->name,
                     baton_dtype_name(options->dtype), count);
        }
    }
}

/* In which the default is the flat tree. Contributions are there before the
   first start, so they are all in the epoch. */
static baton_partial_mode_t mode_for(baton_allreduce_fn inner)
{
    return inner == NULL ? BATON_SOLO : BATON_FULL;
}

static void run_sets(int size, baton_allreduce_fn inner)
{
    support_random_t random = support_random(support_seed(), 5);
    for (int op = SUPPORT_SUM; op <= SUPPORT_MAX; op++) {
        for (int dtype = 0; dtype < (int)BATON_DTYPE_COUNT; dtype++) {
            const baton_partial_options_t options = {
                .size = sizeof options,
                .mode = mode_for(inner),
                .op = support_op((support_op_t)op),
                .dtype = (baton_dtype_t)dtype,
                .count = (size_t)dtype % 8,
                .inner = inner};
            world_t world;
            bool active[LARGEST];
            open_world(&world, size, &options);
            for (int i = 0; i < 8; i++) { /* none, all, at random */
                for (int r = 0; r < size; r++) {
                    active[r] =
                        i == 1 ||
                        (i > 1 && support_random_below(&random, 3) == 0);
                }
                check_set(&world, &options, (support_op_t)op, &random, active);
            }
            for (int one = 0; one < size; one++) {
                for (int r = 0; r < size; r++) {
                    active[r] = r == one;
                }
                check_set(&world, &options, (support_op_t)op, &random, active);
            }
            close_world(&world);
        }
    }
}

static void test_null_binomial(void **state)
{
    (void)state;
    for (int size = 1; size <= LARGEST; size += size < 9 ? 1 : 4) {
        run_sets(size, baton_allreduce_binomial);
    }
}

static void test_null_recursive_doubling(void **state)
{
    (void)state;
    for (int size = 1; size <= LARGEST; size += size < 9 ? 1 : 4) {
        run_sets(size, baton_allreduce_recursive_doubling);
    }
}

static void test_null_default_on_one_host(void **state)
{
    (void)state;
    for (int size = 1; size <= LARGEST; size += size < 9 ? 1 : 4) {
        run_sets(size, NULL);
    }
}

/* The ring sends zeros as ever, and is right. */
static void test_null_ring(void **state)
{
    (void)state;
    run_sets(5, baton_allreduce_ring);
}

/* ---- order of operands, long vectors ---------------------------------- */

/* Sums of floats depend on their order: of those that give, it is the tree's,
   the same on all ranks. In place, slots are reused. */
static void run_long(int size, baton_allreduce_fn inner)
{
    enum { COUNT = 20000 };
    const baton_partial_options_t options = {.size = sizeof options,
                                             .mode = mode_for(inner),
                                             .count = COUNT,
                                             .dtype = BATON_F32,
                                             .inner = inner};
    support_random_t random = support_random(support_seed(), 6);
    float *data = malloc(LARGEST * COUNT * sizeof *data);
    assert_non_null(data);
    for (int i = 0; i < LARGEST * COUNT; i++) {
        data[i] = (float)support_random_below(&random, 1000000) / 7.0F;
    }
    world_t world;
    baton_partial_result_t results[LARGEST];
    bool active[LARGEST];
    open_world(&world, size, &options);
    for (int i = 0; i < 6; i++) {
        for (int r = 0; r < size; r++) {
            active[r] = support_random_below(&random, 2) == 0;
        }
        run_epoch(&world, active, data, COUNT * sizeof *data, results);
        for (int e = 0; e < COUNT; e += 997) {
            double sum = 0;
            for (int r = 0; r < size; r++) {
                sum += active[r] ? (double)data[r * COUNT + e] : 0;
            }
            double off = sum - (double)((const float *)results[0].data)[e];
            assert_true(off < 1 && off > -1);
        }
        for (int r = 1; r < size; r++) {
            assert_memory_equal(results[r].data, results[0].data,
                                COUNT * sizeof *data);
        }
    }
    close_world(&world);
    free(data);
}

static void test_null_long_vectors(void **state)
{
    (void)state;
    static const int sizes[] = {3, 8, 13};
    for (size_t i = 0; i < 3; i++) {
        run_long(sizes[i], baton_allreduce_binomial);
        run_long(sizes[i], baton_allreduce_recursive_doubling);
        run_long(sizes[i], NULL);
    }
}

/* ---- bytes ------------------------------------------------------------ */

static uint64_t bytes_of(size_t count, baton_allreduce_fn inner, int one)
{
    const baton_partial_options_t options = {.size = sizeof options,
                                             .mode = mode_for(inner),
                                             .count = count,
                                             .dtype = BATON_F32,
                                             .inner = inner};
    world_t world;
    bool active[8];
    baton_partial_result_t results[8];
    float *data = calloc(8 * count, sizeof *data);
    assert_non_null(data);
    open_world(&world, 8, &options);
    for (int r = 0; r < 8; r++) {
        active[r] = one < 0 || r == one;
    }
    run_epoch(&world, active, data, count * sizeof *data, results);
    uint64_t bytes = 0;
    for (int r = 0; r < 8; r++) {
        baton_partial_stats_t stats;
        support_ok(baton_partial_stats(world.partials[r], &stats));
        bytes += stats.bytes;
    }
    close_world(&world);
    free(data);
    return bytes;
}

static void test_null_contributions_save_bytes(void **state)
{
    (void)state;
    static const size_t counts[] = {1024, 262144}; /* 4 KiB, 1 MiB */
    for (size_t i = 0; i < 2; i++) {
        uint64_t n = (counts[i] + 1) * 4; /* the count of active ranks rides */
        baton_allreduce_fn doubling = baton_allreduce_recursive_doubling;
        baton_allreduce_fn binomial = baton_allreduce_binomial;
        assert_int_equal(bytes_of(counts[i], doubling, -1), 24 * n);
        assert_int_equal(bytes_of(counts[i], binomial, -1), 14 * n);
        for (int one = 0; one < 8; one++) {
            /* 29 % of 24. */
            assert_int_equal(bytes_of(counts[i], doubling, one), 7 * n);
            /* Seven to bring it to the others, and the way up to rank 0. */
            unsigned bits = (unsigned)one;
            uint64_t up = (bits & 1) + (bits >> 1 & 1) + (bits >> 2);
            assert_int_equal(bytes_of(counts[i], binomial, one), (7 + up) * n);
        }
    }
}

/* On one host, where one active rank is expected: the flat tree, up to 1 MiB.
 */
static void test_null_contributions_to_the_default(void **state)
{
    (void)state;
    static const size_t counts[] = {1024, 262144}; /* 4 KiB, 1 MiB */
    for (size_t i = 0; i < 2; i++) {
        uint64_t n = (counts[i] + 1) * 4;
        assert_int_equal(bytes_of(counts[i], NULL, -1), 14 * n);
        for (int one = 0; one < 8; one++) {
            assert_int_equal(bytes_of(counts[i], NULL, one),
                             (one > 0 ? 8 : 7) * n);
        }
    }
}

/* ---- statistics ------------------------------------------------------- */

static void test_stats_count_what_happened(void **state)
{
    (void)state;
    const baton_partial_options_t options = {.size = sizeof options,
                                             .mode = BATON_SOLO,
                                             .keep = BATON_KEEP_ALL,
                                             .history = 8,
                                             .count = 1,
                                             .dtype = BATON_U64};
    world_t world;
    open_world(&world, 2, &options);
    baton_partial_result_t seen;
    const uint64_t one = 1;
    for (int epoch = 1; epoch <= 5; epoch++) { /* rank 1 stays behind */
        support_ok(baton_partial_contribute(world.partials[0], &one));
        support_ok(baton_partial_start(world.partials[0]));
        support_ok(baton_partial_wait(world.partials[0], -1, &seen));
    }
    support_ok(baton_partial_contribute(world.partials[1], &one));
    support_ok(baton_partial_start(world.partials[1])); /* step 1: too late */
    support_ok(baton_partial_wait(world.partials[1], -1, &seen));
    support_ok(baton_partial_start(world.partials[0]));
    support_ok(baton_partial_wait(world.partials[0], -1, &seen));

    baton_partial_stats_t stats;
    support_ok(baton_partial_stats(world.partials[0], &stats));
    assert_int_equal(stats.ranks, 2);
    assert_int_equal(stats.epochs, 6);
    assert_int_equal(stats.internal, 6);
    assert_int_equal(stats.external, 0);
    assert_int_equal(stats.taken, 5);
    assert_int_equal(stats.null, 1);
    assert_int_equal(stats.late, 0);
    assert_int_equal(stats.staleness[0], 5);
    assert_int_equal(stats.active[16], 6); /* one of two, each time */
    support_ok(baton_partial_stats(world.partials[1], &stats));
    assert_int_equal(stats.internal, 0);
    assert_int_equal(stats.external, 6);
    assert_int_equal(stats.taken, 1);
    assert_int_equal(stats.late, 1);
    assert_int_equal(stats.staleness[5], 1); /* of step 1, in epoch 6 */
    /* Rank 1 sent its one contribution, and empty messages. */
    assert_int_equal(stats.bytes, 16);

    char text[BATON_PARTIAL_STATS_BYTES];
    support_ok(baton_partial_stats_text(&stats, text, sizeof text));
    assert_non_null(strstr(text, "1 taken (1 late), 5 null"));
    assert_non_null(strstr(text, "staleness: 5: 1\n"));
    support_ok(baton_partial_stats_json(&stats, text, sizeof text));
    assert_non_null(strstr(text, "{\"ranks\": 2, \"epochs\": 6, "));
    assert_int_equal(text[strlen(text) - 1], '}');
    support_expect(baton_partial_stats_json(&stats, text, 100),
                   BATON_ERR_LIMIT);
    support_expect(baton_partial_stats_text(NULL, text, 100),
                   BATON_ERR_INVALID);
    support_expect(baton_partial_stats(NULL, &stats), BATON_ERR_INVALID);
    close_world(&world);
}

static void test_stats_of_any_size_fit(void **state)
{
    (void)state;
    baton_partial_stats_t stats;
    memset(&stats, 0xff, sizeof stats);
    char text[BATON_PARTIAL_STATS_BYTES];
    support_ok(baton_partial_stats_text(&stats, text, sizeof text));
    support_ok(baton_partial_stats_json(&stats, text, sizeof text));
}

/* What one rank alone contributes comes back bit for bit, a -0 among it, also
   where the inner all-reduce adds the neutral elements of the others; and where
   nobody contributes the count of active ranks is 0. */
static void check_alone(baton_dtype_t dtype, baton_allreduce_fn inner)
{
    enum { SIZE = 3, COUNT = 4 };
    size_t bytes = COUNT * baton_dtype_size(dtype);
    const baton_partial_options_t options = {.size = sizeof options,
                                             .mode = mode_for(inner),
                                             .count = COUNT,
                                             .dtype = dtype,
                                             .inner = inner};
    char given[COUNT * 8] = {0};
    given[bytes - 1] = (char)0x80; /* of floats, -0 */
    world_t world;
    open_world(&world, SIZE, &options);
    for (int who = 0; who <= SIZE; who++) { /* the last time nobody */
        bool active[SIZE] = {false};
        baton_partial_result_t results[SIZE] = {{0}};
        if (who < SIZE) {
            active[who] = true;
        }
        run_epoch(&world, active, given, 0, results);
        for (int r = 0; r < SIZE; r++) {
            assert_int_equal(results[r].active, who < SIZE);
            if (who < SIZE) {
                assert_memory_equal(results[r].data, given, bytes);
            }
        }
    }
    close_world(&world);
}

static void test_a_contribution_alone_keeps_its_bits(void **state)
{
    (void)state;
    baton_algorithm_t inner;
    for (int dtype = 0; dtype < BATON_DTYPE_COUNT; dtype++) {
        check_alone((baton_dtype_t)dtype, NULL);
        for (size_t i = 0; baton_algorithm_get(i, &inner); i++) {
            if (inner.collective == BATON_COLLECTIVE_ALLREDUCE) {
                check_alone((baton_dtype_t)dtype, inner.build.allreduce);
            }
        }
    }
}

/* A text that fits to the byte, with its final zero, is given. */
static void test_statistics_fit_exactly(void **state)
{
    (void)state;
    typedef baton_status_t write_fn(const baton_partial_stats_t *, char *,
                                    size_t);
    write_fn *const writes[] = {baton_partial_stats_text,
                                baton_partial_stats_json};
    const baton_partial_stats_t stats = {.ranks = 4, .epochs = 12};
    for (int i = 0; i < 2; i++) {
        char whole[BATON_PARTIAL_STATS_BYTES];
        char part[BATON_PARTIAL_STATS_BYTES] = "untouched";
        support_ok(writes[i](&stats, whole, sizeof whole));
        size_t length = strlen(whole);
        support_expect(writes[i](&stats, part, length), BATON_ERR_LIMIT);
        assert_string_equal(part, "untouched");
        support_ok(writes[i](&stats, part, length + 1));
        assert_string_equal(part, whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_null_binomial),
        cmocka_unit_test(test_null_recursive_doubling),
        cmocka_unit_test(test_null_default_on_one_host),
        cmocka_unit_test(test_null_ring),
        cmocka_unit_test(test_null_long_vectors),
        cmocka_unit_test(test_null_contributions_save_bytes),
        cmocka_unit_test(test_null_contributions_to_the_default),
        cmocka_unit_test(test_stats_count_what_happened),
        cmocka_unit_test(test_stats_of_any_size_fit),
        cmocka_unit_test(test_a_contribution_alone_keeps_its_bits),
        cmocka_unit_test(test_statistics_fit_exactly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
