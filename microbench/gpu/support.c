#include "common/measure.h"
#include "gpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors ------------------------------------------------------------- */

void gpu_must(cudaError_t error, const char *doing)
{
    if (error != cudaSuccess) {
        (void)fprintf(stderr, "baton-bench-gpu: %s: %s (%s)\n", doing,
                      cudaGetErrorString(error), cudaGetErrorName(error));
        exit(EXIT_FAILURE);
    }
}

void gpu_require(baton_status_t status, const char *doing)
{
    if (status != BATON_OK) {
        (void)fprintf(stderr, "baton-bench-gpu: %s: %s\n", doing,
                      baton_error_message());
        exit(EXIT_FAILURE);
    }
}

/* ---- ranks -------------------------------------------------------------- */

static void open_rank(gpu_ranks_t *ranks, int r, int device)
{
    gpu_require(baton_engine_open(NULL, &ranks->engines[r]), "engine");
    gpu_require(baton_cuda_attach(ranks->engines[r], device), "attach");
    gpu_require(baton_group_create_inproc(ranks->engines[r], ranks->medium, r,
                                          &ranks->groups[r]),
                "group");
    gpu_must(
        cudaStreamCreateWithFlags(&ranks->streams[r], cudaStreamNonBlocking),
        "cudaStreamCreateWithFlags");
}

void gpu_ranks_open(gpu_ranks_t *ranks, int size, int device)
{
    memset(ranks, 0, sizeof *ranks);
    ranks->size = size;
    gpu_require(baton_inproc_create(size, &ranks->medium), "medium");
    for (int r = 0; r < size; r++) {
        open_rank(ranks, r, device);
    }
}

void gpu_ranks_create(gpu_ranks_t *ranks, const char *name)
{
    for (int r = 0; r < ranks->size; r++) {
        gpu_require(
            baton_schedule_create(ranks->groups[r], name, &ranks->schedules[r]),
            "schedule");
    }
}

void gpu_ranks_commit(gpu_ranks_t *ranks)
{
    for (int r = 0; r < ranks->size; r++) {
        gpu_require(baton_schedule_commit(ranks->schedules[r]), "commit");
    }
}

void gpu_ranks_destroy(gpu_ranks_t *ranks)
{
    for (int r = 0; r < ranks->size; r++) {
        gpu_require(baton_schedule_destroy(ranks->schedules[r]), "destroy");
    }
}

void gpu_ranks_close(gpu_ranks_t *ranks)
{
    for (int r = 0; r < ranks->size; r++) {
        gpu_require(baton_group_destroy(ranks->groups[r]), "group");
        gpu_require(baton_engine_close(ranks->engines[r]), "engine");
        gpu_must(cudaStreamDestroy(ranks->streams[r]), "cudaStreamDestroy");
    }
    gpu_require(baton_inproc_destroy(ranks->medium), "medium");
}

baton_view_t gpu_view(baton_schedule_t *schedule, void *memory, size_t bytes)
{
    baton_buffer_t buffer = baton_buffer_bind(schedule, memory, bytes);
    baton_buffer_set_memory(schedule, buffer, BATON_MEMORY_DEVICE);
    return baton_view(buffer, 0, bytes);
}

/* ---- memory and time ---------------------------------------------------- */

void *gpu_alloc(size_t bytes)
{
    void *memory = NULL;
    gpu_must(cudaMalloc(&memory, bytes), "cudaMalloc");
    gpu_must(cudaMemset(memory, 0, bytes), "cudaMemset");
    gpu_must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return memory;
}

void gpu_free(void *memory)
{
    gpu_must(cudaFree(memory), "cudaFree");
}

double gpu_median(const gpu_options_t *options, double (*once)(void *arg),
                  void *arg)
{
    size_t count = options->repetitions;
    double *times = calloc(count, sizeof *times);
    if (times == NULL) {
        (void)fprintf(stderr, "baton-bench-gpu: out of memory\n");
        exit(EXIT_FAILURE);
    }
    (void)once(arg);
    for (size_t i = 0; i < count; i++) {
        times[i] = once(arg);
    }
    double median = stats_median(times, count);
    free(times);
    return median;
}

typedef struct timed {
    cudaStream_t stream;
    cudaEvent_t begin, end;
    unsigned behind_us;
    gpu_work_fn work;
    void *arg;
} timed_t;

static double time_once(void *arg)
{
    const timed_t *of = arg;
    float ms = 0;
    if (of->behind_us != 0) {
        gpu_spin(of->stream, of->behind_us);
    }
    gpu_must(cudaEventRecord(of->begin, of->stream), "cudaEventRecord");
    of->work(of->arg, of->stream);
    gpu_must(cudaEventRecord(of->end, of->stream), "cudaEventRecord");
    gpu_must(cudaStreamSynchronize(of->stream), "cudaStreamSynchronize");
    gpu_must(cudaEventElapsedTime(&ms, of->begin, of->end),
             "cudaEventElapsedTime");
    return 1000.0 * (double)ms;
}

double gpu_time(const gpu_options_t *options, cudaStream_t stream,
                unsigned behind_us, gpu_work_fn work, void *arg)
{
    timed_t of = {
        .stream = stream, .behind_us = behind_us, .work = work, .arg = arg};
    gpu_must(cudaEventCreate(&of.begin), "cudaEventCreate");
    gpu_must(cudaEventCreate(&of.end), "cudaEventCreate");
    double median = gpu_median(options, time_once, &of);
    gpu_must(cudaEventDestroy(of.begin), "cudaEventDestroy");
    gpu_must(cudaEventDestroy(of.end), "cudaEventDestroy");
    return median;
}

/* Copies in a row: one of a short vector would measure its launch. */
enum { COPIES = 20 };

typedef struct copy_work {
    char *target, *source;
    size_t bytes;
} copy_work_t;

static void copy_work(void *arg, cudaStream_t stream)
{
    const copy_work_t *of = arg;
    for (int i = 0; i < COPIES; i++) {
        gpu_must(cudaMemcpyAsync(of->target, of->source, of->bytes,
                                 cudaMemcpyDeviceToDevice, stream),
                 "cudaMemcpyAsync");
    }
}

double gpu_copy_us(const gpu_options_t *options, size_t bytes)
{
    copy_work_t of = {gpu_alloc(bytes), gpu_alloc(bytes), bytes};
    cudaStream_t stream = NULL;
    gpu_must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
             "cudaStreamCreateWithFlags");
    double us = gpu_time(options, stream, 0, copy_work, &of) / COPIES;
    gpu_must(cudaStreamDestroy(stream), "cudaStreamDestroy");
    gpu_free(of.target);
    gpu_free(of.source);
    return us;
}
