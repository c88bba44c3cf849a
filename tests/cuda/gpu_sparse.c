/* Sparse all-reduces of gradients in a GPU's memory, of ranks of this process:
   several steps in the order of CUDA's streams, against the same steps of
   gradients on the host. Entries, dense results and residuals have the same
   bits. */
#include "cuda/gpu_cluster.h"
#include "support/cmocka.h"
#include "support/random.h"

#include <baton/sparse.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 4, MOST = 200003 };

/* What a step gives; in memory that the GPU copies to. */
typedef struct outcome {
    uint64_t *count;
    uint32_t *indices;
    float *values, *dense;
} outcome_t;

typedef struct rank {
    baton_sparse_t *host, *device;
    float *gradient;         /* in the GPU's memory, and */
    float *gradients[STEPS]; /* on the host */
    outcome_t there;         /* in the GPU's memory, and */
    outcome_t found[STEPS];  /* on the host */
} rank_t;

typedef struct world {
    int size;
    gpu_cluster_t gpu;
    rank_t ranks[GPU_RANKS];
    outcome_t expected[STEPS];
} world_t;

/* ---- memory ------------------------------------------------------------ */

static outcome_t make_outcome(baton_memory_t kind)
{
    return (outcome_t){
        .count = gpu_allocate(kind, sizeof(uint64_t)),
        .indices = gpu_allocate(kind, MOST * sizeof(uint32_t)),
        .values = gpu_allocate(kind, MOST * sizeof(float)),
        .dense = gpu_allocate(kind, MOST * sizeof(float)),
    };
}

static void free_outcome(const outcome_t *outcome, baton_memory_t kind)
{
    gpu_release(kind, outcome->count);
    gpu_release(kind, outcome->indices);
    gpu_release(kind, outcome->values);
    gpu_release(kind, outcome->dense);
}

/* ---- ranks on one GPU -------------------------------------------------- */

static void open_rank(rank_t *rank)
{
    rank->gradient = gpu_allocate(BATON_MEMORY_DEVICE, MOST * sizeof(float));
    rank->there = make_outcome(BATON_MEMORY_DEVICE);
    for (int step = 0; step < STEPS; step++) {
        rank->gradients[step] =
            gpu_allocate(BATON_MEMORY_HOST, MOST * sizeof(float));
        rank->found[step] = make_outcome(BATON_MEMORY_HOST);
    }
}

static void close_rank(rank_t *rank)
{
    for (int step = 0; step < STEPS; step++) {
        gpu_release(BATON_MEMORY_HOST, rank->gradients[step]);
        free_outcome(&rank->found[step], BATON_MEMORY_HOST);
    }
    free_outcome(&rank->there, BATON_MEMORY_DEVICE);
    gpu_release(BATON_MEMORY_DEVICE, rank->gradient);
}

static void open_world(world_t *world, int size)
{
    *world = (world_t){.size = size, .gpu = gpu_cluster_open(size)};
    for (int r = 0; r < size; r++) {
        open_rank(&world->ranks[r]);
    }
    for (int step = 0; step < STEPS; step++) {
        world->expected[step] = make_outcome(BATON_MEMORY_HOST);
    }
}

static void close_world(world_t *world)
{
    for (int step = 0; step < STEPS; step++) {
        free_outcome(&world->expected[step], BATON_MEMORY_HOST);
    }
    for (int r = 0; r < world->size; r++) {
        close_rank(&world->ranks[r]);
    }
    gpu_cluster_close(&world->gpu);
}

/* ---- steps ------------------------------------------------------------- */

static void create(world_t *world, baton_sparse_options_t options)
{
    for (int r = 0; r < world->size; r++) {
        rank_t *rank = &world->ranks[r];
        baton_group_t *group = world->gpu.cluster->groups[r];
        options.memory = BATON_MEMORY_HOST;
        support_ok(baton_sparse_prepare(group, &options, &rank->host));
        options.memory = BATON_MEMORY_DEVICE;
        support_ok(baton_sparse_prepare(group, &options, &rank->device));
    }
    for (int r = 0; r < world->size; r++) {
        support_ok(baton_sparse_connect(world->ranks[r].host, SUPPORT_WAIT_MS));
        support_ok(
            baton_sparse_connect(world->ranks[r].device, SUPPORT_WAIT_MS));
    }
}

static void destroy(world_t *world)
{
    for (int r = 0; r < world->size; r++) {
        support_ok(baton_sparse_destroy(world->ranks[r].host));
        support_ok(baton_sparse_destroy(world->ranks[r].device));
    }
}

/* Between -1 and 1, of few values, so that some are tied. */
static void fill(world_t *world, size_t count, support_random_t *random)
{
    for (int r = 0; r < world->size; r++) {
        for (int step = 0; step < STEPS; step++) {
            for (size_t i = 0; i < count; i++) {
                uint64_t number = support_random_below(random, 20001);
                world->ranks[r].gradients[step][i] =
                    ((float)number - 10000) / 10000;
            }
        }
    }
}

