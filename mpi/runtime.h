/* The life of the library in a process: from MPI_Init, which makes the engine
   and a group of all ranks, to MPI_Finalize. */
#ifndef BATON_MPI_RUNTIME_H
#define BATON_MPI_RUNTIME_H

#include "mpi/settings.h"

#include <baton/engine.h>
#include <stdatomic.h>

typedef struct baton__mpi_runtime {
    _Atomic bool on; /* calls are taken: between MPI_Init and MPI_Finalize */
    baton__mpi_settings_t settings; /* the same on all ranks */
    baton_engine_t *engine;
    baton_group_t *world;  /* of MPI_COMM_WORLD */
    MPI_Group world_group; /* the same, of MPI's */
    MPI_Comm self; /* of this process: returns errors, which are told to the
                      handler of the communicator that a call is on */
    ptrdiff_t context_offset; /* see comms.h */
    bool functions; /* of the program's may be called by Baton's thread */
    int level; /* that MPI_Query_thread reports; -1: not initialised here */
    _Atomic int outstanding; /* operations that have not ended */
} baton__mpi_runtime_t;

extern baton__mpi_runtime_t baton__mpi;

/* Whether the process's MPI is another than the one that this was built for:
   the first call says so on standard error. Then handles and constants mean
   nothing here, and a handle may be shorter. MPI's own functions initialise it,
   so it is never on. */
bool baton__mpi_is_other(void);

/* Otherwise calls go to MPI as they are, and no handle is looked at. */
static inline bool baton__mpi_is_on(void)
{
    return atomic_load_explicit(&baton__mpi.on, memory_order_acquire);
}

/* MPI_Init_thread with a level that lets Baton's thread call MPI if it will,
   which it does where ranks are on several hosts. `reported` is the level that
   the application asked for, or what there is if that is less. */
int baton__mpi_init(int *argc, char ***argv, int required, int *reported);

/* Ends what is outstanding, or gives it up after BATON_DESTROY_MS, and closes
   the engine. MPI_Finalize follows. */
void baton__mpi_shut_down(void);

/* An MPI error code of a Baton status; the message goes to standard error. */
int baton__mpi_code(baton_status_t status, const char *message);

#endif
