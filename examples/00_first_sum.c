/* The first sum: each rank gives two numbers, and gets their sums over all
   ranks.

       mpirun -np 4 ./00_first_sum                                        */
#include <baton/mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void must(baton_status_t status)
{
    if (status != BATON_OK) {
        fprintf(stderr, "%s\n", baton_error_message());
        exit(1);
    }
}

int main(int argc, char **argv)
{
    int level, mine[2] = {1, 10}, sums[2];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    baton_engine_t *engine;
    baton_group_t *group;
    must(baton_engine_open(NULL, &engine));
    must(baton_group_create_mpi(engine, MPI_COMM_WORLD, &group));
    must(baton_allreduce_now(group, mine, sums, 2, BATON_I32, BATON_SUM));
    printf("rank %d has %d and %d\n", baton_group_rank(group), sums[0],
           sums[1]);
    must(baton_group_destroy(group));
    must(baton_engine_close(engine));
    return MPI_Finalize();
}
