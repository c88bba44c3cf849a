/* baton-bench allreduce, bcast, ...: compares systems that run one collective.
   Measures each size, each kind of memory, in place and not in place, and each
   mode of waiting. */
#include "bench/bench.h"
#include <math.h>
#include <stdlib.h>

enum {
    MAX_CALLS = 10000,
    /* The most calls of one repetition in modes other than AT_ONCE. */
    MAX_OVERLAPPED = 20,
    TRUSTED_FOR = 4,
    UNIT_STEPS = 64,
    REHEARSED_UNITS = 200
};

/* A system that is measured in one mode of waiting, with a runner for each
   layer. Each schedule is used in one mode only, as in an application, so that
   Baton learns how it is used. */
typedef struct contestant {
    const bench_system_t *system;
    bench_wait_t mode;
    bench_runner_t *runners; /* an array of [layers] */
    size_t calls;            /* number of calls in one repetition */
} contestant_t;

/* All contestants that are compared at one size, in one kind of memory and in
   one place. */
typedef struct contest {
    bench_run_t *run;
    uint64_t bytes; /* bytes of the vector, rounded up to whole blocks */
    size_t layers;
    bench_operation_t *operations; /* an array of [layers] */
    /* All systems in the mode AT_ONCE, in the order of the options, and then
       those in each other mode. */
    contestant_t contestants[CLI_MOST_ITEMS * BENCH_WAIT_MODES];
    size_t count;
    /* The time that the computation of a layer takes: the fastest system's time
       for the collective. */
    double layer_us;
    /* The number of units of work that together take layer_us while all ranks
       compute. */
    uint64_t units;
} contest_t;

/* The measured properties: the mean time of a call, and the time of the
   computation alone. */
enum { CALL_US, COMPUTATION_US, MEASURES };

/* ---- computation -------------------------------------------------------- */

/* Computes something that the compiler cannot remove and that uses no
   memory. */
static void bench_collective_work(uint64_t units)
{
    static volatile double sink;
    double value = sink;
    for (uint64_t i = 0; i < units * UNIT_STEPS; i++) {
        value = value * 0.999 + 1e-3;
    }
    sink = value;
}

static void bench_collective_compute(const contest_t *contest,
                                     bench_wait_t mode)
{
    if (mode == BENCH_WAIT_SLEEP) {
        clock_sleep_until(clock_now_us() + contest->layer_us);
    } else if (mode == BENCH_WAIT_PROCESSOR) {
        bench_collective_work(contest->units);
    }
}

/* ---- measuring ---------------------------------------------------------- */

/* Starts the operation of each layer once, and waits for all of them. Returns
   the time at which the last of them ended, of whichever layer. */
static double bench_collective_call(const contest_t *contest,
                                    const contestant_t *of, int root)
{
    double end_us = 0;
    for (size_t i = 0; i < contest->layers; i++) {
        of->runners[i].operation->root = root;
        bench_runner_start(&of->runners[i]);
        bench_collective_compute(contest, of->mode);
        if (of->mode == BENCH_WAIT_AT_ONCE) {
            bench_runner_wait(&of->runners[i]);
        }
    }
    for (size_t i = 0; i < contest->layers; i++) {
        if (of->mode == BENCH_WAIT_NEVER) {
            end_us = fmax(end_us, bench_runner_watch(&of->runners[i]));
        } else if (of->mode != BENCH_WAIT_AT_ONCE) {
            bench_runner_wait(&of->runners[i]);
        }
    }
    return of->mode == BENCH_WAIT_NEVER ? end_us : clock_now_us();
}

static void bench_collective_check(const contest_t *contest,
                                   const contestant_t *of)
{
    for (size_t i = 0; i < contest->layers; i++) {
        bench_check(&of->runners[i]);
    }
}

/* Fills the vectors and runs the operation once. In place, also checks the
   result and then sets the vectors to zero. */
