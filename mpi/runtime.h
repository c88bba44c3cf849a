/* The library in a process: its state between MPI_Init, which opens the engine
   and creates a group of all ranks, and MPI_Finalize; whether the process's MPI
   is the right one; and how errors are passed on. */
#pragma once

#include "mpi/settings.h"

#include <baton/engine.h>
#include <stdatomic.h>

typedef struct baton__mpi_runtime {
    _Atomic bool on; /* between MPI_Init and MPI_Finalize: calls may be taken */
    baton__mpi_settings_t settings; /* the same on all ranks */
    baton_engine_t *engine;
    baton_group_t *world;  /* of MPI_COMM_WORLD */
    MPI_Group world_group; /* of MPI_COMM_WORLD */
    MPI_Comm self; /* of this process alone; it returns errors, which the
                      library passes to the handler of a call's communicator */
    ptrdiff_t context_offset; /* of the id in a communicator; see comms.h */
    size_t owner_offset;      /* of the communicator in a request */
    bool functions; /* Baton's thread may call functions of the program */
    int level;      /* for MPI_Query_thread; -1: not initialised here */
    _Atomic int outstanding; /* operations that have not ended */
} baton__mpi_runtime_t;

extern baton__mpi_runtime_t baton__mpi;

/* True if the process's MPI is not the one that this library was built for; the
   first call says so on standard error. Handles and constants have no meaning
   here then, and a handle may be shorter. MPI's own functions initialise MPI,
   and baton__mpi is never on. */
bool baton__mpi_is_other(void);

/* If false, calls go to MPI unchanged, and no handle is read. */
static inline bool baton__mpi_is_on(void)
{
    return atomic_load_explicit(&baton__mpi.on, memory_order_acquire);
}

/* The MPI error code of a Baton status; writes the message to standard
   error. */
int baton__mpi_code(baton_status_t status, const char *message);

/* Passes an error to the communicator's error handler; returns the code. */
static inline int baton__mpi_fail(MPI_Comm comm, int code)
{
    (void)PMPI_Comm_call_errhandler(comm, code);
    return code;
}
