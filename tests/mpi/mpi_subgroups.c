/* Random groups of some ranks of others (support/subgroups.h) over MPI; and
   some without messages, whose ranks wake each other to leave, or wait for
   good. */
#include "progress/engine.h"
#include "support/mpi.h"
#include "support/sanitized.h"
#include "support/subgroups.h"
#include <stdlib.h>
#include <unistd.h>

enum { TRIALS = SUPPORT_REPEAT(6), ROUNDS = 150 };

static void leave(int late)
{
    int ranks[8] = {0};
    baton_group_t *all, *some;
    for (int i = 0; i < world.size; i++) {
        ranks[i] = world.size - 1 - i;
    }
    support_mpi_ok(baton_group_create_mpi(world.engine, MPI_COMM_WORLD, &all));
    support_mpi_ok(
        baton_group_create_sub(all, ranks, world.size, "some", &some));
    usleep(world.rank == late ? 5000 : 0);
    support_mpi_ok(baton_group_destroy(some));
    support_mpi_ok(baton_group_destroy(all));
}

int main(int argc, char **argv)
{
    baton__engine_rechecks = false;
    setenv("BATON_STALL_MS", "86400000", 1);
    setenv("BATON_DESTROY_MS", "86400000", 1);
    support_mpi_begin(argc, argv);
    support_mpi_open();
    support_mpi_running = "random groups";
    for (uint64_t trial = 0; trial < TRIALS; trial++) {
        baton_group_t *group = NULL;
        support_mpi_ok(
            baton_group_create_mpi(world.engine, MPI_COMM_WORLD, &group));
        const char *what = subgroups_run(group, world.seed + trial, ROUNDS);
        if (what != NULL) {
            support_mpi_die(what);
        }
    }
    for (int i = 0; i < 3; i++) {
        leave(i);
    }
    support_mpi_end();
    return 0;
}
