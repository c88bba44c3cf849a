/* Sparse all-reduces over MPI: every algorithm, with the same bits as in the
   simulator, which each rank runs beside it. */
#include "support/mpi.h"
#include "support/random.h"
#include "support/sparse.h"

#include <stdio.h>
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

/* What a rank has after a step, in bits of f32. */
typedef struct outcome {
    uint32_t result[COUNT], residual[COUNT];
} outcome_t;

static void take(baton_sparse_t *sparse, outcome_t *out)
{
    support_mpi_ok(baton_sparse_dense(sparse, out->result));
    support_mpi_ok(baton_sparse_residual(sparse, out->residual));
}

/* What this rank gets where all are simulated. */
static void simulate(const baton_sparse_options_t *options, outcome_t *out)
{
    support_sparse_t *group = support_sparse_open(world.size, options);
    for (int step = 0; step < STEPS; step++) {
        for (int r = 0; r < world.size; r++) {
            fill(support_sparse_gradient(group, r), r, step);
        }
        support_sparse_step(group);
        take(group->ranks[world.rank], &out[step]);
    }
    support_sparse_close(group);
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
        take(sparse, &actual);
        if (memcmp(&actual, &expected[step], sizeof actual) != 0) {
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
    options.quantise = true;
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
