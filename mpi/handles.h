/* Records of MPI handles, which are addresses: of the library's persistent
   requests, and of the program's operations. */
#pragma once

#include <stdbool.h>

/* know adds a record; known
   finds one, or returns NULL, and with `forgets` removes it. */
typedef struct baton__mpi_known {
    struct baton__mpi_known *next;
    const void *handle;
} baton__mpi_known_t;

void baton__mpi_know(baton__mpi_known_t *known, const void *handle);
baton__mpi_known_t *baton__mpi_known(const void *handle, bool forgets);
