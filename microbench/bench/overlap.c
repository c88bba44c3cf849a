/* baton-bench overlap: all-reduces while the application computes or sleeps. */
#include "bench/options.h"
#include "bench/system.h"
#include "common/table.h"
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
} contestant_t;

typedef struct contest {
    const harness_t *harness;
    const bench_options_t *options;
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
    } else {
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
static void overlap(const contest_t *contest, const contestant_t *system,
                    bench_compute_t kind)
{
    for (size_t i = 0; i < contest->layers; i++) {
        bench_runner_start(&system->overlapped[i]);
        compute(system, kind);
    }
    for (size_t i = 0; i < contest->layers; i++) {
        bench_runner_wait(&system->overlapped[i]);
    }
}

static void fill(const contest_t *contest)
{
    for (size_t i = 0; i < contest->layers; i++) {
        bench_operation_fill(&contest->operations[i]);
    }
}

/* One iteration. The vectors have been written just before, as gradients are,
   in each phase alike. */
static double time_once(const contest_t *contest, const contestant_t *system,
                        phase_t phase, bench_compute_t kind)
{
    fill(contest);
    harness_barrier(contest->harness);
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
static double time_phase(const contest_t *contest, const contestant_t *system,
                         phase_t phase, bench_compute_t kind)
{
    uint64_t fit = TURN_BYTES / (contest->bytes * contest->layers);
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

static void check(const contest_t *contest, const contestant_t *system)
{
    for (size_t i = 0; i < contest->layers; i++) {
        const bench_operation_t *operation = &contest->operations[i];
        size_t wrong = bench_operation_check(operation);
        if (wrong < operation->target_count) {
            (void)fprintf(stderr,
                          "rank %d: layer %zu by %s: element %zu is %g, "
                          "expected %g\n",
                          operation->rank, i, system->runners[0].system.name,
                          wrong, (double)operation->target[wrong],
                          (double)bench_operation_expected(operation, wrong));
            MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
        }
    }
}

/* `us`: [PHASES][turns], of which this turn's are written. */
static void take_turn(const contest_t *contest, const contestant_t *system,
                      bench_compute_t kind, size_t turn, double *us)
{
    size_t turns = (size_t)contest->options->repetitions;
    bench_runner_begin_turn(&system->runners[0]);
    for (size_t phase = 0; phase < PHASES; phase++) {
        us[phase * turns + turn] =
            time_phase(contest, system, (phase_t)phase, kind);
    }
    bench_runner_end_turn(&system->runners[0]);
    check(contest, system);
}

/* ---- life --------------------------------------------------------------- */

/* The time of a layer in a phase: the median of the slowest rank, the same on
   all ranks. */
static double rehearse_phase(const contest_t *contest,
                             const contestant_t *system, phase_t phase)
{
    double us[REHEARSALS];
    uint64_t turns = contest->options->repetitions;
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
    bench_runner_begin_turn(&system->runners[0]);
    system->layer_us = rehearse_phase(contest, system, COMMUNICATION);
    bench_runner_end_turn(&system->runners[0]);
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
        bench_runner_open(contest->harness, &contest->options->systems[system],
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
    const harness_t *harness = contest->harness;
    contest->operations =
        harness_alloc(contest->layers, sizeof(*contest->operations));
    for (size_t i = 0; i < contest->layers; i++) {
        bench_operation_t *operation = &contest->operations[i];
        bench_operation_init(operation, BATON_COLLECTIVE_ALLREDUCE,
                             harness->rank, harness->size, contest->bytes);
        bench_memory_alloc(harness, (bench_memory_t)contest->options->memory,
                           operation);
    }
    for (size_t i = 0; i < contest->options->system_count; i++) {
        contestant_t *system = &contest->contestants[i];
        system->runners = open_runners(contest, i);
        system->overlapped = open_runners(contest, i);
        rehearse(contest, system);
    }
}

static void close_contest(contest_t *contest)
{
    harness_barrier(contest->harness);
    for (size_t i = 0; i < contest->options->system_count; i++) {
        close_runners(contest, contest->contestants[i].runners);
        close_runners(contest, contest->contestants[i].overlapped);
    }
    for (size_t i = 0; i < contest->layers; i++) {
        bench_memory_free(contest->harness,
                          (bench_memory_t)contest->options->memory,
                          &contest->operations[i]);
    }
    free(contest->operations);
}

/* ---- report ------------------------------------------------------------- */

static const table_column_t columns[] = {
    {"system", "system", TABLE_TEXT, 12, 0},
    {"compute", "compute", TABLE_TEXT, 9, 0},
    {"ranks", NULL, TABLE_FIXED, 0, 0},
    {"layers", "layers", TABLE_FIXED, 6, 0},
    {"bytes", "bytes", TABLE_FIXED, 9, 0},
    {"communication_us", "communic us", TABLE_FIXED, 11, 1},
    {"computation_us", "compute us", TABLE_FIXED, 11, 1},
    {"both_us", "both us", TABLE_FIXED, 11, 1},
    {"hidden_percent", "hidden %", TABLE_FIXED, 8, 1},
    {"over_larger", "over larger", TABLE_FIXED, 11, 2},
    {"over_sum", "over sum", TABLE_FIXED, 8, 2},
};
enum { COLUMNS = sizeof(columns) / sizeof(columns[0]) };

static void add_row(const contest_t *contest, table_t *table, size_t system,
                    bench_compute_t kind, const double median_us[PHASES])
{
    double communication_us = median_us[COMMUNICATION];
    double computation_us = median_us[COMPUTATION];
    double both_us = median_us[BOTH];
    double hidden = 1 - (both_us - computation_us) / communication_us;
    const table_cell_t cells[COLUMNS] = {
        table_text(contest->options->systems[system].name),
        table_text(kind == BENCH_COMPUTE_SLEEP ? "sleep" : "processor"),
        table_number(contest->harness->size),
        table_number((double)contest->layers),
        table_number((double)contest->bytes),
        table_number(communication_us),
        table_number(computation_us),
        table_number(both_us),
        table_number(100 * fmin(1, fmax(0, hidden))),
        table_number(both_us / fmax(communication_us, computation_us)),
        table_number(both_us / (communication_us + computation_us)),
    };
    table_row(table, cells);
}

/* Medians of the slowest rank's times. `us` is used up. */
static void report_system(const contest_t *contest, table_t *table,
                          size_t system, bench_compute_t kind, double *us)
{
    size_t turns = (size_t)contest->options->repetitions;
    bool speak = contest->harness->rank == 0;
    double median_us[PHASES];
    MPI_Reduce(speak ? MPI_IN_PLACE : us, us, (int)(PHASES * turns), MPI_DOUBLE,
               MPI_MAX, 0, MPI_COMM_WORLD);
    for (size_t phase = 0; phase < PHASES; phase++) {
        median_us[phase] = stats_median(&us[phase * turns], turns);
    }
    if (speak) {
        add_row(contest, table, system, kind, median_us);
    }
}

/* The systems take turns, for each kind of computation. */
static void measure(const contest_t *contest, bench_compute_t kind,
                    table_t *table)
{
    size_t turns = (size_t)contest->options->repetitions;
    size_t systems = contest->options->system_count;
    double *us = harness_alloc(systems * PHASES * turns, sizeof(double));
    for (size_t turn = 0; turn < turns; turn++) {
        for (size_t i = 0; i < systems; i++) {
            size_t place = (turn + i) % systems;
            take_turn(contest, &contest->contestants[place], kind, turn,
                      &us[place * PHASES * turns]);
        }
    }
    for (size_t i = 0; i < systems; i++) {
        report_system(contest, table, i, kind, &us[i * PHASES * turns]);
    }
    free(us);
}

/* ---- all of it ---------------------------------------------------------- */

static void measure_all(const harness_t *harness,
                        const bench_options_t *options, table_t *table)
{
    contest_t contest = {.harness = harness, .options = options};
    for (size_t l = 0; l < options->layer_count; l++) {
        for (size_t s = 0; s < options->size_count; s++) {
            contest.layers = (size_t)options->layers[l];
            contest.bytes = options->bytes[s];
            open_contest(&contest);
            for (size_t c = 0; c < options->compute_count; c++) {
                measure(&contest, (bench_compute_t)options->computes[c], table);
            }
            close_contest(&contest);
        }
    }
}

static void print_head(const table_t *table, const bench_options_t *options,
                       int ranks)
{
    (void)printf("# baton-bench overlap, %d ranks: all-reduces in flight while "
                 "the application computes; medians of %llu turns of the "
                 "slowest rank, every result checked\n",
                 ranks, (unsigned long long)options->repetitions);
    table_heading(table);
}

/* Why a system can't take part, or NULL. */
static const char *lack(const bench_options_t *options, size_t *system_out)
{
    for (size_t i = 0; i < options->system_count; i++) {
        const char *reason = bench_system_lacks(&options->systems[i],
                                                BATON_COLLECTIVE_ALLREDUCE);
        if (reason != NULL) {
            *system_out = i;
            return reason;
        }
    }
    return NULL;
}

int bench_overlap(const bench_options_t *options)
{
    harness_t harness;
    table_t table;
    size_t lacking = 0;
    harness_open(&harness);
    bool speak = harness.rank == 0;
    const char *reason = lack(options, &lacking);
    bool passed = harness_agree(
        !speak || (reason == NULL && table_open(&table, columns, COLUMNS,
                                                options->csv, options->json)));
    if (reason != NULL && speak) {
        (void)fprintf(stderr, "baton-bench overlap: --systems: %s: %s\n",
                      options->systems[lacking].name, reason);
    }
    if (passed) {
        if (speak) {
            print_head(&table, options, harness.size);
        }
        measure_all(&harness, options, &table);
        passed = harness_agree(!speak || table_close(&table));
    }
    harness_close(&harness);
    return passed ? EXIT_SUCCESS : EXIT_FAILURE;
}
