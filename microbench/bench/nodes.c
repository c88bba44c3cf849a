/* The cost of a node in the engine, from chains and fans of nops:

       chain   nop -> nop -> ... -> nop

                 +-> nop -+
       fan   nop +-> ...  +-> nop         1 -> N -> 1
                 +-> nop -+                                                  */
#include "bench/memory.h"
#include "bench/parts.h"
#include <baton/inproc.h>
#include <stdlib.h>

/* A repetition runs at least so many nodes. */
enum { NODES_A_REPETITION = 2000000 };

typedef void (*build_fn)(baton_schedule_t *schedule, size_t count);

typedef struct shape {
    const char *name;
    const char *text;
    build_fn build;
    size_t count;
    size_t nodes;
} shape_t;

static void build_chain(baton_schedule_t *schedule, size_t count)
{
    baton_node_t last = baton_add_nop(schedule);
    for (size_t i = 1; i < count; i++) {
        baton_node_t next = baton_add_nop(schedule);
        baton_before(schedule, last, next);
        last = next;
    }
}

static void build_fan(baton_schedule_t *schedule, size_t count)
{
    baton_node_t first = baton_add_nop(schedule);
    baton_node_t last = baton_add_nop(schedule);
    for (size_t i = 0; i < count; i++) {
        baton_node_t middle = baton_add_nop(schedule);
        baton_before(schedule, first, middle);
        baton_before(schedule, middle, last);
    }
}

static const shape_t shapes[] = {
    {"nop_chain_10000", "chain of 10,000 nops", build_chain, 10000, 10000},
    {"nop_fan_10", "1 -> 10 -> 1, with start and wait", build_fan, 10, 12},
    {"nop_fan_1000", "1 -> 1,000 -> 1", build_fan, 1000, 1002},
    {"nop_fan_8000", "1 -> 8,000 -> 1", build_fan, 8000, 8002},
    {"nop_fan_100000", "1 -> 100,000 -> 1", build_fan, 100000, 100002},
};

static bench_value_t measure_nodes(baton_schedule_t *schedule,
                                   const shape_t *shape, size_t repetitions)
{
    size_t epochs = NODES_A_REPETITION / shape->nodes + 1;
    double *node_ns = harness_alloc(repetitions, sizeof(*node_ns));
    harness_run_epochs(schedule, 2);
    for (size_t i = 0; i < repetitions; i++) {
        double begin_us = clock_now_us();
        harness_run_epochs(schedule, epochs);
        node_ns[i] =
            (clock_now_us() - begin_us) * 1e3 / (double)(epochs * shape->nodes);
    }
    bench_value_t value = bench_value(node_ns, repetitions);
    free(node_ns);
    return value;
}

static void report_shape(bench_report_t *report, const shape_t *shape,
                         bench_value_t node_ns, double node_bytes)
{
    char text[80];
    char name[64];
    (void)snprintf(text, sizeof(text), "%s, per node", shape->text);
    (void)snprintf(name, sizeof(name), "%s_node", shape->name);
    bench_report_add(report, name, text, node_ns, "ns");
    (void)snprintf(text, sizeof(text), "%s, memory per node", shape->text);
    (void)snprintf(name, sizeof(name), "%s_memory", shape->name);
    bench_report_add(report, name, text, bench_value_single(node_bytes),
                     "bytes");
}

static void measure_shape(baton_group_t *group, const shape_t *shape,
                          const bench_options_t *options,
                          bench_report_t *report)
{
    baton_schedule_t *schedule = NULL;
    double before = memory_allocated();
    harness_require(baton_schedule_create(group, shape->name, &schedule),
                    "create");
    shape->build(schedule, shape->count);
    harness_require(baton_schedule_commit(schedule), "commit");
    double bytes = memory_allocated() - before;
    bench_value_t node_ns =
        measure_nodes(schedule, shape, (size_t)options->repetitions);
    report_shape(report, shape, node_ns, bytes / (double)shape->nodes);
    (void)!baton_schedule_destroy(schedule);
}

void bench_nodes(const bench_options_t *options, bench_report_t *report)
{
    baton_engine_options_t manual = BATON_ENGINE_OPTIONS;
    manual.progress = BATON_PROGRESS_MANUAL;
    baton_engine_t *engine = NULL;
    baton_group_t *group = NULL;
    harness_require(baton_engine_open(&manual, &engine), "open an engine");
    harness_require(baton_group_create_self(engine, &group), "create a group");
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
        measure_shape(group, &shapes[i], options, report);
    }
    harness_require(baton_group_destroy(group), "destroy the group");
    harness_require(baton_engine_close(engine), "close the engine");
}
