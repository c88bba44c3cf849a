/* Functions for GPU memory, which use libbaton_cuda's public header and CUDA's
   runtime. In a build without CUDA this file has only the function that says
   that there is no GPU. */
#include "bench/bench.h"

#ifdef BENCH_CUDA

#include <baton/cuda.h>
#include <cuda_runtime_api.h>

enum {
    /* Number of nodes of an epoch, which run one after another. With a single
       node most of the time would be that of the epoch itself. */
    CHAIN = 20
};

static void bench_device_must(cudaError_t error, const char *doing)
{
    if (error != cudaSuccess) {
        harness_fail("%s: %s", doing, cudaGetErrorString(error));
    }
}

static const char *device_lacks(void)
{
    cudaError_t error = cudaGetDeviceCount(&(int){0});
    return error == cudaSuccess ? NULL : cudaGetErrorString(error);
}

/* Attaches a GPU. The ranks of a host share its GPUs. */
static baton_status_t device_attach(baton_engine_t *engine)
{
    int rank = 0, count = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    bench_device_must(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    bench_device_must(cudaSetDevice(rank % count), "cudaSetDevice");
    return baton_cuda_attach(engine, rank % count);
}

static void *device_alloc(size_t bytes)
{
    void *memory = NULL;
    bench_device_must(cudaMalloc(&memory, bytes), "cudaMalloc");
    bench_device_must(cudaMemset(memory, 0, bytes), "cudaMemset");
    bench_device_must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return memory;
}

static void device_free(void *memory)
{
    bench_device_must(cudaFree(memory), "cudaFree");
}

static void device_copy(void *target, const void *source, size_t bytes)
{
    bench_device_must(cudaMemcpy(target, source, bytes, cudaMemcpyDefault),
                      "cudaMemcpy");
    bench_device_must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

/* ---- sums and copies ----------------------------------------------------- */

typedef struct chain {
    const char *what, *dtype_name;
    baton_dtype_t dtype;
    bool copies;
    /* Number of bytes that are read or written for each byte of the vector. */
    double moved;
} chain_t;

typedef struct work {
    baton_schedule_t *schedule; /* NULL: measures CUDA's own copies instead */
    cudaStream_t stream;
    void *target, *source;
    size_t bytes;
} work_t;

static double run_us(const work_t *work)
{
    double begin_us = clock_now_us();
    if (work->schedule != NULL) {
        must(baton_schedule_start_on(work->schedule, work->stream));
        must(baton_schedule_wait_on(work->schedule, work->stream));
    }
    for (int i = 0; work->schedule == NULL && i < CHAIN; i++) {
        bench_device_must(cudaMemcpyAsync(work->target, work->source,
                                          work->bytes, cudaMemcpyDeviceToDevice,
                                          work->stream),
                          "cudaMemcpyAsync");
    }
    bench_device_must(cudaStreamSynchronize(work->stream),
                      "cudaStreamSynchronize");
    return (clock_now_us() - begin_us) / CHAIN;
}

static stats_t time_work(const bench_run_t *run, const work_t *work)
{
    size_t count = (size_t)run->options.repetitions;
    double us[BENCH_MAX_REPETITIONS];
    (void)run_us(work);
    for (size_t i = 0; i < count; i++) {
        us[i] = run_us(work);
    }
    return stats_of(us, count);
}

static baton_view_t view_of(baton_schedule_t *schedule, void *memory,
                            size_t bytes)
{
    baton_buffer_t buffer = baton_buffer_bind(schedule, memory, bytes);
    baton_buffer_set_memory(schedule, buffer, BATON_MEMORY_DEVICE);
    return baton_view(buffer, 0, bytes);
}

static void commit_chain(const bench_run_t *run, const chain_t *of,
                         work_t *work)
{
    baton_schedule_t *s = harness_schedule(run->harness.group, of->what);
    work->schedule = s;
    baton_view_t target = view_of(s, work->target, work->bytes);
    baton_view_t source = view_of(s, work->source, work->bytes);
    baton_node_t last = baton_add_nop(s);
    for (int i = 0; i < CHAIN; i++) {
        baton_node_t node =
            of->copies ? baton_add_copy(s, target, source)
                       : baton_add_reduce_local(s, of->dtype, BATON_SUM, target,
                                                target, source);
        baton_before(s, last, node);
        last = node;
    }
    must(baton_schedule_commit(s));
}

static bool bench_device_run(bench_run_t *run)
{
    static const chain_t chains[] = {{"copy", "any", BATON_F32, true, 2},
                                     {"sum", "f32", BATON_F32, false, 3},
                                     {"sum", "f64", BATON_F64, false, 3},
                                     {"sum", "f16", BATON_F16, false, 3},
                                     {"sum", "bf16", BATON_BF16, false, 3},
                                     {"sum", "i8", BATON_I8, false, 3}};
    static const size_t sizes[] = {1 << 16, 1 << 20, 16 << 20, 64 << 20};
    work_t work = {0};
    bench_device_must(
        cudaStreamCreateWithFlags(&work.stream, cudaStreamNonBlocking),
        "cudaStreamCreateWithFlags");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        work.bytes = sizes[i];
        work.target = device_alloc(work.bytes);
        work.source = device_alloc(work.bytes);
        double copy_us = time_work(run, &work).median;
        for (size_t c = 0; c < sizeof chains / sizeof *chains; c++) {
            commit_chain(run, &chains[c], &work);
            stats_t us = time_work(run, &work);
            must(baton_schedule_wait(work.schedule, -1));
            must(baton_schedule_destroy(work.schedule));
            work.schedule = NULL;
            bench_kernel_row(run, chains[c].what, chains[c].dtype_name,
                             "device", work.bytes, 0, us, copy_us,
                             copy_us / 2 * chains[c].moved / us.median);
        }
        device_free(work.target);
        device_free(work.source);
    }
    bench_device_must(cudaStreamDestroy(work.stream), "cudaStreamDestroy");
    return true;
}

const bench_device_t bench_device = {device_lacks, device_attach,
                                     device_alloc, device_free,
                                     device_copy,  bench_device_run};

#else

static const char *device_lacks(void)
{
    return "this baton-bench was built without CUDA";
}

const bench_device_t bench_device = {.lacks = device_lacks};

#endif
