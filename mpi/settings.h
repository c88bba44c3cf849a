/* The BATON_MPI_* variables. Rank 0's values are those of all ranks: a call
   that one rank takes and another leaves would never end. */
#ifndef BATON_MPI_SETTINGS_H
#define BATON_MPI_SETTINGS_H

#include "mpi/call.h"

typedef struct baton__mpi_settings {
    int64_t from;     /* bytes of the shortest vector that is taken; 0: all are
                         but those from which nothing can be gained */
    uint32_t kinds;   /* 1u << kind of those that are taken */
    uint8_t blocking; /* blocking calls, too */
    uint8_t thread;   /* progress by a thread of Baton's */
    uint8_t log;
} baton__mpi_settings_t;

/* Reads the environment; warns on standard error of values and names that mean
   nothing, with what may be. */
void baton__mpi_settings_read(baton__mpi_settings_t *settings);

#endif
