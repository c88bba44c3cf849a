/* Reductions that the program has defined by MPI_Op_create. */
#pragma once

#include "mpi/types.h"

#include <baton/build.h>

typedef struct baton__mpi_function {
    baton_op_t op;
    MPI_User_function *function;
    MPI_Datatype type; /* a copy, unless the type is predefined */
} baton__mpi_function_t;

/* Records an operation of MPI_Op_create (see handles.h). Its key is no address
   of any request: Fortran may free the operation unnoticed, and MPI may then
   reuse the address for a request. */
#define BATON__MPI_OP(op) ((const char *)(op) + 1)
void baton__mpi_function_add(MPI_Op op, MPI_User_function *function,
                             bool commutes);

/* Returns the function of an operation on a type, which the caller frees.
   Returns NULL if the operation must be left to MPI: it was not created by
   MPI_Op_create in C, Baton's thread may not call functions (see
   baton__mpi.functions), the type has gaps, an operation that does not commute
   has too long elements, or there is no memory. */
baton__mpi_function_t *baton__mpi_function_of(MPI_Op op, MPI_Datatype type);
void baton__mpi_function_free(baton__mpi_function_t *function);
