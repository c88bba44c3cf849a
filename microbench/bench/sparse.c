/* baton-bench sparse: compares a step of each sparse all-reduce with dense
   ones. In each repetition the ranks have new gradients, and every system takes
   one step with them, so that all systems see the same state of the machine.
   The first steps are not counted: in the very first one residuals are empty
   and Ok-Topk moves its regions. */
#include "bench/bench.h"
#include "common/sparse_check.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { WARM_UP = 2, MAX_CONTESTANTS = BENCH_SPARSE_SYSTEMS + CLI_MOST_ITEMS };

/* The measured properties of a step. MPI's systems have only the time and
   nnz. */
typedef enum measure {
    TIME_US,
    SELECT_US,
    BYTES,
    MESSAGES,
    ROUNDS,
    NNZ,
    MEASURES
} measure_t;

typedef struct contestant {
    bench_sparse_system_t system;
    /* The number of teams; 0 until the library has chosen the cheapest
       number. */
    int teams;
    baton_sparse_t *sparse; /* NULL in systems of MPI */
    /* An array with the sum of the results of all steps so far, for each
       element of this rank's slice. */
    double *sums;
} contestant_t;

/* The comparison of all systems at one size and density. */
typedef struct contest {
    bench_run_t *run;
    uint64_t seed;
    size_t count, k;
    /* Arrays of [count]. MPI's systems use `sum` and `residual`. */
    float *gradient, *sum, *residual;
    /* The gradient's copy in the device's memory; NULL: the gradient is in main
       memory only. */
    void *on_device;
    /* The gradient with which Baton's steps are started. NULL: the gradient was
       already added to the residual. */
    const void *start_gradient;
    sparse_slice_t slice;
    contestant_t contestants[MAX_CONTESTANTS];
    size_t contestant_count;
} contest_t;

/* ---- life --------------------------------------------------------------- */

static bool is_baton(const contestant_t *system)
{
    return system->system < BENCH_SPARSE_MPI;
}

static baton_sparse_options_t
bench_sparse_options_of(const contest_t *contest, const contestant_t *system)
{
    baton_sparse_options_t options = BATON_SPARSE_OPTIONS;
    options.algorithm =
        (baton_sparse_algorithm_t)(BATON_SPARSE_SPARDL + (int)system->system);
    options.count = contest->count;
    options.k = contest->k;
    options.teams =
        system->teams == 0 ? BATON_SPARSE_TEAMS_AUTO : system->teams;
    options.momentum = contest->run->options.momentum;
    options.short_velocity = contest->run->options.short_velocity;
    options.clip = contest->run->options.clip;
    options.warmup = contest->run->options.warm_up;
    options.in_place = contest->run->options.accumulated;
    if (contest->on_device != NULL) {
        options.memory = BATON_MEMORY_DEVICE;
    }
    return options;
}

static baton_sparse_stats_t sparse_stats(const contestant_t *system)
{
    baton_sparse_stats_t stats;
    must(baton_sparse_stats(system->sparse, &stats));
    return stats;
}

/* Adds a system to the contest. Does nothing if the gradients are on a device
   and the system's algorithm does not support that. */
static void bench_sparse_add_contestant(contest_t *contest, size_t system,
                                        uint64_t teams)
{
    contestant_t *added = &contest->contestants[contest->contestant_count];
    *added = (contestant_t){.system = (bench_sparse_system_t)system,
                            .teams = (int)teams};
    if (is_baton(added)) {
        baton_sparse_options_t options =
            bench_sparse_options_of(contest, added);
        baton_status_t status = baton_sparse_create(
            contest->run->harness.group, &options, -1, &added->sparse);
        if (status == BATON_ERR_UNSUPPORTED && contest->on_device != NULL) {
            if (contest->run->prints) {
                (void)printf("# %s: skipped, %s\n", bench_sparse_names[system],
                             baton_error_message());
            }
            return;
        }
        must(status);
        added->teams = sparse_stats(added).teams;
    }
    added->sums = harness_alloc(contest->slice.count, sizeof(double));
    contest->contestant_count++;
}

static void bench_sparse_open_contest(contest_t *contest)
{
    const bench_options_t *options = &contest->run->options;
    const harness_t *harness = &contest->run->harness;
    if (options->memory == BENCH_MEMORY_DEVICE) {
        contest->on_device = bench_device.alloc(contest->count * sizeof(float));
    }
    contest->gradient = harness_alloc(contest->count, sizeof(float));
    contest->start_gradient = contest->on_device;
    if (contest->on_device == NULL && !options->accumulated) {
        contest->start_gradient = contest->gradient;
    }
    contest->sum = harness_alloc(contest->count, sizeof(float));
    contest->residual = harness_alloc(contest->count, sizeof(float));
    contest->slice =
        sparse_slice_of(contest->count, harness->size, harness->rank);
    contest->slice.gradients =
        harness_alloc(contest->slice.count, 2 * sizeof(double));
    contest->slice.magnitudes = contest->slice.gradients + contest->slice.count;
    for (size_t i = 0; i < options->algorithms.count; i++) {
        size_t system = options->algorithms.words[i];
        bool has_teams = system == BENCH_SPARSE_SPARDL;
        for (size_t j = 0; j < (has_teams ? options->teams.count : 1); j++) {
            bench_sparse_add_contestant(
                contest, system, has_teams ? options->teams.numbers[j] : 1);
        }
    }
}

