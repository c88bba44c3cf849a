/* Reductions and copies within the GPU's memory, beside cudaMemcpyAsync. A
   reduction moves three bytes for each byte of the vector, a copy two. */
#include "gpu/gpu.h"

#include <stdio.h>

enum { NODES = 20 }; /* in a row: one would measure its epoch */

static void run_epoch(void *arg, cudaStream_t stream)
{
    gpu_require(baton_schedule_start_on(arg, stream), "start_on");
    gpu_require(baton_schedule_wait_on(arg, stream), "wait_on");
}

typedef struct chain {
    const char *what;
    baton_dtype_t dtype;
    bool copies;
    double moved; /* bytes for each of the vector's */
} chain_t;

static void add_chain(baton_schedule_t *s, const chain_t *of,
                      baton_view_t target, baton_view_t source)
{
    baton_node_t last = baton_add_nop(s);
    for (int i = 0; i < NODES; i++) {
        baton_node_t node = of->copies
                                ? baton_add_copy(s, target, source)
                                : baton_add_reduce(s, of->dtype, BATON_SUM,
                                                   target, target, source);
        baton_before(s, last, node);
        last = node;
    }
}

static void measure(const gpu_options_t *options, table_t *table,
                    gpu_ranks_t *ranks, const chain_t *of, size_t bytes,
                    double copy_us)
{
    void *target = gpu_alloc(bytes), *source = gpu_alloc(bytes);
    gpu_ranks_create(ranks, of->what);
    baton_schedule_t *s = ranks->schedules[0];
    add_chain(s, of, gpu_view(s, target, bytes), gpu_view(s, source, bytes));
    gpu_ranks_commit(ranks);
    double us = gpu_time(options, ranks->streams[0], 0, run_epoch, s) / NODES;
    gpu_require(baton_schedule_wait(s, -1), "wait");
    double moved = of->moved * (double)bytes;
    double speed = moved / us, copy_speed = 2.0 * (double)bytes / copy_us;
    gpu_row_t row = {"memory",
                     of->what,
                     (double)bytes,
                     us,
                     moved,
                     speed / copy_speed,
                     "bandwidth of cudaMemcpyAsync"};
    gpu_report(table, &row);
    gpu_ranks_destroy(ranks);
    gpu_free(target);
    gpu_free(source);
}

void gpu_bench_memory(const gpu_options_t *options, table_t *table)
{
    static const chain_t chains[] = {
        {"copy", BATON_F32, true, 2},
        {"sum of f32", BATON_F32, false, 3},
        {"sum of f64", BATON_F64, false, 3},
        {"sum of f16", BATON_F16, false, 3},
        {"sum of bf16", BATON_BF16, false, 3},
        {"sum of i8", BATON_I8, false, 3},
    };
    gpu_ranks_t ranks;
    gpu_ranks_open(&ranks, 1, (int)options->device);
    for (size_t i = 0; i < options->size_count; i++) {
        size_t bytes = options->sizes[i];
        double copy_us = gpu_copy_us(options, bytes);
        for (size_t c = 0; c < sizeof chains / sizeof chains[0]; c++) {
            measure(options, table, &ranks, &chains[c], bytes, copy_us);
        }
    }
    gpu_ranks_close(&ranks);
}
