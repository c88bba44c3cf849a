#include "bench/turns.h"
#include "bench/probe.h"
#include <mpi.h>
#include <stdlib.h>

/* Addends small enough for their sums to be exact. */
enum { PATTERN = 13 };

typedef struct arena {
    const harness_t *harness;
    const bench_turns_t *plan;
    float *source;
    float *target;
    baton_schedule_t *schedule;
} arena_t;

/* ---- life ------------------------------------------------------------- */

static void fill(const arena_t *arena)
{
    for (size_t i = 0; i < arena->plan->count; i++) {
        arena->source[i] =
            (float)(arena->harness->rank + 1) + (float)(i % PATTERN);
    }
}

static void commit(arena_t *arena)
{
    size_t bytes = arena->plan->count * sizeof(float);
    harness_require(
        baton_schedule_create(arena->harness->group, "turns", &arena->schedule),
        "create an all-reduce");
    baton_schedule_t *schedule = arena->schedule;
    baton_buffer_t source =
        baton_buffer_bind_input(schedule, arena->source, bytes);
    baton_buffer_t target = baton_buffer_bind(schedule, arena->target, bytes);
    baton_allreduce_t args = {
        .size = sizeof(args),
        .source = baton_view(source, 0, bytes),
        .target = baton_view(target, 0, bytes),
        .dtype = BATON_F32,
        .op = BATON_SUM,
    };
    arena->plan->algo(schedule, &args);
    harness_require(baton_schedule_commit(schedule), "commit an all-reduce");
}

static void open_arena(arena_t *arena)
{
    arena->source = harness_alloc(arena->plan->count, sizeof(float));
    arena->target = harness_alloc(arena->plan->count, sizeof(float));
    fill(arena);
    commit(arena);
}

static void close_arena(arena_t *arena)
{
    (void)!baton_schedule_destroy(arena->schedule);
    free(arena->target);
    free(arena->source);
}

/* ---- one turn --------------------------------------------------------- */

