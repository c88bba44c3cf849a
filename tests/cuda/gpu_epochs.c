/* Epochs in the order of CUDA's streams: what is in a stream before start_on
   happens before the epoch, what is there behind wait_on after it, and the host
   waits for neither. And all-reduces of ranks of this process, whose results
   are the host's bit for bit. */
#include "cuda/gpu_cluster.h"
#include "support/cmocka.h"
#include "support/random.h"

#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 100003, BYTES = COUNT * sizeof(float), EPOCHS = 4 };

static void copy(void *target, const void *source, size_t bytes)
{
    gpu_must(cudaMemcpy(target, source, bytes, cudaMemcpyDefault),
             "cudaMemcpy");
}

/* ---- one rank --------------------------------------------------------- */

typedef struct single {
    gpu_cluster_t gpu;
    baton_schedule_t **schedules, *schedule;
    cudaStream_t stream; /* the application's */
    float *a, *b, *sum;
    float *seen[EPOCHS]; /* copies of the sum, on the host */
} single_t;

static single_t open_single(void)
{
    single_t self = {.gpu = gpu_cluster_open(1)};
    self.schedules = support_schedules_create(self.gpu.cluster, "single");
    self.schedule = self.schedules[0];
    self.stream = self.gpu.streams[0];
    self.a = gpu_allocate(BATON_MEMORY_DEVICE, BYTES);
    self.b = gpu_allocate(BATON_MEMORY_DEVICE, BYTES);
    self.sum = gpu_allocate(BATON_MEMORY_DEVICE, BYTES);
    for (int e = 0; e < EPOCHS; e++) {
        self.seen[e] = gpu_allocate(BATON_MEMORY_HOST, BYTES);
    }
    gpu_spin_and_fill(NULL, 0, self.b, COUNT, 100);
    gpu_must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return self;
}

/* sum = a + b */
static single_t open_sum(void)
{
    single_t self = open_single();
    baton_schedule_t *s = self.schedule;
    baton_add_reduce(s, BATON_F32, BATON_SUM, device_view(s, self.sum, BYTES),
                     device_view(s, self.a, BYTES),
                     device_view(s, self.b, BYTES));
    support_ok(baton_schedule_commit(s));
    return self;
}

