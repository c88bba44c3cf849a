/* baton-bench's command line, and its checks of results, which must accept
   right results and find wrong ones. The code is compiled into this test, since
   the microbenchmarks are not a library. */
#include "../microbench/bench/operation.c"
#include "../microbench/bench/options.c"
#include "../microbench/common/cli.c"
#include "../microbench/common/sparse_check.c"
#include "support/cmocka.h"
#include <sys/wait.h>
#include <unistd.h>

/* ---- the command line --------------------------------------------------- */

enum { MOST_WORDS = 8 };

/* Parses "baton-bench WORDS", and ends this process if they are wrong. */
static bench_options_t parse_line(const char *words)
{
    static char text[256]; /* the options point into this text */
    char program[] = "baton-bench";
    char *argv[MOST_WORDS + 2] = {program};
    int argc = 1;
    bench_options_t parsed;
    (void)snprintf(text, sizeof text, "%s", words);
    for (char *word = strtok(text, " "); word != NULL;
         word = strtok(NULL, " ")) {
        assert_true(argc <= MOST_WORDS);
        argv[argc++] = word;
    }
    bench_options_parse(argc, argv, &parsed);
    return parsed;
}

/* Command lines, and the values of 64 bits that parsing must store at these
   offsets of the options. */
#define AT(member) offsetof(bench_options_t, member)
static const struct {
    const char *words;
    size_t offset;
    uint64_t expected;
} reads[] = {
    {"allreduce", AT(bytes.count), 24},
    {"allreduce", AT(bytes.numbers[0]), 8},
    {"allreduce", AT(bytes.numbers[23]), 64 << 20},
    {"allreduce", AT(repetitions), 5},
    {"allreduce", AT(system_count), 4},
    {"allreduce", AT(layers.numbers[0]), 1},
    {"allreduce", AT(modes.count), 1},
    {"allreduce", AT(places.count), 1},
    {"allreduce", AT(memories.count), 1},
    {"allreduce --ways sleep,unwaited", AT(modes.count), 3},
    {"allreduce --ways sleep,unwaited", AT(modes.words[0]), BENCH_WAIT_AT_ONCE},
    {"allreduce --ways sleep,unwaited", AT(modes.words[1]), BENCH_WAIT_NEVER},
    {"barrier", AT(bytes.count), 1},
    {"barrier", AT(bytes.numbers[0]), 0},
    {"barrier --systems baton:dissemination", AT(system_count), 1},
    {"gather --systems baton:binomial", AT(system_count), 1},
    {"reduce --bytes 12,1K..4K,64K", AT(bytes.count), 5},
    {"reduce --bytes 12,1K..4K,64K", AT(bytes.numbers[2]), 2048},
    {"reduce --bytes 12,1K..4K,64K", AT(bytes.numbers[4]), 65536},
    {"reduce --bytes 12..44", AT(bytes.count), 2},
    {"reduce --bytes 64..64", AT(bytes.count), 1},
    {"kernels", AT(repetitions), 11},
    {"sparse", AT(algorithms.count), BENCH_SPARSE_SYSTEMS},
    {"sparse", AT(bytes.numbers[0]), 16 << 20},
    {"sparse", AT(densities.count), 1},
    {"sparse", AT(teams.numbers[0]), 1},
    {"sparse", AT(repetitions), 9},
    {"sparse --density 0.001,0.5", AT(densities.count), 2},
    {"sparse --algorithm oktopk,spardl,mpi", AT(algorithms.count), 3},
    {"sparse --algorithm oktopk,spardl,mpi", AT(algorithms.words[0]),
     BENCH_SPARSE_OKTOPK},
    {"sparse --algorithm oktopk,spardl,mpi", AT(algorithms.words[2]),
     BENCH_SPARSE_MPI},
    {"sparse --teams 0,4", AT(teams.numbers[1]), 4},
};
#undef AT

TEST(test_bench_options_are_read)
{
    for (size_t i = 0; i < sizeof reads / sizeof reads[0]; i++) {
        bench_options_t parsed = parse_line(reads[i].words);
        uint64_t value;
        memcpy(&value, (char *)&parsed + reads[i].offset, sizeof value);
        if (value != reads[i].expected) {
            fail_msg("%s: %llu, expected %llu", reads[i].words,
                     (unsigned long long)value,
                     (unsigned long long)reads[i].expected);
        }
    }
}

TEST(test_bench_options_read_systems)
{
    bench_options_t parsed =
        parse_line("allreduce --systems baton:ring,mpi,baton");
    const bench_system_t *systems = parsed.systems;
    assert_int_equal(systems[0].kind, BENCH_SYSTEM_BATON);
    assert_string_equal(systems[0].algorithm, "ring");
    assert_string_equal(systems[0].name, "baton:ring");
    assert_int_equal(systems[1].kind, BENCH_SYSTEM_MPI);
    assert_null(systems[1].algorithm);
    assert_int_equal(systems[2].kind, BENCH_SYSTEM_BATON);
    assert_null(systems[2].algorithm);
}

