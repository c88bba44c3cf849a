#include "bench/turns.h"
#include "bench/probe.h"
#include <mpi.h>
#include <stdlib.h>

/* Elements are small enough for their sums to be exact. */
enum { PATTERN = 13 };

typedef struct setup {
    const harness_t *harness;
    const bench_turns_t *plan;
    float *source;
    float *target;
    baton_schedule_t *schedule;
} setup_t;

/* ---- life ------------------------------------------------------------- */

static void fill(const setup_t *setup)
{
    for (size_t i = 0; i < setup->plan->count; i++) {
        setup->source[i] =
            (float)(setup->harness->rank + 1) + (float)(i % PATTERN);
    }
}

static void commit(setup_t *setup)
{
    size_t bytes = setup->plan->count * sizeof(float);
    harness_require(
        baton_schedule_create(setup->harness->group, "turns", &setup->schedule),
        "create an all-reduce");
    baton_schedule_t *schedule = setup->schedule;
    baton_buffer_t source =
        baton_buffer_bind_input(schedule, setup->source, bytes);
    baton_buffer_t target = baton_buffer_bind(schedule, setup->target, bytes);
    baton_allreduce_t args = {
        .size = sizeof(args),
        .source = baton_view(source, 0, bytes),
        .target = baton_view(target, 0, bytes),
        .dtype = BATON_F32,
        .op = BATON_SUM,
    };
    setup->plan->algo(schedule, &args);
    harness_require(baton_schedule_commit(schedule), "commit an all-reduce");
}

static void open_setup(setup_t *setup)
{
    setup->source = harness_alloc(setup->plan->count, sizeof(float));
    setup->target = harness_alloc(setup->plan->count, sizeof(float));
    fill(setup);
    commit(setup);
}

static void close_setup(setup_t *setup)
{
    (void)!baton_schedule_destroy(setup->schedule);
    free(setup->target);
    free(setup->source);
}

/* ---- one turn --------------------------------------------------------- */

