/* Epochs in the order of CUDA's streams: what is in a stream before start_on
   happens before the epoch, what is there behind wait_on after it, and the host
   waits for neither. And all-reduces of ranks of this process, whose results
   are the host's bit for bit. */
#include "cuda/on_gpu.h"
#include "support/cmocka.h"
#include "support/random.h"

#include <baton/baton.h>
#include <baton/device.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 100003, RANKS_MAX = 5, EPOCHS = 4, WAIT_MS = 60000 };

/* ---- ranks on one GPU ------------------------------------------------- */

typedef struct world {
    int size;
    baton_engine_t *engine;
    baton_inproc_t *medium;
    baton_group_t *groups[RANKS_MAX];
    baton_schedule_t *schedules[RANKS_MAX];
    cudaStream_t streams[RANKS_MAX]; /* the application's */
} world_t;

static void ok(baton_status_t status)
{
    if (status != BATON_OK) {
        fail_msg("%s: %s", baton_status_name(status), baton_error_message());
    }
}

static void open_world(world_t *world, int size)
{
    memset(world, 0, sizeof *world);
    world->size = size;
    ok(baton_engine_open(NULL, &world->engine));
    ok(baton_cuda_attach(world->engine, 0));
    ok(baton_inproc_create(size, &world->medium));
    for (int r = 0; r < size; r++) {
        ok(baton_group_create_inproc(world->engine, world->medium, r,
                                     &world->groups[r]));
        gpu_must(cudaStreamCreateWithFlags(&world->streams[r],
                                           cudaStreamNonBlocking),
                 "cudaStreamCreateWithFlags");
    }
}

static void create_schedules(world_t *world, const char *name)
{
    for (int r = 0; r < world->size; r++) {
        ok(baton_schedule_create(world->groups[r], name, &world->schedules[r]));
    }
}

static void commit_schedules(world_t *world)
{
    for (int r = 0; r < world->size; r++) {
        ok(baton_schedule_commit(world->schedules[r]));
    }
}

static void destroy_schedules(world_t *world)
{
    for (int r = 0; r < world->size; r++) {
        ok(baton_schedule_destroy(world->schedules[r]));
    }
}

static void close_world(world_t *world)
{
    for (int r = 0; r < world->size; r++) {
        gpu_must(cudaStreamDestroy(world->streams[r]), "cudaStreamDestroy");
        ok(baton_group_destroy(world->groups[r]));
    }
    ok(baton_inproc_destroy(world->medium));
    ok(baton_engine_close(world->engine));
}

static void *on_device(size_t bytes)
{
    void *memory = NULL;
    gpu_must(cudaMalloc(&memory, bytes), "cudaMalloc");
    return memory;
}

static void copy(void *target, const void *source, size_t bytes)
{
    gpu_must(cudaMemcpy(target, source, bytes, cudaMemcpyDefault),
             "cudaMemcpy");
}

static baton_view_t device_view(baton_schedule_t *s, void *memory, size_t bytes)
{
    baton_buffer_t buffer = baton_buffer_bind(s, memory, bytes);
    baton_buffer_set_memory(s, buffer, BATON_MEMORY_DEVICE);
    return baton_view(buffer, 0, bytes);
}

/* ---- one rank --------------------------------------------------------- */

typedef struct vectors {
    float *a, *b, *sum;
    float *seen[EPOCHS]; /* copies of the sum, on the host */
} vectors_t;

