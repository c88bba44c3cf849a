/* Every dense builder on real data: every element type, odd counts and
   alignments, reductions that are not commutative; what builders refuse; the
   all-reduces inside partial collectives; failing allocations. On the inproc
   transport: P ranks in one thread. */
#include "base/alloc.h"
#include "support/cluster.h"
#include "support/dense_data.h"
#include "support/sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { EPOCHS = 2 };

static uint64_t seed;

/* Vectors between guards, at an alignment that differs from rank to rank. */
typedef struct memory {
    char *blocks[2 * SUPPORT_LARGEST];
    void *sources[SUPPORT_LARGEST];
    void *targets[SUPPORT_LARGEST];
} memory_t;

enum { GUARD_BYTES = 64, GUARD = 0xa5 };

static size_t block_bytes(const dense_case_t *c, int rank)
{
    return (dense_room(c, rank) + 5) * c->element + 2 * (size_t)GUARD_BYTES;
}

static void *open_block(const dense_case_t *c, int rank, char **block_out)
{
    *block_out = aligned_alloc(64, (block_bytes(c, rank) + 63) / 64 * 64);
    assert_non_null(*block_out);
    memset(*block_out, GUARD, block_bytes(c, rank));
    return *block_out + GUARD_BYTES + (size_t)(rank % 5) * c->element;
}

static void open_memory(const dense_case_t *c, memory_t *memory)
{
    for (int rank = 0; rank < c->size; rank++) {
        char **blocks = &memory->blocks[(size_t)rank * 2];
        memory->sources[rank] = open_block(c, rank, &blocks[0]);
        memory->targets[rank] = open_block(c, rank, &blocks[1]);
    }
}

/* Frees it; nothing but a rank's vectors was written. */
static void close_memory(const dense_case_t *c, memory_t *memory)
{
    for (int i = 0; i < 2 * c->size; i++) {
        int rank = i / 2;
        char *block = memory->blocks[i];
        char *vector =
            i % 2 == 0 ? memory->sources[rank] : memory->targets[rank];
        char *end = vector + dense_room(c, rank) * c->element;
        for (char *at = block; at < block + block_bytes(c, rank); at++) {
            if (at == vector) {
                at = end;
            }
            if (*at != (char)GUARD) {
                fail_msg("%s: rank %d wrote beside its vectors", dense_text(c),
                         rank);
            }
        }
        free(block);
    }
}

static void check_rank(const dense_data_t *data, int rank,
                       const memory_t *memory)
{
    const dense_case_t *c = data->c;
    void *source = memory->sources[rank];
    void *target = memory->targets[rank];
    if (!dense_is_right(data, rank, dense_output(c, rank, source, target))) {
        fail_msg("%s: wrong result on rank %d (BATON_SEED=%llu)", dense_text(c),
                 rank, (unsigned long long)seed);
    }
    if (dense_keeps_source(c, rank) &&
        !dense_is_untouched(data, rank, source)) {
        fail_msg("%s: rank %d's source was written", dense_text(c), rank);
    }
}

static void run_case(const dense_case_t *c, support_op_t op)
{
    support_cluster_t *ranks = support_cluster_of(c->size);
    baton_schedule_t **schedules = support_schedules_create(ranks, "dense");
    static memory_t memory;
    open_memory(c, &memory);
    for (int rank = 0; rank < c->size; rank++) {
        dense_build(c, schedules[rank], memory.sources[rank],
                    memory.targets[rank]);
    }
    support_schedules_commit(ranks, schedules);
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        dense_data_t data = {c, op, seed, epoch};
        for (int rank = 0; rank < c->size; rank++) {
            dense_fill(&data, rank,
                       dense_input(c, rank, memory.sources[rank],
                                   memory.targets[rank]));
        }
        support_schedules_run(ranks, schedules);
        for (int rank = 0; rank < c->size; rank++) {
            check_rank(&data, rank, &memory);
        }
    }
    support_schedules_destroy(ranks, schedules);
    close_memory(c, &memory);
}

#if SUPPORT_SANITIZED
static const int sizes[] = {1, 2, 3, 5, 8, 12};
#else
static const int sizes[] = {1, 2, 3, 5, 6, 7, 8, 13, 17};
#endif
enum { SIZE_COUNT = sizeof sizes / sizeof sizes[0] };
enum { ORDERED_COUNT = 5 };

