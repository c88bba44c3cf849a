/* The BATON_MPI_* variables. All ranks use rank 0's values: a call that one
   rank takes and another leaves would never end. */
#pragma once

#include "mpi/call.h"

typedef struct baton__mpi_settings {
    /* The fewest bytes of a call that is taken. 0: all calls are taken, except
       those that Baton would not make faster. */
    int64_t from;
    uint32_t kinds;   /* the kinds of calls to take, each as 1u << kind */
    uint8_t blocking; /* blocking calls are taken, too */
    uint8_t thread;   /* a thread of Baton makes progress */
    uint8_t log;
} baton__mpi_settings_t;

/* Reads the environment. For an unknown name or an invalid value, writes a
   warning with the allowed values to standard error. */
void baton__mpi_settings_read(baton__mpi_settings_t *settings);
