/* Datatypes and operations that Baton reduces, and the layout of vectors. */
#pragma once

#include "mpi/call.h"

/* Finds Baton's element type and reduction. False if Baton lacks one of them,
   or MPI does not allow the two together. */
bool baton__mpi_reduction(MPI_Datatype type, MPI_Op op, baton_dtype_t *dtype,
                          const baton_op_t **found);

/* True for a predefined type: the program's functions know it by its handle,
   and nobody frees it. */
bool baton__mpi_is_named(MPI_Datatype type);

/* True if consecutive elements of the type lie in memory as they are sent:
   without gaps and in order. */
bool baton__mpi_is_plain(MPI_Datatype type);

size_t baton__mpi_type_bytes(MPI_Datatype type); /* of data, without gaps */

/* Packs `count` elements at `memory` one after another into `bytes`, or with
   `back` unpacks them from there. Sizes may exceed an int. Local. */
int baton__mpi_pack(const void *memory, int count, MPI_Datatype type,
                    char *bytes, bool back);
