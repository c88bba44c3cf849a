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

/* Calls of one shape that are in place on one rank, another one each time. */
static void check_mixed(void)
{
    int sum = world.size * (world.size + 1) / 2;
    for (int call = 0; call < 2 * world.size; call++) {
        bool in_place = world.rank == call % world.size;
        int x = call + world.rank + 1, y = x;
        support_mpi_ok(baton_allreduce_now(world.group, in_place ? NULL : &x,
                                           &y, 1, BATON_I32, BATON_SUM));
        support_mpi_check(y == sum + world.size * call, "an all-reduce");
        y = x;
        support_mpi_ok(baton_reduce_now(
            world.group, world.rank == 0 && call % 2 == 0 ? NULL : &x,
            world.rank == 0 ? &y : NULL, 1, BATON_I32, BATON_SUM, 0));
        support_mpi_check(world.rank != 0 || y == sum + world.size * call,
                          "a reduce");
    }
}

int main(int argc, char **argv)
{
    support_mpi_begin(argc, argv);
    support_mpi_open();
    check_count(0);
    check_count(1);
    check_count(8192);
    check_count(300001);
    check_mixed();
    support_mpi_ok(baton_barrier_now(world.group));
    support_mpi_end();
    return 0;
}
