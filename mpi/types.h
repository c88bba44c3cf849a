/* Datatypes and operations that Baton reduces, and the layout of vectors. */
#pragma once

#include "mpi/call.h"

/* Finds Baton's element type and reduction for a type and an operation of MPI.
   Returns false if Baton lacks one of them, or if MPI does not allow the
   operation for the type. */
bool baton__mpi_reduction(MPI_Datatype type, MPI_Op op, baton_dtype_t *dtype,
                          const baton_op_t **found);

/* Returns true for a predefined type. Such a type must not be replaced by a
   copy, since the program's functions may compare handles, and it must not be
   freed. */
bool baton__mpi_is_named(MPI_Datatype type);

/* Returns true if consecutive elements of the type lie in memory as they are
   sent: without gaps and in order. */
bool baton__mpi_is_plain(MPI_Datatype type);

/* Returns the bytes of an element's data, without gaps. */
size_t baton__mpi_type_bytes(MPI_Datatype type);

/* Packs `count` elements at `memory` into `bytes`, one after another. With
   `back`, unpacks them from `bytes` instead. The packed elements may have more
   bytes than an int can count. The call involves no other rank. */
int baton__mpi_pack(const void *memory, int count, MPI_Datatype type,
                    char *bytes, bool back);
