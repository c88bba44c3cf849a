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
    v->schedule = ranks->schedules[0];
    v->stream = ranks->streams[0];
    v->target_view = gpu_view(v->schedule, v->target, bytes);
    v->source_view = gpu_view(v->schedule, v->source, bytes);
    baton_node_t last = baton_add_nop(v->schedule);
    for (int i = 0; i < NODES; i++) {
        baton_node_t node = baton_add_device_call(v->schedule, call_sum, v);
        baton_before(v->schedule, last, node);
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

static void compare(const gpu_options_t *options, table_t *table, vectors_t *v,
                    cudaStream_t stream, unsigned behind_us)
{
    bool idle = behind_us == 0;
    double hand = gpu_time(options, stream, behind_us, by_hand, v);
    double epoch = gpu_time(options, stream, behind_us, by_epoch, v);
    double bytes = COUNT * sizeof(float);
    gpu_row_t by_hand_row = {
        "epoch", idle ? "10 kernels by hand" : "10 kernels by hand, queued",
        bytes,   hand,
        0,       NAN,
        ""};
    gpu_row_t epoch_row = {"epoch",
                           idle ? "10 nodes, idle stream" : "10 nodes, queued",
                           bytes,
                           epoch,
                           0,
                           hand / epoch,
                           "kernels by hand"};
    gpu_report(table, &by_hand_row);
    gpu_report(table, &epoch_row);
}

void gpu_bench_epoch(const gpu_options_t *options, table_t *table)
{
    gpu_ranks_t ranks;
    vectors_t v;
    gpu_ranks_open(&ranks, 1, (int)options->device);
    v.target = gpu_alloc(COUNT * sizeof(float));
    v.source = gpu_alloc(COUNT * sizeof(float));
    commit(&ranks, &v);
    compare(options, table, &v, ranks.streams[0], 0);
    compare(options, table, &v, ranks.streams[0], BEHIND_US);
    gpu_require(baton_schedule_wait(v.schedule, -1), "wait");
    gpu_row_t row = {"epoch",
                     "host time of start_on",
                     COUNT * sizeof(float),
                     gpu_median(options, time_start, &v),
                     0,
                     NAN,
                     ""};
    gpu_report(table, &row);
    gpu_ranks_destroy(&ranks);
    gpu_ranks_close(&ranks);
    gpu_free(v.target);
    gpu_free(v.source);
}
