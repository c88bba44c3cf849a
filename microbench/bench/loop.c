/* baton-bench loop: the patterns of a training loop, which starts epochs,
   computes and waits late, has hundreds of schedules, and long pipelines. */
#include "bench/bench.h"
#include <baton/partial.h>
#include <stdlib.h>

enum {
    MANY = 400, /* tensors of a model */
    MANY_BYTES = 4096,
    SOLO_CALLS = 50,
    CHAIN_BYTES = 16 << 20,
    CHAIN_TURNS = 5
};

/* ---- an all-reduce that records when it ends ---------------------------- */

typedef struct reduction {
    baton_schedule_t *schedule;
    void *memory;
    double ended_us;
} reduction_t;

static baton_status_t record_end(void *arg, baton_call_t *call)
{
    reduction_t *reduction = arg;
    (void)call;
    reduction->ended_us = clock_now_us();
    return BATON_OK;
}

static void create(const harness_t *harness, const char *name, size_t bytes,
                   reduction_t *out)
{
    out->memory = harness_alloc(bytes, 1);
    harness_require(baton_schedule_create(harness->group, name, &out->schedule),
                    "create an all-reduce");
    baton_schedule_t *schedule = out->schedule;
    baton_node_t entry = baton_add_nop(schedule);
    baton_node_t exit = baton_add_call(schedule, record_end, out);
    baton_enclosure_t inner = baton_enclose_begin(schedule);
    baton_view_t whole =
        baton_view(baton_buffer_bind(schedule, out->memory, bytes), 0, bytes);
    baton_allreduce_t args = BATON_ALLREDUCE;
    args.source = args.target = whole;
    args.dtype = BATON_F32;
    args.op = BATON_SUM;
    if (bytes <= 1 << 16) {
        baton_allreduce_recursive_doubling(schedule, &args);
    } else {
        baton_allreduce_ring(schedule, &args);
    }
    baton_enclose_end(schedule, inner, entry, exit);
    harness_require(baton_schedule_commit(schedule), "commit an all-reduce");
}

static void destroy(reduction_t *reduction)
{
    harness_require(baton_schedule_destroy(reduction->schedule), "destroy");
    free(reduction->memory);
}

/* ---- start, sleep, wait ----------------------------------------------- */

typedef struct turns {
    double *waited_us;     /* start to the return of wait */
    double *background_us; /* start to the end, while the application sleeps */
    double *start_us;      /* processor time in start */
} turns_t;

/* Longer than the all-reduce should take. */
static double sleep_us(const turns_t *turns, size_t turn)
{
    return 4 * turns->waited_us[turn] + 2000;
}

static void take_turn(const harness_t *harness, reduction_t *reduction,
                      turns_t *turns, size_t turn)
{
    harness_barrier(harness);
    harness_run_epochs(reduction->schedule, 1);
    harness_barrier(harness);
    double begin_us = clock_now_us();
    harness_run_epochs(reduction->schedule, 1);
    turns->waited_us[turn] = clock_now_us() - begin_us;
    harness_barrier(harness);
    begin_us = clock_now_us();
    double used_us = clock_thread_us();
    harness_require(baton_schedule_start(reduction->schedule), "start");
    turns->start_us[turn] = clock_thread_us() - used_us;
    clock_sleep_until(begin_us + sleep_us(turns, turn));
    harness_require(baton_schedule_wait(reduction->schedule, -1), "wait");
    turns->background_us[turn] = reduction->ended_us - begin_us;
}

static void add_times(bench_run_t *run, const char *size, const char *key,
                      const char *words, stats_t value, const char *unit)
{
    char name[64];
    char text[128];
    (void)snprintf(name, sizeof(name), "%s_%s", key, size);
    (void)snprintf(text, sizeof(text), "%s bytes, %s", size, words);
    bench_report(run, name, text, value, unit);
}

static void measure_size(bench_run_t *run, size_t bytes)
{
    const harness_t *harness = &run->harness;
    size_t count = (size_t)run->options.repetitions;
    turns_t turns = {harness_alloc(count, sizeof(double)),
                     harness_alloc(count, sizeof(double)),
                     harness_alloc(count, sizeof(double))};
    reduction_t reduction;
    char size[16];
    create(harness, "loop", bytes, &reduction);
    for (size_t i = 0; i < 3; i++) {
        take_turn(harness, &reduction, &turns, 0); /* to warm up */
    }
    for (size_t turn = 0; turn < count; turn++) {
        take_turn(harness, &reduction, &turns, turn);
    }
    harness_barrier(harness);
    destroy(&reduction);
    (void)cli_format_bytes(bytes, size, sizeof(size));
    stats_t waited = bench_slowest(turns.waited_us, count);
    stats_t background = bench_slowest(turns.background_us, count);
    add_times(run, size, "waited", "start and wait", waited, "us");
    add_times(run, size, "forgotten", "start, and asleep until it ended",
              background, "us");
    add_times(
        run, size, "forgotten_over", "of that, start and wait",
        stats_single(waited.median > 0 ? background.median / waited.median : 0),
        "times");
    add_times(run, size, "start", "processor time in start",
              bench_slowest(turns.start_us, count), "us");
    free(turns.waited_us);
    free(turns.background_us);
    free(turns.start_us);
}

/* ---- many at once ----------------------------------------------------- */

