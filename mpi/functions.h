/* Reductions that the program has defined by MPI_Op_create. */
#pragma once

#include "mpi/types.h"

#include <baton/build.h>

typedef struct baton__mpi_function {
    baton_op_t op;
    MPI_User_function *function;
    /* A copy of the program's type, unless it is predefined. */
    MPI_Datatype type;
} baton__mpi_function_t;

/* Records an operation that MPI_Op_create has made (see handles.h).
   BATON__MPI_OP makes the key of its record, an address within the operation
   that no request can have. With the operation's own address, the record could
   be taken for that of a request: Fortran may free the operation unnoticed, and
   MPI may then reuse the address for a request. */
#define BATON__MPI_OP(op) ((const char *)(op) + 1)
void baton__mpi_function_add(MPI_Op op, MPI_User_function *function,
                             bool commutes);

/* Returns the function of an operation on a type, which the caller frees.
   Returns NULL if the operation must be left to MPI, for one of these reasons:
   it was not created by MPI_Op_create in C; Baton's thread may not call
   functions of the program (see baton__mpi.functions); the type has gaps; the
   operation does not commute, and an element is too long for the copy; there is
   no memory. */
baton__mpi_function_t *baton__mpi_function_of(MPI_Op op, MPI_Datatype type);
void baton__mpi_function_free(baton__mpi_function_t *function);
