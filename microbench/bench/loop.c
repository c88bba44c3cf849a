/* baton-bench loop: the patterns of a training loop, which has hundreds of
   schedules, and long pipelines. What it hides is in overlap.c. */
#include "bench/bench.h"
#include <baton/partial.h>
#include <math.h>
#include <stdlib.h>

enum {
    MANY = 400, /* tensors of a model */
    MANY_BYTES = 4096,
    SOLO_CALLS = 50,
    CHAIN_BYTES = 16 << 20,
    CHAIN_TURNS = 5
};

/* ---- many at once ----------------------------------------------------- */

static baton_schedule_t *create(const harness_t *harness, void *memory)
{
    baton_schedule_t *schedule = NULL;
    harness_require(baton_schedule_create(harness->group, "many", &schedule),
                    "create an all-reduce");
    baton_allreduce_t args = BATON_ALLREDUCE;
    args.source = args.target = baton_view(
        baton_buffer_bind(schedule, memory, MANY_BYTES), 0, MANY_BYTES);
    args.dtype = BATON_F32;
    args.op = BATON_SUM;
    baton_allreduce_recursive_doubling(schedule, &args);
    harness_require(baton_schedule_commit(schedule), "commit an all-reduce");
    return schedule;
}

/* What is measured of one thing: all that it takes, and its rows. */
typedef struct subject {
    bench_run_t *run;
    baton_schedule_t **schedules;
    baton_partial_t *partial;
    float *gradient;
} subject_t;

typedef void (*take_fn)(void *arg, size_t system, size_t turn, double *values);

static void measure(subject_t *subject, take_fn take, size_t measures,
                    stats_t *out)
{
    const bench_turns_t turns = {.systems = 1,
                                 .measures = measures,
                                 .warm_up = 3,
                                 .turns =
                                     (size_t)subject->run->options.repetitions,
                                 .take = take,
                                 .arg = subject};
    bench_turns(subject->run, &turns, out);
}

enum { ALONE, EACH, EACH_START, MANY_MEASURES };

static void take_many(void *arg, size_t system, size_t turn, double *us)
{
    const subject_t *subject = arg;
    (void)system;
    (void)turn;
    harness_barrier(&subject->run->harness);
    double begin_us = clock_now_us();
    harness_run_epochs(subject->schedules[0], MANY);
    us[ALONE] = (clock_now_us() - begin_us) / MANY;
    harness_barrier(&subject->run->harness);
    begin_us = clock_now_us();
    for (size_t i = 0; i < MANY; i++) {
        harness_require(baton_schedule_start(subject->schedules[i]), "start");
    }
    us[EACH_START] = (clock_now_us() - begin_us) / MANY;
    for (size_t i = 0; i < MANY; i++) {
        harness_require(baton_schedule_wait(subject->schedules[i], -1), "wait");
    }
    us[EACH] = (clock_now_us() - begin_us) / MANY;
}

static void measure_many(bench_run_t *run)
{
    baton_schedule_t **all = harness_alloc(MANY, sizeof(*all));
    char *memory = harness_alloc(MANY, MANY_BYTES);
    subject_t subject = {.run = run, .schedules = all};
    stats_t us[MANY_MEASURES];
    for (size_t i = 0; i < MANY; i++) {
        all[i] = create(&run->harness, memory + i * MANY_BYTES);
    }
    measure(&subject, take_many, MANY_MEASURES, us);
    for (size_t i = 0; i < MANY; i++) {
        harness_require(baton_schedule_destroy(all[i]), "destroy");
    }
    bench_report(run, "many_alone", "one after the other, each", us[ALONE],
                 "us");
    bench_report(run, "many_each", "400 at once, each", us[EACH], "us");
    bench_report(run, "many_start", "400 at once, each start", us[EACH_START],
                 "us");
    free(memory);
    free(all);
}

static void take_solos(void *arg, size_t system, size_t turn, double *us)
{
    const subject_t *subject = arg;
    baton_partial_result_t result;
    (void)system;
    (void)turn;
    harness_barrier(&subject->run->harness);
    double begin_us = clock_now_us();
    for (int i = 0; i < SOLO_CALLS; i++) {
        harness_require(
            baton_partial_contribute(subject->partial, subject->gradient),
            "contribute");
        harness_require(baton_partial_start(subject->partial), "start a solo");
        harness_require(baton_partial_wait(subject->partial, -1, &result),
                        "wait for a solo");
    }
    *us = (clock_now_us() - begin_us) / SOLO_CALLS;
}

