/* A call's shape, by which its schedule is known, and its vectors: where they
   are in one piece and in rank order Baton works on the application's memory,
   else on a copy that is packed before and unpacked at the end. */
#ifndef BATON_MPI_VECTORS_H
#define BATON_MPI_VECTORS_H

#include "mpi/functions.h"

/* Data that moves is counted in bytes: ranks' types may differ. */
typedef struct baton__mpi_shape {
    baton__mpi_kind_t kind;
    bool in_place; /* on all ranks */
    baton_dtype_t dtype;
    const baton_op_t *op;
    baton__mpi_function_t *function; /* of an `op` that is the program's */
    int root;
    size_t count;
    size_t *counts; /* of P blocks, or NULL; of Alltoallv 2 P, those that come
                       behind those that go */
    int size;       /* P */
} baton__mpi_shape_t;

/* What the schedule works on for a side of the call: its memory, or a copy. */
typedef struct baton__mpi_vector {
    void *memory; /* NULL of a source: in place */
    char *copy;   /* NULL: there is none, and nothing is packed */
    baton__mpi_side_t side;
    int blocks;
    size_t raw_bytes;    /* of a copy without packing */
    bool packs, unpacks; /* before the schedule starts; at its end */
    /* Copies of the side's type, and of its counts and displacements, if they
       are used after the call has returned: the program may free its own. */
    MPI_Datatype type; /* or MPI_DATATYPE_NULL */
    int *arrays;       /* or NULL */
} baton__mpi_vector_t;

typedef struct baton__mpi_vectors {
    baton__mpi_vector_t source, target;
} baton__mpi_vectors_t;

/* False: the call is wrong, and MPI says in which way. */
bool baton__mpi_is_valid(const baton__mpi_call_t *call, int rank, int size);

/* Bytes of a block, where all have one count. SIZE_MAX: the call is wrong. */
size_t baton__mpi_block_bytes(const baton__mpi_call_t *call, int rank);

/* The shape of a valid call, the caller's to free. An MPI error code. */
int baton__mpi_shape(const baton__mpi_call_t *call, int rank, int size,
                     baton__mpi_shape_t *shape);
void baton__mpi_shape_fini(baton__mpi_shape_t *shape);
bool baton__mpi_shape_equals(const baton__mpi_shape_t *a,
                             const baton__mpi_shape_t *b);

/* Bytes of the whole vector; of PRIVATE kinds those that this rank knows of. */
size_t baton__mpi_shape_bytes(const baton__mpi_shape_t *shape);

int baton__mpi_vectors_init(const baton__mpi_call_t *call,
                            const baton__mpi_shape_t *shape, int rank,
                            baton__mpi_vectors_t *vectors);
/* Before each start; at each end. */
int baton__mpi_vectors_pack(const baton__mpi_vectors_t *vectors);
int baton__mpi_vectors_unpack(const baton__mpi_vectors_t *vectors);
void baton__mpi_vectors_fini(baton__mpi_vectors_t *vectors);

#endif