static dense_case_t case_of(const dense_builder_t *builder, int size,
                            void *hosts)
{
    dense_case_t c = {.builder = builder,
                      .size = size,
                      .root = size / 2,
                      .dtype = BATON_U8,
                      .element = 1,
                      .arg = hosts};
    return c;
}

static void test_every_type_and_operation(void **state)
{
    (void)state;
    static const int few[] = {1, 3, 6, 8};
    baton_hosts_t hosts = {.size = sizeof hosts, .host_ranks = 2};
    for (size_t i = 0; dense_builder_at(i / 4) != NULL; i++) {
        dense_case_t c = case_of(dense_builder_at(i / 4), few[i % 4], &hosts);
        for (int type = 0; type < (int)BATON_DTYPE_COUNT; type++) {
            c.dtype = (baton_dtype_t)type;
            c.element = baton_dtype_size(c.dtype);
            c.count = 37;
            c.chunk_bytes = 24;
            int op = (type + (int)i) % (int)SUPPORT_OP_COUNT;
            c.op = support_op((support_op_t)op);
            c.in_place = (type + (int)i / 4) % 2 == 0;
            run_case(&c, (support_op_t)op);
        }
    }
}

static void test_any_number_of_ranks_and_elements(void **state)
{
    (void)state;
    static const size_t counts[] = {0, 16, 5, 67, 262};
    /* Less than an element, one, and 33: segments of 33 and of 32. */
    static const size_t chunks[] = {0, 64, 1, 2, 66};
    baton_hosts_t hosts = {.size = sizeof hosts, .host_ranks = 3};
    for (size_t i = 0; dense_builder_at(i / SIZE_COUNT) != NULL; i++) {
        dense_case_t c = case_of(dense_builder_at(i / SIZE_COUNT),
                                 sizes[i % SIZE_COUNT], &hosts);
        c.dtype = BATON_I16;
        c.element = 2;
        c.op = BATON_SUM;
        for (size_t k = 0; k < 5; k++) {
            c.count =
                dense_counts_blocks(c.builder) ? counts[k] / 16 : counts[k];
            c.chunk_bytes = chunks[k];
            c.in_place = k % 3 == 0;
            c.varied = dense_can_vary(c.builder) && k % 2 == 1;
            run_case(&c, SUPPORT_SUM);
        }
    }
}

/* Beyond what has a slot for each round. */
static void test_long_vectors(void **state)
{
    (void)state;
    baton_hosts_t hosts = {.size = sizeof hosts, .host_ranks = 2};
    for (size_t i = 0; dense_builder_at(i) != NULL; i++) {
        dense_case_t c = case_of(dense_builder_at(i), 7, &hosts);
        c.dtype = BATON_I32;
        c.element = 4;
        c.op = BATON_SUM;
        c.count = dense_counts_blocks(c.builder) ? 3001 : 20003;
        run_case(&c, SUPPORT_SUM);
        c.in_place = true;
        run_case(&c, SUPPORT_SUM);
    }
}

/* ---- floats: all ranks have the same bits ------------------------------- */

static void check_bits(const dense_builder_t *builder, int size,
                       baton_dtype_t dtype)
{
    baton_hosts_t hosts = {.size = sizeof hosts, .host_ranks = 3};
    dense_case_t c = case_of(builder, size, &hosts);
    c.dtype = dtype;
    c.element = baton_dtype_size(dtype);
    c.op = BATON_SUM;
    c.count = 101;
    c.chunk_bytes = 40;
    support_cluster_t *ranks = support_cluster_of(size);
    baton_schedule_t **schedules = support_schedules_create(ranks, "bits");
    static memory_t memory;
    open_memory(&c, &memory);
    for (int rank = 0; rank < size; rank++) {
        support_random_t random = support_random(seed, (uint64_t)rank);
        support_fill_bits(memory.sources[rank], c.count * c.element, &random);
        dense_build(&c, schedules[rank], memory.sources[rank],
                    memory.targets[rank]);
    }
    support_schedules_commit(ranks, schedules);
    support_schedules_run(ranks, schedules);
    for (int rank = 1; rank < size; rank++) {
        assert_memory_equal(memory.targets[rank], memory.targets[0],
                            c.count * c.element);
    }
    support_schedules_destroy(ranks, schedules);
    close_memory(&c, &memory);
}