static void call_mpi_nb(const arena_t *arena)
{
    MPI_Request request;
    MPI_Iallreduce(arena->source, arena->target, (int)arena->plan->count,
                   MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void call(const arena_t *arena, bench_kind_t kind)
{
    switch (kind) {
    case BENCH_BATON:
        harness_require(baton_schedule_start(arena->schedule), "start");
        harness_require(baton_schedule_wait(arena->schedule, -1), "wait");
        break;
    case BENCH_MPI:
        MPI_Allreduce(arena->source, arena->target, (int)arena->plan->count,
                      MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case BENCH_MPI_NB:
        call_mpi_nb(arena);
        break;
    case BENCH_KINDS:
        break;
    }
}

static void check(const arena_t *arena)
{
    int ranks = arena->harness->size;
    int sum_of_ranks = ranks * (ranks + 1) / 2;
    for (size_t i = 0; i < arena->plan->count; i++) {
        float expected =
            (float)sum_of_ranks + (float)ranks * (float)(i % PATTERN);
        if (arena->target[i] < expected || arena->target[i] > expected) {
            (void)fprintf(stderr,
                          "rank %d: element %zu of the sum is %g, expected "
                          "%g\n",
                          arena->harness->rank, i, (double)arena->target[i],
                          (double)expected);
            MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
        }
    }
}

/* Microseconds of one call of this rank, mean of the turn's. */
static double take_turn(const arena_t *arena, bench_kind_t kind)
{
    const bench_turns_t *plan = arena->plan;
    harness_barrier(arena->harness);
    for (size_t i = 0; i < plan->warmup; i++) {
        call(arena, kind);
    }
    double begin_us = clock_now_us();
    for (size_t i = 0; i < plan->calls; i++) {
        call(arena, kind);
    }
    return (clock_now_us() - begin_us) / (double)plan->calls;
}

/* A first round, to check each system's sum. */
static void rehearse(const arena_t *arena)
{
    for (int kind = 0; kind < BENCH_KINDS; kind++) {
        for (size_t i = 0; i < arena->plan->count; i++) {
            arena->target[i] = -1;
        }
        harness_barrier(arena->harness);
        call(arena, (bench_kind_t)kind);
        check(arena);
    }
}

/* ---- all turns -------------------------------------------------------- */

/* The others wait in the next turn's barrier meanwhile, asleep. */
static void probe(const harness_t *harness, bench_outcome_t *out)
{
    if (harness->rank == 0) {
        out->probes++;
        out->near += probe_is_near(probe_line_ns());
    }
}

/* `call_us`: [BENCH_KINDS][turns], of this rank. */
static void run_turns(const arena_t *arena, double *call_us,
                      bench_outcome_t *out)
{
    size_t turns = arena->plan->turns;
    for (size_t turn = 0; turn < turns; turn++) {
        probe(arena->harness, out);
        for (size_t i = 0; i < BENCH_KINDS; i++) {
            size_t kind = (turn + i) % BENCH_KINDS;
            call_us[kind * turns + turn] = take_turn(arena, (bench_kind_t)kind);
        }
    }
    harness_barrier(arena->harness);
    probe(arena->harness, out);
}

void bench_turns(const harness_t *harness, const bench_turns_t *plan,
                 bench_outcome_t *out)
{
    arena_t arena = {.harness = harness, .plan = plan};
    *out = (bench_outcome_t){0};
    open_arena(&arena);
    rehearse(&arena);
    size_t count = plan->turns * BENCH_KINDS;
    double *mine = harness_alloc(count, sizeof(double));
    double *slowest = harness_alloc(count, sizeof(double));
    run_turns(&arena, mine, out);
    MPI_Reduce(mine, slowest, (int)count, MPI_DOUBLE, MPI_MAX, 0,
               MPI_COMM_WORLD);
    for (size_t kind = 0; kind < BENCH_KINDS; kind++) {
        out->call_us[kind] =
            bench_value(&slowest[kind * plan->turns], plan->turns);
    }
    free(slowest);
    free(mine);
    harness_barrier(harness);
    close_arena(&arena);
}

/* ---- report ----------------------------------------------------------- */

typedef struct line {
    const char *key;
    const char *text;
} line_t;

static void add_line(bench_report_t *report, const char *name, const char *text,
                     line_t line, bench_value_t value, const char *unit)
{
    char key[64];
    char words[80];
    (void)snprintf(key, sizeof(key), "%s_%s", name, line.key);
    (void)snprintf(words, sizeof(words), "%s, %s", text, line.text);
    bench_report_add(report, key, words, value, unit);
}

void bench_turns_report(bench_report_t *report, const char *name,
                        const char *text, const bench_outcome_t *outcome)
{
    static const line_t times[] = {
        [BENCH_BATON] = {"baton", "Baton"},
        [BENCH_MPI] = {"mpi", "MPI_Allreduce"},
        [BENCH_MPI_NB] = {"mpi_nb", "MPI_Iallreduce + MPI_Wait"},
    };
    static const line_t ratios[] = {
        [BENCH_MPI] = {"over_mpi", "Baton's time over MPI_Allreduce's"},
        [BENCH_MPI_NB] = {"over_mpi_nb", "Baton's over MPI_Iallreduce's"},
    };
    static const line_t near = {"near", "turns in the near state"};
    const bench_value_t *call_us = outcome->call_us;
    for (int kind = 0; kind < BENCH_KINDS; kind++) {
        add_line(report, name, text, times[kind], call_us[kind], "us");
    }
    for (int kind = BENCH_MPI; kind < BENCH_KINDS; kind++) {
        double ratio = call_us[BENCH_BATON].median / call_us[kind].median;
        add_line(report, name, text, ratios[kind], bench_value_single(ratio),
                 "times");
    }
    double share = 100 * (double)outcome->near / (double)outcome->probes;
    add_line(report, name, text, near, bench_value_single(share), "%");
}
