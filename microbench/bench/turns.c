/* Systems take turns; rows of single values; the state of the machine. */
#include "bench/bench.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

/* ---- turns -------------------------------------------------------------- */

/* `mine`: [systems][measures][turns]. */
static void take_all(bench_run_t *run, const bench_turns_t *turns, double *mine)
{
    double *values = harness_alloc(turns->measures, sizeof(double));
    for (size_t turn = 0; turn < turns->warm_up + turns->turns; turn++) {
        if (turns->begin != NULL) {
            turns->begin(turns->arg, turn);
        }
        (void)bench_probe(run); /* the others sleep in a barrier meanwhile */
        for (size_t i = 0; i < turns->systems; i++) {
            size_t system = (turn + i) % turns->systems;
            turns->take(turns->arg, system, turn, values);
            for (size_t m = 0; turn >= turns->warm_up && m < turns->measures;
                 m++) {
                mine[(system * turns->measures + m) * turns->turns + turn -
                     turns->warm_up] = values[m];
            }
        }
        run->progress.done++;
        progress_draw(&run->progress, "measuring");
    }
    free(values);
}

void bench_turns(bench_run_t *run, const bench_turns_t *turns, stats_t *out)
{
    size_t rows = turns->systems * turns->measures;
    double *mine = harness_alloc(rows * turns->turns, sizeof(double));
    take_all(run, turns, mine);
    progress_clear(&run->progress);
    for (size_t i = 0; i < rows; i++) {
        out[i] = bench_slowest(&mine[i * turns->turns], turns->turns);
    }
    free(mine);
    harness_barrier(&run->harness);
}

stats_t bench_slowest(double *mine, size_t count)
{
    double *all = harness_alloc(count, sizeof(*all));
    MPI_Reduce(mine, all, (int)count, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    stats_t value = stats_of(all, count);
    free(all);
    return value;
}

/* ---- rows of single values ---------------------------------------------- */

const table_column_t bench_value_columns[BENCH_VALUE_COLUMNS] = {
    {"name", NULL, TABLE_TEXT, 0, 0},        {NULL, "what", TABLE_TEXT, 52, 0},
    {"value", "median", TABLE_FIXED, 12, 3}, {"p10", "p10", TABLE_FIXED, 12, 3},
    {"p90", "p90", TABLE_FIXED, 12, 3},      {"unit", "unit", TABLE_TEXT, 6, 0},
    {"ranks", NULL, TABLE_FIXED, 0, 0},
};

void bench_report(bench_run_t *run, const char *name, const char *text,
                  stats_t value, const char *unit)
{
    const table_cell_t cells[BENCH_VALUE_COLUMNS] = {
        table_text(name),
        table_text(text),
        table_number(value.median),
        table_number(value.p10),
        table_number(value.p90),
        table_text(unit),
        table_number(run->harness.size)};
    if (run->speak) {
        table_row(&run->table, cells);
    }
}

void bench_note(const bench_run_t *run, const char *text)
{
    if (run->speak) {
        (void)printf("%s\n", text);
        (void)fflush(stdout);
    }
}

/* ---- the state of the machine ------------------------------------------- */

enum { ROUNDS = 200, BATCHES = 9 };

#define NEAR_NS 80.0
#define LIMIT_US                                                               \
    2000.0 /* of a batch: past it, the threads share a processor               \
            */

/* The state of a ping-pong. An even turn is the pinger's, an odd one the
   ponger's. */
typedef struct ping_pong {
    _Atomic int turn;
    _Atomic int stop;
} ping_pong_t;

/* Waits for the turn until the deadline. The acquire pairs with the other
   thread's release store. */
static bool await(ping_pong_t *game, int turn, double deadline_us)
{
    for (unsigned spins = 1;
         atomic_load_explicit(&game->turn, memory_order_acquire) != turn;
         spins++) {
        if (atomic_load_explicit(&game->stop, memory_order_relaxed) != 0 ||
            (spins % 1024 == 0 && clock_now_us() > deadline_us)) {
            return false;
        }
    }
    return true;
}

static void *pong(void *arg)
{
    ping_pong_t *game = arg;
    double deadline_us = clock_now_us() + LIMIT_US * BATCHES;
    for (int turn = 1; await(game, turn, deadline_us); turn += 2) {
        atomic_store_explicit(&game->turn, turn + 1, memory_order_release);
    }
    return NULL;
}

/* Plays a batch from `turn` on. Returns the time of one transfer in ns, or 0
   past the limit. */
static double play(ping_pong_t *game, int turn)
{
    double begin_us = clock_now_us();
    for (int round = 0; round < ROUNDS; round++, turn += 2) {
        atomic_store_explicit(&game->turn, turn + 1, memory_order_release);
        if (!await(game, turn + 2, begin_us + LIMIT_US)) {
            return 0;
        }
    }
    return (clock_now_us() - begin_us) * 1e3 / (2.0 * ROUNDS);
}

/* Starts the ponger on another processor of this process. By default the kernel
   may start it on this one and take milliseconds to move it. */
static bool start_ponger(ping_pong_t *game, pthread_t *out)
{
    cpu_set_t allowed;
    pthread_attr_t attributes;
    int mine = sched_getcpu();
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || mine < 0) {
        return false;
    }
    CPU_CLR((size_t)mine, &allowed);
    if (CPU_COUNT(&allowed) == 0 || pthread_attr_init(&attributes) != 0) {
        return false;
    }
    bool started = pthread_attr_setaffinity_np(&attributes, sizeof(allowed),
                                               &allowed) == 0 &&
                   pthread_create(out, &attributes, pong, game) == 0;
    (void)pthread_attr_destroy(&attributes);
    return started;
}

/* Takes the fastest batch, since disturbances only make a batch slower. */
double bench_probe(bench_run_t *run)
{
    ping_pong_t game = {0};
    pthread_t ponger;
    if (!run->speak || !start_ponger(&game, &ponger)) {
        return 0;
    }
    double fastest = 0;
    for (int batch = 0; batch < BATCHES; batch++) {
        double latency_ns = play(&game, batch * 2 * ROUNDS);
        if (latency_ns <= 0) {
            break;
        }
        if (fastest <= 0 || latency_ns < fastest) {
            fastest = latency_ns;
        }
    }
    atomic_store_explicit(&game.stop, 1, memory_order_relaxed);
    (void)pthread_join(ponger, NULL);
    run->probes++;
    run->near += fastest > 0 && fastest < NEAR_NS;
    return fastest;
}
