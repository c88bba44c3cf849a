/* Solo all-reduce in a training loop with one slow rank, for which no other
   rank waits until it is `history` epochs behind.

       mpirun -np 4 ./04_solo_training

       step of a fast rank:   gradient --> contribute, start, wait --> update
                                                  |
                                       begins the epoch on all ranks
                                                  |
       the slow rank:         gradient . . . .  [take] . . . . contribute ...
                                                  |                  |
                                    what it has: nothing yet         |
                                                  |                  v
                                                  v        goes out with a
                                            [all-reduce]   later epoch, stale

   The first rank that starts a step runs the step's epoch on all ranks, with
   whatever they have contributed so far. Each rank gets the result of every
   epoch, in order, so that the weights stay the same everywhere
   (BATON_KEEP_ALL). That has a price: no rank gets more than `history` epochs
   ahead of another rank. So a rank that is late now and then delays no other
   rank. But a rank that is always slow, like the one here, sets the pace of all
   ranks once it is `history` epochs behind. */
#include <baton/mpi.h>
#include <baton/partial.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { STEPS = 30, SLOW_MS = 5 };

static void must(baton_status_t status)
{
    if (status != BATON_OK) {
        fprintf(stderr, "%s\n", baton_error_message());
        MPI_Abort(MPI_COMM_WORLD, 1);
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
                                       .mode = BATON_SOLO,
                                       .history = 8,
                                       .count = 2,
                                       .dtype = BATON_F64,
                                       .op = BATON_SUM};
    must(baton_partial_create(group, &options, &partial));
    int rank = baton_group_rank(group);
    int size = baton_group_size(group);
    bool slow = rank == size - 1;

    double weight = 10.0, counted = 0.0, gradient[2];
    for (int step = 1; step <= STEPS; step++) {
        /* Every rank pulls the weight towards its own number, so together the
           ranks find the mean of the numbers. The second element counts
           contributions, to check that no contribution is lost. */
        gradient[0] = weight - rank;
        gradient[1] = 1.0;
        usleep(slow ? 1000 * (1 + SLOW_MS) : 1000);
        must(baton_partial_contribute(partial, gradient));
        must(baton_partial_start(partial));
        baton_partial_result_t result;
        must(baton_partial_wait(partial, -1, &result));

        const double *sum = result.data;
        if (sum[1] > 0.0) {
            weight -= 0.1 * sum[0] / sum[1];
        }
        counted += sum[1];
        if (rank == 0 || slow) {
            printf("%s rank, step %2d: epoch %2" PRIu64 ", %s, %" PRIu32
                   " active, staleness %" PRIu64 ", weight %.4f\n",
                   slow ? "slow" : "fast", step, result.epoch,
                   result.included ? "included" : "late    ", result.active,
                   result.staleness, weight);
        }
    }

    /* Check that no contribution was lost: an epoch has summed it, or it is
       still pending on its rank. Check also that the weights have the same bits
       on all ranks: the largest weight must be the smallest one, which is minus
       the maximum of -weight. */
    double pending[2], all_pending, weights[2] = {weight, -weight}, most[2];
    bool any;
    must(baton_barrier_now(group));
    must(baton_partial_pending(partial, pending, &any));
    must(baton_allreduce_now(group, &pending[1], &all_pending, 1, BATON_F64,
                             BATON_SUM));
    must(baton_allreduce_now(group, weights, most, 2, BATON_F64, BATON_MAX));
    bool complete = counted + all_pending == (double)STEPS * size;
    bool same = most[0] == weight && most[1] == -weight;
    if (rank == 0) {
        printf("%g contributions taken, %g pending, of %d; weights %s\n",
               counted, all_pending, STEPS * size, same ? "equal" : "differ");
    }

    must(baton_partial_destroy(partial));
    must(baton_group_destroy(group));
    must(baton_engine_close(engine));
    MPI_Finalize();
    return complete && same ? 0 : 1;
}