TEST(test_bench_options_are_refused)
{
    static const char *const wrong[] = {
        "broadcast",
        "",
        "--json a.json allreduce",
        "reduce --bytes 64..32",
        "reduce --bytes 64..",
        "reduce --bytes ..64",
        "reduce --bytes 6..64",
        "sparse --teams 0..4",
        "reduce --bytes 8..2G",
        "allreduce --layers 1..512,1..512,1..512,1..512,1..512,1..512,1..512",
        "allreduce --systems mpich",
        "allreduce --systems mpi,mpi",
        "allreduce --systems baton:ring,baton:ring",
        "allreduce --systems baton:",
        "allreduce --systems baton:bruck",
        "allreduce --systems ,",
        "bcast --systems libnbc_ring",
        "barrier --bytes 8",
        "barrier --plot a.svg",
        "allreduce --plot a.pdf",
        "kernels --bytes 8",
        "reduce --place in",
        "allreduce --memory gpu",
        "allreduce --memory shared,device",
        "sparse --memory shared",
        "kernels --memory shared",
        "sparse --density 0",
        "sparse --density 1.1",
        "sparse --density 0.1,",
        "sparse --algorithm auto",
        "sparse --algorithm topka,topka",
        "sparse --algorithm topka --teams 2",
        "sparse --teams -1",
        "sparse --bytes 6",
        "sparse --bytes 0",
        "sparse --repetitions 0",
        "sparse --systems mpi",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        int status = 0;
        if (fork() == 0) {
            (void)close(STDERR_FILENO);
            (void)parse_line(wrong[i]);
            _exit(0);
        }
        (void)wait(&status);
        if (WEXITSTATUS(status) != 2) {
            fail_msg("accepted: baton-bench %s", wrong[i]);
        }
    }
}

/* The words for algorithms on the command line are the library's names. */
TEST(test_bench_sparse_systems_are_the_librarys)
{
    for (int i = BATON_SPARSE_SPARDL; i < BATON_SPARSE_COUNT; i++) {
        assert_string_equal(
            bench_sparse_names[i - BATON_SPARSE_SPARDL],
            baton_sparse_algorithm_name((baton_sparse_algorithm_t)i));
    }
    assert_int_equal(BENCH_SPARSE_MPI, BATON_SPARSE_COUNT - 1);
}

/* ---- results of a sparse all-reduce ------------------------------------- */

static void assert_wrong(const uint32_t *indices, const float *values,
                         size_t count, size_t n, size_t entry)
{
    baton_sparse_result_t result = {
        .count = count, .indices = indices, .values = values};
    size_t found = 0;
    assert_non_null(sparse_check(&result, n, &found));
    assert_int_equal(found, entry);
}

TEST(test_bench_sparse_check_finds_what_is_wrong)
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

TEST(test_bench_sparse_hash_covers_all_of_a_result)
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

/* The slices of all ranks together are the vector. Each rank finds an element
   of its slice that was lost, or that is there twice. */
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

TEST(test_bench_slices_find_what_was_lost)
{
    for (int ranks = 1; ranks <= 2 * SLICED; ranks++) {
        check_slices(ranks);
    }
}

/* ---- results of a collective -------------------------------------------- */

/* bench_command.sh compares the result of each collective with MPI's. This test
   checks that the check finds the first wrong element, and a call that did
   nothing. */
static void check_rank(bench_operation_t *rank)
{
    baton_collective_t collective = rank->collective;
    bool gets =
        rank->rank == rank->root || (collective != BATON_COLLECTIVE_REDUCE &&
                                     collective != BATON_COLLECTIVE_GATHER);
    bool sends =
        collective == BATON_COLLECTIVE_BROADCAST && rank->rank == rank->root;
    bench_operation_fill(rank);
    assert_int_equal(bench_operation_check(rank),
                     gets && !sends ? 0 : rank->target_count);
    for (size_t i = 0; i < rank->target_count; i++) {
        rank->target[i] = bench_operation_expected(rank, i);
    }
    assert_int_equal(bench_operation_check(rank), rank->target_count);
    for (size_t i = 0; gets && i < rank->target_count; i++) {
        float right = rank->target[i];
        rank->target[i] = right + 1;
        assert_int_equal(bench_operation_check(rank), i);
        rank->target[i] = right;
    }
}

TEST(test_bench_operation_finds_what_is_wrong)
{
    static const uint64_t sizes[] = {4, 60, 2100};
    for (int c = 0; c < (int)BATON_COLLECTIVE_SCAN; c++) {
        for (int i = 0; i < 3 * 8; i++) {
            bench_operation_t rank;
            int count = 1 + i / 3;
            bench_operation_init(&rank, (baton_collective_t)c, count / 2, count,
                                 sizes[i % 3]);
            rank.source = calloc(rank.source_count + 1, sizeof(float));
            rank.target = calloc(rank.target_count + 1, sizeof(float));
            for (rank.root = 0; rank.root < rank.roots; rank.root++) {
                check_rank(&rank);
            }
            free(rank.source);
            free(rank.target);
        }
    }
}

TEST(test_bench_operation_rounds_up_to_blocks)
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
