/* All-reduces of ranks on one GPU. The bound: every rank but one adds what came
   to what it has, which reads two bytes for each byte of the vector and writes
   one, and every rank but one takes the sum, which reads one and writes one: 5
   (P - 1) bytes through one memory, at the bandwidth of its own copy. Ring and
   linear pipeline both need that much where a rank reads its peers' memory.

   With --staged messages go through the host, as between hosts. Then the links
   to the host bound it, and what it is compared with is the other way through
   the host: copy all there, all-reduce there, copy all back. */
#include "common/measure.h"
#include "gpu/gpu.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { RANKS = 4 };

typedef struct vectors {
    size_t bytes;
    void *device[RANKS]; /* in place */
    void *host[RANKS];
} vectors_t;

static void open_vectors(vectors_t *v, size_t bytes)
{
    v->bytes = bytes;
    for (int r = 0; r < RANKS; r++) {
        v->device[r] = gpu_alloc(bytes);
        gpu_must(cudaMallocHost(&v->host[r], bytes), "cudaMallocHost");
        memset(v->host[r], 0, bytes);
    }
}

static void close_vectors(vectors_t *v)
{
    for (int r = 0; r < RANKS; r++) {
        gpu_free(v->device[r]);
        gpu_must(cudaFreeHost(v->host[r]), "cudaFreeHost");
    }
}

static void commit(gpu_ranks_t *ranks, const vectors_t *v,
                   const char *algorithm, bool on_host)
{
    gpu_ranks_create(ranks, algorithm);
    for (int r = 0; r < RANKS; r++) {
        baton_schedule_t *s = ranks->schedules[r];
        baton_allreduce_t args = BATON_ALLREDUCE;
        args.algorithm = algorithm;
        args.dtype = BATON_F32;
        args.op = BATON_SUM;
        if (on_host) {
            baton_buffer_t buffer = baton_buffer_bind(s, v->host[r], v->bytes);
            args.target = baton_view(buffer, 0, v->bytes);
        } else {
            args.target = gpu_view(s, v->device[r], v->bytes);
        }
        args.source = args.target;
        baton_allreduce(s, &args);
    }
    gpu_ranks_commit(ranks);
}

static void synchronise(const gpu_ranks_t *ranks)
{
    for (int r = 0; r < RANKS; r++) {
        gpu_must(cudaStreamSynchronize(ranks->streams[r]),
                 "cudaStreamSynchronize");
    }
}

/* All ranks, in the order of their streams. */
static void run_on_device(const gpu_ranks_t *ranks)
{
    for (int r = 0; r < RANKS; r++) {
        gpu_require(
            baton_schedule_start_on(ranks->schedules[r], ranks->streams[r]),
            "start_on");
        gpu_require(
            baton_schedule_wait_on(ranks->schedules[r], ranks->streams[r]),
            "wait_on");
    }
    synchronise(ranks);
    for (int r = 0; r < RANKS; r++) {
        gpu_require(baton_schedule_wait(ranks->schedules[r], -1), "wait");
    }
}

static void copy_all(const gpu_ranks_t *ranks, void *const *targets,
                     void *const *sources, size_t bytes)
{
    for (int r = 0; r < RANKS; r++) {
        gpu_must(cudaMemcpyAsync(targets[r], sources[r], bytes,
                                 cudaMemcpyDefault, ranks->streams[r]),
                 "cudaMemcpyAsync");
    }
    synchronise(ranks);
}

/* Copy all to the host, all-reduce there, copy all back. */
static void run_on_host(const gpu_ranks_t *ranks, const vectors_t *v)
{
    copy_all(ranks, v->host, v->device, v->bytes);
    for (int r = 0; r < RANKS; r++) {
        gpu_require(baton_schedule_start(ranks->schedules[r]), "start");
    }
    for (int r = 0; r < RANKS; r++) {
        gpu_require(baton_schedule_wait(ranks->schedules[r], -1), "wait");
    }
    copy_all(ranks, v->device, v->host, v->bytes);
}

typedef struct timed {
    const gpu_ranks_t *ranks;
    const vectors_t *vectors;
    bool on_host;
} timed_t;

static double time_once(void *arg)
{
    const timed_t *of = arg;
    double begin = clock_now_us();
    if (of->on_host) {
        run_on_host(of->ranks, of->vectors);
    } else {
        run_on_device(of->ranks);
    }
    return clock_now_us() - begin;
}

static const char *const algorithms[] = {"linear_pipeline", "ring"};
enum { ALGORITHMS = sizeof algorithms / sizeof algorithms[0] };

static double measure(const gpu_options_t *options, gpu_ranks_t *ranks,
                      const vectors_t *v, const char *algorithm, bool on_host)
{
    timed_t of = {ranks, v, on_host};
    commit(ranks, v, algorithm, on_host);
    double us = gpu_median(options, time_once, &of);
    gpu_ranks_destroy(ranks);
    return us;
}

static void report(table_t *table, const char *how, const char *algorithm,
                   const gpu_row_t *row)
{
    char what[64];
    gpu_row_t named = *row;
    (void)snprintf(what, sizeof what, "%s, %s", algorithm, how);
    named.part = "allreduce";
    named.what = what;
    gpu_report(table, &named);
}

static void bench_direct(const gpu_options_t *options, table_t *table,
                         gpu_ranks_t *ranks, const vectors_t *v)
{
    double bytes = (double)v->bytes;
    double moved = 5.0 * (RANKS - 1) * bytes;
    double bound_us = moved / (2.0 * bytes / gpu_copy_us(options, v->bytes));
    for (size_t a = 0; a < ALGORITHMS; a++) {
        double us = measure(options, ranks, v, algorithms[a], false);
        gpu_row_t row = {NULL,
                         NULL,
                         bytes,
                         us,
                         moved,
                         bound_us / us,
                         "the bound of the GPU's memory"};
        report(table, "direct", algorithms[a], &row);
    }
}

static void bench_staged(const gpu_options_t *options, table_t *table,
                         gpu_ranks_t *ranks, const vectors_t *v)
{
    for (size_t a = 0; a < ALGORITHMS; a++) {
        double host = measure(options, ranks, v, algorithms[a], true);
        double us = measure(options, ranks, v, algorithms[a], false);
        gpu_row_t around = {NULL, NULL, (double)v->bytes, host, 0, NAN, ""};
        gpu_row_t row = {NULL,
                         NULL,
                         (double)v->bytes,
                         us,
                         0,
                         host / us,
                         "copy, all-reduce on the host, copy"};
        report(table, "copied to the host and back", algorithms[a], &around);
        report(table, "staged", algorithms[a], &row);
    }
}

void gpu_bench_allreduce(const gpu_options_t *options, table_t *table)
{
    gpu_ranks_t ranks;
    vectors_t v;
    open_vectors(&v, 64 << 20);
    gpu_ranks_open(&ranks, RANKS, (int)options->device);
    if (options->staged) {
        bench_staged(options, table, &ranks, &v);
    } else {
        bench_direct(options, table, &ranks, &v);
    }
    gpu_ranks_close(&ranks);
    close_vectors(&v);
}
