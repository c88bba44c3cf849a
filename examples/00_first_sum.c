/* The first sum: each rank gives two numbers, and gets their sums over all
   ranks. A shell or a launcher starts the ranks:

       for r in 0 1 2 3; do RANK=$r WORLD_SIZE=4 ./00_first_sum & done; wait
       mpirun -np 4 ./00_first_sum                                        */
#include <baton/store.h>
#include <stdio.h>
#include <stdlib.h>

static void must(baton_status_t status)
{
    if (status != BATON_OK) {
        fprintf(stderr, "%s\n", baton_error_message());
        exit(1);
    }
}

int main(void)
{
    int mine[2] = {1, 10}, sums[2];
    baton_engine_t *engine;
    baton_group_t *group;
    must(baton_engine_open(NULL, &engine));
    must(baton_group_create_world(engine, 60000, &group));
    must(baton_allreduce_now(group, mine, sums, 2, BATON_I32, BATON_SUM));
    printf("rank %d has %d and %d\n", baton_group_rank(group), sums[0],
           sums[1]);
    must(baton_group_destroy(group));
    must(baton_engine_close(engine));
    return 0;
}
