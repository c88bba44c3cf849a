/* baton-bench engine: measures the engine's own costs. First rank 0 measures
   alone while the other ranks sleep in a barrier; then all ranks measure
   together. */
#include "bench/bench.h"
#include <baton/coll.h>
#include <baton/engine.h>
#include <baton/inproc.h>
#include <inttypes.h>
#include <malloc.h>

enum {
    NODES_A_REPETITION = 2000000, /* the fewest nodes that a repetition runs */
    STARTS_A_REPETITION = 20000,
    COMMITTED_NODES = 10000,
    /* A ring of 32 ranks has 31 * 2 rounds. With 64 chunks for each block it
       has about 10,000 nodes, counted over all kinds. */
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

/* An engine with one rank of an inproc group of `ranks` ranks. Its epochs need
   no other rank. */
typedef struct single {
    baton_engine_t *engine;
    baton_inproc_t *inproc;
    baton_group_t *group;
} single_t;

static void open_single(baton_progress_t progress, int ranks, single_t *out)
{
    baton_engine_options_t options = BATON_ENGINE_OPTIONS;
    options.progress = progress;
    must(baton_engine_open(&options, &out->engine));
    must(baton_inproc_create(ranks, &out->inproc));
    must(baton_group_create_inproc(out->engine, out->inproc, 0, &out->group));
}

static void close_single(single_t *single)
{
    must(baton_group_destroy(single->group));
    (void)!baton_inproc_destroy(single->inproc);
    must(baton_engine_close(single->engine));
}

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

/* Builds a chain of sum += part. The hazard check has to find that all these
   writers of one buffer are ordered. */
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
    (void)count;
    baton_allreduce_args_t args = BATON_ALLREDUCE_ARGS;
    args.source = args.target =
        baton_view(baton_buffer_scratch(schedule, bytes), 0, bytes);
    args.dtype = BATON_F32;
    args.op = BATON_SUM;
    args.chunk_bytes = RING_CHUNK_BYTES;
    baton_add_allreduce_ring(schedule, &args);
}

typedef struct shape {
    const char *name, *text;
    void (*build)(baton_schedule_t *schedule, size_t count);
    size_t count, nodes;
} shape_t;

static baton_schedule_t *bench_engine_create(const single_t *single,
                                             const shape_t *shape)
{
    baton_schedule_t *schedule = harness_schedule(single->group, shape->name);
    shape->build(schedule, shape->count);
    return schedule;
}

static baton_schedule_t *bench_engine_commit(const single_t *single,
                                             const shape_t *shape)
{
    baton_schedule_t *schedule = bench_engine_create(single, shape);
    must(baton_schedule_commit(schedule));
    return schedule;
}

/* Returns the time in microseconds of an epoch, divided by `parts`. */
static stats_t time_epochs(const bench_run_t *run, baton_schedule_t *schedule,
                           uint64_t epochs, double parts)
{
    size_t repetitions = (size_t)run->options.repetitions;
    double us[BENCH_MAX_REPETITIONS];
    harness_run_epochs(schedule, epochs > 2 ? 2 + epochs / 10 : 2);
    for (size_t i = 0; i < repetitions; i++) {
        double begin_us = clock_now_us();
        harness_run_epochs(schedule, epochs);
        us[i] = (clock_now_us() - begin_us) / ((double)epochs * parts);
    }
    return stats_of(us, repetitions);
}

/* ---- nodes, commits, epochs --------------------------------------------- */

/* Reports the two rows NAME_node and NAME_memory for a shape of schedules. */
static void measure_shape(bench_run_t *run, const single_t *single,
                          const shape_t *shape)
{
    char name[64], text[80];
    double nodes = (double)shape->nodes;
    double before = allocated_bytes();
    baton_schedule_t *schedule = bench_engine_commit(single, shape);
    double bytes = allocated_bytes() - before;
    stats_t us = time_epochs(run, schedule,
                             NODES_A_REPETITION / shape->nodes + 1, nodes);
    (void)!baton_schedule_destroy(schedule);
    (void)snprintf(name, sizeof(name), "%s_node", shape->name);
    (void)snprintf(text, sizeof(text), "%s, per node", shape->text);
    bench_report(run, name, text,
                 (stats_t){us.p10 * 1e3, us.median * 1e3, us.p90 * 1e3}, "ns");
    (void)snprintf(name, sizeof(name), "%s_memory", shape->name);
    (void)snprintf(text, sizeof(text), "%s, memory per node", shape->text);
    bench_report(run, name, text, stats_single(bytes / nodes), "bytes");
}

