/* Records of MPI handles, which are addresses. Persistent requests of the
   library and operations (MPI_Op) of the program have records. */
#pragma once

#include <stdbool.h>

/* The head of a record. baton__mpi_know adds a record. baton__mpi_known finds
   one, or returns NULL; if `forgets`, it also removes the record. */
typedef struct baton__mpi_known {
    struct baton__mpi_known *next;
    const void *handle;
} baton__mpi_known_t;

void baton__mpi_know(baton__mpi_known_t *known, const void *handle);
baton__mpi_known_t *baton__mpi_known(const void *handle, bool forgets);