static void call_mpi_nb(const setup_t *setup)
{
    MPI_Request request;
    MPI_Iallreduce(setup->source, setup->target, (int)setup->plan->count,
                   MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void call(const setup_t *setup, bench_kind_t kind)
{
    switch (kind) {
    case BENCH_BATON:
        harness_run_epochs(setup->schedule, 1);
        break;
    case BENCH_MPI:
        MPI_Allreduce(setup->source, setup->target, (int)setup->plan->count,
                      MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case BENCH_MPI_NB:
        call_mpi_nb(setup);
        break;
    case BENCH_KINDS:
        break;
    }
}

static void check(const setup_t *setup)
{
    int ranks = setup->harness->size;
    int sum_of_ranks = ranks * (ranks + 1) / 2;
    for (size_t i = 0; i < setup->plan->count; i++) {
        float expected =
            (float)sum_of_ranks + (float)ranks * (float)(i % PATTERN);
        if (setup->target[i] < expected || setup->target[i] > expected) {
            (void)fprintf(stderr,
                          "rank %d: element %zu of the sum is %g, expected "
                          "%g\n",
                          setup->harness->rank, i, (double)setup->target[i],
                          (double)expected);
            MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
        }
    }
}

/* Returns the mean time of this rank's calls in a turn, in microseconds. */
static double take_turn(const setup_t *setup, bench_kind_t kind)
{
    const bench_turns_t *plan = setup->plan;
    harness_barrier(setup->harness);
    for (size_t i = 0; i < plan->warmup; i++) {
        call(setup, kind);
    }
    double begin_us = clock_now_us();
    for (size_t i = 0; i < plan->calls; i++) {
        call(setup, kind);
    }
    return (clock_now_us() - begin_us) / (double)plan->calls;
}

/* Runs each system once and checks its sum. */
static void rehearse(const setup_t *setup)
{
    for (int kind = 0; kind < BENCH_KINDS; kind++) {
        for (size_t i = 0; i < setup->plan->count; i++) {
            setup->target[i] = -1;
        }
        harness_barrier(setup->harness);
        call(setup, (bench_kind_t)kind);
        check(setup);
    }
}

/* ---- all turns -------------------------------------------------------- */

/* Meanwhile the other ranks sleep in the barrier of the next turn. */
static void probe(const harness_t *harness, bench_outcome_t *out)
{
    if (harness->rank == 0) {
        out->probes++;
        out->near += probe_is_near(probe_cache_line_ns());
    }
}

/* `call_us` is [BENCH_KINDS][turns], of this rank. */
static void run_turns(const setup_t *setup, double *call_us,
                      bench_outcome_t *out)
{
    size_t turns = setup->plan->turns;
    for (size_t turn = 0; turn < turns; turn++) {
        probe(setup->harness, out);
        for (size_t i = 0; i < BENCH_KINDS; i++) {
            size_t kind = (turn + i) % BENCH_KINDS;
            call_us[kind * turns + turn] = take_turn(setup, (bench_kind_t)kind);
        }
    }
    harness_barrier(setup->harness);
    probe(setup->harness, out);
}

void bench_turns(const harness_t *harness, const bench_turns_t *plan,
                 bench_outcome_t *out)
{
    setup_t setup = {.harness = harness, .plan = plan};
    *out = (bench_outcome_t){0};
    open_setup(&setup);
    rehearse(&setup);
    size_t count = plan->turns * BENCH_KINDS;
    double *mine = harness_alloc(count, sizeof(double));
    double *slowest = harness_alloc(count, sizeof(double));
    run_turns(&setup, mine, out);
    MPI_Reduce(mine, slowest, (int)count, MPI_DOUBLE, MPI_MAX, 0,
               MPI_COMM_WORLD);
    for (size_t kind = 0; kind < BENCH_KINDS; kind++) {
        out->call_us[kind] =
            bench_value(&slowest[kind * plan->turns], plan->turns);
    }
    free(slowest);
    free(mine);
    harness_barrier(harness);
    close_setup(&setup);
}

/* ---- report ----------------------------------------------------------- */

typedef struct label {
    const char *key;
    const char *text;
} label_t;

static void add_value(bench_report_t *report, const char *name,
                      const char *text, label_t label, bench_value_t value,
                      const char *unit)
{
    char key[64];
    char words[80];
    (void)snprintf(key, sizeof(key), "%s_%s", name, label.key);
    (void)snprintf(words, sizeof(words), "%s, %s", text, label.text);
    bench_report_add(report, key, words, value, unit);
}

void bench_turns_report(bench_report_t *report, const char *name,
                        const char *text, const bench_outcome_t *outcome)
{
    static const label_t times[] = {
        [BENCH_BATON] = {"baton", "Baton"},
        [BENCH_MPI] = {"mpi", "MPI_Allreduce"},
        [BENCH_MPI_NB] = {"mpi_nb", "MPI_Iallreduce + MPI_Wait"},
    };
    static const label_t ratios[] = {
        [BENCH_MPI] = {"over_mpi", "Baton's time over MPI_Allreduce's"},
        [BENCH_MPI_NB] = {"over_mpi_nb", "Baton's over MPI_Iallreduce's"},
    };
    static const label_t near = {"near", "turns in the near state"};
    const bench_value_t *call_us = outcome->call_us;
    for (int kind = 0; kind < BENCH_KINDS; kind++) {
        add_value(report, name, text, times[kind], call_us[kind], "us");
    }
    for (int kind = BENCH_MPI; kind < BENCH_KINDS; kind++) {
        double ratio = call_us[BENCH_BATON].median / call_us[kind].median;
        add_value(report, name, text, ratios[kind], bench_value_single(ratio),
                  "times");
    }
    double share = 100 * (double)outcome->near / (double)outcome->probes;
    add_value(report, name, text, near, bench_value_single(share), "%");
}
