/* Ranks are killed, and the others go on: `mpi_survivors ROUND...`, run by
   survivors.sh. In each round some ranks of MPI_COMM_WORLD die, the group's
   epochs fail on all others, these shrink it, and the survivors' group sums:

     1,3    ranks 1 and 3 are killed
     d4     rank 4 is killed while it shrinks the group; the others may find it
            in their new one, and shrink that
     none   nobody is killed, and the last rank comes late

   Old groups are destroyed before the new ones are used, or at the end. Those
   that are left say that they go on. MPI_Finalize is not called: it hangs if
   the dead were on another host. */
#include "support/mpi.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 32, COUNT = 2000 };

static baton_group_t *old[MOST]; /* to be destroyed at the end */
static int old_count;
static int members[MOST]; /* of the group: ranks of the world */
static uint64_t data[COUNT];

/* True if this rank is among those of a round: "1,3", or "d4". */
static bool is_victim(const char *round, int rank)
{
    const char *at = round + (*round == 'd');
    bool found = false;
    while (*at >= '0' && *at <= '9') {
        char *end;
        found |= strtol(at, &end, 10) == rank;
        at = *end == ',' ? end + 1 : end;
    }
    return found;
}

static void die(void)
{
    (void)kill(getpid(), SIGKILL);
    (void)pause();
}

/* One sum over the group, of which all ranks know whether it worked: nobody
   can end it without the others. */
static bool can_sum(baton_group_t *group)
{
    uint64_t size = (uint64_t)baton_group_size(group), all = 0;
    baton_schedule_t *sum = support_mpi_sum(group, data, sizeof data, BATON_U64,
                                            "recursive_doubling");
    for (uint64_t i = 0; i < size; i++) {
        all += (uint64_t)members[i];
    }
    for (int i = 0; i < COUNT; i++) {
        data[i] = (uint64_t)world.rank;
    }
    baton_status_t status = baton_schedule_start(sum);
    if (status == BATON_OK) {
        status = baton_schedule_wait(sum, SUPPORT_MPI_WAIT_MS);
    }
    if (status == BATON_OK) {
        support_mpi_check(data[0] == all && data[COUNT - 1] == all,
                          "a wrong sum");
    }
    support_mpi_ok(baton_schedule_destroy(sum));
    return status == BATON_OK;
}

static double now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

static baton_group_t *shrink(baton_group_t *group, bool destroys)
{
    double began = now_ms();
    baton_group_t *next = NULL;
    support_mpi_ok(baton_group_shrink(group, SUPPORT_MPI_WAIT_MS, &next));
    printf("rank %d: %d of %d live, after %.1f ms\n", world.rank,
           baton_group_size(next), baton_group_size(group), now_ms() - began);
    for (int i = 0; i < baton_group_size(next); i++) {
        members[i] = members[baton_group_origin(next, i)];
    }
    support_mpi_check(members[baton_group_rank(next)] == world.rank,
                      "the wrong rank");
    if (destroys) {
        support_mpi_ok(baton_group_destroy(group));
    } else {
        old[old_count++] = group;
    }
    return next;
}

/* The last rank comes when the first one has found that it had not. */
static void come_late(baton_group_t *group)
{
    int first = members[0], last = members[baton_group_size(group) - 1];
    baton_group_t *none = NULL;
    if (world.rank == first) {
        support_mpi_expect(baton_group_shrink(group, 1, &none),
                           BATON_ERR_TIMEOUT);
        MPI_Send(NULL, 0, MPI_BYTE, last, 0, MPI_COMM_WORLD);
    } else if (world.rank == last) {
        MPI_Recv(NULL, 0, MPI_BYTE, first, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    }
}

static baton_group_t *play(baton_group_t *group, const char *round,
                           bool destroys)
{
    bool victim = is_victim(round, world.rank);
    bool during = *round == 'd';
    int before = baton_group_size(group);
    if (victim && during) {
        baton_group_t *none = NULL;
        (void)!baton_group_shrink(group, 0, &none);
    }
    if (victim) {
        die();
    }
    if (strcmp(round, "none") == 0) {
        come_late(group);
    } else if (!during) {
        while (can_sum(group)) {
        }
    }
    group = shrink(group, destroys);
    while (!can_sum(group)) {
        support_mpi_check(during, "a survivors' group has a loss");
        group = shrink(group, destroys);
    }
    int killed = 0;
    for (int rank = 0; rank < world.size; rank++) {
        killed += is_victim(round, rank);
    }
    support_mpi_check(baton_group_size(group) == before - killed,
                      "the wrong number of survivors");
    return group;
}

int main(int argc, char **argv)
{
    support_mpi_begin(argc, argv);
    support_mpi_open();
    baton_group_t *group = world.group;
    for (int rank = 0; rank < world.size; rank++) {
        members[rank] = rank;
    }
    support_mpi_check(can_sum(group), "the first group can't sum");
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 1; i < argc; i++) {
        support_mpi_running = argv[i];
        group = play(group, argv[i], i % 2 == 0);
    }
    for (int i = 0; i < old_count; i++) {
        support_mpi_ok(baton_group_destroy(old[i]));
    }
    double began = now_ms();
    support_mpi_ok(baton_group_destroy(group));
    support_mpi_ok(baton_engine_close(world.engine));
    printf("rank %d goes on, destroyed all in %.1f ms\n", world.rank,
           now_ms() - began);
    (void)fflush(stdout);
    _exit(0);
}
