/* baton-bench-gpu: what the parts share. */
#ifndef MICROBENCH_GPU_GPU_H
#define MICROBENCH_GPU_GPU_H

#include "common/table.h"

#include <baton/baton.h>
#include <baton/cuda.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- options, parts ----------------------------------------------------- */

/* Name, function, what it measures. */
#define GPU_PART_LIST(X)                                                       \
    X(memory, "reductions and copies against the GPU's own copy")              \
    X(epoch,                                                                   \
      "an epoch of 10 device nodes against kernels and a graph by hand")       \
    X(allreduce, "all-reduces of 4 ranks on one GPU")                          \
    X(overlap, "an all-reduce of 2 ranks while a kernel computes")             \
    X(select, "selection of 0.1% against a read and a radix sort of all")

enum {
#define GPU_PART_COUNT(name, text) +1
    GPU_PARTS = 0 GPU_PART_LIST(GPU_PART_COUNT),
#undef GPU_PART_COUNT
    GPU_SIZES = 32
};

typedef struct gpu_options {
    size_t parts[GPU_PARTS], part_count;
    uint64_t device;
    uint64_t sizes[GPU_SIZES], size_count; /* bytes */
    uint64_t repetitions;
    bool staged; /* no rank reads another's device memory */
    const char *json, *csv;
} gpu_options_t;

#define GPU_PART_DECLARE(name, text)                                           \
    void gpu_bench_##name(const gpu_options_t *options, table_t *table);
GPU_PART_LIST(GPU_PART_DECLARE)
#undef GPU_PART_DECLARE

/* A row. `ratio` is of the time of `against` over this one's: 1 is as fast, 0.5
   takes twice as long. NAN where there is nothing to compare with. */
typedef struct gpu_row {
    const char *part, *what;
    double bytes;       /* of a vector */
    double us;          /* the median */
    double moved_bytes; /* in memory in that time; 0: not counted */
    double ratio;
    const char *against;
} gpu_row_t;

void gpu_report(table_t *table, const gpu_row_t *row);

/* ---- errors: the program ends with a message ---------------------------- */

void gpu_must(cudaError_t error, const char *doing);
void gpu_require(baton_status_t status, const char *doing);

/* ---- ranks on one GPU --------------------------------------------------- */

enum { GPU_RANKS_MAX = 4 };

/* Each rank has an engine of its own with a progress thread, as in a process of
   its own; one thread starts them all. */
typedef struct gpu_ranks {
    int size;
    baton_inproc_t *medium;
    baton_engine_t *engines[GPU_RANKS_MAX];
    baton_group_t *groups[GPU_RANKS_MAX];
    baton_schedule_t *schedules[GPU_RANKS_MAX];
    cudaStream_t streams[GPU_RANKS_MAX]; /* the application's */
} gpu_ranks_t;

void gpu_ranks_open(gpu_ranks_t *ranks, int size, int device);
void gpu_ranks_create(gpu_ranks_t *ranks, const char *name);
void gpu_ranks_commit(gpu_ranks_t *ranks);
void gpu_ranks_destroy(gpu_ranks_t *ranks);
void gpu_ranks_close(gpu_ranks_t *ranks);

baton_view_t gpu_view(baton_schedule_t *schedule, void *memory, size_t bytes);

/* ---- memory and time ---------------------------------------------------- */

void *gpu_alloc(size_t bytes); /* set to zero */
void gpu_free(void *memory);

/* The median over repetitions of what `once` returns. One run more comes first,
   which does not count. */
double gpu_median(const gpu_options_t *options, double (*once)(void *arg),
                  void *arg);

/* The median over repetitions of what `work` has the stream do, in
   microseconds, by events before and behind it. With `behind_us` the stream is
   busy for so long first, so that the host's part is hidden. */
typedef void (*gpu_work_fn)(void *arg, cudaStream_t stream);
double gpu_time(const gpu_options_t *options, cudaStream_t stream,
                unsigned behind_us, gpu_work_fn work, void *arg);

/* The GPU's own copy within its memory: microseconds for a copy of so many
   bytes. */
double gpu_copy_us(const gpu_options_t *options, size_t bytes);

/* ---- kernels (kernels.cu) ----------------------------------------------- */

/* The stream does nothing else for so long. */
void gpu_spin(cudaStream_t stream, unsigned us);

/* target += right, f32. */
void gpu_sum(cudaStream_t stream, float *target, const float *right,
             size_t count);

/* Multiplies and adds in registers, on all multiprocessors, `rounds` times. */
void gpu_compute(cudaStream_t stream, float *sink, unsigned rounds);

#ifdef __cplusplus
}
#endif
#endif
