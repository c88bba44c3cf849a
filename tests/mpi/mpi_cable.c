/* All ranks loop an all-reduce and check its sums, until DIR/stop exists; the
   loop is under way when DIR/ready does. A rank whose epoch fails writes the
   sentence to DIR/error.RANK and waits to be killed. hosts_cable.sh pulls a
   cable meanwhile.

     mpi_cable          200 epochs
     mpi_cable DIR                                                            */
#include "support/mpi.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { COUNT = 4096, FEW = 200 };

static const char *dir;
static int rank, size;

static void touch(const char *name, const char *text)
{
    char path[4096];
    char temporary[4200];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    snprintf(temporary, sizeof(temporary), "%s.new", path);
    FILE *file = fopen(temporary, "w");
    if (file == NULL || fprintf(file, "%s\n", text) < 0 || fclose(file) != 0 ||
        rename(temporary, path) != 0) {
        perror(path);
        _exit(1);
    }
}

static bool is_told_to_stop(uint64_t epoch)
{
    char path[4096];
    if (dir == NULL) {
        return epoch == FEW;
    }
    snprintf(path, sizeof(path), "%s/stop", dir);
    return access(path, F_OK) == 0;
}

static void check(const uint64_t *data, uint64_t epoch)
{
    uint64_t ranks = (uint64_t)size;
    for (uint64_t i = 1; i < COUNT; i++) {
        if (data[i] != ranks * (ranks - 1) / 2 + ranks * (epoch + i)) {
            support_mpi_die("a wrong sum");
        }
    }
}

static void loop(baton_schedule_t *schedule, uint64_t *data)
{
    for (uint64_t epoch = 1, stop = 0; stop == 0; epoch++) {
        data[0] = rank == 0 && is_told_to_stop(epoch);
        for (uint64_t i = 1; i < COUNT; i++) {
            data[i] = (uint64_t)rank + epoch + i;
        }
        baton_status_t status = baton_schedule_start(schedule);
        if (status == BATON_OK) {
            status = baton_schedule_wait(schedule, -1);
        }
        if (status != BATON_OK) {
            char name[32];
            snprintf(name, sizeof(name), "error.%d", rank);
            touch(name, baton_error_message());
            for (;;) { /* an exit would make mpirun end the others, too */
                (void)pause();
            }
        }
        check(data, epoch);
        stop = data[0];
        if (rank == 0 && epoch == FEW && dir != NULL) {
            touch("ready", "");
        }
    }
}

int main(int argc, char **argv)
{
    static uint64_t data[COUNT];
    int level;
    baton_engine_t *engine;
    baton_group_t *group;
    baton_schedule_t *schedule;
    dir = argc > 1 ? argv[1] : NULL;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    support_mpi_expect(baton_engine_open(NULL, &engine), BATON_OK);
    support_mpi_expect(baton_group_create_mpi(engine, MPI_COMM_WORLD, &group),
                       BATON_OK);
    support_mpi_expect(baton_schedule_create(group, "cable", &schedule),
                       BATON_OK);
    baton_view_t view = baton_view(
        baton_buffer_bind(schedule, data, sizeof(data)), 0, sizeof(data));
    const baton_allreduce_t args = {.size = sizeof(args),
                                    .source = view,
                                    .target = view,
                                    .dtype = BATON_U64,
                                    .op = BATON_SUM};
    baton_allreduce_recursive_doubling(schedule, &args);
    support_mpi_expect(baton_schedule_commit(schedule), BATON_OK);
    loop(schedule, data);
    support_mpi_expect(baton_schedule_destroy(schedule), BATON_OK);
    support_mpi_expect(baton_group_destroy(group), BATON_OK);
    support_mpi_expect(baton_engine_close(engine), BATON_OK);
    MPI_Finalize();
    return 0;
}
