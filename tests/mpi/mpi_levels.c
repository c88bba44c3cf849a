/* MPI that is not there yet, or no longer, or at too low a thread level for a
   progress thread. By argument, since a process initialises MPI once:

     (none)                        before MPI_Init and after MPI_Finalize
     single, funneled, serialized  MPI initialised at this level

   The exit code is the result. */
#include "support/mpi.h"
#include <stdio.h>
#include <string.h>

static baton_group_t *group;

static void run_once(void)
{
    baton_engine_t *engine;
    int level;
    support_mpi_running = "one engine";
    support_mpi_ok(baton_engine_open(NULL, &engine));
    support_mpi_expect(baton_group_create_mpi(engine, MPI_COMM_WORLD, &group),
                       BATON_ERR_STATE);
    support_mpi_says("MPI_Init has not been called");
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    support_mpi_ok(baton_group_create_mpi(engine, MPI_COMM_WORLD, &group));
    support_mpi_healthy(group);
    support_mpi_ok(baton_group_destroy(group));
    MPI_Finalize();
    support_mpi_expect(baton_group_create_mpi(engine, MPI_COMM_WORLD, &group),
                       BATON_ERR_STATE);
    support_mpi_says("MPI_Finalize has been called");
    support_mpi_ok(baton_engine_close(engine));
}

static void run_level(const char *name, int wanted)
{
    int level;
    support_mpi_running = name;
    MPI_Init_thread(NULL, NULL, wanted, &level);
    for (int manual = 0; manual < 2; manual++) {
        baton_engine_t *engine;
        baton_engine_options_t options = BATON_ENGINE_OPTIONS;
        options.progress =
            manual != 0 ? BATON_PROGRESS_MANUAL : BATON_PROGRESS_THREAD;
        support_mpi_ok(baton_engine_open(&options, &engine));
        bool too_low = manual == 0 && level < MPI_THREAD_MULTIPLE;
        support_mpi_expect(
            baton_group_create_mpi(engine, MPI_COMM_WORLD, &group),
            too_low ? BATON_ERR_STATE : BATON_OK);
        if (too_low) {
            support_mpi_says("MPI_THREAD_MULTIPLE");
        } else {
            support_mpi_healthy(group);
            support_mpi_ok(baton_group_destroy(group));
        }
        support_mpi_ok(baton_engine_close(engine));
    }
    MPI_Finalize();
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int level;
    } levels[] = {{"single", MPI_THREAD_SINGLE},
                  {"funneled", MPI_THREAD_FUNNELED},
                  {"serialized", MPI_THREAD_SERIALIZED}};
    if (argc == 1) {
        run_once();
        return 0;
    }
    for (size_t i = 0; i < 3; i++) {
        if (strcmp(argv[1], levels[i].name) == 0) {
            run_level(levels[i].name, levels[i].level);
            return 0;
        }
    }
    fprintf(stderr, "mpi_levels: no such argument: %s\n", argv[1]);
    return 2;
}
