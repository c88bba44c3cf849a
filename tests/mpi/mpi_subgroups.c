/* Random groups of some ranks of others (support/subgroups.h) over MPI. */
#include "support/mpi.h"
#include "support/sanitized.h"
#include "support/subgroups.h"

enum { TRIALS = SUPPORT_REPEAT(6), ROUNDS = 150 };

int main(int argc, char **argv)
{
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
    support_mpi_end();
    return 0;
}
