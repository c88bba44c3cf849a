/* A call's shape, which selects the call's schedule, and its vectors. If a
   vector is in one piece and in rank order, Baton works on the application's
   memory. Otherwise Baton works on a copy, which is packed before the start and
   unpacked at the end. */
#pragma once

#include "mpi/functions.h"

/* The shape of a call. Counts are in bytes if the collective only moves data,
   since ranks may use different types. */
typedef struct baton__mpi_shape {
    baton__mpi_kind_t kind;
    bool in_place; /* all ranks work in place */
    baton_dtype_t dtype;
    const baton_op_t *op;
    baton__mpi_function_t *function; /* NULL: `op` is predefined */
    int root;
    size_t count;
    /* The counts of the P blocks. For Alltoallv, the counts of the P blocks to
       send and then of the P blocks to receive. NULL: `count` is the count of
       the vector, or of each block. */
    size_t *counts;
    int size; /* P, the number of ranks */
} baton__mpi_shape_t;

/* The vector that the schedule uses for a side of the call: the side's own
   memory, or a copy of the data. */
typedef struct baton__mpi_vector {
    /* Address of the vector. In a source NULL means that the call works in
       place. */
    void *memory;
    char *copy; /* NULL: there is no copy, and nothing is packed */
    baton__mpi_side_t side;
    int blocks;
    /* The number of bytes that memcpy copies to make the copy; 0: MPI packs the
       side by its type. */
    size_t raw_bytes;
    /* packs: the copy is packed before each start of the schedule. unpacks: the
       copy is unpacked after each end. */
    bool packs, unpacks;
    /* Copies of the side's type (else MPI_DATATYPE_NULL), and of its counts and
       displacements (else NULL). They serve after the call has returned, when
       the program may have freed the originals. */
    MPI_Datatype type;
    int *arrays;
} baton__mpi_vector_t;

typedef struct baton__mpi_vectors {
    baton__mpi_vector_t source, target;
} baton__mpi_vectors_t;

/* Returns false if the call is wrong. It must then be left to MPI, which
   reports the error. */
bool baton__mpi_is_valid(const baton__mpi_call_t *call, int rank, int size);

/* Returns the bytes of a block of a call whose blocks all have the same count.
   Returns SIZE_MAX if the call is wrong. */
size_t baton__mpi_block_bytes(const baton__mpi_call_t *call, int rank);

/* Makes the shape of a valid call. Returns an MPI error code. In any case the
   caller frees the shape by baton__mpi_shape_fini. */
int baton__mpi_shape(const baton__mpi_call_t *call, int rank, int size,
                     baton__mpi_shape_t *shape);
void baton__mpi_shape_fini(baton__mpi_shape_t *shape);
bool baton__mpi_shape_equals(const baton__mpi_shape_t *a,
                             const baton__mpi_shape_t *b);

/* Returns the bytes of the whole vector. In collectives with the trait
   `hidden`, returns the bytes of the blocks that this rank knows. */
size_t baton__mpi_shape_bytes(const baton__mpi_shape_t *shape);

int baton__mpi_vectors_init(const baton__mpi_call_t *call,
                            const baton__mpi_shape_t *shape, int rank,
                            baton__mpi_vectors_t *vectors);
/* baton__mpi_vectors_pack is called before each start, and
   baton__mpi_vectors_unpack after each end. */
int baton__mpi_vectors_pack(const baton__mpi_vectors_t *vectors);
int baton__mpi_vectors_unpack(const baton__mpi_vectors_t *vectors);
void baton__mpi_vectors_fini(baton__mpi_vectors_t *vectors);