static void test_all_ranks_have_the_same_bits(void **state)
{
    (void)state;
    static const baton_dtype_t floats[] = {BATON_F16, BATON_F32};
    const dense_builder_t *builder;
    for (size_t i = 0; (builder = dense_builder_at(i)) != NULL; i++) {
        for (size_t k = 0; k < SIZE_COUNT * 2; k++) {
            if (builder->algorithm.collective == BATON_COLLECTIVE_ALLREDUCE) {
                check_bits(builder, sizes[k / 2], floats[k % 2]);
            }
        }
    }
}

/* ---- the order of ranks ------------------------------------------------- */

static dense_case_t composition(const dense_builder_t *builder, int size,
                                void *hosts)
{
    dense_case_t c = case_of(builder, size, hosts);
    c.dtype = BATON_U32;
    c.element = sizeof(dense_affine_t);
    c.op = &dense_compose;
    c.count = 29;
    c.chunk_bytes = 40;
    return c;
}

static void test_reductions_that_are_not_commutative(void **state)
{
    (void)state;
    baton_hosts_t hosts = {.size = sizeof hosts, .host_ranks = 3};
    for (size_t i = 0; dense_builder_at(i / SIZE_COUNT) != NULL; i++) {
        const dense_builder_t *builder = dense_builder_at(i / SIZE_COUNT);
        int size = sizes[i % SIZE_COUNT];
        dense_case_t c = composition(builder, size, &hosts);
        bool chain = strcmp(builder->name, "reduce_linear_pipeline") == 0;
        for (int root = 0; builder->algorithm.ordered || chain; root++) {
            if (root >= size || (root > 0 && !dense_has_roots(builder))) {
                break;
            }
            if (chain && root > 0 && root < size - 1) {
                continue;
            }
            c.root = root;
            c.in_place = root % 2 == 1;
            run_case(&c, SUPPORT_SUM);
        }
    }
}

static void test_builders_without_order_refuse_them(void **state)
{
    (void)state;
    baton_hosts_t hosts = {.size = sizeof hosts, .host_ranks = 3};
    const dense_builder_t *builder;
    for (size_t i = 0; (builder = dense_builder_at(i)) != NULL; i++) {
        if (builder->algorithm.ordered || builder->chooses ||
            !dense_reduces(builder)) {
            continue;
        }
        baton_schedule_t *schedule = NULL;
        dense_case_t c = composition(builder, 5, &hosts);
        support_ok(baton_schedule_create(support_cluster_of(5)->groups[2],
                                         "order", &schedule));
        dense_build(&c, schedule, NULL, NULL);
        support_expect(baton_schedule_commit(schedule), BATON_ERR_UNSUPPORTED);
        assert_non_null(strstr(baton_error_message(), "\"compose\""));
        assert_non_null(strstr(baton_error_message(), "use "));
        support_ok(baton_schedule_destroy(schedule));
    }
}

/* ---- wrong arguments ---------------------------------------------------- */

static baton_view_t scratch(baton_schedule_t *schedule, size_t bytes)
{
    return baton_view(baton_buffer_scratch(schedule, bytes), 0, bytes);
}

static void refused(baton_schedule_t *schedule, const char *says)
{
    support_expect(baton_schedule_commit(schedule), BATON_ERR_INVALID);
    if (strstr(baton_error_message(), says) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", baton_error_message(), says);
    }
    support_ok(baton_schedule_destroy(schedule));
}

static baton_schedule_t *schedule_of(int size)
{
    baton_schedule_t *schedule = NULL;
    support_ok(baton_schedule_create(support_cluster_of(size)->groups[size - 1],
                                     "wrong", &schedule));
    return schedule;
}

