/* baton-bench's command line, and its checks of results: that they pass what is
   right and find what is not. They are compiled in, since the microbenchmarks
   are no library. */
#include "../microbench/bench/operation.c"
#include "../microbench/bench/options.c"
#include "../microbench/common/cli.c"
#include "../microbench/common/sparse_check.c"
#include "support/cmocka.h"

#include <stdlib.h>

/* ---- the command line --------------------------------------------------- */

enum { MOST_WORDS = 8 };

typedef struct line {
    bench_command_t command;
    bench_options_t options;
} line_t;

/* Parses "baton-bench WORDS", silently. */
static cli_verdict_t parse_line(const char *words, line_t *out)
{
    char text[256];
    char program[] = "baton-bench";
    char *argv[MOST_WORDS + 2] = {program};
    int argc = 1;
    (void)snprintf(text, sizeof text, "%s", words);
    for (char *word = strtok(text, " "); word != NULL;
         word = strtok(NULL, " ")) {
        assert_true(argc <= MOST_WORDS);
        argv[argc++] = word;
    }
    return bench_options_parse(argc, argv, false, &out->command, &out->options);
}

static line_t parse_good(const char *words)
{
    line_t line = {0};
    assert_int_equal(parse_line(words, &line), CLI_RUN);
    return line;
}

static void assert_refused(const char *words)
{
    line_t line = {0};
    cli_verdict_t verdict = parse_line(words, &line);
    if (verdict != CLI_BAD) {
        fail_msg("accepted: baton-bench %s", words);
    }
}

static void test_bench_options_name_every_collective(void **state)
{
    static const char *const commands[] = {
        "allreduce", "bcast",  "reduce",  "allgather", "reduce_scatter",
        "alltoall",  "gather", "scatter", "barrier"};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        line_t line = parse_good(commands[i]);
        assert_int_equal(line.command, BENCH_COLLECTIVE);
        assert_string_equal(bench_collective_name(line.options.collective),
                            commands[i]);
    }
    assert_refused("broadcast");
    assert_refused("");
    assert_refused("--json a.json allreduce");
}

static void test_bench_options_have_defaults_by_command(void **state)
{
    line_t line = parse_good("allreduce");
    assert_int_equal(line.options.size_count, 24);
    assert_int_equal(line.options.bytes[0], 8);
    assert_int_equal(line.options.bytes[23], 64 << 20);
    assert_int_equal(line.options.repetitions, 5);
    assert_int_equal(line.options.system_count, 4);
    line = parse_good("barrier");
    assert_int_equal(line.options.size_count, 1);
    assert_int_equal(line.options.bytes[0], 0);
    line = parse_good("allreduce --ways sleep,unwaited");
    assert_int_equal(line.options.way_count, 3);
    assert_int_equal(line.options.ways[0], BENCH_WAY_WAIT);
    assert_int_equal(line.options.ways[1], BENCH_WAY_UNWAITED);
    assert_int_equal(line.options.place_count, 1);
    assert_int_equal(line.options.memory_count, 1);
    assert_int_equal(line.options.layers[0], 1);
    line = parse_good("kernels");
    assert_int_equal(line.options.repetitions, 11);
}

static void test_bench_options_expand_ranges(void **state)
{
    static const uint64_t expected[] = {12, 1024, 2048, 4096, 65536};
    line_t line = parse_good("reduce --bytes 12,1K..4K,64K");
    assert_int_equal(line.options.size_count, 5);
    assert_memory_equal(line.options.bytes, expected, sizeof expected);
    line = parse_good("reduce --bytes 12..44");
    assert_int_equal(line.options.size_count, 2);
    line = parse_good("reduce --bytes 64..64");
    assert_int_equal(line.options.size_count, 1);
    assert_refused("reduce --bytes 64..32");
    assert_refused("reduce --bytes 64..");
    assert_refused("reduce --bytes ..64");
    assert_refused("reduce --bytes 6..64");
    assert_refused("reduce --bytes 0..64");
    assert_refused("reduce --bytes 8..2G");
    assert_refused("allreduce --layers 1..1000");
}

static void test_bench_options_read_systems(void **state)
{
    line_t line = parse_good(
        "allreduce --systems baton:ring,mpi,baton,baton:double_tree");
    const bench_system_t *systems = line.options.systems;
    assert_int_equal(line.options.system_count, 4);
    assert_int_equal(systems[0].kind, BENCH_SYSTEM_BATON);
    assert_string_equal(systems[0].algorithm, "ring");
    assert_string_equal(systems[0].name, "baton:ring");
    assert_int_equal(systems[1].kind, BENCH_SYSTEM_MPI);
    assert_null(systems[1].algorithm);
    assert_int_equal(systems[2].kind, BENCH_SYSTEM_BATON);
    assert_null(systems[2].algorithm);
    assert_string_equal(systems[3].algorithm, "double_tree");
    (void)parse_good("barrier --systems baton:dissemination");
    (void)parse_good("gather --systems baton:binomial");
}

