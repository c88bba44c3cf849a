#include "mpi/init.h"

#include "mpi/comms.h"
#include "mpi/requests.h"
#include "mpi/runtime.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* Writes a message to standard error, on rank 0 only. */
static void init_say(const char *what, const char *why)
{
    int rank;
    (void)PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        (void)fprintf(stderr, "baton_mpi: %s: %s\n", what, why);
    }
}

/* Returns true if the argument `here` is true on every rank. Collective. */
static bool init_agree(bool here)
{
    int all = here;
    (void)PMPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN,
                         MPI_COMM_WORLD);
    return all != 0;
}

/* Opens the engine and the group of all ranks. Collective: fails on all ranks
   if one rank cannot open an engine. */
static baton_status_t open_engine(void)
{
    baton_engine_options_t options = BATON_ENGINE_OPTIONS;
    options.progress = baton__mpi.settings.thread ? BATON_PROGRESS_THREAD
                                                  : BATON_PROGRESS_MANUAL;
    baton__mpi.engine = NULL;
    (void)!baton_engine_open(&options, &baton__mpi.engine);
    baton_status_t status = baton_group_create_mpi(
        baton__mpi.engine, MPI_COMM_WORLD, &baton__mpi.world);
    if (status != BATON_OK && baton__mpi.engine != NULL) {
        (void)!baton_engine_close(baton__mpi.engine);
    }
    return status;
}

/* Opens the library. Collective. Leaves baton__mpi.on false if all calls must
   be left to MPI. */
static void open_all(int required)
{
    static const char off[] = "all calls are left to MPI";
    int size;
    (void)PMPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size == 1) {
        return;
    }
    baton__mpi_settings_read(&baton__mpi.settings);
    (void)PMPI_Bcast(&baton__mpi.settings, sizeof baton__mpi.settings, MPI_BYTE,
                     0, MPI_COMM_WORLD);
    baton__mpi_facts_open();
    const char *wrong = baton__mpi_comms_open();
    wrong = wrong != NULL ? wrong : baton__mpi_find_request();
    if (!init_agree(wrong == NULL)) {
        init_say(off, wrong != NULL ? wrong
                                    : "some ranks run another version of MPI");
        return;
    }
    /* A communicator from MPI_Comm_dup would have the application's attributes
       of MPI_COMM_SELF; one from MPI_Comm_split has none. */
    (void)PMPI_Comm_split(MPI_COMM_SELF, 0, 0, &baton__mpi.self);
    (void)PMPI_Comm_set_errhandler(baton__mpi.self, MPI_ERRORS_RETURN);
    baton_status_t status = open_engine();
    if (status != BATON_OK && baton__mpi.settings.thread) {
        init_say("no progress thread can be started", baton_error_message());
        baton__mpi.settings.thread = 0;
        status = open_engine();
    }
    if (status != BATON_OK) {
        init_say(off, baton_error_message());
        return;
    }
    (void)PMPI_Comm_group(MPI_COMM_WORLD, &baton__mpi.world_group);
    baton__mpi.functions = init_agree(required == MPI_THREAD_MULTIPLE ||
                                      !baton__mpi.settings.thread);
    atomic_store(&baton__mpi.on, true);
    if (!baton__mpi.settings.thread) {
        /* Peers may need this rank's answers at any time, so from now on MPI's
           progress drives Baton. */
        baton__mpi_drive(true);
    }
}

static bool has(const char *variable)
{
    const char *text = getenv(variable);
    return text == NULL || text[0] != '0';
}

/* Returns true if Baton's thread will not call MPI, as far as this is known
   before MPI_Init: mpirun's variables say that all ranks are on this host, and
   processes may read each other's memory. To test the latter, this function
   reads mpirun's memory at NULL: the error EFAULT shows that reading is
   permitted. */
static bool is_apart(void)
{
    const char *here = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    const char *all = getenv("OMPI_COMM_WORLD_SIZE");
    char byte;
    struct iovec to = {&byte, 1};
    struct iovec from = {NULL, 1};
    return here != NULL && all != NULL && strcmp(here, all) == 0 &&
           has("BATON_SHM") && has("BATON_CMA") &&
           process_vm_readv(getppid(), &to, 1, &from, 1, 0) < 0 &&
           errno == EFAULT;
}

/* Rank 0 decides whether Baton has a thread, and other ranks learn that only
   after MPI_Init. So every rank raises the level unless its own environment
   says that there is no thread, or that the thread will not call MPI. */
int baton__mpi_init(int *argc, char ***argv, int required, int *reported)
{
    bool raises = has("BATON_MPI_THREAD") && !is_apart();
    int level;
    int code = PMPI_Init_thread(
        argc, argv, raises ? MPI_THREAD_MULTIPLE : required, &level);
    if (code != MPI_SUCCESS) {
        return code;
    }
    baton__mpi.level = *reported = required < level ? required : level;
    open_all(required);
    return MPI_SUCCESS;
}

/* Waits for the operations that the application has started and not waited
   for. */
static void init_drain(void)
{
    const char *text = getenv("BATON_DESTROY_MS");
    double until = PMPI_Wtime() +
                   (text != NULL ? (double)strtoll(text, NULL, 10) / 1e3 : 10);
    while (atomic_load(&baton__mpi.outstanding) > 0 && PMPI_Wtime() < until) {
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
    init_drain();
    baton__mpi_comms_close();
    baton__mpi_drive(false);
    (void)!baton_group_destroy(baton__mpi.world);
    (void)!baton_engine_close(baton__mpi.engine);
    (void)PMPI_Group_free(&baton__mpi.world_group);
    (void)PMPI_Comm_free(&baton__mpi.self);
}
