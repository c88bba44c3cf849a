/* All ranks make one sum. Then the ranks with odd numbers, which may all be on
   one host, make sums in a subgroup, to which the last of them comes late,
   until the job is killed. top.sh looks at this program.

   mpi_late all: a subgroup of all ranks */
#include "support/mpi.h"
#include <unistd.h>

enum { MOST = 64, LATE_US = 600, STEP_US = 200 };

int main(int argc, char **argv)
{
    const int step = argc > 1 ? 1 : 2;
    int ranks[MOST];
    int count = 0;
    uint64_t all = 0, some = 0;
    support_mpi_begin(argc, argv);
    support_mpi_open();
    for (int rank = step - 1; rank < world.size && count < MOST; rank += step) {
        ranks[count++] = rank;
    }
    support_mpi_run(
        support_mpi_sum(world.group, &all, sizeof all, BATON_U64, NULL));
    if (world.rank % step != step - 1) {
        (void)pause();
    }
    baton_group_t *group;
    support_mpi_ok(
        baton_group_create_sub(world.group, ranks, count, "some", &group));
    baton_schedule_t *schedule =
        support_mpi_sum(group, &some, sizeof some, BATON_U64, NULL);
    const bool late = count > 0 && world.rank == ranks[count - 1];
    for (;;) {
        (void)usleep(late ? STEP_US + LATE_US : STEP_US);
        support_mpi_run(schedule);
    }
}
