#include "mpi/runtime.h"

#include "mpi/comms.h"
#include "mpi/requests.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

baton__mpi_runtime_t baton__mpi;

static int thread_level = -1;

int baton__mpi_thread_level(void)
{
    return thread_level;
}

int baton__mpi_code(baton_status_t status, const char *message)
{
    (void)fprintf(stderr, "baton_mpi: %s%s%s\n", baton_status_text(status),
                  message[0] != '\0' ? ": " : "", message);
    return status == BATON_ERR_NO_MEMORY ? MPI_ERR_NO_MEM : MPI_ERR_OTHER;
}

/* Says once, on rank 0, why nothing is taken. */
static void say_off(const char *why)
{
    int rank;
    (void)PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        (void)fprintf(stderr, "baton_mpi: all calls are left to MPI: %s\n",
                      why);
    }
}

/* Whether something has succeeded on all ranks. */
static bool agree(bool here)
{
    int all = here;
    (void)PMPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN,
                         MPI_COMM_WORLD);
    return all != 0;
}

static baton_status_t open_engine(void)
{
    baton_engine_options_t options = BATON_ENGINE_OPTIONS;
    options.progress = baton__mpi.settings.thread ? BATON_PROGRESS_THREAD
                                                  : BATON_PROGRESS_MANUAL;
    baton_status_t status = baton_engine_open(&options, &baton__mpi.engine);
    if (status != BATON_OK) {
        return status;
    }
    status = baton_group_create_mpi(baton__mpi.engine, MPI_COMM_WORLD,
                                    &baton__mpi.world);
    if (status != BATON_OK) {
        (void)!baton_engine_close(baton__mpi.engine);
    }
    return status;
}

static void close_engine(void)
{
    (void)!baton_group_destroy(baton__mpi.world);
    (void)!baton_engine_close(baton__mpi.engine);
}

/* Collective. Leaves `on` false where all is left to MPI. */
static void open_all(int level, int required)
{
    int size;
    (void)PMPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size == 1) {
        return;
    }
    baton__mpi_settings_read(&baton__mpi.settings);
    (void)PMPI_Bcast(&baton__mpi.settings, sizeof baton__mpi.settings, MPI_BYTE,
                     0, MPI_COMM_WORLD);
    baton__mpi.context_offset = baton__mpi_context_offset();
    if (!agree(baton__mpi.context_offset >= 0 && baton__mpi_drive(true))) {
        say_off("this is not Open MPI 4");
        return;
    }
    if (!agree(level == MPI_THREAD_MULTIPLE || !baton__mpi.settings.thread)) {
        say_off("MPI has no MPI_THREAD_MULTIPLE; BATON_MPI_THREAD=0 needs "
                "none");
        return;
    }
    baton_status_t status = open_engine();
    if (!agree(status == BATON_OK)) {
        say_off(status == BATON_OK ? "another rank has failed"
                                   : baton_error_message());
        if (status == BATON_OK) {
            close_engine();
        }
        return;
    }
    (void)PMPI_Comm_group(MPI_COMM_WORLD, &baton__mpi.world_group);
    baton__mpi.functions =
        agree(required == MPI_THREAD_MULTIPLE || !baton__mpi.settings.thread);
    atomic_store(&baton__mpi.on, true);
}

/* Whether Baton has a thread of its own is rank 0's to say, and the others know
   that only when MPI is there: so the level is raised unless this process's
   environment says that there is none. */
int baton__mpi_init(int *argc, char ***argv, int required, int *reported)
{
    const char *thread = getenv("BATON_MPI_THREAD");
    bool raises = thread == NULL || thread[0] != '0';
    int level;
    int code = PMPI_Init_thread(
        argc, argv, raises ? MPI_THREAD_MULTIPLE : required, &level);
    if (code != MPI_SUCCESS) {
        return code;
    }
    thread_level = required < level ? required : level;
    *reported = thread_level;
    open_all(level, required);
    return MPI_SUCCESS;
}

static int64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Ends, if it can, what the application has not waited for. */
static void drain(void)
{
    const char *text = getenv("BATON_DESTROY_MS");
    int64_t until = now_ms() + (text != NULL ? atoll(text) : 10000);
    while (atomic_load(&baton__mpi.outstanding) > 0 && now_ms() < until) {
        int flag;
        (void)baton_engine_step(baton__mpi.engine);
        (void)PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &flag,
                          MPI_STATUS_IGNORE);
        (void)sched_yield();
    }
}

void baton__mpi_shut_down(void)
{
    if (!atomic_exchange(&baton__mpi.on, false)) {
        return;
    }
    drain();
    baton__mpi_comms_close();
    (void)baton__mpi_drive(false);
    close_engine();
    (void)PMPI_Group_free(&baton__mpi.world_group);
}