static void close_single(single_t *self)
{
    support_schedules_destroy(self->gpu.cluster, self->schedules);
    gpu_release(BATON_MEMORY_DEVICE, self->a);
    gpu_release(BATON_MEMORY_DEVICE, self->b);
    gpu_release(BATON_MEMORY_DEVICE, self->sum);
    for (int e = 0; e < EPOCHS; e++) {
        gpu_release(BATON_MEMORY_HOST, self->seen[e]);
    }
    gpu_cluster_close(&self->gpu);
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

/* a is written late, and the sum is changed behind the epoch: all in stream
   order, with several epochs started before the first has ended. */
static void test_epochs_are_in_stream_order(void **state)
{
    single_t v = open_sum();
    cudaStream_t stream = v.stream;
    for (int e = 0; e < EPOCHS; e++) {
        gpu_spin_and_fill(stream, 20000, v.a, COUNT, (float)e);
        support_ok(baton_schedule_start_on(v.schedule, stream));
        support_ok(baton_schedule_wait_on(v.schedule, stream));
        gpu_add(stream, v.sum, COUNT, 0.5f);
        gpu_copy(stream, v.seen[e], v.sum, BYTES);
    }
    gpu_synchronise(stream);
    support_ends(v.schedule, BATON_OK);
    for (int e = 0; e < EPOCHS; e++) {
        assert_all(v.seen[e], 100.5f + (float)e);
    }
    close_single(&v);
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
    single_t v = open_sum();
    sem_t gate;
    cudaStream_t stream = v.stream;
    assert_int_equal(sem_init(&gate, 0, 0), 0);
    gpu_must(cudaLaunchHostFunc(stream, pass_gate, &gate),
             "cudaLaunchHostFunc");
    gpu_spin_and_fill(stream, 0, v.a, COUNT, 7);
    support_ok(baton_schedule_start_on(v.schedule, stream));
    support_ok(baton_schedule_wait_on(v.schedule, stream));
    gpu_add(stream, v.sum, COUNT, 1);
    assert_int_equal(cudaStreamQuery(stream), cudaErrorNotReady);
    assert_int_equal(sem_post(&gate), 0);
    gpu_synchronise(stream);
    support_ends(v.schedule, BATON_OK);
    copy(v.seen[0], v.sum, BYTES);
    assert_all(v.seen[0], 108);
    assert_int_equal(sem_destroy(&gate), 0);
    close_single(&v);
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
    single_t v = open_single();
    baton_schedule_t *s = v.schedule;
    baton_view_t in = support_view(s, v.seen[0], BYTES);
    baton_view_t out = support_view(s, v.seen[1], BYTES);
    viewed = device_view(s, v.a, BYTES);
    baton_node_t there = baton_add_copy(s, viewed, in);
    baton_node_t add = baton_add_device_call(s, add_three, NULL);
    baton_node_t back = baton_add_copy(s, out, viewed);
    baton_before(s, there, add);
    baton_before(s, add, back);
    support_ok(baton_schedule_commit(s));
    for (int round = 0; round < 100; round++) {
        for (size_t i = 0; i < COUNT; i++) {
            v.seen[0][i] = (float)round;
        }
        support_run(s);
        assert_all(v.seen[1], (float)round + 3);
    }
    close_single(&v);
}

/* ---- graphs of the program -------------------------------------------- */

/* The program captures a graph itself, in the default mode, in which CUDA
   forbids much to all threads: epochs go on beside it, and one can't be started
   on the stream that is captured. */
static void test_program_captures(void **state)
{
    single_t v = open_sum();
    cudaStream_t captured = gpu_stream();
    cudaGraph_t graph = NULL;
    gpu_add(NULL, v.sum, COUNT, 0);
    gpu_must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    gpu_must(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal),
             "cudaStreamBeginCapture");
    gpu_add(captured, v.sum, COUNT, 1);
    for (int i = 0; i < 100; i++) {
        support_ok(baton_schedule_start_on(v.schedule, v.stream));
        support_ends(v.schedule, BATON_OK);
    }
    assert_int_equal(baton_schedule_start_on(v.schedule, captured),
                     BATON_ERR_UNSUPPORTED);
    assert_int_equal(baton_schedule_wait_on(v.schedule, captured),
                     BATON_ERR_UNSUPPORTED);
    gpu_must(cudaStreamEndCapture(captured, &graph), "cudaStreamEndCapture");
    assert_non_null(graph);
    gpu_must(cudaGraphDestroy(graph), "cudaGraphDestroy");
    gpu_must(cudaStreamDestroy(captured), "cudaStreamDestroy");
    close_single(&v);
}

/* ---- bad input -------------------------------------------------------- */

static void refuse(const gpu_cluster_t *gpu, void *memory, baton_memory_t kind,
                   const char *words)
{
    baton_schedule_t *s = support_schedule(gpu->cluster->groups[0], "refused");
    baton_buffer_t buffer = baton_buffer_bind(s, memory, 64);
    baton_buffer_set_memory(s, buffer, kind);
    baton_add_reduce(s, BATON_F32, BATON_SUM, baton_view(buffer, 0, 32),
                     baton_view(buffer, 32, 32), baton_view(buffer, 32, 32));
    support_expect(baton_schedule_commit(s), BATON_ERR_INVALID);
    support_says(words);
    support_ok(baton_schedule_destroy(s));
}