static void bench_collective_prepare(const contest_t *contest,
                                     const contestant_t *of)
{
    int root = contest->operations->roots - 1;
    for (size_t i = 0; i < contest->layers; i++) {
        contest->operations[i].root = root;
        bench_fill(&contest->operations[i]);
    }
    harness_barrier(&contest->run->harness);
    (void)bench_collective_call(contest, of, root);
    if (contest->operations->in_place) {
        /* The measured calls work on zeros. In place, any other vector would be
           summed again and again, until it overflows. */
        bench_collective_check(contest, of);
        for (size_t i = 0; i < contest->layers; i++) {
            bench_clear(&contest->operations[i]);
        }
        harness_barrier(&contest->run->harness);
    }
}

/* Returns the mean time of a repetition's calls on this rank. The root changes
   from call to call: if one rank were always the root, it would run ahead of
   its peers, and a call would seem to take no longer than a send. */
static double time_calls(const contest_t *contest, const contestant_t *of)
{
    size_t roots = (size_t)contest->operations->roots;
    double us = 0;
    bench_collective_prepare(contest, of);
    double begin_us = clock_now_us();
    for (size_t i = 0; i < of->calls; i++) {
        if (of->mode != BENCH_WAIT_AT_ONCE) {
            harness_barrier(&contest->run->harness);
            begin_us = clock_now_us();
        }
        double end_us = bench_collective_call(contest, of, (int)(i % roots));
        us += end_us - begin_us;
        begin_us = end_us;
    }
    if (!contest->operations->in_place) {
        bench_collective_check(contest, of);
    }
    return us / (double)of->calls;
}

static void bench_collective_repeat(void *arg, size_t place, double *us)
{
    const contest_t *contest = arg;
    const contestant_t *of = &contest->contestants[place];
    us[CALL_US] = time_calls(contest, of);
    harness_barrier(&contest->run->harness);
    double begin_us = clock_now_us();
    for (size_t i = 0; i < of->calls * contest->layers; i++) {
        bench_collective_compute(contest, of->mode);
    }
    us[COMPUTATION_US] = (clock_now_us() - begin_us) / (double)of->calls;
}

/* ---- life --------------------------------------------------------------- */

/* Chooses the number of calls of a repetition, which is a multiple of the
   number of roots. Returns the time of one call. The first call may take longer
   than a whole repetition, and the next calls several times as long as later
   ones. So trials begin with one call, and each trial has at most TRUSTED_FOR
   times as many calls as the one before. */
