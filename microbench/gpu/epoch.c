/* An epoch of device nodes: from start_on until the stream sees its end, beside
   the same kernels launched by hand on that stream; and what start_on takes of
   the host's time. Both are measured on an idle stream, where the host's
   launches count, and behind a kernel that hides them. */
#include "common/measure.h"
#include "gpu/gpu.h"

#include <math.h>

enum { NODES = 10, COUNT = 16 << 10, BEHIND_US = 500 };

typedef struct vectors {
    float *target, *source;
    baton_view_t target_view, source_view;
    gpu_ranks_t ranks;
    baton_schedule_t *schedule;
    cudaStream_t stream;
} vectors_t;

static void by_hand(void *arg, cudaStream_t stream)
{
    const vectors_t *v = arg;
    for (int i = 0; i < NODES; i++) {
        gpu_sum(stream, v->target, v->source, COUNT);
    }
}

static void by_epoch(void *arg, cudaStream_t stream)
{
    const vectors_t *v = arg;
    gpu_require(baton_schedule_start_on(v->schedule, stream), "start_on");
    gpu_require(baton_schedule_wait_on(v->schedule, stream), "wait_on");
}

static baton_status_t call_sum(void *arg, baton_call_t *call,
                               baton_stream_t stream)
{
    const vectors_t *v = arg;
    gpu_sum(stream, baton_call_address(call, v->target_view),
            baton_call_address(call, v->source_view), COUNT);
    return BATON_OK;
}

static void commit(gpu_ranks_t *ranks, vectors_t *v)
{
    size_t bytes = COUNT * sizeof(float);
    gpu_ranks_create(ranks, "epoch");
    baton_schedule_t *s = ranks->schedules[0];
    v->target_view = gpu_view(s, v->target, bytes);
    v->source_view = gpu_view(s, v->source, bytes);
    baton_node_t last = baton_add_nop(s);
    for (int i = 0; i < NODES; i++) {
        baton_node_t node = baton_add_device_call(s, call_sum, v);
        baton_before(s, last, node);
        last = node;
    }
    gpu_ranks_commit(ranks);
}

/* The host's time in start_on alone. */
static double time_start(void *arg)
{
    const vectors_t *v = arg;
    double begin = clock_now_us();
    baton_status_t status = baton_schedule_start_on(v->schedule, v->stream);
    double us = clock_now_us() - begin;
    gpu_require(status, "start_on");
    gpu_require(baton_schedule_wait(v->schedule, -1), "wait");
    return us;
}

/* A row beside one measured before: against_us, or 0. */
static double compare(const gpu_options_t *options, table_t *table,
                      vectors_t *v, unsigned behind_us, gpu_work_fn work,
                      const char *const what[2], double against_us,
                      const char *against)
{
    double us = gpu_time(options, v->stream, behind_us, work, v);
    gpu_row_t row = {"epoch",
                     what[behind_us == 0 ? 0 : 1],
                     COUNT * sizeof(float),
                     us,
                     0,
                     against_us > 0 ? against_us / us : NAN,
                     against};
    gpu_report(table, &row);
    return us;
}

static void compare_all(const gpu_options_t *options, table_t *table,
                        vectors_t *v, unsigned behind_us)
{
    static const char *const hand[] = {"10 kernels by hand",
                                       "10 kernels by hand, queued"};
    static const char *const epoch[] = {"10 nodes, idle stream",
                                        "10 nodes, queued"};
    double hand_us =
        compare(options, table, v, behind_us, by_hand, hand, 0, "");
    (void)compare(options, table, v, behind_us, by_epoch, epoch, hand_us,
                  "kernels by hand");
    gpu_require(baton_schedule_wait(v->schedule, -1), "wait");
}

static void report_start(const gpu_options_t *options, table_t *table,
                         vectors_t *v)
{
    gpu_row_t row = {"epoch",
                     "host time of start_on",
                     COUNT * sizeof(float),
                     gpu_median(options, time_start, v),
                     0,
                     NAN,
                     ""};
    gpu_report(table, &row);
}

void gpu_bench_epoch(const gpu_options_t *options, table_t *table)
{
    vectors_t v;
    v.target = gpu_alloc(COUNT * sizeof(float));
    v.source = gpu_alloc(COUNT * sizeof(float));
    gpu_sum(NULL, v.target, v.source, COUNT); /* loads the kernel */
    gpu_must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    gpu_ranks_open(&v.ranks, 1, (int)options->device);
    commit(&v.ranks, &v);
    v.schedule = v.ranks.schedules[0];
    v.stream = v.ranks.streams[0];
    compare_all(options, table, &v, 0);
    compare_all(options, table, &v, BEHIND_US);
    report_start(options, table, &v);
    gpu_ranks_destroy(&v.ranks);
    gpu_ranks_close(&v.ranks);
    gpu_free(v.target);
    gpu_free(v.source);
}
