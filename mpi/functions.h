/* Reductions of the program (MPI_Op_create). */
#pragma once

#include "mpi/types.h"

#include <baton/build.h>

typedef struct baton__mpi_function {
    baton_op_t op;
    MPI_User_function *function;
    MPI_Datatype type; /* a copy, unless it is one of MPI's own */
} baton__mpi_function_t;

/* Records an operation of MPI_Op_create. Its key (call.h) differs from the
   address of every request: Fortran may free the operation unnoticed, and MPI
   reuse its address. */
#define BATON__MPI_OP(op) ((const char *)(op) + 1)
void baton__mpi_function_add(MPI_Op op, MPI_User_function *function,
                             bool commutes);

/* The function of an operation on a type; the caller frees it. NULL: the
   operation is left to MPI, as it was not created by MPI_Op_create in C, not
   all ranks asked for MPI_THREAD_MULTIPLE, or the type has gaps. */
baton__mpi_function_t *baton__mpi_function_of(MPI_Op op, MPI_Datatype type);
void baton__mpi_function_free(baton__mpi_function_t *function);