static double rehearse(const contest_t *contest, contestant_t *of)
{
    double all_us = (double)contest->run->options.repetition_ms * 1e3;
    size_t roots = (size_t)contest->operations->roots;
    of->calls = roots;
    (void)time_calls(contest, of);
    for (double calls = 1;; calls *= TRUSTED_FOR) {
        of->calls = ((size_t)calls + roots - 1) / roots * roots;
        double us = time_calls(contest, of);
        MPI_Bcast(&us, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        double wanted = fmin(all_us / fmax(us, 1e-3), MAX_CALLS);
        if (wanted <= calls * TRUSTED_FOR) {
            of->calls = ((size_t)fmax(wanted, 1) + roots - 1) / roots * roots;
            return us;
        }
    }
}

/* Measures the number of units of work that take as long as a layer should
   compute. */
static void rehearse_work(contest_t *contest)
{
    harness_barrier(&contest->run->harness);
    double begin_us = clock_now_us();
    bench_collective_work(REHEARSED_UNITS);
    double unit_us = (clock_now_us() - begin_us) / REHEARSED_UNITS;
    double units = contest->layer_us / unit_us;
    contest->units = units < 1 ? 1 : (uint64_t)units;
    MPI_Bcast(&contest->units, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
}

/* Returns the contestant of the same system in the mode AT_ONCE. */
static const contestant_t *at_once(const contest_t *contest,
                                   const contestant_t *of)
{
    return &contest->contestants[of->system - contest->run->options.systems];
}

/* Adds a system in one mode to the contest. In the mode NEVER only Baton's
   systems are added. */
static void add_contestant(contest_t *contest, const bench_system_t *system,
                           bench_wait_t mode)
{
    contestant_t *of = &contest->contestants[contest->count];
    if (mode == BENCH_WAIT_NEVER && system->kind != BENCH_SYSTEM_BATON) {
        return;
    }
    *of = (contestant_t){
        .system = system,
        .mode = mode,
        .runners = harness_alloc(contest->layers, sizeof(*of->runners)),
    };
    contest->count++;
    for (size_t i = 0; i < contest->layers; i++) {
        bench_runner_open(contest->run, system, &contest->operations[i],
                          mode == BENCH_WAIT_NEVER, &of->runners[i]);
    }
    if (mode == BENCH_WAIT_AT_ONCE) {
        double us = rehearse(contest, of) / (double)contest->layers;
        contest->layer_us = fmin(contest->layer_us, us);
    } else {
        size_t calls = at_once(contest, of)->calls;
        of->calls = calls < MAX_OVERLAPPED ? calls : MAX_OVERLAPPED;
    }
}

static void bench_collective_open_contest(contest_t *contest, uint64_t bytes)
{
    const bench_options_t *options = &contest->run->options;
    const cli_list_t *modes = &options->modes;
    contest->operations =
        harness_alloc(contest->layers, sizeof(*contest->operations));
    for (size_t i = 0; i < contest->layers; i++) {
        bench_operation_init(&contest->operations[i], options->collective,
                             contest->run->harness.rank,
                             contest->run->harness.size, bytes);
        bench_memory_open(contest->run, &contest->operations[i]);
    }
    contest->bytes = contest->operations->count * sizeof(float);
    contest->layer_us = INFINITY;
    for (size_t i = 0; i < options->system_count * modes->count; i++) {
        add_contestant(contest, &options->systems[i % options->system_count],
                       (bench_wait_t)modes->words[i / options->system_count]);
    }
    rehearse_work(contest);
}

static void bench_collective_close_contest(contest_t *contest)
{
    harness_barrier(&contest->run->harness);
    for (size_t i = 0; i < contest->count; i++) {
        for (size_t j = 0; j < contest->layers; j++) {
            bench_runner_close(&contest->contestants[i].runners[j]);
        }
        free(contest->contestants[i].runners);
    }
    for (size_t i = 0; i < contest->layers; i++) {
        bench_memory_close(contest->run, &contest->operations[i]);
    }
    free(contest->operations);
}

/* ---- report ------------------------------------------------------------- */

/* Returns the time of the fastest of MPI's systems in a mode of waiting, or
   NAN. */
static double fastest_mpi_us(const contest_t *contest, stats_t (*us)[MEASURES],
                             bench_wait_t mode)
{
    double fastest_us = NAN;
    for (size_t i = 0; i < contest->count; i++) {
        const contestant_t *of = &contest->contestants[i];
        if (of->mode == mode && of->system->kind != BENCH_SYSTEM_BATON) {
            fastest_us = fmin(fastest_us, us[i][CALL_US].median);
        }
    }
    return fastest_us;
}

/* Adds the row of one contestant. It is compared with MPI's systems in the same
   mode of waiting; in the mode NEVER, which MPI does not have, in AT_ONCE. */
static void bench_collective_add_row(const contest_t *contest, size_t place,
                                     stats_t (*us)[MEASURES])
{
    const bench_options_t *options = &contest->run->options;
    const contestant_t *of = &contest->contestants[place];
    const stats_t *call = &us[place][CALL_US];
    bool sweeps = options->modes.count * options->places.count *
                      options->memories.count * options->layers.count >
                  1;
    double alone_us =
        us[at_once(contest, of) - contest->contestants][CALL_US].median;
    double mpi_us = fastest_mpi_us(
        contest, us,
        of->mode == BENCH_WAIT_NEVER ? BENCH_WAIT_AT_ONCE : of->mode);
    bool computes =
        of->mode == BENCH_WAIT_SLEEP || of->mode == BENCH_WAIT_PROCESSOR;
    double computation_us = computes ? us[place][COMPUTATION_US].median : NAN;
    double hidden = (alone_us + computation_us - call->median) /
                    fmin(alone_us, computation_us);
    const table_cell_t cells[] = {
        TEXT("collective", NULL, 0, options->name),
        TEXT("system", "system", 24, of->system->name),
        NUMBER("ranks", NULL, 0, 0, contest->run->harness.size),
        NUMBER("hosts", NULL, 0, 0,
               baton_schedule_hosts(contest->run->harness.barrier)),
        NUMBER("bytes", "bytes", 9, 0, contest->bytes),
        TEXT("way", sweeps ? "way" : NULL, 9, bench_wait_names[of->mode]),
        TEXT("memory", sweeps ? "memory" : NULL, 6,
             bench_memory_names[options->memory]),
        TEXT("place", sweeps ? "place" : NULL, 5,
             bench_place_names[options->in_place]),
        NUMBER("layers", sweeps ? "layers" : NULL, 6, 0, contest->layers),
        NUMBER("median_us", "median us", 10, 2, call->median),
        NUMBER("ratio_to_best_mpi", "best MPI", 8, 2, mpi_us / call->median),
        NUMBER("p10_us", "p10", 10, 2, call->p10),
        NUMBER("p90_us", "p90", 10, 2, call->p90),
        NUMBER("computation_us", sweeps ? "compute us" : NULL, 10, 2,
               computation_us),
        NUMBER("hidden_percent", sweeps ? "hidden %" : NULL, 8, 1,
               computes ? 100 * fmin(1, fmax(0, hidden)) : NAN),
    };
    table_row(&contest->run->table, cells, sizeof cells / sizeof *cells);
}

/* ---- the command -------------------------------------------------------- */

static void bench_collective_measure(bench_run_t *run, size_t layers,
                                     uint64_t bytes)
{
    contest_t contest = {.run = run, .layers = layers};
    stats_t us[CLI_MOST_ITEMS * BENCH_WAIT_MODES][MEASURES];
    bench_collective_open_contest(&contest, bytes);
    const bench_comparison_t comparison = {.systems = contest.count,
                                           .measures = MEASURES,
                                           .measure = bench_collective_repeat,
                                           .arg = &contest};
    bench_compare(run, &comparison, *us);
    for (size_t i = 0; run->prints && i < contest.count; i++) {
        bench_collective_add_row(&contest, i, us);
    }
    bench_collective_close_contest(&contest);
}

bool bench_collective_run(bench_run_t *run)
{
    bench_options_t *options = &run->options;
    const cli_list_t *memories = &options->memories, *places = &options->places,
                     *layers = &options->layers, *bytes = &options->bytes;
    static char series[48];
    if (bench_remove_unable(run) == 0) {
        return true;
    }
    (void)snprintf(series, sizeof(series), "system%s%s%s%s",
                   options->modes.count > 1 ? " way" : "",
                   memories->count > 1 ? " memory" : "",
                   places->count > 1 ? " place" : "",
                   layers->count > 1 ? " layers" : "");
    run->table.x = "bytes";
    run->table.y = "median_us";
    run->table.series = series;
    (void)snprintf(run->table.title, sizeof(run->table.title), "%s of %d ranks",
                   options->name, run->harness.size);
    run->points =
        memories->count * places->count * layers->count * bytes->count;
    for (size_t i = 0; i < run->points; i++) {
        size_t rest = i / bytes->count / layers->count;
        options->memory = memories->words[rest / places->count];
        options->in_place = places->words[rest % places->count] == 1;
        bench_collective_measure(
            run, (size_t)layers->numbers[i / bytes->count % layers->count],
            bytes->numbers[i % bytes->count]);
    }
    return true;
}
