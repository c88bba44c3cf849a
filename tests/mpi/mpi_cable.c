/* All ranks loop an all-reduce and check its sums, until DIR/stop exists. Once
   the loop is under way each writes the number of its process to
   DIR/process.RANK; a rank whose epoch fails writes the sentence to
   DIR/error.RANK and waits to be killed. cable.sh pulls a cable meanwhile, or
   kills ranks.

     mpi_cable                200 epochs
     mpi_cable DIR    */
#include "progress/engine.h"
#include "support/mpi.h"
#include <stdio.h>
#include <unistd.h>

enum { COUNT = 4096, FEW = 200 };

static const char *dir;

/* Renamed when it is whole, so that a reader finds all of it or nothing. */
static void touch(const char *name, int number, const char *text)
{
    char path[4096];
    char temporary[4200];
    snprintf(path, sizeof(path), "%s/%s.%d", dir, name, number);
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
    uint64_t ranks = (uint64_t)world.size;
    for (uint64_t i = 1; i < COUNT; i++) {
        support_mpi_check(data[i] ==
                              ranks * (ranks - 1) / 2 + ranks * (epoch + i),
                          "a wrong sum");
    }
}

static void loop(baton_schedule_t *schedule, uint64_t *data)
{
    for (uint64_t epoch = 1, stop = 0; stop == 0; epoch++) {
        data[0] = world.rank == 0 && is_told_to_stop(epoch);
        for (uint64_t i = 1; i < COUNT; i++) {
            data[i] = (uint64_t)world.rank + epoch + i;
        }
        baton_status_t status = baton_schedule_start(schedule);
        if (status == BATON_OK) {
            status = baton_schedule_wait(schedule, -1);
        }
        if (status != BATON_OK) {
            touch("error", world.rank, baton_error_message());
            for (;;) { /* an exit would make mpirun end the others, too */
                (void)pause();
            }
        }
        check(data, epoch);
        stop = data[0];
        if (epoch == FEW && dir != NULL) {
            char process[32];
            snprintf(process, sizeof(process), "%ld", (long)getpid());
            touch("process", world.rank, process);
        }
    }
}

int main(int argc, char **argv)
{
    static uint64_t data[COUNT];
    dir = argc > 1 ? argv[1] : NULL;
    support_mpi_begin(argc, argv);
    baton__engine_rechecks = true; /* so that ranks are asked */
    support_mpi_open();
    baton_schedule_t *schedule = support_mpi_sum(
        world.group, data, sizeof(data), BATON_U64, "recursive_doubling");
    loop(schedule, data);
    support_mpi_ok(baton_schedule_destroy(schedule));
    support_mpi_end();
    return 0;
}