static void bench_sparse_close_contest(contest_t *contest)
{
    for (size_t i = 0; i < contest->contestant_count; i++) {
        contestant_t *system = &contest->contestants[i];
        must(baton_sparse_destroy(system->sparse));
        free(system->sums);
    }
    if (contest->on_device != NULL) {
        bench_device.free(contest->on_device);
    }
    free(contest->gradient);
    free(contest->sum);
    free(contest->residual);
    free(contest->slice.gradients);
}

/* ---- checks ------------------------------------------------------------- */

/* The beginning of error messages, which names the system and the size. */
#define OF "%s of %zu elements, k = %zu, teams = %d: "
#define OF_ARGS                                                                \
    bench_sparse_names[system->system], contest->count, contest->k,            \
        system->teams

/* Checks one result. Baton's must be the same on all ranks, bit by bit. MPI's
   may differ in some bits between ranks. Collective. */
static void bench_sparse_check_result(const contest_t *contest,
                                      const contestant_t *system,
                                      const baton_sparse_result_t *result)
{
    size_t entry = 0;
    const char *wrong = sparse_check(result, contest->count, &entry);
    if (wrong != NULL) {
        harness_fail(OF "entry %zu of %zu: %s", OF_ARGS, entry, result->count,
                     wrong);
    }
    /* One reduction with MPI_MIN gives both the least and the largest hash: the
       largest hash is the complement of the least complement. */
    uint64_t hash = sparse_hash(result), low_high[] = {hash, ~hash};
    MPI_Allreduce(MPI_IN_PLACE, low_high, 2, MPI_UINT64_T, MPI_MIN,
                  MPI_COMM_WORLD);
    if (is_baton(system) && low_high[0] != ~low_high[1]) {
        harness_fail(OF "results differ: here %zu entries, hash %" PRIx64,
                     OF_ARGS, result->count, hash);
    }
    sparse_slice_add_result(&contest->slice, result, system->sums);
}

/* Checks that the sum of all results equals the sum of all gradients. The
   residuals must have been flushed before, so that nothing is left in them.
   Does nothing if gradients are clipped or have momentum. */
static void bench_sparse_check_sums(const contest_t *contest,
                                    const contestant_t *system)
{
    const bench_options_t *asked = &contest->run->options;
    if (is_baton(system)) {
        baton_sparse_result_t flushed;
        must(baton_sparse_flush(system->sparse));
        must(baton_sparse_wait(system->sparse, -1, &flushed));
        bench_sparse_check_result(contest, system, &flushed);
    }
    bool changed = is_baton(system) && (asked->momentum > 0 || asked->clip > 0);
    size_t wrong = sparse_slice_find_loss(&contest->slice, system->sums);
    if (!changed && wrong < contest->slice.count) {
        harness_fail(OF "results and residuals of element %zu add up to %.9g, "
                        "its gradients to %.9g",
                     OF_ARGS, contest->slice.first + wrong, system->sums[wrong],
                     contest->slice.gradients[wrong]);
    }
}

/* ---- steps -------------------------------------------------------------- */

static void fill_gradients(void *arg, size_t step)
{
    contest_t *contest = arg;
    const harness_t *harness = &contest->run->harness;
    gradient_fill(gradient_key(contest->seed, step, harness->rank),
                  contest->gradient, contest->count);
    if (contest->on_device != NULL) {
        bench_device.copy(contest->on_device, contest->gradient,
                          contest->count * sizeof(float));
    }
    sparse_slice_add_gradients(&contest->slice, contest->seed, step,
                               harness->size);
}

/* Adds the gradient to a residual, as a program's backward pass would do. */
static void bench_sparse_accumulate(const contest_t *contest, void *residual)
{
    BATON_SUM->reduce(BATON_SUM->arg, residual, residual, contest->gradient,
                      contest->count, BATON_F32);
}