static void test_bench_options_refuse_wrong_systems(void **state)
{
    assert_refused("allreduce --systems mpich");
    assert_refused("allreduce --systems mpi,mpi");
    assert_refused("allreduce --systems baton:ring,baton:ring");
    assert_refused("allreduce --systems baton:");
    assert_refused("allreduce --systems baton:bruck");
    assert_refused("allreduce --systems ,");
    assert_refused("bcast --systems libnbc_ring");
    assert_refused("barrier --bytes 8");
    assert_refused("barrier --plot a.svg");
    assert_refused("allreduce --plot a.pdf");
    assert_refused("kernels --bytes 8");
    assert_refused("reduce --place in");
    assert_refused("allreduce --memory gpu");
    assert_refused("allreduce --memory shared,device");
    assert_refused("sparse --memory shared");
    assert_refused("kernels --memory shared");
}

static void test_bench_options_of_sparse(void **state)
{
    line_t line = parse_good("sparse");
    assert_int_equal(line.options.sparse_system_count, BENCH_SPARSE_SYSTEMS);
    assert_int_equal(line.options.size_count, 1);
    assert_int_equal(line.options.bytes[0], 16 << 20);
    assert_int_equal(line.options.density_count, 1);
    assert_int_equal(line.options.team_count, 1);
    assert_int_equal(line.options.teams[0], 1);
    assert_int_equal(line.options.repetitions, 9);
    line = parse_good("sparse --density 0.001,0.5 --algorithm oktopk,spardl,mpi"
                      " --teams 0,4");
    assert_int_equal(line.options.density_count, 2);
    assert_true(line.options.densities[1] == 0.5);
    assert_int_equal(line.options.sparse_system_count, 3);
    assert_int_equal(line.options.sparse_systems[0], BENCH_SPARSE_OKTOPK);
    assert_int_equal(line.options.sparse_systems[2], BENCH_SPARSE_MPI);
    assert_int_equal(line.options.teams[1], 4);
    assert_refused("sparse --density 0");
    assert_refused("sparse --density 1.1");
    assert_refused("sparse --density 0.1,");
    assert_refused("sparse --algorithm auto");
    assert_refused("sparse --algorithm topka,topka");
    assert_refused("sparse --algorithm topka --teams 2");
    assert_refused("sparse --teams -1");
    assert_refused("sparse --bytes 6");
    assert_refused("sparse --bytes 0");
    assert_refused("sparse --repetitions 0");
    assert_refused("sparse --systems mpi");
}

/* The words on the command line are those of the library. */
static void test_bench_sparse_systems_are_the_librarys(void **state)
{
    for (int i = BATON_SPARSE_SPARDL; i < BATON_SPARSE_COUNT; i++) {
        assert_string_equal(
            bench_sparse_names[i - BATON_SPARSE_SPARDL],
            baton_sparse_algorithm_name((baton_sparse_algorithm_t)i));
    }
    assert_int_equal(BENCH_SPARSE_MPI, BATON_SPARSE_COUNT - 1);
}

/* ---- what a sparse all-reduce must give --------------------------------- */

static void assert_wrong(const uint32_t *indices, const float *values,
                         size_t count, size_t n, size_t entry)
{
    baton_sparse_result_t result = {
        .count = count, .indices = indices, .values = values};
    size_t found = 0;
    assert_non_null(sparse_check(&result, n, &found));
    assert_int_equal(found, entry);
}

static void test_bench_sparse_check_finds_what_is_wrong(void **state)
{
    const uint32_t indices[] = {0, 3, 4, 9};
    const float values[] = {1, -2, 0, 4};
    const uint32_t descending[] = {0, 3, 2, 9};
    const uint32_t twice[] = {0, 3, 4, 4};
    const float nans[] = {1, NAN, 0, 4};
    const float infinities[] = {1, -2, 0, -INFINITY};
    baton_sparse_result_t result = {
        .count = 4, .indices = indices, .values = values};
    size_t entry = 0;
    assert_null(sparse_check(&result, 10, &entry));
    assert_wrong(indices, values, 4, 9, 3);
    assert_wrong(descending, values, 4, 10, 2);
    assert_wrong(twice, values, 4, 10, 3);
    assert_wrong(indices, nans, 4, 10, 1);
    assert_wrong(indices, infinities, 4, 10, 3);
    assert_wrong(NULL, values, 4, 5, 4);
    assert_wrong(NULL, nans, 4, 4, 1);
    result.indices = NULL;
    assert_null(sparse_check(&result, 4, &entry));
}

