/* baton-bench allreduce, bcast, ...: ways to a collective, over sizes. */
#include "bench/options.h"
#include "bench/system.h"
#include "common/output.h"
#include "common/progress.h"
#include "common/steal.h"
#include "common/table.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A turn of the fastest system should take so long, within limits. */
#define TURN_US 50000.0

enum { MAX_CALLS = 100, TRUSTED_FOR = 4, COLUMNS = 6, LATE_US = 2000 };

/* The systems on one size. */
typedef struct contest {
    const harness_t *harness;
    bench_operation_t operation;
    bench_runner_t runners[BENCH_MAX_SYSTEMS];
    size_t count; /* of them */
    size_t calls; /* in a turn */
} contest_t;

/* All that rank 0 prints and writes. */
typedef struct report {
    const bench_options_t *options;
    int ranks;
    table_column_t shown[BENCH_MAX_SYSTEMS + 2];
    table_t screen, files;
    output_plot_t plot;
    uint64_t bytes[BENCH_MAX_SIZES]; /* as they were measured */
    double median_us[BENCH_MAX_SIZES][BENCH_MAX_SYSTEMS];
} report_t;

/* ---- checks ------------------------------------------------------------- */

static void fail(const contest_t *contest, const bench_runner_t *runner,
                 size_t i)
{
    const bench_operation_t *operation = &contest->operation;
    (void)fprintf(stderr,
                  "rank %d: %s by %s: element %zu of %zu is %g, expected %g\n",
                  operation->rank, bench_collective_name(operation->collective),
                  runner->system.name, i, operation->target_count,
                  (double)operation->target[i],
                  (double)bench_operation_expected(operation, i));
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
}

static void check_data(const contest_t *contest, const bench_runner_t *runner)
{
    size_t wrong = bench_operation_check(&contest->operation);
    if (wrong < contest->operation.target_count) {
        fail(contest, runner, wrong);
    }
}

/* One rank comes late, and none may leave before it came. Ranks of one host
   have one clock. */
static void check_barrier(const contest_t *contest, bench_runner_t *runner,
                          size_t turn)
{
    MPI_Comm host = MPI_COMM_NULL;
    int near = 0;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL,
                        &host);
    MPI_Comm_size(host, &near);
    MPI_Comm_free(&host);
    if ((int)(turn % (size_t)contest->harness->size) ==
        contest->harness->rank) {
        clock_sleep_until(clock_now_us() + LATE_US);
    }
    double came_us = clock_now_us();
    bench_runner_start(runner);
    bench_runner_wait(runner);
    double left_us = clock_now_us();
    MPI_Allreduce(MPI_IN_PLACE, &came_us, 1, MPI_DOUBLE, MPI_MAX,
                  MPI_COMM_WORLD);
    if (near == contest->harness->size && left_us < came_us) {
        (void)fprintf(
            stderr, "rank %d: %s: left the barrier %g us before a rank came\n",
            contest->harness->rank, runner->system.name, came_us - left_us);
        MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    }
}

/* ---- turns -------------------------------------------------------------- */

static void call(bench_runner_t *runner, int root)
{
    runner->operation->root = root;
    bench_runner_start(runner);
    bench_runner_wait(runner);
}

/* Returns the mean time of this rank's calls, in microseconds. The ranks take
   turns as root: a root that always is one would run ahead of its peers, and
   a call would seem to take no longer than a send. */
static double time_calls(const contest_t *contest, bench_runner_t *runner)
{
    int roots = contest->operation.roots;
    double begin_us = clock_now_us();
    for (size_t i = 0; i < contest->calls; i++) {
        call(runner, (int)(i % (size_t)roots));
    }
    return (clock_now_us() - begin_us) / (double)contest->calls;
}

/* Warms up by one call, times and checks. */
static double take_turn(contest_t *contest, bench_runner_t *runner, size_t turn)
{
    contest->operation.root = contest->operation.roots - 1;
    bench_operation_fill(&contest->operation);
    bench_runner_begin_turn(runner);
    harness_barrier(contest->harness);
    call(runner, contest->operation.root);
    double us = time_calls(contest, runner);
    if (contest->operation.collective == BATON_COLLECTIVE_BARRIER) {
        check_barrier(contest, runner, turn);
    }
    bench_runner_end_turn(runner);
    check_data(contest, runner);
    return us;
}

