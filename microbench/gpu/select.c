/* Selections of f32 beside a plain read of the vector and a radix sort of all
   of it. One in a thousand elements is selected. */
#include "gpu/gpu.h"
#include "gpu/sort.h"

#include <baton/cuda_select.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ONE_IN = 1000 };

typedef struct selecting {
    baton_selection_t from; /* on the device */
    size_t k;
    uint32_t *indices;               /* 2k */
    baton_cuda_selected_t *selected; /* with a threshold for at_least */
    baton_cuda_workspace_t workspace;
    float *sink;
    gpu_sort_t *sort;
} selecting_t;

/* ---- what is timed ----------------------------------------------------- */

static void run_read(void *arg, cudaStream_t stream)
{
    const selecting_t *s = arg;
    gpu_read(stream, s->from.values, s->from.count, s->sink);
}

static void run_sort(void *arg, cudaStream_t stream)
{
    const selecting_t *s = arg;
    gpu_sort_run(s->sort, stream);
}

static void run_topk(void *arg, cudaStream_t stream)
{
    selecting_t *s = arg;
    s->workspace.stream = stream;
    gpu_require(baton_cuda_select_topk(&s->from, s->k, s->indices, s->selected,
                                       &s->workspace),
                "top-k");
}

static void run_trimmed(void *arg, cudaStream_t stream)
{
    selecting_t *s = arg;
    s->workspace.stream = stream;
    gpu_require(baton_cuda_select_trimmed(&s->from, s->k, s->indices,
                                          s->selected, &s->workspace),
                "trimmed");
}

static void run_search(void *arg, cudaStream_t stream)
{
    selecting_t *s = arg;
    s->workspace.stream = stream;
    gpu_require(baton_cuda_select_sampled(&s->from, s->k, false, s->indices,
                                          s->selected, &s->workspace),
                "search");
}

static void run_at_least(void *arg, cudaStream_t stream)
{
    selecting_t *s = arg;
    s->workspace.stream = stream;
    gpu_require(baton_cuda_select_at_least(&s->from, &s->selected->threshold,
                                           s->indices, 2 * s->k,
                                           &s->selected->count, &s->workspace),
                "at_least");
}

static const struct form {
    const char *what;
    gpu_work_fn run;
} forms[] = {
    {"exact top-k", run_topk},
    {"trimmed top-k (RedSync, algorithm 2)", run_trimmed},
    {"threshold searched (RedSync, algorithm 3)", run_search},
    {"threshold reused", run_at_least}, /* that of the search */
};

/* ---- one size ---------------------------------------------------------- */

static selecting_t selecting_open(size_t count, cudaStream_t stream)
{
    selecting_t s = {.k = count / ONE_IN + 1};
    float *values = gpu_alloc(count * sizeof *values);
    gpu_fill_normal(stream, values, count);
    s.from = (baton_selection_t){
        .dtype = BATON_F32, .values = values, .count = count};
    s.indices = gpu_alloc(2 * s.k * sizeof *s.indices);
    s.selected = gpu_alloc(sizeof *s.selected);
    s.sink = gpu_alloc(sizeof *s.sink);
    /* Enough for the capacity of at_least, too. */
    s.workspace.bytes = baton_cuda_select_bytes(BATON_F32, count, 2 * s.k);
    s.workspace.memory = gpu_alloc(s.workspace.bytes);
    s.sort = gpu_sort_open(stream, values, count);
    return s;
}

static void selecting_close(selecting_t *s)
{
    gpu_sort_close(s->sort);
    gpu_free((void *)(uintptr_t)s->from.values);
    gpu_free(s->indices);
    gpu_free(s->selected);
    gpu_free(s->sink);
    gpu_free(s->workspace.memory);
}

static void *host_memory(size_t bytes)
{
    void *memory = malloc(bytes);
    gpu_must(memory != NULL ? cudaSuccess : cudaErrorMemoryAllocation,
             "malloc");
    return memory;
}

/* The host's top-k of the same vector has the same indices. */
static bool is_right(const selecting_t *s)
{
    const size_t bytes = s->from.count * sizeof(float);
    const size_t index_bytes = s->k * sizeof(uint32_t);
    baton_selection_t from = s->from;
    float *values = host_memory(bytes);
    uint32_t *expected = host_memory(index_bytes);
    uint32_t *actual = host_memory(index_bytes);
    void *scratch = host_memory(baton_select_scratch_bytes(from.count, s->k));
    gpu_must(cudaMemcpy(values, from.values, bytes, cudaMemcpyDeviceToHost),
             "cudaMemcpy");
    gpu_must(
        cudaMemcpy(actual, s->indices, index_bytes, cudaMemcpyDeviceToHost),
        "cudaMemcpy");
    from.values = values;
    bool right =
        baton_select_topk(&from, s->k, expected, scratch, NULL) == s->k &&
        memcmp(expected, actual, index_bytes) == 0;
    free(values);
    free(expected);
    free(actual);
    free(scratch);
    return right;
}

static void report(table_t *table, const selecting_t *s, const char *what,
                   double us, double other_us, const char *against)
{
    double bytes = (double)s->from.count * sizeof(float);
    gpu_row_t row = {.part = "select",
                     .what = what,
                     .bytes = bytes,
                     .us = us,
                     .ratio = other_us / us,
                     .against = against};
    gpu_report(table, &row);
}

static void measure(const gpu_options_t *options, table_t *table,
                    selecting_t *s, cudaStream_t stream)
{
    double read_us = gpu_time(options, stream, 0, run_read, s);
    double sort_us = gpu_time(options, stream, 0, run_sort, s);
    report(table, s, "a plain read", read_us, sort_us, "radix sort of all");
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        double us = gpu_time(options, stream, 0, forms[i].run, s);
        report(table, s, forms[i].what, us, read_us, "a plain read");
        report(table, s, forms[i].what, us, sort_us, "radix sort of all");
    }
    run_topk(s, stream);
    gpu_must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    if (!is_right(s)) {
        (void)fprintf(stderr,
                      "baton-bench-gpu: the top-k of %zu elements is not the "
                      "host's\n",
                      s->from.count);
        exit(EXIT_FAILURE);
    }
}

void gpu_bench_select(const gpu_options_t *options, table_t *table)
{
    cudaStream_t stream = NULL;
    gpu_must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
             "cudaStreamCreateWithFlags");
    for (size_t i = 0; i < options->size_count; i++) {
        size_t count = options->sizes[i] / sizeof(float);
        selecting_t s = selecting_open(count, stream);
        measure(options, table, &s, stream);
        selecting_close(&s);
    }
    gpu_must(cudaStreamDestroy(stream), "cudaStreamDestroy");
}
