/* How much of an all-reduce passes while a kernel computes: 1 - (both -
   computation) / communication. The kernel works in registers, so that it
   leaves memory and copy engines free, and takes as long as the communication.
 */
#include "common/measure.h"
#include "gpu/gpu.h"

#include <math.h>

enum { RANKS = 2, BYTES = 64 << 20 };

typedef struct overlap {
    gpu_ranks_t ranks;
    void *vectors[RANKS];
    cudaStream_t compute;
    float *sink;
    unsigned rounds; /* of the kernel */
    bool communicates, computes;
} overlap_t;

static void commit(overlap_t *of)
{
    gpu_ranks_create(&of->ranks, "overlap");
    for (int r = 0; r < RANKS; r++) {
        baton_schedule_t *s = of->ranks.schedules[r];
        baton_allreduce_t args = BATON_ALLREDUCE;
        args.dtype = BATON_F32;
        args.op = BATON_SUM;
        args.target = args.source = gpu_view(s, of->vectors[r], BYTES);
        baton_allreduce_linear_pipeline(s, &args);
    }
    gpu_ranks_commit(&of->ranks);
}

static double time_once(void *arg)
{
    const overlap_t *of = arg;
    double begin = clock_now_us();
    if (of->computes) {
        gpu_compute(of->compute, of->sink, of->rounds);
    }
    for (int r = 0; r < RANKS && of->communicates; r++) {
        gpu_require(baton_schedule_start_on(of->ranks.schedules[r],
                                            of->ranks.streams[r]),
                    "start_on");
    }
    for (int r = 0; r < RANKS && of->communicates; r++) {
        gpu_require(baton_schedule_wait(of->ranks.schedules[r], -1), "wait");
    }
    gpu_must(cudaStreamSynchronize(of->compute), "cudaStreamSynchronize");
    return clock_now_us() - begin;
}

static double measure(const gpu_options_t *options, overlap_t *of,
                      bool communicates, bool computes)
{
    of->communicates = communicates;
    of->computes = computes;
    return gpu_median(options, time_once, of);
}

/* A kernel that takes about so long. */
static void calibrate(const gpu_options_t *options, overlap_t *of, double us)
{
    of->rounds = 1 << 20;
    double once = measure(options, of, false, true);
    double rounds = (double)of->rounds * us / once;
    of->rounds = rounds < 1e9 ? (unsigned)rounds : 1000000000;
}

static void report(const gpu_options_t *options, table_t *table, overlap_t *of)
{
    double communication = measure(options, of, true, false);
    calibrate(options, of, communication);
    double computation = measure(options, of, false, true);
    double both = measure(options, of, true, true);
    double hidden = 1 - (both - computation) / communication;
    hidden = hidden < 0 ? 0 : hidden > 1 ? 1 : hidden;
    const gpu_row_t rows[] = {
        {"overlap",
         options->staged ? "all-reduce, staged" : "all-reduce, direct", BYTES,
         communication, 0, NAN, ""},
        {"overlap", "computation", BYTES, computation, 0, NAN, ""},
        {"overlap", "both", BYTES, both, 0, hidden, "hidden (1: all of it)"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        gpu_report(table, &rows[i]);
    }
}

void gpu_bench_overlap(const gpu_options_t *options, table_t *table)
{
    overlap_t of = {0};
    gpu_ranks_open(&of.ranks, RANKS, (int)options->device);
    for (int r = 0; r < RANKS; r++) {
        of.vectors[r] = gpu_alloc(BYTES);
    }
    of.sink = gpu_alloc(sizeof(float));
    gpu_must(cudaStreamCreateWithFlags(&of.compute, cudaStreamNonBlocking),
             "cudaStreamCreateWithFlags");
    commit(&of);
    report(options, table, &of);
    gpu_ranks_destroy(&of.ranks);
    gpu_must(cudaStreamDestroy(of.compute), "cudaStreamDestroy");
    gpu_free(of.sink);
    for (int r = 0; r < RANKS; r++) {
        gpu_free(of.vectors[r]);
    }
    gpu_ranks_close(&of.ranks);
}
