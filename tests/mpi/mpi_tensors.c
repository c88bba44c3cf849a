/* Sets of tensors over MPI: what is sent whole equals MPI_Allreduce's sum; for
   sparse ones all gradients equal all results plus all residuals. Values are
   integers; ranks are ready in different orders. */
#include "support/mpi.h"
#include "support/random.h"

#include <stdlib.h>
#include <string.h>

enum { TENSORS = 6, LARGEST = 40000, STEPS = 12, WAIT_MS = 60000 };

static const baton_tensor_t model[TENSORS] = {
    {"first", BATON_ROLE_CONVOLUTION, 40000},
    {"bias", BATON_ROLE_BIAS_OR_NORM, 64},
    {"hidden", BATON_ROLE_RECURRENT, 36000},
    {"small", BATON_ROLE_DENSE, 1000},
    {"norm", BATON_ROLE_BIAS_OR_NORM, 10},
    {"softmax", BATON_ROLE_OUTPUT, 33001},
};

static int rank, size;
static double gradients[TENSORS][LARGEST];
static double contributed[TENSORS][LARGEST], received[TENSORS][LARGEST];

static void fill(int step)
{
    support_random_t random =
        support_random(77, (uint64_t)step * 1000 + (uint64_t)rank);
    for (int t = 0; t < TENSORS; t++) {
        for (size_t i = 0; i < model[t].count; i++) {
            gradients[t][i] =
                (double)support_random_below(&random, 4001) - 2000;
            contributed[t][i] += gradients[t][i];
        }
    }
}

static void expect_whole(int t, const baton_sparse_result_t *result)
{
    static double sum[LARGEST];
    MPI_Allreduce(gradients[t], sum, (int)model[t].count, MPI_DOUBLE, MPI_SUM,
                  MPI_COMM_WORLD);
    if (result->count != model[t].count || result->indices != NULL ||
        memcmp(result->values, sum, model[t].count * sizeof(double)) != 0) {
        support_mpi_die("a dense result is not the sum");
    }
}

static void take(int t, const baton_sparse_result_t *result)
{
    const double *values = result->values;
    for (size_t i = 0; i < result->count; i++) {
        received[t][result->indices[i]] += values[i];
    }
}

static void run_step(baton_tensors_t *set, int step)
{
    fill(step);
    for (int i = 0; i < TENSORS; i++) {
        size_t t = (size_t)((i + rank + step) % TENSORS);
        support_mpi_expect(baton_tensors_ready(set, t, gradients[t]), BATON_OK);
    }
    for (int t = 0; t < TENSORS; t++) {
        baton_sparse_result_t result;
        baton_tensor_plan_t plan;
        support_mpi_expect(baton_tensors_wait(set, (size_t)t, WAIT_MS, &result),
                           BATON_OK);
        support_mpi_expect(baton_tensors_plan(set, (size_t)t, &plan), BATON_OK);
        if (plan.form == BATON_TENSOR_SPARSE) {
            take(t, &result);
        } else {
            expect_whole(t, &result);
        }
    }
}

static void expect_conserved(baton_tensors_t *set)
{
    static double residual[LARGEST], rest[LARGEST], sum[LARGEST];
    for (int t = 0; t < TENSORS; t++) {
        baton_tensor_plan_t plan;
        support_mpi_expect(baton_tensors_plan(set, (size_t)t, &plan), BATON_OK);
        if (plan.form != BATON_TENSOR_SPARSE) {
            continue;
        }
        support_mpi_expect(baton_sparse_residual(
                               baton_tensors_sparse(set, (size_t)t), residual),
                           BATON_OK);
        for (size_t i = 0; i < model[t].count; i++) {
            rest[i] = contributed[t][i] - residual[i];
        }
        MPI_Allreduce(rest, sum, (int)model[t].count, MPI_DOUBLE, MPI_SUM,
                      MPI_COMM_WORLD);
        if (memcmp(sum, received[t], model[t].count * sizeof(double)) != 0) {
            support_mpi_die("results and residuals are not the gradients");
        }
    }
}

static void run(baton_group_t *group, const char *what,
                baton_tensors_options_t options)
{
    baton_tensors_t *set;
    support_mpi_running = what;
    memset(contributed, 0, sizeof contributed);
    memset(received, 0, sizeof received);
    options.dtype = BATON_F64;
    options.density = 0.01;
    support_mpi_expect(
        baton_tensors_create(group, model, TENSORS, &options, WAIT_MS, &set),
        BATON_OK);
    for (int step = 0; step < STEPS; step++) {
        run_step(set, step);
    }
    expect_conserved(set);
    support_mpi_expect(baton_tensors_destroy(set), BATON_OK);
}

static void differ(baton_group_t *group)
{
    baton_tensors_options_t options = BATON_TENSORS_OPTIONS;
    baton_tensors_t *set;
    support_mpi_running = "options differ";
    options.momentum = rank == size - 1 ? 0.25 : 0.5;
    if (size > 1) {
        support_mpi_expect(baton_tensors_create(group, model, TENSORS, &options,
                                                WAIT_MS, &set),
                           BATON_ERR_MISMATCH);
        support_mpi_says("momentum is 0.25 on one rank and 0.5 on another");
    }
    support_mpi_healthy(group);
}

int main(int argc, char **argv)
{
    int provided;
    baton_engine_t *engine;
    baton_group_t *group;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    support_mpi_expect(baton_engine_open(NULL, &engine), BATON_OK);
    support_mpi_expect(baton_group_create_mpi(engine, MPI_COMM_WORLD, &group),
                       BATON_OK);
    baton_tensors_options_t options = BATON_TENSORS_OPTIONS;
    run(group, "by cost", options);
    options.always_sparse = true;
    options.algorithm = BATON_SPARSE_SPARDL;
    run(group, "SparDL", options);
    options.algorithm = BATON_SPARSE_REDSYNC;
    options.paper_selections = true;
    run(group, "RedSync", options);
    differ(group);
    support_mpi_expect(baton_group_destroy(group), BATON_OK);
    support_mpi_expect(baton_engine_close(engine), BATON_OK);
    MPI_Finalize();
    return 0;
}
