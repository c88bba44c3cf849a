/* baton-bench engine: measures the engine's own costs. First rank 0 measures
   alone while the other ranks sleep in a barrier; then all ranks measure
   together. */
#include "bench/bench.h"
#include <baton/engine.h>
#include <baton/inproc.h>
#include <malloc.h>

enum {
    NODES_A_REPETITION = 2000000, /* the fewest nodes that a repetition runs */
    STARTS_A_REPETITION = 20000,
    /* The ring all-reduce of 32 ranks has 31 * 2 rounds. With 64 chunks for
       each block its schedule has about 10,000 nodes of all kinds. */
    RING_RANKS = 32,
    RING_CHUNKS = 64,
    RING_CHUNK_BYTES = 256,
    /* The number of solo all-reduces: about one for each tensor of a large
       model. */
    SOLOS = 400,
    SOLO_COUNT = 1024,
    SOLO_CALLS = 50
};

#define IDLE_US 2e6

/* ---- memory of this process --------------------------------------------- */

/* Returns the bytes that malloc has given out and that are not freed, in all
   threads. */
static double allocated_bytes(void)
{
    struct mallinfo2 info = mallinfo2();
    return (double)info.uordblks + (double)info.hblkhd;
}

/* ---- schedules of one process ------------------------------------------- */

static void build_chain(baton_schedule_t *schedule, size_t count)
{
    baton_node_t last = baton_add_nop(schedule);
    for (size_t i = 1; i < count; i++) {
        baton_node_t next = baton_add_nop(schedule);
        baton_before(schedule, last, next);
        last = next;
    }
}

/* Builds a nop, `count` nops that wait for it, and a nop that waits for all of
   these. */
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

/* Builds a chain of reductions sum += part. Each node writes `sum`, so the
   hazard check has to find that all of them are ordered. */
static void build_reduces(baton_schedule_t *schedule, size_t count)
{
    enum { BYTES = 64 };
    baton_buffer_t memory = baton_buffer_scratch(schedule, (size_t)2 * BYTES);
    baton_view_t sum = baton_view(memory, 0, BYTES);
    baton_view_t part = baton_view(memory, BYTES, BYTES);
    baton_node_t last = baton_add_nop(schedule);
    for (size_t i = 1; i < count; i++) {
        baton_node_t next = baton_add_reduce_local(schedule, BATON_F32,
                                                   BATON_SUM, sum, sum, part);
        baton_before(schedule, last, next);
        last = next;
    }
}

static void build_ring(baton_schedule_t *schedule, size_t count)
{
    size_t bytes = (size_t)RING_RANKS * RING_CHUNKS * RING_CHUNK_BYTES;
    baton_allreduce_args_t args = BATON_ALLREDUCE_ARGS;
    args.source = args.target =
        baton_view(baton_buffer_scratch(schedule, bytes), 0, bytes);
    args.dtype = BATON_F32;
    args.op = BATON_SUM;
    args.chunk_bytes = RING_CHUNK_BYTES;
    baton_add_allreduce_ring(schedule, &args);
}

/* A shape of schedules that is measured on one rank of a group of `ranks`
   ranks. */
typedef struct shape {
    void (*measure)(bench_run_t *run, baton_group_t *group,
                    const struct shape *shape);
    baton_progress_t progress;
    int ranks;
    const char *name;
    void (*build)(baton_schedule_t *schedule, size_t count);
    size_t count;
    size_t nodes; /* number of the schedule's nodes */
} shape_t;

static baton_schedule_t *create(baton_group_t *group, const shape_t *shape)
{
    baton_schedule_t *schedule = harness_schedule(group, shape->name);
    shape->build(schedule, shape->count);
    return schedule;
}

/* Runs epochs, and returns the time of one in microseconds, multiplied by
   `scale`. */
static stats_t time_epochs(const bench_run_t *run, baton_schedule_t *schedule,
                           uint64_t epochs, double scale)
{
    size_t repetitions = (size_t)run->options.repetitions;
    double us[BENCH_MAX_REPETITIONS];
    harness_run_epochs(schedule, epochs > 2 ? 2 + epochs / 10 : 2);
    for (size_t i = 0; i < repetitions; i++) {
        double begin_us = clock_now_us();
        harness_run_epochs(schedule, epochs);
        us[i] = (clock_now_us() - begin_us) / (double)epochs * scale;
    }
    return stats_of(us, repetitions);
}

/* Returns a summary that consists of a single value, which was counted, or
   measured once. */
static stats_t once(double value)
{
    return (stats_t){.p10 = value, .median = value, .p90 = value};
}

/* ---- nodes, commits, epochs --------------------------------------------- */

/* Reports two rows, each for one node of the shape: its time (NAME_node) and
   its memory (NAME_memory). */
static void measure_nodes(bench_run_t *run, baton_group_t *group,
                          const shape_t *shape)
{
    char name[64];
    double nodes = (double)shape->nodes;
    double before = allocated_bytes();
    baton_schedule_t *schedule = create(group, shape);
    must(baton_schedule_commit(schedule));
    double bytes = (allocated_bytes() - before) / nodes;
    (void)snprintf(name, sizeof(name), "%s_node", shape->name);
    bench_report(run, name,
                 time_epochs(run, schedule,
                             NODES_A_REPETITION / shape->nodes + 1,
                             1e3 / nodes),
                 "ns");
    (void)snprintf(name, sizeof(name), "%s_memory", shape->name);
    bench_report(run, name, once(bytes), "bytes");
    (void)!baton_schedule_destroy(schedule);
}

