/* Epochs in the order of CUDA's streams. Work that is in a stream before
   start_on happens before the epoch, work that is put there after wait_on
   happens after it, and the CPU waits for neither. Also all-reduces of several
   ranks in this process. */
#include "cuda/gpu_cluster.h"

#include <baton/coll.h>
#include <baton/tuning.h>
#include <semaphore.h>

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
    cudaStream_t stream; /* a stream of the application */
    float *a, *b, *sum;
    float *seen[EPOCHS]; /* copies of the sum, in main memory */
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

/* The schedule computes sum = a + b. */
static single_t open_sum(void)
{
    single_t self = open_single();
    baton_schedule_t *s = self.schedule;
    baton_add_reduce_local(
        s, BATON_F32, BATON_SUM, device_view(s, self.sum, BYTES),
        device_view(s, self.a, BYTES), device_view(s, self.b, BYTES));
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

/* The stream writes `a` late, and overwrites the sum after the epoch.
   Everything must happen in the order of the stream, although several epochs
   are started before the first has ended. */
TEST(test_epochs_are_in_stream_order)
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

/* The stream waits at a gate, which the CPU opens only after start_on and
   wait_on have returned. */
TEST(test_the_host_waits_for_nothing)
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

/* CPU memory --> copy --> device call --> copy --> CPU memory */
TEST(test_a_device_call_is_in_its_place)
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

/* The program captures a CUDA graph. It uses the default capture mode, in which
   CUDA forbids many calls to all threads. Meanwhile epochs on other streams go
   on, and no epoch can be started on the stream that is being captured. */
TEST(test_program_captures)
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

/* ---- all-reduces ------------------------------------------------------ */

/* Elements are whole numbers, so that sums are exact. */
static int64_t element(int rank, size_t i)
{
    return (int64_t)((i * 7 + (size_t)rank * 13) % 101);
}

static void add_allreduce(baton_schedule_t *s, const char *algorithm,
                          int64_t *in, int64_t *out, size_t count)
{
    baton_allreduce_args_t args = BATON_ALLREDUCE_ARGS;
    args.algorithm = algorithm;
    args.dtype = BATON_I64;
    args.op = BATON_SUM;
    args.chunk_bytes = 4096;
    args.source = device_view(s, in, count * sizeof *in);
    args.target = device_view(s, out, count * sizeof *out);
    baton_add_allreduce(s, &args);
}

static void check_sums(const char *algorithm, int size, const int64_t *device,
                       size_t count)
{
    int64_t *found = support_alloc(2, BYTES);
    copy(found, device, count * sizeof *found);
    for (size_t i = 0; i < count; i++) {
        int64_t sum = 0;
        for (int r = 0; r < size; r++) {
            sum += element(r, i);
        }
        if (found[i] != sum) {
            fail_msg("%s, %d ranks: element %zu of %zu is %lld, not %lld",
                     algorithm, size, i, count, (long long)found[i],
                     (long long)sum);
        }
    }
    free(found);
}

static void run_allreduce(const gpu_cluster_t *gpu, const char *algorithm,
                          size_t count)
{
    const int size = gpu->cluster->size;
    int64_t *in[GPU_RANKS], *out[GPU_RANKS];
    baton_schedule_t **schedules =
        support_schedules_create(gpu->cluster, algorithm);
    for (int r = 0; r < size; r++) {
        int64_t *values = gpu_allocate(BATON_MEMORY_HOST, BYTES * 2);
        in[r] = gpu_allocate(BATON_MEMORY_DEVICE, BYTES * 2);
        out[r] = gpu_allocate(BATON_MEMORY_DEVICE, BYTES * 2);
        for (size_t i = 0; i < count; i++) {
            values[i] = element(r, i);
        }
        copy(in[r], values, count * sizeof *values);
        gpu_release(BATON_MEMORY_HOST, values);
        add_allreduce(schedules[r], algorithm, in[r], out[r], count);
    }
    support_schedules_commit(gpu->cluster, schedules);
    for (int r = 0; r < size; r++) {
        support_ok(baton_schedule_start_on(schedules[r], gpu->streams[r]));
        support_ok(baton_schedule_wait_on(schedules[r], gpu->streams[r]));
    }
    for (int r = 0; r < size; r++) {
        gpu_synchronise(gpu->streams[r]);
        support_ends(schedules[r], BATON_OK);
    }
    for (int r = 0; r < size; r++) {
        check_sums(algorithm, size, out[r], count);
    }
    support_schedules_destroy(gpu->cluster, schedules);
    for (int r = 0; r < size; r++) {
        gpu_release(BATON_MEMORY_DEVICE, in[r]);
        gpu_release(BATON_MEMORY_DEVICE, out[r]);
    }
}

TEST(test_allreduces)
{
    baton_algorithm_t algorithm;
    static const size_t counts[] = {0, 1, 1000, COUNT};
    for (int size = 1; size <= GPU_RANKS; size++) {
        gpu_cluster_t gpu = gpu_cluster_open(size);
        for (size_t a = 0; baton_algorithm_get(a, &algorithm); a++) {
            bool sums = algorithm.collective == BATON_COLLECTIVE_ALLREDUCE;
            for (size_t c = 0; sums && c < sizeof counts / sizeof *counts;
                 c++) {
                run_allreduce(&gpu, algorithm.name, counts[c]);
            }
        }
        gpu_cluster_close(&gpu);
    }
}

RUN_GPU_TESTS