static void open_vectors(vectors_t *v)
{
    v->a = on_device(COUNT * sizeof(float));
    v->b = on_device(COUNT * sizeof(float));
    v->sum = on_device(COUNT * sizeof(float));
    for (int e = 0; e < EPOCHS; e++) {
        gpu_must(cudaMallocHost((void **)&v->seen[e], COUNT * sizeof(float)),
                 "cudaMallocHost");
    }
    gpu_spin_and_fill(NULL, 0, v->b, COUNT, 100);
    gpu_must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

static void close_vectors(vectors_t *v)
{
    gpu_must(cudaFree(v->a), "cudaFree");
    gpu_must(cudaFree(v->b), "cudaFree");
    gpu_must(cudaFree(v->sum), "cudaFree");
    for (int e = 0; e < EPOCHS; e++) {
        gpu_must(cudaFreeHost(v->seen[e]), "cudaFreeHost");
    }
}

static void assert_all(const float *data, float value)
{
    for (size_t i = 0; i < COUNT; i++) {
        if (data[i] != value) {
            fail_msg("element %zu is %g, not %g", i, (double)data[i],
                     (double)value);
        }
    }
}

/* sum = a + b */
static void commit_sum(world_t *world, const vectors_t *v)
{
    create_schedules(world, "sum");
    baton_schedule_t *s = world->schedules[0];
    size_t bytes = COUNT * sizeof(float);
    baton_add_reduce(s, BATON_F32, BATON_SUM, device_view(s, v->sum, bytes),
                     device_view(s, v->a, bytes), device_view(s, v->b, bytes));
    commit_schedules(world);
}

/* a is written late, and the sum is changed behind the epoch: all in stream
   order, with several epochs started before the first has ended. */
static void test_epochs_are_in_stream_order(void **state)
{
    world_t world;
    vectors_t v;
    open_world(&world, 1);
    open_vectors(&v);
    commit_sum(&world, &v);
    cudaStream_t stream = world.streams[0];
    for (int e = 0; e < EPOCHS; e++) {
        gpu_spin_and_fill(stream, 20000, v.a, COUNT, (float)e);
        ok(baton_schedule_start_on(world.schedules[0], stream));
        ok(baton_schedule_wait_on(world.schedules[0], stream));
        gpu_add(stream, v.sum, COUNT, 0.5f);
        gpu_must(cudaMemcpyAsync(v.seen[e], v.sum, COUNT * sizeof(float),
                                 cudaMemcpyDefault, stream),
                 "cudaMemcpyAsync");
    }
    gpu_must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    ok(baton_schedule_wait(world.schedules[0], WAIT_MS));
    for (int e = 0; e < EPOCHS; e++) {
        assert_all(v.seen[e], 100.5f + (float)e);
    }
    destroy_schedules(&world);
    close_vectors(&v);
    close_world(&world);
}

static void CUDART_CB pass_gate(void *gate)
{
    while (sem_wait(gate) != 0) {
    }
}

/* The stream stands at a gate that the host opens after start_on and wait_on
   have returned. */
static void test_the_host_waits_for_nothing(void **state)
{
    world_t world;
    vectors_t v;
    sem_t gate;
    open_world(&world, 1);
    open_vectors(&v);
    commit_sum(&world, &v);
    cudaStream_t stream = world.streams[0];
    assert_int_equal(sem_init(&gate, 0, 0), 0);
    gpu_must(cudaLaunchHostFunc(stream, pass_gate, &gate),
             "cudaLaunchHostFunc");
    gpu_spin_and_fill(stream, 0, v.a, COUNT, 7);
    ok(baton_schedule_start_on(world.schedules[0], stream));
    ok(baton_schedule_wait_on(world.schedules[0], stream));
    gpu_add(stream, v.sum, COUNT, 1);
    assert_int_equal(cudaStreamQuery(stream), cudaErrorNotReady);
    assert_int_equal(sem_post(&gate), 0);
    gpu_must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    ok(baton_schedule_wait(world.schedules[0], WAIT_MS));
    copy(v.seen[0], v.sum, COUNT * sizeof(float));
    assert_all(v.seen[0], 108);
    assert_int_equal(sem_destroy(&gate), 0);
    destroy_schedules(&world);
    close_vectors(&v);
    close_world(&world);
}

/* ---- device calls and copies ------------------------------------------ */

static baton_view_t viewed;

static baton_status_t add_three(void *arg, baton_call_t *call,
                                baton_stream_t stream)
{
    gpu_add(stream, baton_call_address(call, viewed), COUNT, 3);
    return BATON_OK;
}

/* host --> copy --> device call --> copy --> host */
static void test_a_device_call_is_in_its_place(void **state)
{
    world_t world;
    vectors_t v;
    size_t bytes = COUNT * sizeof(float);
    open_world(&world, 1);
    open_vectors(&v);
    create_schedules(&world, "call");
    baton_schedule_t *s = world.schedules[0];
    baton_view_t in =
        baton_view(baton_buffer_bind(s, v.seen[0], bytes), 0, bytes);
    baton_view_t out =
        baton_view(baton_buffer_bind(s, v.seen[1], bytes), 0, bytes);
    viewed = device_view(s, v.a, bytes);
    baton_node_t there = baton_add_copy(s, viewed, in);
    baton_node_t add = baton_add_device_call(s, add_three, NULL);
    baton_node_t back = baton_add_copy(s, out, viewed);
    baton_before(s, there, add);
    baton_before(s, add, back);
    commit_schedules(&world);
    for (int round = 0; round < 100; round++) {
        for (size_t i = 0; i < COUNT; i++) {
            v.seen[0][i] = (float)round;
        }
        ok(baton_schedule_start(s));
        ok(baton_schedule_wait(s, WAIT_MS));
        assert_all(v.seen[1], (float)round + 3);
    }
    destroy_schedules(&world);
    close_vectors(&v);
    close_world(&world);
}

/* ---- graphs of the program -------------------------------------------- */

/* The program captures a graph itself, in the default mode, in which CUDA
   forbids much to all threads: epochs go on beside it, and one can't be started
   on the stream that is captured. */
static void test_program_captures(void **state)
{
    world_t world;
    vectors_t v;
    cudaStream_t captured;
    cudaGraph_t graph = NULL;
    open_world(&world, 1);
    open_vectors(&v);
    commit_sum(&world, &v);
    gpu_must(cudaStreamCreateWithFlags(&captured, cudaStreamNonBlocking),
             "cudaStreamCreateWithFlags");
    gpu_add(NULL, v.sum, COUNT, 0);
    gpu_must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    gpu_must(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal),
             "cudaStreamBeginCapture");
    gpu_add(captured, v.sum, COUNT, 1);
    for (int i = 0; i < 100; i++) {
        ok(baton_schedule_start_on(world.schedules[0], world.streams[0]));
        ok(baton_schedule_wait(world.schedules[0], WAIT_MS));
    }
    assert_int_equal(baton_schedule_start_on(world.schedules[0], captured),
                     BATON_ERR_UNSUPPORTED);
    assert_int_equal(baton_schedule_wait_on(world.schedules[0], captured),
                     BATON_ERR_UNSUPPORTED);
    gpu_must(cudaStreamEndCapture(captured, &graph), "cudaStreamEndCapture");
    assert_non_null(graph);
    gpu_must(cudaGraphDestroy(graph), "cudaGraphDestroy");
    gpu_must(cudaStreamDestroy(captured), "cudaStreamDestroy");
    destroy_schedules(&world);
    close_vectors(&v);
    close_world(&world);
}

