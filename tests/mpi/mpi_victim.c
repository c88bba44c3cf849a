/* All ranks loop an all-reduce: mpi_kill.sh kills one of them.

     mpi_victim                200 epochs
     mpi_victim FILE           for ever; rank 1 (of more) writes its process id
                               to FILE when the loop is under way            */
#include <baton/baton.h>
#include <baton/mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define EPOCHS 200

static void must(baton_status_t status)
{
    if (status != BATON_OK) {
        fprintf(stderr, "mpi_victim: %s\n", baton_error_message());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* Renamed when it is whole, so that a reader finds all of it or nothing. */
static void announce(const char *path)
{
    char temporary[4096];
    snprintf(temporary, sizeof(temporary), "%s.new", path);
    FILE *file = fopen(temporary, "w");
    if (file == NULL || fprintf(file, "%ld\n", (long)getpid()) < 0 ||
        fclose(file) != 0 || rename(temporary, path) != 0) {
        perror(path);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : NULL;
    int level, rank;
    double data[64] = {1.0};
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);

    baton_engine_t *engine;
    baton_group_t *group;
    baton_schedule_t *schedule;
    must(baton_engine_open(NULL, &engine));
    must(baton_group_create_mpi(engine, MPI_COMM_WORLD, &group));
    must(baton_schedule_create(group, "victim", &schedule));
    baton_buffer_t buffer = baton_buffer_bind(schedule, data, sizeof(data));
    baton_view_t view = baton_view(buffer, 0, sizeof(data));
    baton_allreduce_t args = {.size = sizeof(args),
                              .source = view,
                              .target = view,
                              .dtype = BATON_F64,
                              .op = BATON_MAX};
    baton_allreduce_recursive_doubling(schedule, &args);
    must(baton_schedule_commit(schedule));
    for (int epoch = 1; path != NULL || epoch <= EPOCHS; epoch++) {
        must(baton_schedule_start(schedule));
        must(baton_schedule_wait(schedule, -1));
        if (epoch == EPOCHS && path != NULL && rank == 1) {
            announce(path);
        }
    }
    (void)!baton_schedule_destroy(schedule);
    must(baton_group_destroy(group));
    must(baton_engine_close(engine));
    MPI_Finalize();
    return 0;
}
