/* Collectives by one call between processes: long vectors and short ones, again
   and again, at once and started. The exit code is the result. */
#include "support/mpi.h"

#include <stdlib.h>

static void check_sum(const float *x, size_t count)
{
    int ranks = world.size * (world.size + 1) / 2;
    for (size_t i = 0; i < count; i++) {
        float expected = (float)ranks + (float)world.size * (float)(i % 7);
        support_mpi_check(x[i] == expected, "the sum is right");
    }
}

static void fill(float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        x[i] = (float)(world.rank + 1) + (float)(i % 7);
    }
}

static void check_count(size_t count)
{
    float *x = malloc((count + 1) * sizeof *x);
    float *y = malloc((count + 1) * sizeof *y);
    baton_schedule_t *sum;
    support_mpi_check(x != NULL && y != NULL, "there is memory");
    if (x == NULL || y == NULL) {
        exit(EXIT_FAILURE);
    }
    support_mpi_ok(baton_allreduce_create(world.group,
                                          &(baton_allreduce_t){
                                              .target = x,
                                              .count = count,
                                              .dtype = BATON_F32,
                                              .op = BATON_SUM,
                                          },
                                          &sum));
    for (int epoch = 0; epoch < 3; epoch++) {
        fill(x, count);
        support_mpi_ok(baton_allreduce_now(world.group, x, y, count, BATON_F32,
                                           BATON_SUM));
        check_sum(y, count);
        support_mpi_run(sum);
        check_sum(x, count);
        support_mpi_ok(
            baton_broadcast_now(world.group, y, count, BATON_F32, 0));
    }
    support_mpi_ok(baton_schedule_destroy(sum));
    free(x);
    free(y);
}

int main(int argc, char **argv)
{
    support_mpi_begin(argc, argv);
    support_mpi_open();
    check_count(0);
    check_count(1);
    check_count(8192);
    check_count(300001);
    support_mpi_ok(baton_barrier_now(world.group));
    support_mpi_end();
    return 0;
}