static void test_bench_sparse_hash_covers_all_of_a_result(void **state)
{
    uint32_t indices[] = {0, 3, 4, 9};
    float values[] = {1, -2, 0, 4};
    baton_sparse_result_t result = {
        .count = 4, .indices = indices, .values = values};
    uint64_t hash = sparse_hash(&result);
    assert_true(sparse_hash(&result) == hash);
    values[2] = -0.0F;
    assert_true(sparse_hash(&result) != hash);
    values[2] = 0;
    indices[3] = 8;
    assert_true(sparse_hash(&result) != hash);
    indices[3] = 9;
    result.count = 3;
    assert_true(sparse_hash(&result) != hash);
}

enum { SLICED = 23, SLICED_STEPS = 3 };

/* The slices of all ranks are the vector; each finds an element that was lost,
   or that came twice. */
static void check_slices(int ranks)
{
    float values[SLICED] = {0};
    double sums[SLICED], gradients[SLICED], magnitudes[SLICED];
    baton_sparse_result_t result = {.count = SLICED, .values = values};
    size_t next = 0;
    for (int rank = 0; rank < ranks; rank++) {
        sparse_slice_t slice = sparse_slice_of(SLICED, ranks, rank);
        assert_int_equal(slice.first, next);
        next += slice.count;
        memset(sums, 0, sizeof sums);
        memset(gradients, 0, sizeof gradients);
        memset(magnitudes, 0, sizeof magnitudes);
        slice.gradients = gradients;
        slice.magnitudes = magnitudes;
        for (uint64_t step = 0; step < SLICED_STEPS; step++) {
            sparse_slice_add_gradients(&slice, 1, step, ranks);
            for (int r = 0; r < ranks; r++) {
                for (size_t i = 0; i < SLICED; i++) {
                    values[i] = gradient_at(gradient_key(1, step, r), i);
                }
                sparse_slice_add_result(&slice, &result, sums);
            }
        }
        assert_int_equal(sparse_slice_find_loss(&slice, sums), slice.count);
        for (size_t i = 0; i < slice.count; i++) {
            double right = sums[i];
            sums[i] += 1e-4 * magnitudes[i];
            assert_int_equal(sparse_slice_find_loss(&slice, sums), i);
            sums[i] = NAN;
            assert_int_equal(sparse_slice_find_loss(&slice, sums), i);
            sums[i] = right;
        }
    }
    assert_int_equal(next, SLICED);
}

static void test_bench_slices_find_what_was_lost(void **state)
{
    for (int ranks = 1; ranks <= 2 * SLICED; ranks++) {
        check_slices(ranks);
    }
}

/* ---- what a collective must give ---------------------------------------- */

enum { MOST_RANKS = 8 };

static void init_ranks(bench_operation_t *ranks, baton_collective_t collective,
                       int count, uint64_t bytes)
{
    for (int r = 0; r < count; r++) {
        bench_operation_init(&ranks[r], collective, r, count, bytes);
        ranks[r].source = calloc(ranks[r].source_count + 1, sizeof(float));
        ranks[r].target = calloc(ranks[r].target_count + 1, sizeof(float));
    }
}

static void free_ranks(bench_operation_t *ranks, int count)
{
    for (int r = 0; r < count; r++) {
        free(ranks[r].source);
        free(ranks[r].target);
    }
}

static float sum_at(const bench_operation_t *ranks, size_t i)
{
    float sum = 0;
    for (int r = 0; r < ranks->ranks; r++) {
        sum += ranks[r].source[i];
    }
    return sum;
}

/* The element of rank `me` by the collective's definition. */
static float defined(const bench_operation_t *ranks, int me, size_t i)
{
    size_t block = ranks->block;
    size_t root = (size_t)ranks->root;
    size_t mine = (size_t)me * block;
    switch ((int)ranks->collective) {
    case BATON_COLLECTIVE_BROADCAST:
        return ranks[root].target[i];
    case BATON_COLLECTIVE_REDUCE_SCATTER:
        return sum_at(ranks, mine + i);
    case BATON_COLLECTIVE_ALLGATHER:
    case BATON_COLLECTIVE_GATHER:
        return ranks[i / block].source[i % block];
    case BATON_COLLECTIVE_SCATTER:
        return ranks[root].source[mine + i];
    case BATON_COLLECTIVE_ALLTOALL:
        return ranks[i / block].source[mine + i % block];
    default:
        return sum_at(ranks, i);
    }
}

static void collect(bench_operation_t *ranks)
{
    bool to_root = ranks->collective == BATON_COLLECTIVE_REDUCE ||
                   ranks->collective == BATON_COLLECTIVE_GATHER;
    for (int r = 0; r < ranks->ranks; r++) {
        for (size_t i = 0; i < ranks[r].target_count; i++) {
            if (!to_root || r == ranks->root) {
                ranks[r].target[i] = defined(ranks, r, i);
            }
        }
    }
}

