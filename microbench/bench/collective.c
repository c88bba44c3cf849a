/* baton-bench allreduce, bcast, ...: compares systems that run one collective:
   for each size, for each kind of memory, in place and not in place, and for
   each way in which the application computes meanwhile. */
#include "bench/bench.h"
#include <math.h>
#include <stdlib.h>

enum {
    MAX_CALLS = 10000,
    /* The most calls of one turn in the ways other than WAIT. */
    MAX_OVERLAPPED = 20,
    TRUSTED_FOR = 4,
    UNIT_STEPS = 64,
    REHEARSED_UNITS = 200
};

/* A system with a runner for each way and layer. Each schedule is used in one
   way only, as in an application, so that Baton learns how it is used. */
typedef struct contestant {
    bench_runner_t *runners; /* an array of [ways][layers] */
    size_t calls;            /* number of calls of this system in one turn */
} contestant_t;

/* All systems at one point of the measurement. */
typedef struct contest {
    bench_run_t *run;
    uint64_t bytes; /* bytes of the vector, rounded up to whole blocks */
    size_t layers;
    bench_operation_t *operations; /* an array of [layers] */
    contestant_t contestants[CLI_MOST_ITEMS];
    /* The time that the computation of a layer takes: the fastest system's time
       for the collective. */
    double layer_us;
    /* The number of units of work that together take layer_us while all ranks
       compute. */
    uint64_t units;
} contest_t;

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

static void bench_collective_compute(const contest_t *contest, bench_way_t way)
{
    if (way == BENCH_WAY_SLEEP) {
        clock_sleep_until(clock_now_us() + contest->layer_us);
    } else if (way == BENCH_WAY_PROCESSOR) {
        bench_collective_work(contest->units);
    }
}

static bool bench_collective_computes(bench_way_t way)
{
    return way == BENCH_WAY_SLEEP || way == BENCH_WAY_PROCESSOR;
}

/* ---- turns -------------------------------------------------------------- */

/* Runs the operation once on each layer. Returns the time at which the last
   layer's operation ended. */
static double bench_collective_call(const contest_t *contest,
                                    bench_runner_t *runners, bench_way_t way,
                                    int root)
{
    double end_us = 0;
    for (size_t i = 0; i < contest->layers; i++) {
        runners[i].operation->root = root;
        bench_runner_start(&runners[i]);
        bench_collective_compute(contest, way);
        if (way == BENCH_WAY_WAIT) {
            bench_runner_wait(&runners[i]);
        }
    }
    for (size_t i = 0; i < contest->layers; i++) {
        if (way == BENCH_WAY_UNWAITED) {
            end_us = fmax(end_us, bench_runner_watch(&runners[i]));
        } else if (way != BENCH_WAY_WAIT) {
            bench_runner_wait(&runners[i]);
        }
    }
    return way == BENCH_WAY_UNWAITED ? end_us : clock_now_us();
}

static void bench_collective_check(const contest_t *contest,
                                   const bench_runner_t *runners)
{
    for (size_t i = 0; i < contest->layers; i++) {
        bench_check(&runners[i]);
    }
}

/* Fills the vectors and runs the operation once. In place, also checks the
   result and then sets the vectors to zero. */
static void bench_collective_prepare(const contest_t *contest,
                                     bench_runner_t *runners, bench_way_t way)
{
    int root = contest->operations->roots - 1;
    for (size_t i = 0; i < contest->layers; i++) {
        contest->operations[i].root = root;
        bench_fill(&contest->operations[i]);
    }
    harness_barrier(&contest->run->harness);
    (void)bench_collective_call(contest, runners, way, root);
    if (contest->operations->in_place) {
        /* The measured calls work on zeros: in place, other vectors would be
           summed again and again, and overflow. */
        bench_collective_check(contest, runners);
        for (size_t i = 0; i < contest->layers; i++) {
            bench_clear(&contest->operations[i]);
        }
        harness_barrier(&contest->run->harness);
    }
}

static size_t calls_of(const contestant_t *system, bench_way_t way)
{
    return way != BENCH_WAY_WAIT && system->calls > MAX_OVERLAPPED
               ? MAX_OVERLAPPED
               : system->calls;
}

/* Returns the mean time of the turn's calls on this rank. All ranks take turns
   as the root: if one rank were always the root, it would run ahead of its
   peers, and a call would seem to take no longer than a send. */
