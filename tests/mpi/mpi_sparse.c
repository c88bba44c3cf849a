/* Sparse all-reduces over MPI: every algorithm, with the same bits as in the
   simulator, which each rank runs beside it. */
#include "support/mpi.h"
#include "support/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 3001, STEPS = 5 };

/* A rank's gradient of a step: the same wherever it is asked for. */
static void fill(float *gradient, int of, int step)
{
    support_random_t random =
        support_random(12345, (uint64_t)step * 1000 + (uint64_t)of);
    for (int i = 0; i < COUNT; i++) {
        double value = (double)support_random_below(&random, 1u << 20);
        gradient[i] = (float)(value / (1 << 19) - 1);
    }
}

typedef struct outcome {
    size_t count;
    uint32_t indices[COUNT];
    uint32_t values[COUNT]; /* the bits of f32 */
    uint32_t residual[COUNT];
} outcome_t;

static bool are_same(const outcome_t *a, const outcome_t *b)
{
    return a->count == b->count &&
           memcmp(a->indices, b->indices, sizeof a->indices) == 0 &&
           memcmp(a->values, b->values, sizeof a->values) == 0 &&
           memcmp(a->residual, b->residual, sizeof a->residual) == 0;
}

static void take(outcome_t *out, const baton_sparse_result_t *result)
{
    memset(out, 0, sizeof *out);
    out->count = result->count;
    if (result->indices != NULL) {
        memcpy(out->indices, result->indices, result->count * 4);
    }
    memcpy(out->values, result->values, result->count * 4);
}

/* What this rank gets where all are simulated. */
static void simulate(const baton_sparse_options_t *options, outcome_t *out)
{
    baton_sim_options_t sim_options = BATON_SIM_OPTIONS;
    baton_sim_t *sim;
    sim_options.ranks = world.size;
    support_mpi_ok(baton_sim_create(&sim_options, &sim));
    baton_sparse_t **all = calloc((size_t)world.size, sizeof(baton_sparse_t *));
    float *gradients = calloc((size_t)world.size * COUNT, sizeof(float));
    baton_sparse_result_t result;
    for (int r = 0; r < world.size; r++) {
        support_mpi_ok(
            baton_sparse_prepare(baton_sim_group(sim, r), options, &all[r]));
    }
    for (int r = 0; r < world.size; r++) {
        support_mpi_ok(baton_sparse_connect(all[r], -1));
    }
    for (int step = 0; step < STEPS; step++) {
        for (int r = 0; r < world.size; r++) {
            float *gradient = gradients + (size_t)r * COUNT;
            fill(gradient, r, step);
            support_mpi_ok(baton_sparse_start(all[r], gradient));
        }
        for (int r = 0; r < world.size; r++) {
            support_mpi_ok(baton_sparse_wait(all[r], -1, &result));
            if (r == world.rank) {
                take(&out[step], &result);
                support_mpi_ok(
                    baton_sparse_residual(all[r], out[step].residual));
            }
        }
    }
    for (int r = 0; r < world.size; r++) {
        support_mpi_ok(baton_sparse_destroy(all[r]));
    }
    support_mpi_ok(baton_sim_destroy(sim));
    free(all);
    free(gradients);
}

static void compare(baton_sparse_options_t options)
{
    static char what[100];
    static outcome_t expected[STEPS], actual;
    static float gradient[COUNT];
    (void)snprintf(what, sizeof what, "%s, %d teams, exchange %d",
                   baton_sparse_algorithm_name(options.algorithm),
                   options.teams, (int)options.exchange);
    support_mpi_running = what;
    options.count = COUNT;
    options.dtype = BATON_F32;
    options.k = 120;
    simulate(&options, expected);
    baton_sparse_t *sparse;
    support_mpi_ok(baton_sparse_create(world.group, &options,
                                       SUPPORT_MPI_WAIT_MS, &sparse));
    for (int step = 0; step < STEPS; step++) {
        baton_sparse_result_t result;
        fill(gradient, world.rank, step);
        support_mpi_ok(baton_sparse_start(sparse, gradient));
        support_mpi_ok(baton_sparse_wait(sparse, SUPPORT_MPI_WAIT_MS, &result));
        take(&actual, &result);
        support_mpi_ok(baton_sparse_residual(sparse, actual.residual));
        if (!are_same(&actual, &expected[step])) {
            support_mpi_die("bits differ from the simulator's");
        }
    }
    support_mpi_ok(baton_sparse_destroy(sparse));
}

static void compare_spardl(void)
{
    baton_sparse_options_t options = BATON_SPARSE_OPTIONS;
    options.algorithm = BATON_SPARSE_SPARDL;
    for (options.teams = 1; options.teams <= world.size; options.teams++) {
        if (world.size % options.teams != 0) {
            continue;
        }
        options.exchange = BATON_TEAMS_BSAG;
        compare(options);
        if ((options.teams & (options.teams - 1)) == 0) {
            options.exchange = BATON_TEAMS_RSAG;
            compare(options);
        }
    }
}

static void compare_others(void)
{
    for (int i = BATON_SPARSE_SPARDL + 1; i < BATON_SPARSE_COUNT; i++) {
        baton_sparse_options_t options = BATON_SPARSE_OPTIONS;
        options.algorithm = (baton_sparse_algorithm_t)i;
        options.momentum = i % 2 == 0 ? 0.5 : 0;
        options.warmup = i % 3 == 0 ? 1 : 0;
        options.average = i % 2 == 1;
        options.clip = 10;
        compare(options);
    }
    baton_sparse_options_t options = BATON_SPARSE_OPTIONS;
    options.algorithm = BATON_SPARSE_REDSYNC;
    options.redsync = BATON_REDSYNC_SEARCH;
    options.quantise = options.keep_error = true;
    compare(options);
}

int main(int argc, char **argv)
{
    support_mpi_begin(argc, argv);
    support_mpi_open();
    compare_spardl();
    compare_others();
    support_mpi_end();
    return 0;
}
