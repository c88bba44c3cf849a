/* A call's shape, which selects its schedule, and its vectors. If a vector is
   in one piece and in rank order, Baton works on the application's memory; else
   on a copy, which is packed before the start and unpacked at the end. */
#pragma once

#include "mpi/functions.h"

/* Sizes of data that is only moved are in bytes, as ranks' types may differ. */
typedef struct baton__mpi_shape {
    baton__mpi_kind_t kind;
    bool in_place; /* on all ranks */
    baton_dtype_t dtype;
    const baton_op_t *op;
    baton__mpi_function_t *function; /* if `op` is of the program */
    int root;
    size_t count;
    size_t *counts; /* of P blocks, or NULL; for Alltoallv 2 P: blocks to send,
                       then blocks to receive */
    int size;       /* P */
} baton__mpi_shape_t;

/* The schedule's vector for a side of the call: the side's memory, or a
   copy. */
typedef struct baton__mpi_vector {
    void *memory; /* NULL: in place, if it is a source */
    char *copy;   /* or NULL: nothing is packed */
    baton__mpi_side_t side;
    int blocks;
    size_t raw_bytes; /* of a copy that is made without packing */
    /* packs: before the schedule starts. unpacks: at its end. */
    bool packs, unpacks;
    /* Copies of the side's type, and of its counts and displacements, for use
       after the call has returned: the program may free the originals. */
    MPI_Datatype type; /* or MPI_DATATYPE_NULL */
    int *arrays;       /* or NULL */
} baton__mpi_vector_t;

typedef struct baton__mpi_vectors {
    baton__mpi_vector_t source, target;
} baton__mpi_vectors_t;

/* False: the call is wrong, and is left to MPI, which reports the error. */
bool baton__mpi_is_valid(const baton__mpi_call_t *call, int rank, int size);

/* Bytes of a block, if all blocks have one count. SIZE_MAX: the call is
   wrong. */
size_t baton__mpi_block_bytes(const baton__mpi_call_t *call, int rank);

/* Makes the shape of a valid call; the caller calls fini. Returns an MPI error
   code. */
int baton__mpi_shape(const baton__mpi_call_t *call, int rank, int size,
                     baton__mpi_shape_t *shape);
void baton__mpi_shape_fini(baton__mpi_shape_t *shape);
bool baton__mpi_shape_equals(const baton__mpi_shape_t *a,
                             const baton__mpi_shape_t *b);

/* Bytes of the whole vector; of PRIVATE kinds, of the blocks that this rank
   knows. */
size_t baton__mpi_shape_bytes(const baton__mpi_shape_t *shape);

int baton__mpi_vectors_init(const baton__mpi_call_t *call,
                            const baton__mpi_shape_t *shape, int rank,
                            baton__mpi_vectors_t *vectors);
/* pack is called before each start, unpack at each end. */
int baton__mpi_vectors_pack(const baton__mpi_vectors_t *vectors);
int baton__mpi_vectors_unpack(const baton__mpi_vectors_t *vectors);
void baton__mpi_vectors_fini(baton__mpi_vectors_t *vectors);