static double time_way(const contest_t *contest, const contestant_t *system,
                       size_t place)
{
    bench_way_t way = (bench_way_t)contest->run->options.ways.words[place];
    bench_runner_t *runners = &system->runners[place * contest->layers];
    size_t calls = calls_of(system, way);
    size_t roots = (size_t)contest->operations->roots;
    double us = 0;
    bench_collective_prepare(contest, runners, way);
    double begin_us = clock_now_us();
    for (size_t i = 0; i < calls; i++) {
        if (way != BENCH_WAY_WAIT) {
            harness_barrier(&contest->run->harness);
            begin_us = clock_now_us();
        }
        double end_us =
            bench_collective_call(contest, runners, way, (int)(i % roots));
        us += end_us - begin_us;
        begin_us = end_us;
    }
    if (!contest->operations->in_place) {
        bench_collective_check(contest, runners);
    }
    return us / (double)calls;
}

/* Returns the time of the layers' computation without a collective. */
static double time_computation(const contest_t *contest,
                               const contestant_t *system, bench_way_t way)
{
    size_t calls = calls_of(system, way);
    harness_barrier(&contest->run->harness);
    double begin_us = clock_now_us();
    for (size_t i = 0; i < calls * contest->layers; i++) {
        bench_collective_compute(contest, way);
    }
    return (clock_now_us() - begin_us) / (double)calls;
}

static bool is_measured(const bench_run_t *run, size_t system, bench_way_t way)
{
    return way != BENCH_WAY_UNWAITED ||
           run->options.systems[system].kind == BENCH_SYSTEM_BATON;
}

/* Stores the time of the system in each way, and then the time of each way's
   computation alone. */
static void bench_collective_take(void *arg, size_t place, size_t turn,
                                  double *us)
{
    const contest_t *contest = arg;
    const bench_options_t *options = &contest->run->options;
    const contestant_t *system = &contest->contestants[place];
    (void)turn;
    for (size_t i = 0; i < options->ways.count; i++) {
        bench_way_t way = (bench_way_t)options->ways.words[i];
        us[i] = is_measured(contest->run, place, way)
                    ? time_way(contest, system, i)
                    : 0;
        us[options->ways.count + i] =
            bench_collective_computes(way)
                ? time_computation(contest, system, way)
                : 0;
    }
}

/* ---- life --------------------------------------------------------------- */

/* Chooses the number of calls of a turn, which is a multiple of the number of
   roots. Returns the time of one call. The first call may take longer than a
   whole turn, and the next calls several times as long as later ones. So trials
   begin with one call, and each trial has at most TRUSTED_FOR times as many
   calls as the one before. */
