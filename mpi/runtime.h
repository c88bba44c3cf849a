/* The state of the library in a process, from MPI_Init to MPI_Finalize.
   MPI_Init opens the engine and creates a group of all ranks. This file also
   has functions that tell whether the process's MPI is the one that the library
   was built for, and that pass errors on. */
#pragma once

#include "mpi/settings.h"

#include <baton/engine.h>
#include <stdatomic.h>

typedef struct baton__mpi_runtime {
    /* True while calls may be taken. Always false before MPI_Init and after
       MPI_Finalize. */
    _Atomic bool on;
    baton__mpi_settings_t settings; /* the same on all ranks */
    baton_engine_t *engine;
    baton_group_t *world;  /* Baton's group of the ranks of MPI_COMM_WORLD */
    MPI_Group world_group; /* MPI's group of the ranks of MPI_COMM_WORLD */
    /* A communicator of this process alone, whose error handler is
       MPI_ERRORS_RETURN. The library passes the errors that it gets there to
       the error handler of a call's communicator. */
    MPI_Comm self;
    /* Offset of the context id in a communicator; see comms.h. */
    ptrdiff_t context_offset;
    size_t owner_offset; /* offset of the communicator in a request */
    /* True if Baton's thread may call functions that the program gave to
       MPI_Op_create. */
    bool functions;
    /* The result of MPI_Query_thread; -1: MPI was not initialised by this
       library. */
    int level;
    _Atomic int outstanding; /* number of operations that have not ended */
} baton__mpi_runtime_t;

extern baton__mpi_runtime_t baton__mpi;

/* Returns true if the process's MPI is not the one that this library was built
   for. The first call of a process then says so on standard error, unless the
   process is certainly not rank 0.

   This library can then use neither handles nor constants of MPI: the other MPI
   may have other values for the constants, and handles that are shorter than
   Open MPI's. So MPI_Init calls PMPI_Init alone, baton__mpi.on stays false, and
   all calls are left to MPI. */
bool baton__mpi_is_other(void);

/* Returns whether calls may be taken. If not, the interposed functions pass
   their calls to MPI unchanged, and read no handle. */
static inline bool baton__mpi_is_on(void)
{
    return atomic_load_explicit(&baton__mpi.on, memory_order_acquire);
}

/* Writes the error to standard error. Returns the MPI error code of a Baton
   status. */
int baton__mpi_code(baton_status_t status, const char *message);

/* Passes an error to the communicator's error handler; returns the code. */
static inline int baton__mpi_fail(MPI_Comm comm, int code)
{
    (void)PMPI_Comm_call_errhandler(comm, code);
    return code;
}