static void test_wrong_arguments_are_named(void **state)
{
    (void)state;
    baton_schedule_t *s = schedule_of(3);
    baton_reduce_linear_pipeline(s, NULL);
    refused(s, "reduce by linear pipeline: args is NULL");

    s = schedule_of(3);
    baton_broadcast_double_tree(s, &(baton_broadcast_t){.size = 1});
    refused(s, "broadcast by double tree: args: size is 1, must be ");

    s = schedule_of(3);
    baton_broadcast_t broadcast = {.size = sizeof broadcast, .root = 3};
    baton_broadcast_linear_pipeline(s, &broadcast);
    refused(s, "root is 3, must be a rank of the group, 0 to 2");

    s = schedule_of(3);
    baton_reduce_t reduce = {.size = sizeof reduce,
                             .root = 2,
                             .source = scratch(s, 16),
                             .target = scratch(s, 8),
                             .dtype = BATON_F64,
                             .op = BATON_SUM};
    baton_reduce_scatter_gather(s, &reduce);
    refused(s, "target has 8 bytes, must have 16");

    s = schedule_of(3);
    reduce.source = scratch(s, 12);
    baton_reduce_binomial(s, &reduce);
    refused(s, "source has 12 bytes, must be a multiple of 8");

    s = schedule_of(3);
    const size_t counts[] = {1, 2, 3};
    baton_reduce_scatter_t scattered = {.size = sizeof scattered,
                                        .source = scratch(s, 6),
                                        .target = scratch(s, 2),
                                        .counts = counts,
                                        .dtype = BATON_U8,
                                        .op = BATON_SUM};
    baton_reduce_scatter_circulant(s, &scattered);
    refused(s, "target has 2 bytes, must have 3");

    s = schedule_of(3);
    baton_allgather_t gathered = {.size = sizeof gathered,
                                  .source = scratch(s, 3),
                                  .target = scratch(s, 10)};
    baton_allgather_bruck(s, &gathered);
    refused(s, "target has 10 bytes, must be a multiple of 3");

    s = schedule_of(3);
    const size_t most[] = {SIZE_MAX, 2, 3};
    gathered.block_bytes = most;
    baton_allgather_ring(s, &gathered);
    refused(s, "all-gather by ring: rank 1 has 2 elements of 1 bytes: with "
               "those before it");

    s = schedule_of(3);
    baton_view_t all = scratch(s, 30);
    baton_alltoall_t exchanged = {.size = sizeof exchanged,
                                  .source = baton_view(all.buffer, 0, 18),
                                  .target = baton_view(all.buffer, 12, 18)};
    baton_alltoall_bruck(s, &exchanged);
    refused(s, "they overlap, must be the same (in place) or apart");

    s = schedule_of(3);
    baton_allreduce_t args = {.size = sizeof args,
                              .source = scratch(s, 8),
                              .target = scratch(s, 8),
                              .dtype = BATON_F32,
                              .op = BATON_SUM};
    baton_hosts_t hosts = {.size = 1, .host_ranks = 2};
    args.arg = &hosts;
    baton_allreduce_hierarchical(s, &args);
    refused(s, "args.arg must point to a baton_hosts_t");
}