static double rehearse(const contest_t *contest, contestant_t *system)
{
    double turn_us = (double)contest->run->options.turn_ms * 1e3;
    size_t roots = (size_t)contest->operations->roots;
    system->calls = roots;
    (void)time_way(contest, system, 0);
    for (double calls = 1;; calls *= TRUSTED_FOR) {
        system->calls = ((size_t)calls + roots - 1) / roots * roots;
        double us = time_way(contest, system, 0);
        MPI_Bcast(&us, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        double wanted = fmin(turn_us / fmax(us, 1e-3), MAX_CALLS);
        if (wanted <= calls * TRUSTED_FOR) {
            system->calls =
                ((size_t)fmax(wanted, 1) + roots - 1) / roots * roots;
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

static void open_system(const contest_t *contest, size_t place,
                        contestant_t *out)
{
    const bench_options_t *options = &contest->run->options;
    size_t count = options->ways.count * contest->layers;
    out->runners = harness_alloc(count, sizeof(*out->runners));
    for (size_t i = 0; i < count; i++) {
        bench_way_t way = (bench_way_t)options->ways.words[i / contest->layers];
        bench_runner_open(contest->run, &options->systems[place],
                          &contest->operations[i % contest->layers],
                          way == BENCH_WAY_UNWAITED, &out->runners[i]);
    }
}

static void bench_collective_open_contest(contest_t *contest, uint64_t bytes)
{
    const harness_t *harness = &contest->run->harness;
    contest->operations =
        harness_alloc(contest->layers, sizeof(*contest->operations));
    for (size_t i = 0; i < contest->layers; i++) {
        bench_operation_t *operation = &contest->operations[i];
        bench_operation_init(operation, contest->run->options.collective,
                             harness->rank, harness->size, bytes);
        bench_memory_open(contest->run, operation);
    }
    contest->bytes = contest->operations->count * sizeof(float);
    contest->layer_us = INFINITY;
    for (size_t i = 0; i < contest->run->options.system_count; i++) {
        contestant_t *system = &contest->contestants[i];
        open_system(contest, i, system);
        double us = rehearse(contest, system) / (double)contest->layers;
        contest->layer_us = fmin(contest->layer_us, us);
    }
    rehearse_work(contest);
}

static void bench_collective_close_contest(contest_t *contest)
{
    const bench_options_t *options = &contest->run->options;
    harness_barrier(&contest->run->harness);
    for (size_t i = 0; i < options->system_count; i++) {
        for (size_t j = 0; j < options->ways.count * contest->layers; j++) {
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

/* Adds the row of one system in one way. `us` has the system's times in each
   way, and then the times of each way's computation alone. */
static void bench_collective_add_row(const contest_t *contest, size_t system,
                                     size_t place, const stats_t *us,
                                     double mpi_us)
{
    const bench_options_t *options = &contest->run->options;
    bench_way_t way = (bench_way_t)options->ways.words[place];
    bool sweeps = options->ways.count * options->places.count *
                      options->memories.count * options->layers.count >
                  1;
    double alone_us = us[BENCH_WAY_WAIT].median;
    double computation_us = us[options->ways.count + place].median;
    double hidden = (alone_us + computation_us - us[place].median) /
                    fmin(alone_us, computation_us);
    table_t *table = &contest->run->table;
    const table_cell_t cells[] = {
        TEXT("collective", NULL, 0, options->name),
        TEXT("system", "system", 24, options->systems[system].name),
        NUMBER("ranks", NULL, 0, 0, contest->run->harness.size),
        NUMBER("hosts", NULL, 0, 0,
               baton_schedule_hosts(contest->run->harness.barrier)),
        NUMBER("bytes", "bytes", 9, 0, contest->bytes),
        TEXT("way", sweeps ? "way" : NULL, 9, bench_way_names[way]),
        TEXT("memory", sweeps ? "memory" : NULL, 6,
             bench_memory_names[options->memory]),
        TEXT("place", sweeps ? "place" : NULL, 5,
             bench_place_names[options->in_place]),
        NUMBER("layers", sweeps ? "layers" : NULL, 6, 0,
               (double)contest->layers),
        NUMBER("median_us", "median us", 10, 2, us[place].median),
        NUMBER("ratio_to_best_mpi", "best MPI", 8, 2,
               mpi_us / us[place].median),
        NUMBER("p10_us", "p10", 10, 2, us[place].p10),
        NUMBER("p90_us", "p90", 10, 2, us[place].p90),
        NUMBER("computation_us", sweeps ? "compute us" : NULL, 10, 2,
               bench_collective_computes(way) ? computation_us : NAN),
        NUMBER("hidden_percent", sweeps ? "hidden %" : NULL, 8, 1,
               bench_collective_computes(way) ? 100 * fmin(1, fmax(0, hidden))
                                              : NAN),
    };
    table_row(table, cells, sizeof cells / sizeof *cells);
}

/* Returns the time of MPI's fastest system in this way. In the way UNWAITED no
   system of MPI is measured, so then returns the time in the way WAIT. */
static double best_mpi_us(const bench_options_t *options, size_t place,
                          const stats_t *us)
{
    double best_us = NAN;
    size_t way = options->ways.words[place] == BENCH_WAY_UNWAITED ? 0 : place;
    for (size_t i = 0; i < options->system_count; i++) {
        if (options->systems[i].kind != BENCH_SYSTEM_BATON) {
            best_us =
                fmin(best_us, us[i * options->ways.count * 2 + way].median);
        }
    }
    return best_us;
}

static void bench_collective_report(const contest_t *contest, const stats_t *us)
{
    bench_run_t *run = contest->run;
    const bench_options_t *options = &run->options;
    for (size_t way = 0; way < options->ways.count; way++) {
        double mpi_us = best_mpi_us(options, way, us);
        for (size_t i = 0; i < options->system_count; i++) {
            if (is_measured(run, i, (bench_way_t)options->ways.words[way])) {
                bench_collective_add_row(
                    contest, i, way, &us[i * options->ways.count * 2], mpi_us);
            }
        }
    }
}

/* ---- all of it ---------------------------------------------------------- */

static void bench_collective_measure(bench_run_t *run, size_t layers,
                                     uint64_t bytes)
{
    const bench_options_t *options = &run->options;
    stats_t us[CLI_MOST_ITEMS * BENCH_WAYS * 2];
    contest_t contest = {.run = run, .layers = layers};
    const bench_turns_t turns = {.systems = options->system_count,
                                 .measures = options->ways.count * 2,
                                 .turns = (size_t)options->repetitions,
                                 .take = bench_collective_take,
                                 .arg = &contest};
    bench_collective_open_contest(&contest, bytes);
    bench_turns(run, &turns, us);
    if (run->speak) {
        bench_collective_report(&contest, us);
    }
    bench_collective_close_contest(&contest);
}

bool bench_collective_run(bench_run_t *run)
{
    bench_options_t *options = &run->options;
    const cli_list_t *memories = &options->memories, *places = &options->places,
                     *layers = &options->layers, *bytes = &options->bytes;
    static char series[48];
    if (bench_keep_able(run) == 0) {
        return true;
    }
    (void)snprintf(series, sizeof(series), "system%s%s%s%s",
                   options->ways.count > 1 ? " way" : "",
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
