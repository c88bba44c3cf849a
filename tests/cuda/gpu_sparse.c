/* Sparse all-reduces of gradients in a GPU's memory, of ranks of this process:
   several steps in the order of CUDA's streams, against the same steps of
   gradients on the host. Entries, dense results and residuals have the same
   bits. */
#include "cuda/on_gpu.h"
#include "support/cmocka.h"
#include "support/random.h"

#include <baton/baton.h>
#include <baton/sparse.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 5, STEPS = 4, MOST = 200003, WAIT_MS = 60000 };

/* What a step gives; in memory that the GPU copies to. */
typedef struct outcome {
    uint64_t *count;
    uint32_t *indices;
    float *values, *dense;
} outcome_t;

typedef struct rank {
    baton_group_t *group;
    baton_sparse_t *host, *device;
    cudaStream_t stream;
    float *gradient;         /* in the GPU's memory, and */
    float *gradients[STEPS]; /* on the host */
    outcome_t there;         /* in the GPU's memory, and */
    outcome_t found[STEPS];  /* on the host */
} rank_t;

typedef struct world {
    int size;
    baton_engine_t *engine;
    baton_inproc_t *medium;
    rank_t ranks[RANKS_MAX];
    outcome_t expected[STEPS];
} world_t;

static void ok(baton_status_t status)
{
    if (status != BATON_OK) {
        fail_msg("%s: %s", baton_status_name(status), baton_error_message());
    }
}

/* ---- memory ------------------------------------------------------------ */

static void *allocate(size_t bytes, bool on_device)
{
    void *memory = NULL;
    if (on_device) {
        gpu_must(cudaMalloc(&memory, bytes), "cudaMalloc");
    } else {
        gpu_must(cudaMallocHost(&memory, bytes), "cudaMallocHost");
    }
    return memory;
}

static void release(void *memory, bool on_device)
{
    if (on_device) {
        gpu_must(cudaFree(memory), "cudaFree");
    } else {
        gpu_must(cudaFreeHost(memory), "cudaFreeHost");
    }
}

static outcome_t make_outcome(bool on_device)
{
    return (outcome_t){
        .count = allocate(sizeof(uint64_t), on_device),
        .indices = allocate(MOST * sizeof(uint32_t), on_device),
        .values = allocate(MOST * sizeof(float), on_device),
        .dense = allocate(MOST * sizeof(float), on_device),
    };
}

static void free_outcome(const outcome_t *outcome, bool on_device)
{
    release(outcome->count, on_device);
    release(outcome->indices, on_device);
    release(outcome->values, on_device);
    release(outcome->dense, on_device);
}

static void copy_on(cudaStream_t stream, void *target, const void *source,
                    size_t bytes)
{
    gpu_must(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, stream),
             "cudaMemcpyAsync");
}

/* ---- ranks on one GPU -------------------------------------------------- */

static void open_rank(world_t *world, int number)
{
    rank_t *rank = &world->ranks[number];
    ok(baton_group_create_inproc(world->engine, world->medium, number,
                                 &rank->group));
    gpu_must(cudaStreamCreateWithFlags(&rank->stream, cudaStreamNonBlocking),
             "cudaStreamCreateWithFlags");
    rank->gradient = allocate(MOST * sizeof(float), true);
    rank->there = make_outcome(true);
    for (int step = 0; step < STEPS; step++) {
        rank->gradients[step] = allocate(MOST * sizeof(float), false);
        rank->found[step] = make_outcome(false);
    }
}

static void close_rank(rank_t *rank)
{
    for (int step = 0; step < STEPS; step++) {
        release(rank->gradients[step], false);
        free_outcome(&rank->found[step], false);
    }
    free_outcome(&rank->there, true);
    release(rank->gradient, true);
    gpu_must(cudaStreamDestroy(rank->stream), "cudaStreamDestroy");
    ok(baton_group_destroy(rank->group));
}