static void run_on_host(world_t *world, int step)
{
    baton_sparse_result_t result = {0};
    const outcome_t *out = &world->expected[step];
    for (int r = 0; r < world->size; r++) {
        support_ok(baton_sparse_start(world->ranks[r].host,
                                      world->ranks[r].gradients[step]));
    }
    for (int r = 0; r < world->size; r++) {
        support_ok(
            baton_sparse_wait(world->ranks[r].host, SUPPORT_WAIT_MS, &result));
    }
    *out->count = result.count;
    if (result.indices != NULL) {
        memcpy(out->indices, result.indices, result.count * sizeof(uint32_t));
        memcpy(out->values, result.values, result.count * sizeof(float));
    }
    support_ok(baton_sparse_dense(world->ranks[0].host, out->dense));
}

static void put_step(world_t *world, int r, size_t count, int step)
{
    rank_t *rank = &world->ranks[r];
    cudaStream_t stream = world->gpu.streams[r];
    const outcome_t *there = &rank->there, *found = &rank->found[step];
    baton_sparse_target_t target = {.size = sizeof target,
                                    .dense = there->dense,
                                    .indices = there->indices,
                                    .values = there->values,
                                    .count = there->count};
    size_t most = baton_sparse_most_entries(rank->device);
    gpu_spin(stream, 500);
    gpu_copy(stream, rank->gradient, rank->gradients[step],
             count * sizeof(float));
    support_ok(baton_sparse_start_on(rank->device, stream, rank->gradient));
    support_ok(baton_sparse_wait_on(rank->device, stream, &target));
    gpu_copy(stream, found->count, there->count, sizeof *found->count);
    gpu_copy(stream, found->dense, there->dense, count * sizeof(float));
    gpu_copy(stream, found->indices, there->indices, most * sizeof(uint32_t));
    gpu_copy(stream, found->values, there->values, most * sizeof(float));
}

static void check(const world_t *world, const baton_sparse_options_t *options,
                  int r, int step)
{
    const outcome_t *right = &world->expected[step];
    const outcome_t *found = &world->ranks[r].found[step];
    bool entries = options->warmup <= (uint64_t)step;
    size_t count = (size_t)*right->count;
    if (*found->count != count ||
        memcmp(found->dense, right->dense, options->count * sizeof(float)) !=
            0 ||
        (entries &&
         (memcmp(found->indices, right->indices, count * sizeof(uint32_t)) !=
              0 ||
          memcmp(found->values, right->values, count * sizeof(float)) != 0))) {
        fail_msg("%s of %zu elements, %d ranks: step %d of rank %d has other "
                 "bits than on the host",
                 baton_sparse_algorithm_name(options->algorithm),
                 options->count, world->size, step, r);
    }
}

static void check_residual(const rank_t *rank, size_t count)
{
    float *right = malloc(count * sizeof *right);
    float *found = malloc(count * sizeof *found);
    assert_true(right != NULL && found != NULL);
    support_ok(baton_sparse_residual(rank->host, right));
    support_ok(baton_sparse_residual(rank->device, found));
    assert_memory_equal(found, right, count * sizeof *right);
    free(right);
    free(found);
}

static void compare(world_t *world, const baton_sparse_options_t *options,
                    support_random_t *random)
{
    create(world, *options);
    fill(world, options->count, random);
    for (int step = 0; step < STEPS; step++) {
        run_on_host(world, step);
        for (int r = 0; r < world->size; r++) {
            put_step(world, r, options->count, step);
        }
    }
    for (int r = 0; r < world->size; r++) {
        baton_sparse_result_t result = {0};
        gpu_synchronise(world->gpu.streams[r]);
        support_ok(baton_sparse_wait(world->ranks[r].device, SUPPORT_WAIT_MS,
                                     &result));
        for (int step = 0; step < STEPS; step++) {
            check(world, options, r, step);
        }
        check_residual(&world->ranks[r], options->count);
    }
    destroy(world);
}

static void test_bits_of_the_host(void **state)
{
    static const size_t counts[] = {1, 700, 50000, MOST};
    static const baton_sparse_algorithm_t algorithms[] = {
        BATON_SPARSE_SPARDL, BATON_SPARSE_TOPKA, BATON_SPARSE_REDSYNC};
    support_random_t random = support_random(support_seed(), 0);
    for (int size = 1; size <= GPU_RANKS; size++) {
        world_t world;
        open_world(&world, size);
        for (int a = 0; a < 3; a++) {
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
                int turn = size + a + (int)c;
                bool redsync = algorithms[a] == BATON_SPARSE_REDSYNC;
                bool quantise = redsync && turn % 2 == 0 &&
                                c != (size_t)BATON_REDSYNC_SAMPLED;
                const baton_sparse_options_t options = {
                    .size = sizeof options,
                    .algorithm = algorithms[a],
                    .count = counts[c],
                    .dtype = BATON_F32,
                    .k = 1 + counts[c] / 100,
                    .average = turn % 2 == 0,
                    .clip = turn % 3 == 0 ? 20 : 0,
                    .warmup = turn % 5 == 0 ? 1 : 0,
                    .momentum = turn % 4 == 0 ? 0.5 : 0,
                    .redsync = redsync ? (baton_redsync_t)c : 0,
                    .quantise = quantise,
                };
                compare(&world, &options, &random);
            }
        }
        close_world(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_of_the_host),
    };
    if (!gpu_there()) {
        return GPU_SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
