/* Training goes on when a rank dies: a partial all-reduce continues with the
   ranks that live.

       mpirun --enable-recovery -np 4 ./06_survivors
       mpirun --with-ft ulfm -np 4 ./06_survivors        with Open MPI 5

       step      1 ...             20                 21 ...             60
       rank 0    gradient --+      gradient --+       gradient --+
       rank 1    gradient --+      gradient --+       gradient --+
       rank 2    gradient --+      kill -9    x                  |
       rank 3    gradient --+      gradient --+       gradient --+
                            v                 v                  v
                       sum, living 4     sum, living 3      sum, living 3

   The ranks fit one linear function, and each rank has points of its own. Rank
   2, or in a group of two the last rank, kills itself before it contributes to
   step 20. The other ranks are not told, and call the same functions as before.
   With BATON_FULL each step waits for all living ranks, and with another mode
   for fewer. The field `living` of a result says by how many ranks to divide.
   The weights stay the same on all living ranks, bit for bit.

   MPI itself does not survive a dead rank, so the program ends by _exit,
   without MPI_Finalize. */
#include <baton/mpi.h>
#include <baton/partial.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { STEPS = 60, POINTS = 200, WEIGHTS = 16, LAST_STEP = 20 };

static void must(baton_status_t status)
{
    if (status != BATON_OK) {
        fprintf(stderr, "%s\n", baton_error_message());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static double survivors_sample(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (double)(*state >> 8) / (1 << 23) - 1.0;
}

/* Sets gradient[WEIGHTS] to the mean of the squared errors that `weights` makes
   at this rank's points, and the elements before it to the gradient of that
   mean. The function to find is x0 + 2 x1 + 3 x2 ... */
static void survivors_gradient(double gradient[WEIGHTS + 1],
                               const double weights[WEIGHTS], int rank)
{
    unsigned state = (unsigned)rank + 1;
    for (int i = 0; i <= WEIGHTS; i++) {
        gradient[i] = 0.0;
    }
    for (int point = 0; point < POINTS; point++) {
        double x[WEIGHTS], error = 0.0;
        for (int i = 0; i < WEIGHTS; i++) {
            x[i] = survivors_sample(&state);
            error += (weights[i] - (i + 1)) * x[i];
        }
        for (int i = 0; i < WEIGHTS; i++) {
            gradient[i] += 2.0 * error * x[i] / POINTS;
        }
        gradient[WEIGHTS] += error * error / POINTS;
    }
}

int main(int argc, char **argv)
{
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    baton_engine_t *engine;
    baton_group_t *group;
    baton_partial_t *partial;
    must(baton_engine_open(NULL, &engine));
    must(baton_group_create_mpi(engine, MPI_COMM_WORLD, &group));
    baton_partial_options_t options = {.size = sizeof(options),
                                       .name = "gradient",
                                       .mode = BATON_FULL,
                                       .count = WEIGHTS + 1,
                                       .dtype = BATON_F64,
                                       .on_loss = BATON_ON_LOSS_CONTINUE};
    must(baton_partial_create(group, &options, &partial));
    int rank = baton_group_rank(group);
    int last = baton_group_size(group) - 1;
    int victim = last < 2 ? last : 2;

    double weights[WEIGHTS] = {0}, gradient[WEIGHTS + 1];
    double first_loss = 0.0, loss = 0.0;
    uint32_t living = 0;
    for (int step = 1; step <= STEPS; step++) {
        survivors_gradient(gradient, weights, rank);
        if (rank == victim && step == LAST_STEP) {
            kill(getpid(), SIGKILL);
        }
        baton_partial_result_t result;
        must(baton_partial_contribute(partial, gradient));
        must(baton_partial_start(partial));
        must(baton_partial_wait(partial, -1, &result));

        const double *sum = result.data;
        living = result.living;
        loss = sum[WEIGHTS] / living;
        first_loss = step == 1 ? loss : first_loss;
        for (int i = 0; i < WEIGHTS; i++) {
            weights[i] -= 0.1 * sum[i] / living;
        }
        if (rank == 0 && (step % 10 == 0 || step == LAST_STEP + 1)) {
            printf("step %2d: %" PRIu32 " ranks live, loss %.6f\n", step,
                   living, loss);
        }
    }
    if (loss < first_loss / 1000) {
        printf("rank %d goes on: %" PRIu32 " ranks live, rank %d %s, loss "
               "%.6f after %.6f\n",
               rank, living, victim,
               baton_partial_lives(partial, victim) ? "lives" : "does not",
               loss, first_loss);
    }
    must(baton_partial_destroy(partial));
    must(baton_group_destroy(group));
    must(baton_engine_close(engine));
    fflush(stdout);
    _exit(0);
}
