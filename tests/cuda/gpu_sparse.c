/* Sparse all-reduces of gradients in a GPU's memory, by several ranks in this
   process. The steps are in the order of CUDA's streams. The same steps with
   gradients in main memory are the reference: results and residuals must have
   the same bits. */
#include "cuda/gpu_cluster.h"

#include <baton/sparse.h>

enum { STEPS = 4, MOST = 200003 };

typedef struct rank {
    baton_sparse_t *host, *device;
    float *gradients[STEPS]; /* the gradients in main memory */
    float *inputs[STEPS];    /* the gradients in the GPU's memory */
    float *sums[STEPS];      /* the results in the GPU's memory */
} rank_t;

typedef struct world {
    int size;
    gpu_cluster_t gpu;
    rank_t ranks[GPU_RANKS];
    float *expected[STEPS];
    float *found;
} world_t;

/* ---- memory ------------------------------------------------------------ */

static float *vector_of(baton_memory_t kind)
{
    return gpu_allocate(kind, MOST * sizeof(float));
}

/* ---- ranks on one GPU -------------------------------------------------- */

static void open_rank(rank_t *rank)
{
    for (int step = 0; step < STEPS; step++) {
        rank->gradients[step] = vector_of(BATON_MEMORY_HOST);
        rank->inputs[step] = vector_of(BATON_MEMORY_DEVICE);
        rank->sums[step] = vector_of(BATON_MEMORY_DEVICE);
    }
}

static void close_rank(rank_t *rank)
{
    for (int step = 0; step < STEPS; step++) {
        gpu_release(BATON_MEMORY_HOST, rank->gradients[step]);
        gpu_release(BATON_MEMORY_DEVICE, rank->inputs[step]);
        gpu_release(BATON_MEMORY_DEVICE, rank->sums[step]);
    }
}

static void open_world(world_t *world, int size)
{
    *world = (world_t){.size = size, .gpu = gpu_cluster_open(size)};
    for (int r = 0; r < size; r++) {
        open_rank(&world->ranks[r]);
    }
    for (int step = 0; step < STEPS; step++) {
        world->expected[step] = vector_of(BATON_MEMORY_HOST);
    }
    world->found = vector_of(BATON_MEMORY_HOST);
}

static void close_world(world_t *world)
{
    for (int step = 0; step < STEPS; step++) {
        gpu_release(BATON_MEMORY_HOST, world->expected[step]);
    }
    gpu_release(BATON_MEMORY_HOST, world->found);
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

/* Elements are between -1 and 1, and have few values, so that some magnitudes
   are equal. */
static void fill(world_t *world, size_t count, support_random_t *random)
{
    for (int r = 0; r < world->size; r++) {
        for (int step = 0; step < STEPS; step++) {
            for (size_t i = 0; i < count; i++) {
                uint64_t number = support_random_below(random, 20001);
                world->ranks[r].gradients[step][i] =
                    ((float)number - 10000) / 10000;
            }
            gpu_copy(world->gpu.streams[r], world->ranks[r].inputs[step],
                     world->ranks[r].gradients[step], count * sizeof(float));
        }
    }
}

static void run_on_host(world_t *world, int step)
{
    baton_sparse_result_t result = {0};
    for (int r = 0; r < world->size; r++) {
        support_ok(baton_sparse_start(world->ranks[r].host,
                                      world->ranks[r].gradients[step]));
    }
    for (int r = 0; r < world->size; r++) {
        support_ok(
            baton_sparse_wait(world->ranks[r].host, SUPPORT_WAIT_MS, &result));
    }
    support_ok(baton_sparse_dense(world->ranks[0].host, world->expected[step]));
}

/* After wait_on this function adds no copy to or from main memory: with this
   many streams such a copy would deadlock (docs/cuda.md). */
static void put_step(world_t *world, int r, int step)
{
    rank_t *rank = &world->ranks[r];
    cudaStream_t stream = world->gpu.streams[r];
    gpu_spin(stream, 500);
    support_ok(baton_sparse_start_on(rank->device, stream, rank->inputs[step]));
    support_ok(baton_sparse_wait_on(rank->device, stream, rank->sums[step]));
}

static void check(const world_t *world, const baton_sparse_options_t *options,
                  int r, int step)
{
    cudaStream_t stream = world->gpu.streams[r];
    size_t bytes = options->count * sizeof(float);
    gpu_copy(stream, world->found, world->ranks[r].sums[step], bytes);
    gpu_synchronise(stream);
    if (memcmp(world->found, world->expected[step], bytes) != 0) {
        fail_msg("%s of %zu elements, %d ranks: step %d of rank %d has other "
                 "bits than on the host",
                 baton_sparse_algorithm_name(options->algorithm),
                 options->count, world->size, step, r);
    }
}

static void check_residual(const rank_t *rank, size_t count)
{
    float *right = support_alloc(count, sizeof *right);
    float *found = support_alloc(count, sizeof *found);
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
            put_step(world, r, step);
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

TEST(test_bits_of_the_host)
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

RUN_GPU_TESTS
