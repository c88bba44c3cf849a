/* The bootstrap over MPI's nonblocking collectives, and the public functions
   that make a group of a communicator. */
#include <baton/mpi.h>
#include <baton/mpi_at.h>

#include "base/error.h"
#include "transport/mpi/exchange.h"
#include "transport/mpi/over_mpi.h"

#include <string.h>

/* Checks that the program runs with the kind of MPI library that Baton was
   built with: handles are pointers in Open MPI, and numbers in other
   libraries. */
static baton_status_t check_library(void)
{
#ifdef OPEN_MPI
    static const char built_with[] = "Open MPI";
#else
    static const char built_with[] = "MPICH, or one like it";
#endif
    char version[8192] = ""; /* MPICH needs 8192 bytes, Open MPI 256 */
    int length;
    (void)PMPI_Get_library_version(version, &length);
    return (strncmp(version, "Open MPI", 8) == 0) == (built_with[0] == 'O')
               ? BATON_OK
               : baton__error(BATON_ERR_STATE,
                              "mpi: Baton was built with %s, and the program "
                              "runs with \"%.*s\": build both with one MPI",
                              built_with, (int)strcspn(version, "\n,"),
                              version);
}

/* Checks conditions that are true on all ranks or on none, so that no rank
   needs to be told of a failure on another one. */
static baton_status_t check_comm(MPI_Comm comm)
{
    int yes = 0;
    baton_status_t status = check_library();
    if (status != BATON_OK) {
        return status;
    }
    PMPI_Initialized(&yes);
    if (!yes) {
        return baton__error(BATON_ERR_STATE,
                            "mpi: MPI_Init has not been called: call "
                            "MPI_Init_thread first");
    }
    PMPI_Finalized(&yes);
    if (yes) {
        return baton__error(BATON_ERR_STATE,
                            "mpi: MPI_Finalize has been called already: "
                            "create and destroy groups before it");
    }
    if (comm == MPI_COMM_NULL) {
        return baton__error(BATON_ERR_INVALID,
                            "mpi: the communicator is MPI_COMM_NULL");
    }
    int code = PMPI_Comm_test_inter(comm, &yes);
    return code == MPI_SUCCESS && yes
               ? baton__error(BATON_ERR_INVALID,
                              "mpi: an intercommunicator can't be a group; use "
                              "MPI_Intercomm_merge first")
               : baton__mpi_error("MPI_Comm_test_inter", code);
}

static unsigned char *mpi_allocate(size_t bytes)
{
    unsigned char *memory = NULL;
    int code = PMPI_Alloc_mem((MPI_Aint)bytes, MPI_INFO_NULL, &memory);
    return baton__mpi_error("MPI_Alloc_mem", code) == BATON_OK ? memory : NULL;
}

/* Frees the memory, unless an exchange has not ended or has failed: MPI may
   still write to the memory of such an exchange. */
static void mpi_release(baton__bootstrap_t *shared, unsigned char *memory)
{
    const baton__bootstrap_mpi_t *self = (baton__bootstrap_mpi_t *)shared;
    if (self->request == MPI_REQUEST_NULL && !self->failed) {
        (void)PMPI_Free_mem(memory);
    }
}

static baton_status_t mpi_begin(baton__bootstrap_mpi_t *self,
                                const char *called, int code)
{
    self->called = called;
    self->failed |= code != MPI_SUCCESS;
    return baton__mpi_error(called, code);
}

/* MPI_Iallgather is not used: for it Open MPI sends a message from each rank to
   each other rank. */
static baton_status_t mpi_gather(baton__bootstrap_t *shared,
                                 unsigned char *data, size_t bytes)
{
    baton__bootstrap_mpi_t *self = (baton__bootstrap_mpi_t *)shared;
    return mpi_begin(
        self, "MPI_Iallreduce",
        PMPI_Iallreduce(MPI_IN_PLACE, data, (int)((size_t)shared->size * bytes),
                        MPI_BYTE, MPI_BOR, self->comm, &self->request));
}

/* Uses MPI_Comm_idup, although it calls the application's functions that copy
   attributes: other functions of MPI that make a communicator do not return
   while a rank is missing. */
static baton_status_t mpi_open_wire(baton__bootstrap_t *shared,
                                    baton__exchange_t *exchange, bool sends,
                                    baton__wire_t **out)
{
    baton__bootstrap_mpi_t *self = (baton__bootstrap_mpi_t *)shared;
    /* MPI may still write to this memory after the exchange has failed. */
    MPI_Comm *made = (MPI_Comm *)(void *)exchange->data;
    int level = MPI_THREAD_SINGLE;
    if (sends) {
        baton__exchange_complete(
            exchange,
            mpi_begin(self, "MPI_Comm_idup",
                      PMPI_Comm_idup(self->comm, made, &self->request)));
        if (exchange->status != BATON_OK) {
            return exchange->status;
        }
        (void)PMPI_Comm_set_errhandler(*made, MPI_ERRORS_RETURN);
    }
    baton_status_t status =
        baton__wire_open_mpi(sends ? *made : MPI_COMM_NULL, out);
    if (status == BATON_OK) {
        PMPI_Query_thread(&level);
        (*out)->is_threaded = level == MPI_THREAD_MULTIPLE;
    }
    return status;
}

static baton_status_t mpi_test(baton__bootstrap_t *shared, bool *ended_out)
{
    baton__bootstrap_mpi_t *self = (baton__bootstrap_mpi_t *)shared;
    int ended = 0;
    int code = PMPI_Test(&self->request, &ended, MPI_STATUS_IGNORE);
    *ended_out = ended != 0;
    return mpi_begin(self, self->called, code);
}

baton_status_t baton__bootstrap_open_mpi(baton__bootstrap_mpi_t *self,
                                         MPI_Comm comm)
{
    *self = (baton__bootstrap_mpi_t){
        .shared = {.function = "baton_group_create_mpi",
                   .allocate = mpi_allocate,
                   .release = mpi_release,
                   .gather = mpi_gather,
                   .open_wire = mpi_open_wire,
                   .test = mpi_test},
        .comm = comm,
        .request = MPI_REQUEST_NULL};
    baton_status_t status = check_comm(comm);
    if (status == BATON_OK) {
        PMPI_Comm_size(comm, &self->shared.size);
        PMPI_Comm_rank(comm, &self->shared.rank);
        (void)PMPI_Comm_get_errhandler(comm, &self->handler);
        (void)PMPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    }
    return status;
}

void baton__bootstrap_close_mpi(baton__bootstrap_mpi_t *self)
{
    (void)PMPI_Comm_set_errhandler(self->comm, self->handler);
    (void)PMPI_Errhandler_free(&self->handler);
}

baton_status_t baton_group_create_mpi(baton_engine_t *engine, MPI_Comm comm,
                                      baton_group_t **out)
{
    baton__bootstrap_mpi_t bootstrap;
    if (!baton__process_is_own(__func__)) {
        return BATON_ERR_STATE;
    }
    baton_status_t status = baton__bootstrap_open_mpi(&bootstrap, comm);
    if (status == BATON_OK) {
        status = baton__mpi_create_group(engine, &bootstrap.shared, out);
        baton__bootstrap_close_mpi(&bootstrap);
    }
    return status;
}

baton_status_t baton_group_create_mpi_at(baton_engine_t *engine,
                                         const void *comm_address,
                                         baton_group_t **out)
{
    MPI_Comm comm;
    if (!baton__is_given(comm_address, true, __func__, "comm_address")) {
        return BATON_ERR_INVALID;
    }
    memcpy(&comm, comm_address, sizeof comm);
    return baton_group_create_mpi(engine, comm, out);
}