static void measure_solos(bench_run_t *run)
{
    const baton_partial_options_t options = {
        .size = sizeof(options),
        .mode = BATON_SOLO,
        .dtype = BATON_F32,
        .count = MANY_BYTES / sizeof(float),
    };
    baton_partial_t **all = harness_alloc(MANY, sizeof(*all));
    subject_t subject = {.run = run, .gradient = harness_alloc(MANY_BYTES, 1)};
    stats_t us;
    for (size_t i = 0; i < MANY; i++) {
        harness_require(
            baton_partial_create(run->harness.group, &options, &all[i]),
            "create a solo");
        subject.partial = all[0];
        if (i == 0 || i + 1 == MANY) {
            measure(&subject, take_solos, 1, &us);
            bench_report(run, i == 0 ? "solo_alone" : "solo_of_many",
                         i == 0 ? "a solo step, one committed"
                                : "a solo step, 400 committed",
                         us, "us");
        }
    }
    for (size_t i = 0; i < MANY; i++) {
        harness_require(baton_partial_destroy(all[i]), "destroy a solo");
    }
    free(all);
    free(subject.gradient);
}

/* ---- a chain of blocks ------------------------------------------------ */

/* Rank r receives each block from r - 1 and sends it to r + 1. With a window,
   the receive of a block waits until the block `window` before it has been
   sent; with 0 only the engine bounds the messages in flight. */
static baton_schedule_t *create_chain(const harness_t *harness, void *memory,
                                      size_t block, size_t window)
{
    baton_schedule_t *schedule = NULL;
    size_t count = CHAIN_BYTES / block;
    baton_node_t *last = harness_alloc(count, sizeof(*last));
    harness_require(baton_schedule_create(harness->group, "chain", &schedule),
                    "create a chain");
    baton_buffer_t buffer = baton_buffer_bind(schedule, memory, CHAIN_BYTES);
    for (size_t i = 0; i < count; i++) {
        baton_view_t view = baton_view(buffer, i * block, block);
        baton_node_t first = {0};
        if (harness->rank > 0) {
            first = baton_add_recv(schedule, harness->rank - 1, view);
            last[i] = first;
        }
        if (harness->rank + 1 < harness->size) {
            last[i] = baton_add_send(schedule, harness->rank + 1, view);
            if (harness->rank > 0) {
                baton_before(schedule, first, last[i]);
            } else {
                first = last[i];
            }
        }
        if (window > 0 && i >= window) {
            baton_before(schedule, last[i - window], first);
        }
    }
    harness_require(baton_schedule_commit(schedule), "commit a chain");
    free(last);
    return schedule;
}

static double chain_us(const harness_t *harness, void *memory, size_t block,
                       size_t window)
{
    double us[CHAIN_TURNS];
    baton_schedule_t *schedule = create_chain(harness, memory, block, window);
    for (int turn = -1; turn < CHAIN_TURNS; turn++) {
        harness_barrier(harness);
        double begin_us = clock_now_us();
        harness_run_epochs(schedule, 1);
        us[turn < 0 ? 0 : turn] = clock_now_us() - begin_us;
    }
    harness_barrier(harness);
    harness_require(baton_schedule_destroy(schedule), "destroy a chain");
    return bench_slowest(us, CHAIN_TURNS).median;
}

static void add_times(bench_run_t *run, size_t bytes, const char *key,
                      const char *words, stats_t value, const char *unit)
{
    char size[16];
    char name[64];
    char text[128];
    (void)cli_format_bytes(bytes, size, sizeof(size));
    (void)snprintf(name, sizeof(name), "%s_%s", key, size);
    (void)snprintf(text, sizeof(text), "%s bytes, %s", size, words);
    bench_report(run, name, text, value, unit);
}

static void measure_chain(bench_run_t *run, size_t block, void *memory)
{
    static const size_t windows[] = {4, 8, 16, 32, 64};
    double best_us = INFINITY;
    for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
        best_us =
            fmin(best_us, chain_us(&run->harness, memory, block, windows[i]));
    }
    double free_us = chain_us(&run->harness, memory, block, 0);
    add_times(run, block, "chain", "no window", stats_single(free_us), "us");
    add_times(run, block, "chain_best", "the best window",
              stats_single(best_us), "us");
    add_times(run, block, "chain_over", "no window over the best",
              stats_single(free_us / best_us), "times");
}

/* ---- all of it -------------------------------------------------------- */

static bool run_loop(bench_run_t *run)
{
    static const size_t blocks[] = {256, 4096, 65536, 1 << 20};
    if (run->harness.size == 1) {
        bench_note(run, "loop: skipped, it takes 2 ranks");
        return true;
    }
    void *memory = harness_alloc(CHAIN_BYTES, 1);
    bench_note(run, "Full all-reduces of 4 KiB");
    measure_many(run);
    bench_note(run, "Solo all-reduces of 4 KiB");
    measure_solos(run);
    bench_note(run, "A chain that passes 16 MiB on in blocks");
    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
        measure_chain(run, blocks[i], memory);
    }
    free(memory);
    return true;
}

const bench_t bench_loop = {BENCH_LOOP, "a training loop's patterns",
                            bench_value_columns, BENCH_VALUE_COLUMNS, run_loop};
