/* baton-bench overlap: all-reduces while the application computes or sleeps. */
#include "bench/bench.h"
#include <math.h>
#include <stdlib.h>

enum {
    UNIT_STEPS = 64,
    REHEARSALS = 5, /* or as many as there are turns, if that is fewer */
    FITS = 3,
    /* A phase of a turn is repeated as long as the vectors of its iterations
       are no longer than this altogether, but so many times at most. */
    TURN_BYTES = 16 << 20,
    MAX_ITERATIONS = 20
};

/* What is timed in a turn. */
typedef enum phase {
    COMMUNICATION, /* all-reduces one after another */
    COMPUTATION,
    BOTH,
    PHASES
} phase_t;

/* A system with all-reduces for each layer. Those that overlap are others than
   those that are waited for at once: an application does one or the other with
   a schedule, and Baton learns which. */
typedef struct contestant {
    bench_runner_t *runners;    /* [layers] */
    bench_runner_t *overlapped; /* [layers] */
    double layer_us; /* an all-reduce alone: as long a layer computes */
    uint64_t units;  /* of work that take as long */
    double start_us; /* processor time of a start, summed up, and of how many */
    double starts;
} contestant_t;

typedef struct contest {
    bench_run_t *run;
    bench_compute_t kind;
    uint64_t bytes;
    size_t layers;
    bench_operation_t *operations; /* [layers] */
    contestant_t contestants[BENCH_MAX_SYSTEMS];
} contest_t;

/* ---- computation -------------------------------------------------------- */

/* Work that can't be left out, and that needs no memory. */
static void work(uint64_t units)
{
    static volatile double sink;
    double value = sink;
    for (uint64_t i = 0; i < units * UNIT_STEPS; i++) {
        value = value * 0.999 + 1e-3;
    }
    sink = value;
}

static void compute(const contestant_t *system, bench_compute_t kind)
{
    if (kind == BENCH_COMPUTE_SLEEP) {
        clock_sleep_until(clock_now_us() + system->layer_us);
    } else if (kind == BENCH_COMPUTE_PROCESSOR) {
        work(system->units);
    }
}

/* ---- a turn ------------------------------------------------------------- */

static void communicate(const contest_t *contest, const contestant_t *system)
{
    for (size_t i = 0; i < contest->layers; i++) {
        bench_runner_start(&system->runners[i]);
        bench_runner_wait(&system->runners[i]);
    }
}

/* Each all-reduce begins, and is in flight while the next layer computes. */
static void overlap(const contest_t *contest, contestant_t *system,
                    bench_compute_t kind)
{
    for (size_t i = 0; i < contest->layers; i++) {
        double used_us = clock_thread_us();
        bench_runner_start(&system->overlapped[i]);
        system->start_us += clock_thread_us() - used_us;
        system->starts++;
        compute(system, kind);
    }
    for (size_t i = 0; i < contest->layers; i++) {
        bench_runner_wait(&system->overlapped[i]);
    }
}

static void fill(const contest_t *contest)
{
    for (size_t i = 0; i < contest->layers; i++) {
        bench_fill(&contest->operations[i]);
    }
}

/* One iteration. The vectors have been written just before, as gradients are,
   in each phase alike. */
static double time_once(const contest_t *contest, contestant_t *system,
                        phase_t phase, bench_compute_t kind)
{
    fill(contest);
    harness_barrier(&contest->run->harness);
    double begin_us = clock_now_us();
    switch (phase) {
    case COMMUNICATION:
        communicate(contest, system);
        break;
    case COMPUTATION:
        for (size_t i = 0; i < contest->layers; i++) {
            compute(system, kind);
        }
        break;
    case BOTH:
        overlap(contest, system, kind);
        break;
    case PHASES:
        break;
    }
    return clock_now_us() - begin_us;
}

/* The mean of a turn's iterations, after one that is not counted: what ran
   before it was another phase, or another system. */
static double time_phase(const contest_t *contest, contestant_t *system,
                         phase_t phase, bench_compute_t kind)
{
    uint64_t bytes = contest->bytes * contest->layers;
    uint64_t fit = bytes > 0 ? TURN_BYTES / bytes : MAX_ITERATIONS;
    int iterations = fit < 1                ? 1
                     : fit > MAX_ITERATIONS ? MAX_ITERATIONS
                                            : (int)fit;
    (void)time_once(contest, system, phase, kind);
    double us = 0;
    for (int i = 0; i < iterations; i++) {
        us += time_once(contest, system, phase, kind);
    }
    return us / iterations;
}

/* The three phases, and the processor time in start while they overlap. */
static void take(void *arg, size_t place, size_t turn, double *us)
{
    contest_t *contest = arg;
    contestant_t *system = &contest->contestants[place];
    (void)turn;
    system->start_us = system->starts = 0;
    for (size_t phase = 0; phase < PHASES; phase++) {
        us[phase] = time_phase(contest, system, (phase_t)phase, contest->kind);
    }
    us[PHASES] = system->start_us / system->starts;
    for (size_t i = 0; i < contest->layers; i++) {
        bench_check(&system->overlapped[i]);
    }
}

/* ---- life --------------------------------------------------------------- */

/* The time of a layer in a phase: the median of the slowest rank, the same on
   all ranks. */
