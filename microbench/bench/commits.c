/* The time of a commit, for schedules of about 10,000 nodes. */
#include "bench/parts.h"
#include <baton/inproc.h>
#include <inttypes.h>
#include <stdlib.h>

enum {
    NODES = 10000,
    /* A ring of 32 ranks has 31 * 2 rounds; 64 chunks a block make 10,000
       nodes of it, of each kind. */
    RING_RANKS = 32,
    RING_CHUNKS = 64,
    RING_CHUNK_BYTES = 256
};

typedef struct subject {
    const char *name;
    const char *text;
    void (*build)(baton_schedule_t *schedule);
} subject_t;

static void build_nops(baton_schedule_t *schedule)
{
    baton_node_t last = baton_add_nop(schedule);
    for (int i = 1; i < NODES; i++) {
        baton_node_t next = baton_add_nop(schedule);
        baton_before(schedule, last, next);
        last = next;
    }
}

/* A chain of 10,000 times sum += part: the hazard check has to find that all
   these writers of one buffer are ordered. */
static void build_reduces(baton_schedule_t *schedule)
{
    enum { BYTES = 64 };
    baton_buffer_t memory = baton_buffer_scratch(schedule, (size_t)2 * BYTES);
    baton_view_t sum = baton_view(memory, 0, BYTES);
    baton_view_t part = baton_view(memory, BYTES, BYTES);
    baton_node_t last = baton_add_nop(schedule);
    for (int i = 1; i < NODES; i++) {
        baton_node_t next =
            baton_add_reduce(schedule, BATON_F32, BATON_SUM, sum, sum, part);
        baton_before(schedule, last, next);
        last = next;
    }
}

static void build_ring(baton_schedule_t *schedule)
{
    size_t bytes = (size_t)RING_RANKS * RING_CHUNKS * RING_CHUNK_BYTES;
    baton_buffer_t memory = baton_buffer_scratch(schedule, bytes);
    baton_view_t whole = baton_view(memory, 0, bytes);
    baton_allreduce_t args = {
        .size = sizeof(args),
        .source = whole,
        .target = whole,
        .dtype = BATON_F32,
        .op = BATON_SUM,
        .chunk_bytes = RING_CHUNK_BYTES,
    };
    baton_allreduce_ring(schedule, &args);
}

static const subject_t subjects[] = {
    {"commit_nops", "chain of nops", build_nops},
    {"commit_reduces", "chain of reduces on one buffer", build_reduces},
    {"commit_ring", "all-reduce by ring, rank 0 of 32", build_ring},
};

/* Returns the milliseconds of one commit. *nodes_out is its number of nodes. */
static double commit_once(baton_group_t *group, const subject_t *subject,
                          uint32_t *nodes_out)
{
    baton_schedule_t *schedule = NULL;
    harness_require(baton_schedule_create(group, subject->name, &schedule),
                    "create");
    subject->build(schedule);
    *nodes_out = baton_add_nop(schedule).index + 1;
    double begin_us = clock_now_us();
    harness_require(baton_schedule_commit(schedule), "commit");
    double commit_ms = (clock_now_us() - begin_us) / 1e3;
    (void)!baton_schedule_destroy(schedule);
    return commit_ms;
}

static void measure_subject(baton_group_t *group, const subject_t *subject,
                            const bench_options_t *options,
                            bench_report_t *report)
{
    size_t repetitions = (size_t)options->repetitions;
    double *commit_ms = harness_alloc(repetitions, sizeof(*commit_ms));
    uint32_t nodes = 0;
    for (size_t i = 0; i < repetitions; i++) {
        commit_ms[i] = commit_once(group, subject, &nodes);
    }
    char text[80];
    (void)snprintf(text, sizeof(text), "%s, %" PRIu32 " nodes", subject->text,
                   nodes);
    bench_report_add(report, subject->name, text,
                     bench_value(commit_ms, repetitions), "ms");
    free(commit_ms);
}

/* No epoch runs, so one rank of an inproc group is enough to commit a schedule
   with 31 peers. */
void bench_commits(const bench_options_t *options, bench_report_t *report)
{
    baton_engine_options_t manual = BATON_ENGINE_OPTIONS;
    manual.progress = BATON_PROGRESS_MANUAL;
    baton_engine_t *engine = NULL;
    baton_inproc_t *inproc = NULL;
    baton_group_t *group = NULL;
    harness_require(baton_engine_open(&manual, &engine), "open an engine");
    harness_require(baton_inproc_create(RING_RANKS, &inproc), "create inproc");
    harness_require(baton_group_create_inproc(engine, inproc, 0, &group),
                    "create a group");
    for (size_t i = 0; i < sizeof(subjects) / sizeof(*subjects); i++) {
        measure_subject(group, &subjects[i], options, report);
    }
    harness_require(baton_group_destroy(group), "destroy the group");
    (void)!baton_inproc_destroy(inproc);
    harness_require(baton_engine_close(engine), "close the engine");
}