static void measure_commit(bench_run_t *run, const single_t *single,
                           const shape_t *shape)
{
    size_t repetitions = (size_t)run->options.repetitions;
    double ms[BENCH_MAX_REPETITIONS];
    uint32_t nodes = 0;
    char text[80];
    for (size_t i = 0; i < repetitions; i++) {
        baton_schedule_t *schedule = bench_engine_create(single, shape);
        nodes = baton_add_nop(schedule).index + 1;
        double begin_us = clock_now_us();
        must(baton_schedule_commit(schedule));
        ms[i] = (clock_now_us() - begin_us) / 1e3;
        (void)!baton_schedule_destroy(schedule);
    }
    (void)snprintf(text, sizeof(text), "%s, %" PRIu32 " nodes", shape->text,
                   nodes);
    bench_report(run, shape->name, text, stats_of(ms, repetitions), "ms");
}

static void measure_start(bench_run_t *run, const single_t *single,
                          const char *name, const char *text)
{
    static const shape_t shape = {"nop", "", build_chain, 1, 1};
    baton_schedule_t *schedule = bench_engine_commit(single, &shape);
    bench_report(run, name, text,
                 time_epochs(run, schedule, STARTS_A_REPETITION, 1), "us");
    (void)!baton_schedule_destroy(schedule);
}

static void measure_alone(bench_run_t *run)
{
    static const shape_t nodes[] = {
        {"nop_chain_10000", "chain of 10,000 nops", build_chain, 10000, 10000},
        {"nop_fan_10", "1 -> 10 -> 1, with start and wait", build_fan, 10, 12},
        {"nop_fan_1000", "1 -> 1,000 -> 1", build_fan, 1000, 1002},
        {"nop_fan_8000", "1 -> 8,000 -> 1", build_fan, 8000, 8002},
        {"nop_fan_100000", "1 -> 100,000 -> 1", build_fan, 100000, 100002},
    };
    static const shape_t commits[] = {
        {"commit_nops", "chain of nops", build_chain, COMMITTED_NODES, 0},
        {"commit_reduces", "chain of reduces on one buffer", build_reduces,
         COMMITTED_NODES, 0},
        {"commit_ring", "all-reduce by ring, rank 0 of 32", build_ring, 0, 0},
    };
    single_t single;
    open_single(BATON_PROGRESS_MANUAL, RING_RANKS, &single);
    bench_note(run, "Nodes (manual mode, one process)");
    for (size_t i = 0; i < sizeof(nodes) / sizeof(*nodes); i++) {
        measure_shape(run, &single, &nodes[i]);
    }
    bench_note(run, "Commits (one process)");
    for (size_t i = 0; i < sizeof(commits) / sizeof(*commits); i++) {
        measure_commit(run, &single, &commits[i]);
    }
    bench_note(run, "Epochs (one process)");
    measure_start(run, &single, "start_manual",
                  "one nop, start to wait, manual mode");
    close_single(&single);
    open_single(BATON_PROGRESS_THREAD, 1, &single);
    measure_start(run, &single, "start_thread",
                  "one nop, start to wait, progress thread");
    close_single(&single);
}

/* ---- all ranks ---------------------------------------------------------- */

static stats_t time_solo(bench_run_t *run, baton_partial_t *partial)
{
    static const float gradient[SOLO_COUNT];
    size_t turns = (size_t)run->options.repetitions;
    double us[BENCH_MAX_REPETITIONS];
    baton_partial_result_t result;
    for (size_t turn = 0; turn < turns; turn++) {
        harness_barrier(&run->harness);
        double begin_us = clock_now_us();
        for (int i = 0; i < SOLO_CALLS; i++) {
            must(baton_partial_contribute(partial, gradient));
            must(baton_partial_start(partial));
            must(baton_partial_wait(partial, -1, &result));
        }
        us[turn] = (clock_now_us() - begin_us) / SOLO_CALLS;
    }
    return bench_slowest(us, turns);
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
    bench_report(run, "solo_alone", "a solo step, one committed",
                 time_solo(run, all[0]), "us");
    for (size_t i = 1; i < SOLOS; i++) {
        all[i] = create_solo(run);
    }
    bench_report(run, "solo_of_many", "a solo step, 400 committed",
                 time_solo(run, all[0]), "us");
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
    bench_report(run, "idle_highest",
                 "idle for 2 s, of the worst rank, of a "
                 "core",
                 bench_slowest(&percent, 1), "%");
    bench_report(run, "idle_mean", "idle for 2 s, mean of all ranks, of a core",
                 stats_single(sum / run->harness.size), "%");
    harness_barrier(&run->harness);
    (void)!baton_partial_destroy(partial);
}

static bool run_engine(bench_run_t *run)
{
    if (run->speak) {
        measure_alone(run);
    }
    harness_barrier(&run->harness);
    bench_note(run, "An engine with an armed solo all-reduce");
    measure_idle(run);
    bench_note(run, "Solo all-reduces of 4 KiB");
    measure_solos(run);
    return true;
}

const bench_t bench_engine = {BENCH_ENGINE, "an engine's costs", run_engine};
