/* The BATON_MPI_* variables. All ranks use rank 0's values: a call that one
   rank takes and another leaves would never end. */
#pragma once

#include "mpi/call.h"

typedef struct baton__mpi_settings {
    /* Bytes of the shortest vector to take; 0: all vectors, except in calls
       that would gain nothing. */
    int64_t from;
    uint32_t kinds;   /* the kinds of calls to take, each as 1u << kind */
    uint8_t blocking; /* take blocking calls, too */
    uint8_t thread;   /* a thread of Baton makes progress */
    uint8_t log;
} baton__mpi_settings_t;

/* Reads the environment; warns on standard error of unknown names and invalid
   values, with the allowed ones. */
void baton__mpi_settings_read(baton__mpi_settings_t *settings);