static double rehearse_phase(const contest_t *contest, contestant_t *system,
                             phase_t phase)
{
    double us[REHEARSALS];
    uint64_t turns = contest->run->options.repetitions;
    int times = turns < REHEARSALS ? (int)turns : REHEARSALS;
    for (int i = 0; i < times; i++) {
        us[i] = time_phase(contest, system, phase, BENCH_COMPUTE_PROCESSOR);
    }
    MPI_Allreduce(MPI_IN_PLACE, us, times, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return stats_median(us, (size_t)times) / (double)contest->layers;
}

/* Finds out how long an all-reduce takes, and how much work takes as long while
   all ranks work. */
static void rehearse(const contest_t *contest, contestant_t *system)
{
    system->layer_us = rehearse_phase(contest, system, COMMUNICATION);
    system->units = 100;
    for (int fit = 0; fit < FITS; fit++) {
        double us = rehearse_phase(contest, system, COMPUTATION);
        double units = (double)system->units * system->layer_us / us;
        system->units = units < 1 ? 1 : (uint64_t)units;
    }
}

static bench_runner_t *open_runners(const contest_t *contest, size_t system)
{
    bench_runner_t *runners =
        harness_alloc(contest->layers, sizeof(bench_runner_t));
    for (size_t i = 0; i < contest->layers; i++) {
        bench_runner_open(contest->run, &contest->run->options.systems[system],
                          &contest->operations[i], &runners[i]);
    }
    return runners;
}

static void close_runners(const contest_t *contest, bench_runner_t *runners)
{
    for (size_t i = 0; i < contest->layers; i++) {
        bench_runner_close(&runners[i]);
    }
    free(runners);
}

static void open_contest(contest_t *contest)
{
    const harness_t *harness = &contest->run->harness;
    contest->operations =
        harness_alloc(contest->layers, sizeof(*contest->operations));
    for (size_t i = 0; i < contest->layers; i++) {
        bench_operation_t *operation = &contest->operations[i];
        bench_operation_init(operation, BATON_COLLECTIVE_ALLREDUCE,
                             harness->rank, harness->size, contest->bytes);
        bench_memory_open(contest->run, operation);
    }
    for (size_t i = 0; i < contest->run->options.system_count; i++) {
        contestant_t *system = &contest->contestants[i];
        system->runners = open_runners(contest, i);
        system->overlapped = open_runners(contest, i);
        rehearse(contest, system);
    }
}

static void close_contest(contest_t *contest)
{
    harness_barrier(&contest->run->harness);
    for (size_t i = 0; i < contest->run->options.system_count; i++) {
        close_runners(contest, contest->contestants[i].runners);
        close_runners(contest, contest->contestants[i].overlapped);
    }
    for (size_t i = 0; i < contest->layers; i++) {
        bench_memory_close(contest->run, &contest->operations[i]);
    }
    free(contest->operations);
}

/* ---- report ------------------------------------------------------------- */

static void add_row(const contest_t *contest, size_t system,
                    const stats_t us[PHASES + 1])
{
    table_t *table = &contest->run->table;
    double communication_us = us[COMMUNICATION].median;
    double computation_us = us[COMPUTATION].median;
    double both_us = us[BOTH].median;
    double hidden = 1 - (both_us - computation_us) / communication_us;
    table_text(table, "system", "system", 12,
               contest->run->options.systems[system].name);
    table_text(table, "compute", "compute", 9,
               bench_compute_names[contest->kind]);
    table_number(table, "ranks", NULL, 0, 0, contest->run->harness.size);
    table_number(table, "layers", "layers", 6, 0, (double)contest->layers);
    table_number(table, "bytes", "bytes", 9, 0, (double)contest->bytes);
    table_number(table, "communication_us", "communic us", 11, 1,
                 communication_us);
    table_number(table, "computation_us", "compute us", 11, 1, computation_us);
    table_number(table, "both_us", "both us", 11, 1, both_us);
    table_number(table, "hidden_percent", "hidden %", 8, 1,
                 100 * fmin(1, fmax(0, hidden)));
    table_number(table, "over_larger", "over larger", 11, 2,
                 both_us / fmax(communication_us, computation_us));
    table_number(table, "over_sum", "over sum", 8, 2,
                 both_us / (communication_us + computation_us));
    table_number(table, "both_p90_us", "both p90", 11, 1, us[BOTH].p90);
    table_number(table, "start_us", "start us", 8, 1, us[PHASES].median);
    table_row(table);
}

static void measure(contest_t *contest)
{
    stats_t stats[BENCH_MAX_SYSTEMS][PHASES + 1];
    const bench_options_t *options = &contest->run->options;
    const bench_turns_t turns = {.systems = options->system_count,
                                 .measures = PHASES + 1,
                                 .turns = (size_t)options->repetitions,
                                 .take = take,
                                 .arg = contest};
    bench_turns(contest->run, &turns, &stats[0][0]);
    for (size_t i = 0; contest->run->speak && i < options->system_count; i++) {
        add_row(contest, i, stats[i]);
    }
}

static bool run_overlap(bench_run_t *run)
{
    const bench_options_t *options = &run->options;
    contest_t contest = {.run = run};
    if (bench_keep_able(run) == 0) {
        return true;
    }
    for (size_t l = 0; l < options->layer_count; l++) {
        for (size_t s = 0; s < options->size_count; s++) {
            contest.layers = (size_t)options->layers[l];
            contest.bytes = options->bytes[s];
            open_contest(&contest);
            for (size_t c = 0; c < options->compute_count; c++) {
                contest.kind = (bench_compute_t)options->computes[c];
                measure(&contest);
            }
            close_contest(&contest);
        }
    }
    return true;
}

const bench_t bench_overlap = {
    BENCH_OVERLAP,
    "all-reduces in flight while the application computes, each checked",
    run_overlap};
