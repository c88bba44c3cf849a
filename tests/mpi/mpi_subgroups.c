/* Random groups of some ranks of other groups (support/subgroups.h), over
   MPI. */
#include "progress/driving/engine.h"
#include "support/mpi.h"
#include "support/sanitized.h"
#include "support/subgroups.h"
#include <baton/inproc.h>
#include <stdlib.h>
#include <unistd.h>

enum { TRIALS = SUPPORT_REPEAT(6), ROUNDS = 150 };

/* Each rank destroys three groups in an order of its own. They are its last
   ones, except on rank 0, whose progress thread alone lets the others leave. */
static void destroy_in_any_order(void)
{
    baton_group_t *groups[] = {world.group, NULL, NULL};
    baton_group_t *self = NULL;
    if (world.rank == 0) {
        support_mpi_ok(baton_group_create_self(world.engine, &self));
    }
    for (int i = 1; i < 3; i++) {
        support_mpi_ok(
            support_mpi_group(world.engine, MPI_COMM_WORLD, &groups[i]));
    }
    for (int i = 0; i < 3; i++) {
        support_mpi_ok(baton_group_destroy(groups[(i + world.rank) % 3]));
    }
    world.group = NULL;
    MPI_Barrier(MPI_COMM_WORLD);
    support_mpi_ok(baton_group_destroy(self));
}

int main(int argc, char **argv)
{
    const int ranks[] = {0, 1, 2, 3, 4, 5, 6, 7};
    baton_group_t *some;
    /* Without these rechecks and time-outs, a rank that is never told to leave
       hangs. So the test notices that. */
    baton__engine_rechecks = false;
    setenv("BATON_STALL_MS", "86400000", 1);
    setenv("BATON_DESTROY_MS", "86400000", 1);
    support_mpi_begin(argc, argv);
    support_mpi_open();
    support_mpi_running = "random groups";
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
        baton_group_t *group = NULL;
        support_mpi_ok(support_mpi_group(world.engine, MPI_COMM_WORLD, &group));
        const char *what = subgroups_run(group, world.seed + trial, ROUNDS);
        if (what != NULL) {
            support_mpi_die(what);
        }
    }
    support_mpi_ok(
        baton_group_create_sub(world.group, ranks, world.size, "some", &some));
    usleep(world.rank == 0 ? 20000 : 0);
    support_mpi_ok(baton_group_destroy(some));
    support_mpi_running = "any order";
    destroy_in_any_order();
    support_mpi_end();
    return 0;
}
