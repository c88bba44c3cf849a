/* The BATON_MPI_* variables. All ranks use rank 0's values: a call that one
   rank takes and another leaves would never end. */
#pragma once

#include "mpi/call.h"

typedef struct baton__mpi_settings {
    int64_t from;     /* bytes of the shortest vector to take; 0: all, except
                         calls that would gain nothing */
    uint32_t kinds;   /* 1u << kind of the calls to take */
    uint8_t blocking; /* take blocking calls, too */
    uint8_t thread;   /* a thread of Baton makes progress */
    uint8_t log;
} baton__mpi_settings_t;

/* Reads the environment; warns on standard error of unknown names and invalid
   values, with the allowed ones. */
void baton__mpi_settings_read(baton__mpi_settings_t *settings);