/* ---- bad input -------------------------------------------------------- */

static void refuse(world_t *world, void *memory, baton_memory_t kind,
                   const char *words)
{
    create_schedules(world, "refused");
    baton_schedule_t *s = world->schedules[0];
    baton_buffer_t buffer = baton_buffer_bind(s, memory, 64);
    baton_buffer_set_memory(s, buffer, kind);
    baton_add_reduce(s, BATON_F32, BATON_SUM, baton_view(buffer, 0, 32),
                     baton_view(buffer, 32, 32), baton_view(buffer, 32, 32));
    assert_int_equal(baton_schedule_commit(s), BATON_ERR_INVALID);
    if (strstr(baton_error_message(), words) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", baton_error_message(), words);
    }
    destroy_schedules(world);
}

static void test_commit_refuses_other_memory(void **state)
{
    world_t world;
    float host[16] = {0};
    void *device = on_device(64);
    open_world(&world, 1);
    refuse(&world, host, BATON_MEMORY_DEVICE, "host memory");
    refuse(&world, device, BATON_MEMORY_HOST, "memory of device 0");
    gpu_must(cudaFree(device), "cudaFree");
    close_world(&world);
}

/* ---- all-reduces ------------------------------------------------------ */

typedef struct reduction {
    const char *algorithm;
    baton_dtype_t dtype;
    size_t count;
    bool on_device;
    char *in[RANKS_MAX], *out[RANKS_MAX];
} reduction_t;

static void add_allreduce(world_t *world, const reduction_t *of)
{
    size_t bytes = of->count * baton_dtype_size(of->dtype);
    for (int r = 0; r < world->size; r++) {
        baton_schedule_t *s = world->schedules[r];
        baton_allreduce_t args = BATON_ALLREDUCE;
        args.algorithm = of->algorithm;
        args.dtype = of->dtype;
        args.op = BATON_SUM;
        args.chunk_bytes = 4096;
        baton_buffer_t in = baton_buffer_bind(s, of->in[r], bytes);
        baton_buffer_t out = baton_buffer_bind(s, of->out[r], bytes);
        if (of->on_device) {
            baton_buffer_set_memory(s, in, BATON_MEMORY_DEVICE);
            baton_buffer_set_memory(s, out, BATON_MEMORY_DEVICE);
        }
        args.source = baton_view(in, 0, bytes);
        args.target = baton_view(out, 0, bytes);
        baton_allreduce(s, &args);
    }
}