static void start_all(reduction_t *all, size_t count, double *start_us,
                      double *each_us)
{
    double begin_us = clock_now_us();
    for (size_t i = 0; i < count; i++) {
        harness_require(baton_schedule_start(all[i].schedule), "start");
    }
    *start_us = (clock_now_us() - begin_us) / (double)count;
    for (size_t i = 0; i < count; i++) {
        harness_require(baton_schedule_wait(all[i].schedule, -1), "wait");
    }
    *each_us = (clock_now_us() - begin_us) / (double)count;
}

static void measure_many(bench_run_t *run)
{
    const harness_t *harness = &run->harness;
    size_t count = (size_t)run->options.repetitions;
    double *one_us = harness_alloc(count, sizeof(double));
    double *each_us = harness_alloc(count, sizeof(double));
    double *start_us = harness_alloc(count, sizeof(double));
    reduction_t *all = harness_alloc(MANY, sizeof(*all));
    double unused;
    for (size_t i = 0; i < MANY; i++) {
        create(harness, "many", MANY_BYTES, &all[i]);
    }
    start_all(all, MANY, &unused, &unused);
    for (size_t turn = 0; turn < count; turn++) {
        harness_barrier(harness);
        double begin_us = clock_now_us();
        for (size_t i = 0; i < MANY; i++) {
            harness_run_epochs(all[0].schedule, 1);
        }
        one_us[turn] = (clock_now_us() - begin_us) / MANY;
        harness_barrier(harness);
        start_all(all, MANY, &start_us[turn], &each_us[turn]);
    }
    harness_barrier(harness);
    for (size_t i = 0; i < MANY; i++) {
        destroy(&all[i]);
    }
    bench_report(run, "many_alone", "one after the other, each",
                 bench_slowest(one_us, count), "us");
    bench_report(run, "many_each", "400 at once, each",
                 bench_slowest(each_us, count), "us");
    bench_report(run, "many_start", "400 at once, each start",
                 bench_slowest(start_us, count), "us");
    free(one_us);
    free(each_us);
    free(start_us);
    free(all);
}

static baton_partial_t *create_solo(const harness_t *harness)
{
    baton_partial_t *partial = NULL;
    const baton_partial_options_t options = {
        .size = sizeof(options),
        .mode = BATON_SOLO,
        .dtype = BATON_F32,
        .count = MANY_BYTES / sizeof(float),
    };
    harness_require(baton_partial_create(harness->group, &options, &partial),
                    "create a solo");
    return partial;
}

static double step_us(const harness_t *harness, baton_partial_t *partial,
                      const float *gradient)
{
    harness_barrier(harness);
    double begin_us = clock_now_us();
    for (int i = 0; i < SOLO_CALLS; i++) {
        baton_partial_result_t result;
        harness_require(baton_partial_contribute(partial, gradient),
                        "contribute");
        harness_require(baton_partial_start(partial), "start a solo");
        harness_require(baton_partial_wait(partial, -1, &result),
                        "wait for a solo");
    }
    return (clock_now_us() - begin_us) / SOLO_CALLS;
}

static void measure_solos(bench_run_t *run)
{
    const harness_t *harness = &run->harness;
    size_t count = (size_t)run->options.repetitions;
    double *us = harness_alloc(count, sizeof(double));
    float *gradient = harness_alloc(MANY_BYTES, 1);
    baton_partial_t **all = harness_alloc(MANY, sizeof(*all));
    static const char *const names[] = {"solo_alone", "solo_of_many"};
    static const char *const words[] = {"a solo step, one committed",
                                        "a solo step, 400 committed"};
    size_t made = 0;
    for (int many = 0; many < 2; many++) {
        for (; made < (many ? MANY : 1); made++) {
            all[made] = create_solo(harness);
        }
        (void)step_us(harness, all[0], gradient);
        for (size_t turn = 0; turn < count; turn++) {
            us[turn] = step_us(harness, all[0], gradient);
        }
        bench_report(run, names[many], words[many], bench_slowest(us, count),
                     "us");
    }
    harness_barrier(harness);
    for (size_t i = 0; i < made; i++) {
        harness_require(baton_partial_destroy(all[i]), "destroy a solo");
    }
    free(all);
    free(gradient);
    free(us);
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

static void measure_chain(bench_run_t *run, size_t block, void *memory)
{
    const harness_t *harness = &run->harness;
    static const size_t windows[] = {4, 8, 16, 32, 64};
    size_t best = 0;
    double best_us = 0;
    char size[16];
    char words[80];
    for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
        double us = chain_us(harness, memory, block, windows[i]);
        if (best == 0 || us < best_us) {
            best = windows[i];
            best_us = us;
        }
    }
    double free_us = chain_us(harness, memory, block, 0);
    (void)cli_format_bytes(block, size, sizeof(size));
    add_times(run, size, "chain", "no window", stats_single(free_us), "us");
    (void)snprintf(words, sizeof(words), "the best window, %zu", best);
    add_times(run, size, "chain_best", words, stats_single(best_us), "us");
    add_times(run, size, "chain_over", "no window over the best",
              stats_single(best_us > 0 ? free_us / best_us : 0), "times");
}

/* ---- all of it -------------------------------------------------------- */

bool bench_loop(bench_run_t *run)
{
    static const size_t blocks[] = {256, 4096, 65536, 1 << 20};
    if (run->harness.size == 1) {
        bench_note(run, "loop: skipped, it takes 2 ranks");
        return true;
    }
    void *memory = harness_alloc(CHAIN_BYTES, 1);
    bench_note(run, "All-reduce in the background");
    for (size_t bytes = 8; bytes <= 16 << 20; bytes *= 8) {
        measure_size(run, bytes);
    }
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
