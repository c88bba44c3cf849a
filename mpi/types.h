/* Which datatypes and operations Baton reduces; where a vector's bytes lie. */
#ifndef BATON_MPI_TYPES_H
#define BATON_MPI_TYPES_H

#include "mpi/call.h"

/* The element type and the reduction. False if Baton has no such, or MPI does
   not allow the two together. */
bool baton__mpi_reduction(MPI_Datatype type, MPI_Op op, baton_dtype_t *dtype,
                          const baton_op_t **found);

/* One of MPI's own, which functions tell by its handle, and nobody frees. */
bool baton__mpi_is_named(MPI_Datatype type);

/* Whether the type's elements, one after another, lie in memory as they are
   sent: without gaps and in order. */
bool baton__mpi_is_plain(MPI_Datatype type);

size_t baton__mpi_type_bytes(MPI_Datatype type); /* of data, without gaps */

/* Packs `count` elements at `memory` behind each other into `bytes`, or (back)
   unpacks them from there. Counts may be large. Local. */
int baton__mpi_pack(const void *memory, int count, MPI_Datatype type,
                    char *bytes, bool back);

#endif
