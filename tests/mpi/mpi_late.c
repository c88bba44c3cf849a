/* All ranks make one sum. Then the ranks with odd numbers, which may all be on
   one host, make sums in a subgroup, to which the last of them comes late,
   until the job is killed. top.sh looks at this program. */
#include "support/mpi.h"
#include <unistd.h>

enum { MOST = 64, LATE_US = 5000 };

int main(int argc, char **argv)
{
    int ranks[MOST];
    int count = 0;
    uint64_t all = 0, some = 0;
    support_mpi_begin(argc, argv);
    support_mpi_open();
    for (int rank = 1; rank < world.size && count < MOST; rank += 2) {
        ranks[count++] = rank;
    }
    support_mpi_run(
        support_mpi_sum(world.group, &all, sizeof all, BATON_U64, NULL));
    if (world.rank % 2 == 0) {
        (void)pause();
    }
    baton_group_t *group;
    support_mpi_ok(
        baton_group_create_sub(world.group, ranks, count, "odd", &group));
    baton_schedule_t *schedule =
        support_mpi_sum(group, &some, sizeof some, BATON_U64, NULL);
    for (;;) {
        (void)usleep(world.rank == ranks[count - 1] ? 2 * LATE_US : LATE_US);
        support_mpi_run(schedule);
    }
}