static void check_root(bench_operation_t *ranks, int count, int root)
{
    for (int r = 0; r < count; r++) {
        ranks[r].root = root;
        bench_operation_fill(&ranks[r]);
    }
    collect(ranks);
    for (int r = 0; r < count; r++) {
        bench_operation_t *rank = &ranks[r];
        bool has = r == root || (rank->collective != BATON_COLLECTIVE_REDUCE &&
                                 rank->collective != BATON_COLLECTIVE_GATHER);
        assert_int_equal(bench_operation_check(rank), rank->target_count);
        for (size_t i = 0; has && i < rank->target_count; i++) {
            float right = rank->target[i];
            rank->target[i] = right + 1;
            assert_int_equal(bench_operation_check(rank), i);
            rank->target[i] = right;
        }
    }
}

static const baton_collective_t collectives[] = {
    BATON_COLLECTIVE_BROADCAST, BATON_COLLECTIVE_REDUCE,
    BATON_COLLECTIVE_ALLREDUCE, BATON_COLLECTIVE_REDUCE_SCATTER,
    BATON_COLLECTIVE_ALLGATHER, BATON_COLLECTIVE_SCATTER,
    BATON_COLLECTIVE_GATHER,    BATON_COLLECTIVE_ALLTOALL};

static void test_bench_operation_knows_each_collective(void **state)
{
    static const uint64_t sizes[] = {4, 60, 2100};
    bench_operation_t ranks[MOST_RANKS];
    for (size_t c = 0; c < sizeof collectives / sizeof collectives[0]; c++) {
        bool rooted = collectives[c] == BATON_COLLECTIVE_BROADCAST ||
                      collectives[c] == BATON_COLLECTIVE_REDUCE ||
                      collectives[c] == BATON_COLLECTIVE_SCATTER ||
                      collectives[c] == BATON_COLLECTIVE_GATHER;
        for (int count = 1; count <= MOST_RANKS; count++) {
            for (size_t s = 0; s < 3; s++) {
                init_ranks(ranks, collectives[c], count, sizes[s]);
                assert_int_equal(ranks->roots, rooted ? count : 1);
                for (int root = 0; root < ranks->roots; root++) {
                    check_root(ranks, count, root);
                }
                free_ranks(ranks, count);
            }
        }
    }
}

/* Nothing has happened yet: every rank that gets something new must see it. */
static void test_bench_operation_finds_what_was_not_done(void **state)
{
    bench_operation_t ranks[MOST_RANKS];
    for (size_t c = 0; c < sizeof collectives / sizeof collectives[0]; c++) {
        init_ranks(ranks, collectives[c], 3, 60);
        for (int r = 0; r < 3; r++) {
            bool sends = collectives[c] == BATON_COLLECTIVE_BROADCAST && r == 0;
            bool gets = r == 0 || (collectives[c] != BATON_COLLECTIVE_REDUCE &&
                                   collectives[c] != BATON_COLLECTIVE_GATHER);
            bench_operation_fill(&ranks[r]);
            assert_int_equal(bench_operation_check(&ranks[r]),
                             sends || !gets ? ranks[r].target_count : 0);
        }
        free_ranks(ranks, 3);
    }
}

static void test_bench_operation_rounds_up_to_blocks(void **state)
{
    bench_operation_t operation;
    bench_operation_init(&operation, BATON_COLLECTIVE_ALLGATHER, 1, 3, 8);
    assert_int_equal(operation.count, 3);
    assert_int_equal(operation.source_count, 1);
    assert_int_equal(operation.target_count, 3);
    bench_operation_init(&operation, BATON_COLLECTIVE_ALLREDUCE, 1, 3, 8);
    assert_int_equal(operation.count, 2);
    bench_operation_init(&operation, BATON_COLLECTIVE_BARRIER, 1, 3, 0);
    assert_int_equal(operation.source_count + operation.target_count, 0);
    assert_int_equal(bench_operation_check(&operation), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bench_options_name_every_collective),
        cmocka_unit_test(test_bench_options_have_defaults_by_command),
        cmocka_unit_test(test_bench_options_expand_ranges),
        cmocka_unit_test(test_bench_options_read_systems),
        cmocka_unit_test(test_bench_options_refuse_wrong_systems),
        cmocka_unit_test(test_bench_options_of_sparse),
        cmocka_unit_test(test_bench_sparse_systems_are_the_librarys),
        cmocka_unit_test(test_bench_sparse_check_finds_what_is_wrong),
        cmocka_unit_test(test_bench_sparse_hash_covers_all_of_a_result),
        cmocka_unit_test(test_bench_slices_find_what_was_lost),
        cmocka_unit_test(test_bench_operation_knows_each_collective),
        cmocka_unit_test(test_bench_operation_finds_what_was_not_done),
        cmocka_unit_test(test_bench_operation_rounds_up_to_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