/* The time of a call of the fastest system, of one turn each. */
static double fastest_call_us(contest_t *contest)
{
    double fastest_us = INFINITY;
    for (size_t i = 0; i < contest->count; i++) {
        fastest_us =
            fmin(fastest_us, take_turn(contest, &contest->runners[i], 0));
    }
    MPI_Bcast(&fastest_us, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    return fmax(fastest_us, 1e-3);
}

static void set_calls(contest_t *contest, double calls)
{
    size_t roots = (size_t)contest->operation.roots;
    contest->calls = ((size_t)calls + roots - 1) / roots * roots;
}

/* Sets the number of calls that a turn has. The first calls take several times
   as long as later ones, so what a few say is trusted for a few more only. */
static void rehearse(contest_t *contest)
{
    for (double calls = 1;; calls *= TRUSTED_FOR) {
        set_calls(contest, calls);
        double wanted = fmin(TURN_US / fastest_call_us(contest), MAX_CALLS);
        if (wanted <= calls * TRUSTED_FOR) {
            set_calls(contest, fmax(wanted, 1));
            return;
        }
    }
}

/* `medians` gets, on rank 0, the systems' medians of the slowest rank. */
static void run_turns(contest_t *contest, size_t turns, progress_t *progress,
                      double *medians)
{
    double *mine = harness_alloc(contest->count * turns, sizeof(double));
    double *slowest = harness_alloc(contest->count * turns, sizeof(double));
    for (size_t turn = 0; turn < turns; turn++) {
        for (size_t i = 0; i < contest->count; i++) {
            size_t place = (turn + i) % contest->count;
            mine[place * turns + turn] =
                take_turn(contest, &contest->runners[place], turn);
        }
        progress->done++;
        if (progress_due(progress)) {
            progress_draw(progress, "measuring");
        }
    }
    MPI_Reduce(mine, slowest, (int)(contest->count * turns), MPI_DOUBLE,
               MPI_MAX, 0, MPI_COMM_WORLD);
    for (size_t i = 0; i < contest->count; i++) {
        medians[i] = stats_median(&slowest[i * turns], turns);
    }
    free(slowest);
    free(mine);
}

static void open_contest(contest_t *contest, const bench_options_t *options,
                         uint64_t bytes)
{
    bench_operation_t *operation = &contest->operation;
    bench_operation_init(operation, options->collective, contest->harness->rank,
                         contest->harness->size, bytes);
    bench_memory_alloc(contest->harness, (bench_memory_t)options->memory,
                       operation);
    contest->count = options->system_count;
    for (size_t i = 0; i < contest->count; i++) {
        bench_runner_open(contest->harness, &options->systems[i], operation,
                          &contest->runners[i]);
    }
}

static void close_contest(contest_t *contest, const bench_options_t *options)
{
    harness_barrier(contest->harness);
    for (size_t i = 0; i < contest->count; i++) {
        bench_runner_close(&contest->runners[i]);
    }
    bench_memory_free(contest->harness, (bench_memory_t)options->memory,
                      &contest->operation);
}

static void measure_size(const harness_t *harness,
                         const bench_options_t *options, size_t size,
                         progress_t *progress, report_t *report)
{
    contest_t contest = {.harness = harness};
    open_contest(&contest, options, options->bytes[size]);
    report->bytes[size] = contest.operation.count * sizeof(float);
    rehearse(&contest);
    run_turns(&contest, (size_t)options->repetitions, progress,
              report->median_us[size]);
    close_contest(&contest, options);
}

/* ---- report ------------------------------------------------------------- */

static const table_column_t written[COLUMNS] = {
    {"collective", NULL, TABLE_TEXT, 0, 0},
    {"system", NULL, TABLE_TEXT, 0, 0},
    {"ranks", NULL, TABLE_FIXED, 0, 0},
    {"bytes", NULL, TABLE_FIXED, 0, 0},
    {"median_us", NULL, TABLE_FIXED, 0, 0},
    {"ratio_to_best_mpi", NULL, TABLE_FIXED, 0, 0},
};

/* A column for the size, one for each system, and Baton's ratio. */
static void set_columns(report_t *report)
{
    const bench_options_t *options = report->options;
    report->shown[0] = (table_column_t){NULL, "bytes", TABLE_FIXED, 9, 0};
    for (size_t i = 0; i < options->system_count; i++) {
        int length = (int)strlen(options->systems[i].name);
        report->shown[i + 1] =
            (table_column_t){NULL, options->systems[i].name, TABLE_FIXED,
                             length > 10 ? length : 10, 2};
    }
    report->shown[options->system_count + 1] =
        (table_column_t){NULL, "best ratio", TABLE_FIXED, 10, 2};
}

static bool open_report(const bench_options_t *options, int ranks,
                        report_t *report)
{
    *report = (report_t){.options = options, .ranks = ranks};
    set_columns(report);
    if (!table_open(&report->screen, report->shown, options->system_count + 2,
                    NULL, NULL) ||
        !table_open(&report->files, written, COLUMNS, options->csv,
                    options->json)) {
        return false;
    }
    if (!output_plot_open(options->plot, &report->plot)) {
        (void)table_close(&report->files);
        return false;
    }
    return true;
}

static void print_head(const report_t *report)
{
    (void)printf("# baton-bench %s, %d ranks: microseconds a call, medians of "
                 "%" PRIu64 " turns, every turn's result checked\n"
                 "# best ratio: the best MPI system's time over that of the "
                 "best Baton system\n",
                 bench_collective_name(report->options->collective),
                 report->ranks, report->options->repetitions);
    table_heading(&report->screen);
}

/* The least time of MPI's systems, or of Baton's; NAN if there is none. */
static double best_us(const report_t *report, size_t size, bool baton)
{
    double best = NAN;
    for (size_t i = 0; i < report->options->system_count; i++) {
        bool is_baton = report->options->systems[i].kind == BENCH_SYSTEM_BATON;
        if (is_baton == baton) {
            best = fmin(best, report->median_us[size][i]);
        }
    }
    return best;
}

static void add_size(report_t *report, size_t size)
{
    const bench_options_t *options = report->options;
    double mpi_us = best_us(report, size, false);
    table_cell_t row[BENCH_MAX_SYSTEMS + 2];
    row[0] = table_number((double)report->bytes[size]);
    for (size_t i = 0; i < options->system_count; i++) {
        double us = report->median_us[size][i];
        const table_cell_t cells[COLUMNS] = {
            table_text(bench_collective_name(options->collective)),
            table_text(options->systems[i].name),
            table_number(report->ranks),
            table_number((double)report->bytes[size]),
            table_number(us),
            table_number(mpi_us / us),
        };
        table_row(&report->files, cells);
        row[i + 1] = table_number(us);
    }
    row[options->system_count + 1] =
        table_number(mpi_us / best_us(report, size, true));
    table_row(&report->screen, row);
}

/* Colours that all kinds of colour vision can tell apart. */
static const char *color_of(size_t system)
{
    static const char *const colors[] = {"#4d4d4d", "#a6a6a6", "#cc79a7",
                                         "#e69f00", "#0072b2", "#009e73",
                                         "#56b4e9", "#d55e00"};
    return colors[system % (sizeof(colors) / sizeof(colors[0]))];
}

static void write_lines(const report_t *report)
{
    FILE *script = report->plot.script;
    const bench_options_t *options = report->options;
    for (size_t i = 0; i < options->system_count; i++) {
        (void)fprintf(script, "$system%zu << end\n", i);
        for (size_t size = 0; size < options->size_count; size++) {
            (void)fprintf(script, "%" PRIu64 " %.9g\n", report->bytes[size],
                          report->median_us[size][i]);
        }
        (void)fputs("end\n", script);
    }
    for (size_t i = 0; i < options->system_count; i++) {
        (void)fprintf(script,
                      "%s$system%zu using 1:2 with linespoints lw 2 pt 7 "
                      "ps 0.6 lc rgb '%s' title '%s'",
                      i > 0 ? ", " : "plot ", i, color_of(i),
                      options->systems[i].name);
    }
    (void)fputc('\n', script);
}

static void write_plot(const report_t *report)
{
    if (report->plot.script == NULL) {
        return;
    }
    output_plot_size(&report->plot, 900, 560);
    (void)fprintf(report->plot.script,
                  "set title '%s of %d ranks' noenhanced\n"
                  "set xlabel 'bytes'\nset ylabel 'microseconds'\n"
                  "set logscale x 2\nset logscale y\n"
                  "set format x '%%.0b%%B'\n"
                  "set key left top noenhanced Left reverse samplen 2\n"
                  "set grid lt 1 lc rgb '#d9d9d9'\nset border 3\n"
                  "set xtics nomirror\nset ytics nomirror\n",
                  bench_collective_name(report->options->collective),
                  report->ranks);
    write_lines(report);
}

static bool close_report(report_t *report)
{
    bool written_all = table_close(&report->files);
    write_plot(report);
    written_all &= output_plot_close(&report->plot);
    return written_all;
}

/* ---- all of it ---------------------------------------------------------- */

/* Drops systems that can't run this collective here, and says why. Returns
   whether any is left. */
static bool keep_able(bench_options_t *options, bool speak)
{
    size_t kept = 0;
    for (size_t i = 0; i < options->system_count; i++) {
        const bench_system_t *system = &options->systems[i];
        const char *reason = bench_system_lacks(system, options->collective);
        if (reason == NULL) {
            options->systems[kept++] = *system;
        } else if (speak) {
            (void)printf("# %s: skipped, %s\n", system->name, reason);
        }
    }
    options->system_count = kept;
    return kept > 0;
}

static bool measure(const bench_options_t *options, report_t *report)
{
    harness_t harness;
    progress_t progress;
    harness_open(&harness);
    bool speak = harness.rank == 0;
    progress_init(&progress, speak, options->size_count * options->repetitions);
    if (speak) {
        print_head(report);
    }
    steal_t before = steal_read();
    for (size_t size = 0; size < options->size_count; size++) {
        measure_size(&harness, options, size, &progress, report);
        progress_clear(&progress);
        if (speak) {
            add_size(report, size);
        }
    }
    if (speak) {
        (void)printf("# %.1f %% of the processors' time was taken by the "
                     "machine's host\n",
                     100 * steal_share(before, steal_read()));
    }
    harness_close(&harness);
    return !speak || close_report(report);
}

int bench_collective(const bench_options_t *given)
{
    bench_options_t options = *given;
    static report_t report; /* too large for a stack */
    int rank = 0;
    int ranks = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (!keep_able(&options, rank == 0)) {
        return EXIT_SUCCESS;
    }
    if (!harness_agree(rank != 0 || open_report(&options, ranks, &report))) {
        return EXIT_FAILURE;
    }
    return measure(&options, &report) ? EXIT_SUCCESS : EXIT_FAILURE;
}