static void bench_sparse_run_step(contest_t *contest,
                                  const contestant_t *system,
                                  baton_sparse_result_t *out)
{
    if (is_baton(system)) {
        must(baton_sparse_start(system->sparse, contest->start_gradient));
        must(baton_sparse_wait(system->sparse, -1, out));
        return;
    }
    if (system->system == BENCH_SPARSE_MPI_RESIDUAL) {
        bench_sparse_accumulate(contest, contest->residual);
    }
    MPI_Allreduce(contest->gradient, contest->sum, (int)contest->count,
                  MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    *out = (baton_sparse_result_t){.count = contest->count,
                                   .values = contest->sum};
}

/* Takes one step of one system and stores its values. A dense step has no
   selection, and its messages are not counted. */
static void bench_sparse_take_step(void *arg, size_t place, double *values)
{
    contest_t *contest = arg;
    const contestant_t *system = &contest->contestants[place];
    baton_sparse_result_t result = {0};
    if (is_baton(system) && contest->start_gradient == NULL) {
        bench_sparse_accumulate(contest,
                                baton_sparse_accumulator(system->sparse));
    }
    harness_barrier(&contest->run->harness);
    double begin_us = clock_now_us();
    bench_sparse_run_step(contest, system, &result);
    values[TIME_US] = clock_now_us() - begin_us;
    values[BYTES] = values[MESSAGES] = values[ROUNDS] = values[SELECT_US] = NAN;
    values[NNZ] = (double)result.count;
    if (is_baton(system)) {
        baton_sparse_stats_t stats = sparse_stats(system);
        if (stats.algorithm != BATON_SPARSE_DENSE) {
            values[BYTES] = (double)stats.bytes_sent;
            values[MESSAGES] = (double)stats.messages_sent;
            values[ROUNDS] = stats.rounds;
            values[SELECT_US] = stats.select_us;
        }
    }
    bench_sparse_check_result(contest, system, &result);
}

/* ---- report ------------------------------------------------------------- */

/* Adds the rows of all systems. */
static void bench_sparse_report(const contest_t *contest,
                                stats_t (*all)[MEASURES])
{
    double mpi_residual_us = NAN;
    for (size_t i = 0; i < contest->contestant_count; i++) {
        if (contest->contestants[i].system == BENCH_SPARSE_MPI_RESIDUAL) {
            mpi_residual_us = all[i][TIME_US].median;
        }
    }
    for (size_t i = 0; i < contest->contestant_count; i++) {
        const contestant_t *system = &contest->contestants[i];
        const stats_t *stats = all[i];
        baton_sparse_cost_t cost = {
            .bytes = NAN, .messages = NAN, .rounds = NAN};
        if (is_baton(system)) {
            baton_sparse_options_t options =
                bench_sparse_options_of(contest, system);
            must(
                baton_sparse_cost(&options, contest->run->harness.size, &cost));
        }
        const table_cell_t cells[] = {
            TEXT("algorithm", "algorithm", 12,
                 bench_sparse_names[system->system]),
            NUMBER("ranks", NULL, 0, 0, contest->run->harness.size),
            NUMBER("n", "n", 9, 0, contest->count),
            NUMBER("k", "k", 7, 0, contest->k),
            NUMBER("teams", "teams", 5, 0,
                   is_baton(system) ? (double)system->teams : NAN),
            NUMBER("median_us", "time us", 10, 1, stats[TIME_US].median),
            NUMBER("select_us", "select us", 10, 1, stats[SELECT_US].median),
            NUMBER("bytes_sent", "bytes", 10, 0, stats[BYTES].median),
            NUMBER("messages", "messages", 8, 0, stats[MESSAGES].median),
            NUMBER("rounds", "rounds", 6, 0, stats[ROUNDS].median),
            NUMBER("nnz", "nnz", 8, 0, stats[NNZ].median),
            NUMBER("bytes_formula", "formula", 10, 0, cost.bytes),
            NUMBER("messages_formula", "messages", 8, 0, cost.messages),
            NUMBER("rounds_formula", "rounds", 6, 0, cost.rounds),
            NUMBER("over_mpi_residual", "ratio", 6, 2,
                   stats[TIME_US].median / mpi_residual_us),
            NUMBER("p10_us", "p10", 10, 1, stats[TIME_US].p10),
            NUMBER("p90_us", "p90", 10, 1, stats[TIME_US].p90),
        };
        table_row(&contest->run->table, cells, sizeof cells / sizeof *cells);
    }
}

/* ---- the command -------------------------------------------------------- */

static void measure_case(bench_run_t *run, size_t count, double density)
{
    stats_t stats[MAX_CONTESTANTS][MEASURES];
    double k = (double)count * density;
    contest_t contest = {
        .run = run,
        .seed = cli_default_seed(),
        .count = count,
        .k = k < 1 ? 1 : (size_t)k,
    };
    /* All ranks use rank 0's seed, since BATON_SEED may be set on rank 0
       only. */
    MPI_Bcast(&contest.seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    bench_sparse_open_contest(&contest);
    const bench_comparison_t comparison = {.systems = contest.contestant_count,
                                           .measures = MEASURES,
                                           .warm_up = WARM_UP,
                                           .begin = fill_gradients,
                                           .measure = bench_sparse_take_step,
                                           .arg = &contest};
    bench_compare(run, &comparison, *stats);
    for (size_t i = 0; i < contest.contestant_count; i++) {
        bench_sparse_check_sums(&contest, &contest.contestants[i]);
    }
    if (run->prints) {
        bench_sparse_report(&contest, stats);
    }
    harness_barrier(&run->harness);
    bench_sparse_close_contest(&contest);
}

bool bench_sparse_run(bench_run_t *run)
{
    const cli_list_t *bytes = &run->options.bytes,
                     *densities = &run->options.densities;
    run->points = bytes->count * densities->count;
    for (size_t i = 0; i < run->points; i++) {
        measure_case(
            run, (size_t)(bytes->numbers[i / densities->count] / sizeof(float)),
            densities->reals[i % densities->count]);
    }
    return true;
}