static void run_allreduce(world_t *world, const reduction_t *of)
{
    create_schedules(world, of->algorithm);
    add_allreduce(world, of);
    commit_schedules(world);
    for (int r = 0; r < world->size; r++) {
        if (of->on_device) {
            ok(baton_schedule_start_on(world->schedules[r], world->streams[r]));
            ok(baton_schedule_wait_on(world->schedules[r], world->streams[r]));
        } else {
            ok(baton_schedule_start(world->schedules[r]));
        }
    }
    for (int r = 0; r < world->size; r++) {
        if (of->on_device) {
            gpu_must(cudaStreamSynchronize(world->streams[r]),
                     "cudaStreamSynchronize");
        }
        ok(baton_schedule_wait(world->schedules[r], WAIT_MS));
    }
    destroy_schedules(world);
}

/* Small whole numbers, which are exact in any order and type. */
static void fill(char *data, const reduction_t *of, support_random_t *random)
{
    for (size_t i = 0; i < of->count; i++) {
        uint64_t number = support_random_below(random, 16);
        if (of->dtype == BATON_F32) {
            ((float *)(void *)data)[i] = (float)number;
        } else {
            ((int64_t *)(void *)data)[i] = (int64_t)number;
        }
    }
}

/* On the host, then on the GPU, with the same values. */
static void compare(world_t *world, reduction_t *of, support_random_t *random)
{
    size_t bytes = of->count * baton_dtype_size(of->dtype);
    char *expected[RANKS_MAX] = {NULL}, *values[RANKS_MAX] = {NULL};
    for (int r = 0; r < world->size; r++) {
        values[r] = of->in[r] = malloc(bytes + 1);
        expected[r] = of->out[r] = malloc(bytes + 1);
        assert_non_null(values[r]);
        assert_non_null(expected[r]);
        fill(values[r], of, random);
    }
    of->on_device = false;
    run_allreduce(world, of);
    for (int r = 0; r < world->size; r++) {
        of->in[r] = on_device(bytes + 1);
        of->out[r] = on_device(bytes + 1);
        copy(of->in[r], values[r], bytes);
    }
    of->on_device = true;
    run_allreduce(world, of);
    for (int r = 0; r < world->size; r++) {
        copy(values[r], of->out[r], bytes);
        if (bytes != 0 && memcmp(values[r], expected[r], bytes) != 0) {
            fail_msg("%s of %zu %s, %d ranks: rank %d has other bits than on "
                     "the host",
                     of->algorithm, of->count, baton_dtype_name(of->dtype),
                     world->size, r);
        }
        gpu_must(cudaFree(of->in[r]), "cudaFree");
        gpu_must(cudaFree(of->out[r]), "cudaFree");
        free(values[r]);
        free(expected[r]);
    }
}

static void test_allreduces_have_the_bits_of_the_host(void **state)
{
    static const char *const algorithms[] = {
        "ring",      "linear_pipeline",    "double_tree", "rabenseifner",
        "circulant", "recursive_doubling", "binomial"};
    static const size_t counts[] = {0, 1, 1000, 100003};
    support_random_t random = support_random(support_seed(), 0);
    for (int size = 1; size <= RANKS_MAX; size++) {
        world_t world;
        open_world(&world, size);
        for (size_t a = 0; a < sizeof algorithms / sizeof *algorithms; a++) {
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
                reduction_t of = {.algorithm = algorithms[a],
                                  .dtype = c % 2 == 0 ? BATON_F32 : BATON_I64,
                                  .count = counts[c]};
                compare(&world, &of, &random);
            }
        }
        close_world(&world);
    }
}

int main(void)
{
    if (!gpu_there()) {
        return GPU_SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_epochs_are_in_stream_order),
        cmocka_unit_test(test_the_host_waits_for_nothing),
        cmocka_unit_test(test_a_device_call_is_in_its_place),
        cmocka_unit_test(test_program_captures),
        cmocka_unit_test(test_commit_refuses_other_memory),
        cmocka_unit_test(test_allreduces_have_the_bits_of_the_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