static void measure_commit(bench_run_t *run, baton_group_t *group,
                           const shape_t *shape)
{
    size_t repetitions = (size_t)run->options.repetitions;
    double ms[BENCH_MAX_REPETITIONS];
    for (size_t i = 0; i < repetitions; i++) {
        baton_schedule_t *schedule = create(group, shape);
        double begin_us = clock_now_us();
        must(baton_schedule_commit(schedule));
        ms[i] = (clock_now_us() - begin_us) / 1e3;
        (void)!baton_schedule_destroy(schedule);
    }
    bench_report(run, shape->name, stats_of(ms, repetitions), "ms");
}

static void measure_start(bench_run_t *run, baton_group_t *group,
                          const shape_t *shape)
{
    baton_schedule_t *schedule = create(group, shape);
    must(baton_schedule_commit(schedule));
    bench_report(run, shape->name,
                 time_epochs(run, schedule, STARTS_A_REPETITION, 1), "us");
    (void)!baton_schedule_destroy(schedule);
}

#define MANUAL BATON_PROGRESS_MANUAL, RING_RANKS

static const shape_t shapes[] = {
    {measure_nodes, MANUAL, "nop_chain_10000", build_chain, 10000, 10000},
    {measure_nodes, MANUAL, "nop_fan_10", build_fan, 10, 12},
    {measure_nodes, MANUAL, "nop_fan_1000", build_fan, 1000, 1002},
    {measure_nodes, MANUAL, "nop_fan_8000", build_fan, 8000, 8002},
    {measure_nodes, MANUAL, "nop_fan_100000", build_fan, 100000, 100002},
    {measure_commit, MANUAL, "commit_nops", build_chain, 10000, 0},
    {measure_commit, MANUAL, "commit_reduces", build_reduces, 10000, 0},
    {measure_commit, MANUAL, "commit_ring", build_ring, 0, 0},
    {measure_start, MANUAL, "start_manual", build_chain, 1, 0},
    {measure_start, BATON_PROGRESS_THREAD, 1, "start_thread", build_chain, 1,
     0},
};

/* Measures all shapes on rank 0 of an inproc group, whose epochs need no other
   rank. */
static void measure_alone(bench_run_t *run)
{
    baton_engine_options_t options = BATON_ENGINE_OPTIONS;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
        baton_engine_t *engine = NULL;
        baton_inproc_t *inproc = NULL;
        baton_group_t *group = NULL;
        options.progress = shapes[i].progress;
        must(baton_engine_open(&options, &engine));
        must(baton_inproc_create(shapes[i].ranks, &inproc));
        must(baton_group_create_inproc(engine, inproc, 0, &group));
        shapes[i].measure(run, group, &shapes[i]);
        must(baton_group_destroy(group));
        (void)!baton_inproc_destroy(inproc);
        must(baton_engine_close(engine));
    }
}

/* ---- all ranks ---------------------------------------------------------- */

static stats_t time_solo(bench_run_t *run, baton_partial_t *partial)
{
    static const float gradient[SOLO_COUNT];
    size_t repetitions = (size_t)run->options.repetitions;
    double us[BENCH_MAX_REPETITIONS];
    baton_partial_result_t result;
    for (size_t i = 0; i < repetitions; i++) {
        harness_barrier(&run->harness);
        double begin_us = clock_now_us();
        for (int call = 0; call < SOLO_CALLS; call++) {
            must(baton_partial_contribute(partial, gradient));
            must(baton_partial_start(partial));
            must(baton_partial_wait(partial, -1, &result));
        }
        us[i] = (clock_now_us() - begin_us) / SOLO_CALLS;
    }
    return bench_slowest(us, repetitions);
}

static baton_partial_t *create_solo(const bench_run_t *run)
{
    const baton_partial_options_t options = {.size = sizeof(options),
                                             .mode = BATON_SOLO,
                                             .count = SOLO_COUNT,
                                             .dtype = BATON_F32};
    baton_partial_t *partial = NULL;
    must(baton_partial_create(run->harness.group, &options, &partial));
    return partial;
}

/* Measures a step of a solo all-reduce, first with one committed schedule and
   then among many. The time should depend only on the schedules that run. */
static void measure_solos(bench_run_t *run)
{
    baton_partial_t *all[SOLOS];
    all[0] = create_solo(run);
    bench_report(run, "solo_alone", time_solo(run, all[0]), "us");
    for (size_t i = 1; i < SOLOS; i++) {
        all[i] = create_solo(run);
    }
    bench_report(run, "solo_of_many", time_solo(run, all[0]), "us");
    harness_barrier(&run->harness);
    for (size_t i = 0; i < SOLOS; i++) {
        must(baton_partial_destroy(all[i]));
    }
}

/* Measures how much processor time the ranks take while they sleep for two
   seconds. They have a solo all-reduce, whose receives are armed but not
   activated. */
static void measure_idle(bench_run_t *run)
{
    baton_partial_t *partial = create_solo(run);
    baton_partial_result_t result;
    must(baton_partial_start(partial));
    must(baton_partial_wait(partial, -1, &result));
    harness_barrier(&run->harness);
    double processor_us = clock_processor_us();
    clock_sleep_until(clock_now_us() + IDLE_US);
    double percent = (clock_processor_us() - processor_us) / IDLE_US * 100;
    double sum = 0;
    MPI_Reduce(&percent, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    bench_report(run, "idle_highest", bench_slowest(&percent, 1), "%");
    bench_report(run, "idle_mean", once(sum / run->harness.size), "%");
    harness_barrier(&run->harness);
    (void)!baton_partial_destroy(partial);
}

bool bench_engine_run(bench_run_t *run)
{
    if (run->prints) {
        measure_alone(run);
    }
    harness_barrier(&run->harness);
    measure_idle(run);
    measure_solos(run);
    return true;
}