/* A view past its buffer is not an overlap. */
static void test_a_view_past_its_buffer_is_named(void **state)
{
    (void)state;
    static float memory[64];
    const struct {
        size_t offset, bytes;
        const char *says;
    } wrong[] = {
        {0, SIZE_MAX - 3, "at 0 of buffer 0, which has 128"},
        {120, 16, "source is 16 bytes at 120 of buffer 0, which has 128"},
        {SIZE_MAX - 7, 16, "of buffer 0, which has 128"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        baton_schedule_t *s = schedule_of(3);
        /* Two buffers, one behind the other. */
        baton_buffer_t from = baton_buffer_bind(s, memory, 128);
        baton_buffer_t to = baton_buffer_bind(s, memory + 32, 128);
        baton_allreduce_t args = {
            .size = sizeof args,
            .source = baton_view(from, wrong[i].offset, wrong[i].bytes),
            .target = baton_view(to, 0, wrong[i].bytes),
            .dtype = BATON_F32,
            .op = BATON_SUM};
        baton_allreduce_ring(s, &args);
        refused(s, wrong[i].says);
    }
}

/* At the root, where the vector is shorter than its blocks. */
static void test_the_vector_of_a_root_is_named(void **state)
{
    (void)state;
    baton_schedule_t *s = schedule_of(3);
    baton_rooted_t args = {
        .size = sizeof args, .root = 2, .target = scratch(s, 16)};
    baton_scatter(s, &args);
    refused(s, "scatter by binomial tree: source of the root has 0 bytes and "
               "its target 16, must have 3 blocks as long as that");
    const size_t blocks[] = {4, 4, 16};
    s = schedule_of(3);
    args.target = scratch(s, 16);
    args.block_bytes = blocks;
    baton_scatter(s, &args);
    refused(s, "source has 0 bytes, must have 24");
    args.block_bytes = NULL;
    s = schedule_of(3);
    args.source = scratch(s, 16);
    args.target = (baton_view_t){0};
    baton_gather(s, &args);
    refused(s, "gather by binomial tree: target of the root has 0 bytes and "
               "its source 16, must have 3 blocks as long as that");
}

/* A reduce that is not commutative, by the pipeline; `result` is the root's. */
static void build_ordered(support_cluster_t *ranks, baton_schedule_t **all,
                          int root, dense_affine_t *sources,
                          dense_affine_t *result)
{
    size_t bytes = ORDERED_COUNT * sizeof(dense_affine_t);
    for (int rank = 0; rank < ranks->size; rank++) {
        baton_buffer_t source = baton_buffer_bind(
            all[rank], sources + (size_t)rank * ORDERED_COUNT, bytes);
        baton_reduce_t args = {.size = sizeof args,
                               .root = root,
                               .source = baton_view(source, 0, bytes),
                               .dtype = BATON_U64,
                               .op = &dense_compose,
                               .chunk_bytes = 2 * sizeof(dense_affine_t),
                               .algorithm = "linear_pipeline"};
        if (rank == root) {
            args.target = baton_view(
                baton_buffer_bind(all[rank], result, bytes), 0, bytes);
        }
        baton_reduce(all[rank], &args);
    }
}

static void run_ordered(support_cluster_t *ranks, int root)
{
    dense_affine_t sources[SUPPORT_LARGEST][ORDERED_COUNT];
    dense_affine_t expected[ORDERED_COUNT], result[ORDERED_COUNT];
    for (uint32_t i = 0; i < SUPPORT_LARGEST * ORDERED_COUNT; i++) {
        sources[i / ORDERED_COUNT][i % ORDERED_COUNT] =
            (dense_affine_t){2 * i + 3, i};
    }
    memcpy(expected, sources[0], sizeof expected);
    for (int rank = 1; rank < ranks->size; rank++) {
        dense_compose.reduce(NULL, expected, expected, sources[rank],
                             ORDERED_COUNT, BATON_U64);
    }
    baton_schedule_t **all = support_schedules_create(ranks, "named");
    build_ordered(ranks, all, root, sources[0], result);
    if (root == 0 || root == ranks->size - 1) {
        support_schedules_commit(ranks, all);
        support_schedules_run(ranks, all);
        assert_memory_equal(result, expected, sizeof expected);
    } else {
        for (int rank = 0; rank < ranks->size; rank++) {
            support_expect(baton_schedule_commit(all[rank]),
                           BATON_ERR_UNSUPPORTED);
        }
    }
    support_schedules_destroy(ranks, all);
}

/* By the name that chooses, as by its own: at the ends of the chain of ranks a
   pipeline keeps their order. */
static void test_a_pipeline_by_name_keeps_the_order(void **state)
{
    (void)state;
    for (int i = 0; i < SIZE_COUNT; i++) {
        support_cluster_t *ranks = support_cluster_of(sizes[i]);
        run_ordered(ranks, 0);
        run_ordered(ranks, sizes[i] / 2);
        run_ordered(ranks, sizes[i] - 1);
    }
}

/* ---- inside partial collectives ----------------------------------------- */

static void run_partial(const dense_builder_t *builder, int size,
                        baton_partial_mode_t mode)
{
    enum { COUNT = 45, STEPS = 3 };
    baton_hosts_t hosts = {.size = sizeof hosts, .host_ranks = 3};
    support_cluster_t *ranks = support_cluster_of(size);
    baton_partial_t *partials[SUPPORT_LARGEST];
    baton_partial_options_t options = {.size = sizeof options,
                                       .mode = mode,
                                       .keep = BATON_KEEP_ALL,
                                       .count = COUNT,
                                       .dtype = BATON_I64,
                                       .inner =
                                           builder->algorithm.build.allreduce,
                                       .inner_arg = &hosts};
    for (int rank = 0; rank < size; rank++) {
        support_ok(baton_partial_create(ranks->groups[rank], &options,
                                        &partials[rank]));
    }
    for (int64_t step = 1; step <= STEPS; step++) {
        int64_t expected = 0;
        for (int rank = 0; rank < size; rank++) {
            int64_t values[COUNT];
            for (int i = 0; i < COUNT; i++) {
                values[i] = (rank + 1) * step;
            }
            expected += (rank + 1) * step;
            support_ok(baton_partial_contribute(partials[rank], values));
        }
        for (int rank = 0; rank < size; rank++) {
            support_ok(baton_partial_start(partials[rank]));
        }
        for (int rank = 0; rank < size; rank++) {
            baton_partial_result_t result;
            support_ok(baton_partial_wait(partials[rank], 20000, &result));
            const int64_t *data = result.data;
            assert_int_equal(result.active, size);
            for (int i = 0; i < COUNT; i++) {
                assert_int_equal(data[i], expected);
            }
        }
    }
    for (int rank = 0; rank < size; rank++) {
        support_ok(baton_partial_destroy(partials[rank]));
    }
}

/* All contribute before any starts, so each epoch has all. */
static void test_any_allreduce_inside_a_partial_one(void **state)
{
    (void)state;
    for (size_t i = 0; dense_builder_at(i / SIZE_COUNT) != NULL; i++) {
        const dense_builder_t *builder = dense_builder_at(i / SIZE_COUNT);
        if (builder->algorithm.collective == BATON_COLLECTIVE_ALLREDUCE) {
            run_partial(builder, sizes[i % SIZE_COUNT], BATON_SOLO);
            run_partial(builder, sizes[i % SIZE_COUNT], BATON_MAJORITY);
            run_partial(builder, sizes[i % SIZE_COUNT], BATON_FULL);
        }
    }
}

/* ---- without memory ----------------------------------------------------- */

/* Builds with the n-th allocation failing, until none does: an error that
   commit reports, and nothing is lost. */
static void test_builders_without_memory(void **state)
{
    (void)state;
    baton_hosts_t hosts = {.size = sizeof hosts, .host_ranks = 3};
    for (size_t i = 0; dense_builder_at(i) != NULL; i++) {
        dense_case_t c = case_of(dense_builder_at(i), 7, &hosts);
        c.op = BATON_SUM;
        c.count = 100;
        c.root = 1;
        bool failed = true;
        for (int64_t n = 1; failed; n++) {
            baton_schedule_t *schedule = NULL;
            support_ok(baton_schedule_create(support_cluster_of(7)->groups[3],
                                             "memory", &schedule));
            int64_t before = baton__alloc_count();
            baton__alloc_fail_nth(n);
            dense_build(&c, schedule, NULL, NULL);
            failed = baton__alloc_count() - before >= n;
            baton__alloc_fail_nth(0);
            if (failed) {
                support_expect(baton_schedule_commit(schedule),
                               BATON_ERR_NO_MEMORY);
            }
            support_ok(baton_schedule_destroy(schedule));
        }
    }
}

static int open_all(void **state)
{
    seed = support_seed();
    return support_clusters_open(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type_and_operation),
        cmocka_unit_test(test_any_number_of_ranks_and_elements),
        cmocka_unit_test(test_long_vectors),
        cmocka_unit_test(test_all_ranks_have_the_same_bits),
        cmocka_unit_test(test_reductions_that_are_not_commutative),
        cmocka_unit_test(test_builders_without_order_refuse_them),
        cmocka_unit_test(test_wrong_arguments_are_named),
        cmocka_unit_test(test_a_view_past_its_buffer_is_named),
        cmocka_unit_test(test_the_vector_of_a_root_is_named),
        cmocka_unit_test(test_a_pipeline_by_name_keeps_the_order),
        cmocka_unit_test(test_any_allreduce_inside_a_partial_one),
        cmocka_unit_test(test_builders_without_memory),
    };
    return cmocka_run_group_tests(tests, open_all, support_clusters_close);
}
