/* Reductions of the program's own. */
#ifndef BATON_MPI_FUNCTIONS_H
#define BATON_MPI_FUNCTIONS_H

#include "mpi/types.h"

#include <baton/build.h>

typedef struct baton__mpi_function {
    baton_op_t op;
    MPI_User_function *function;
    MPI_Datatype type; /* a copy, unless it is one of MPI's own */
} baton__mpi_function_t;

/* What MPI_Op_create has made. It is known (call.h) by no request's address:
   Fortran may free it. */
#define BATON__MPI_OP(op) ((const char *)(op) + 1)
void baton__mpi_function_add(MPI_Op op, MPI_User_function *function,
                             bool commutes);

/* The function of an operation on a type, the caller's to free; NULL: it is
   left to MPI, as it was not made by MPI_Op_create in C, the program did not
   ask for MPI_THREAD_MULTIPLE on all ranks, or the type has gaps. */
baton__mpi_function_t *baton__mpi_function_of(MPI_Op op, MPI_Datatype type);
void baton__mpi_function_free(baton__mpi_function_t *function);

#endif