static void test_commit_refuses_other_memory(void **state)
{
    float host[16] = {0};
    void *device = gpu_allocate(BATON_MEMORY_DEVICE, 64);
    gpu_cluster_t gpu = gpu_cluster_open(1);
    refuse(&gpu, host, BATON_MEMORY_DEVICE, "host memory");
    refuse(&gpu, device, BATON_MEMORY_HOST, "memory of device 0");
    gpu_release(BATON_MEMORY_DEVICE, device);
    gpu_cluster_close(&gpu);
}

/* ---- all-reduces ------------------------------------------------------ */

typedef struct reduction {
    const char *algorithm;
    baton_dtype_t dtype;
    size_t count;
    bool on_device;
    char *in[GPU_RANKS], *out[GPU_RANKS];
} reduction_t;

static void add_allreduce(baton_schedule_t **schedules, int size,
                          const reduction_t *of)
{
    size_t bytes = of->count * baton_dtype_size(of->dtype);
    for (int r = 0; r < size; r++) {
        baton_schedule_t *s = schedules[r];
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

static void run_allreduce(const gpu_cluster_t *gpu, const reduction_t *of)
{
    const int size = gpu->cluster->size;
    baton_schedule_t **schedules =
        support_schedules_create(gpu->cluster, of->algorithm);
    add_allreduce(schedules, size, of);
    support_schedules_commit(gpu->cluster, schedules);
    if (!of->on_device) {
        support_schedules_run(gpu->cluster, schedules);
    }
    for (int r = 0; r < size && of->on_device; r++) {
        support_ok(baton_schedule_start_on(schedules[r], gpu->streams[r]));
        support_ok(baton_schedule_wait_on(schedules[r], gpu->streams[r]));
    }
    for (int r = 0; r < size && of->on_device; r++) {
        gpu_synchronise(gpu->streams[r]);
        support_ends(schedules[r], BATON_OK);
    }
    support_schedules_destroy(gpu->cluster, schedules);
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
static void compare(const gpu_cluster_t *gpu, reduction_t *of,
                    support_random_t *random)
{
    const int size = gpu->cluster->size;
    size_t bytes = of->count * baton_dtype_size(of->dtype);
    char *expected[GPU_RANKS] = {NULL}, *values[GPU_RANKS] = {NULL};
    for (int r = 0; r < size; r++) {
        values[r] = of->in[r] = malloc(bytes + 1);
        expected[r] = of->out[r] = malloc(bytes + 1);
        assert_non_null(values[r]);
        assert_non_null(expected[r]);
        fill(values[r], of, random);
    }
    of->on_device = false;
    run_allreduce(gpu, of);
    for (int r = 0; r < size; r++) {
        of->in[r] = gpu_allocate(BATON_MEMORY_DEVICE, bytes + 1);
        of->out[r] = gpu_allocate(BATON_MEMORY_DEVICE, bytes + 1);
        copy(of->in[r], values[r], bytes);
    }
    of->on_device = true;
    run_allreduce(gpu, of);
    for (int r = 0; r < size; r++) {
        copy(values[r], of->out[r], bytes);
        if (bytes != 0 && memcmp(values[r], expected[r], bytes) != 0) {
            fail_msg("%s of %zu %s, %d ranks: rank %d has other bits than on "
                     "the host",
                     of->algorithm, of->count, baton_dtype_name(of->dtype),
                     size, r);
        }
        gpu_release(BATON_MEMORY_DEVICE, of->in[r]);
        gpu_release(BATON_MEMORY_DEVICE, of->out[r]);
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
    for (int size = 1; size <= GPU_RANKS; size++) {
        gpu_cluster_t gpu = gpu_cluster_open(size);
        for (size_t a = 0; a < sizeof algorithms / sizeof *algorithms; a++) {
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
                reduction_t of = {.algorithm = algorithms[a],
                                  .dtype = c % 2 == 0 ? BATON_F32 : BATON_I64,
                                  .count = counts[c]};
                compare(&gpu, &of, &random);
            }
        }
        gpu_cluster_close(&gpu);
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