static void open_world(world_t *world, int size)
{
    memset(world, 0, sizeof *world);
    world->size = size;
    ok(baton_engine_open(NULL, &world->engine));
    ok(baton_cuda_attach(world->engine, 0));
    ok(baton_inproc_create(size, &world->medium));
    for (int r = 0; r < size; r++) {
        open_rank(world, r);
    }
    for (int step = 0; step < STEPS; step++) {
        world->expected[step] = make_outcome(false);
    }
}

static void close_world(world_t *world)
{
    for (int step = 0; step < STEPS; step++) {
        free_outcome(&world->expected[step], false);
    }
    for (int r = 0; r < world->size; r++) {
        close_rank(&world->ranks[r]);
    }
    ok(baton_inproc_destroy(world->medium));
    ok(baton_engine_close(world->engine));
}

/* ---- steps ------------------------------------------------------------- */

static void create(world_t *world, baton_sparse_options_t options)
{
    for (int r = 0; r < world->size; r++) {
        rank_t *rank = &world->ranks[r];
        options.memory = BATON_MEMORY_HOST;
        ok(baton_sparse_prepare(rank->group, &options, &rank->host));
        options.memory = BATON_MEMORY_DEVICE;
        ok(baton_sparse_prepare(rank->group, &options, &rank->device));
    }
    for (int r = 0; r < world->size; r++) {
        ok(baton_sparse_connect(world->ranks[r].host, WAIT_MS));
        ok(baton_sparse_connect(world->ranks[r].device, WAIT_MS));
    }
}

static void destroy(world_t *world)
{
    for (int r = 0; r < world->size; r++) {
        ok(baton_sparse_destroy(world->ranks[r].host));
        ok(baton_sparse_destroy(world->ranks[r].device));
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
        ok(baton_sparse_start(world->ranks[r].host,
                              world->ranks[r].gradients[step]));
    }
    for (int r = 0; r < world->size; r++) {
        ok(baton_sparse_wait(world->ranks[r].host, WAIT_MS, &result));
    }
    *out->count = result.count;
    if (result.indices != NULL) {
        memcpy(out->indices, result.indices, result.count * sizeof(uint32_t));
        memcpy(out->values, result.values, result.count * sizeof(float));
    }
    ok(baton_sparse_dense(world->ranks[0].host, out->dense));
}

static void put_step(rank_t *rank, size_t count, int step)
{
    const outcome_t *there = &rank->there, *found = &rank->found[step];
    baton_sparse_target_t target = {.size = sizeof target,
                                    .dense = there->dense,
                                    .indices = there->indices,
                                    .values = there->values,
                                    .count = there->count};
    size_t most = baton_sparse_most_entries(rank->device);
    gpu_spin(rank->stream, 500);
    copy_on(rank->stream, rank->gradient, rank->gradients[step],
            count * sizeof(float));
    ok(baton_sparse_start_on(rank->device, rank->stream, rank->gradient));
    ok(baton_sparse_wait_on(rank->device, rank->stream, &target));
    copy_on(rank->stream, found->count, there->count, sizeof *found->count);
    copy_on(rank->stream, found->dense, there->dense, count * sizeof(float));
    copy_on(rank->stream, found->indices, there->indices,
            most * sizeof(uint32_t));
    copy_on(rank->stream, found->values, there->values, most * sizeof(float));
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
    ok(baton_sparse_residual(rank->host, right));
    ok(baton_sparse_residual(rank->device, found));
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
            put_step(&world->ranks[r], options->count, step);
        }
    }
    for (int r = 0; r < world->size; r++) {
        baton_sparse_result_t result = {0};
        gpu_must(cudaStreamSynchronize(world->ranks[r].stream),
                 "cudaStreamSynchronize");
        ok(baton_sparse_wait(world->ranks[r].device, WAIT_MS, &result));
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
    for (int size = 1; size <= RANKS_MAX; size++) {
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
                    .keep_error = quantise && size > 2,
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
