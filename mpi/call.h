/* A collective call of the application, as libbaton_mpi sees it, and what each
   kind of collective has. Whether a call is taken or left to MPI depends only
   on what all ranks of its communicator know: docs/mpi.md has the table. */
#ifndef BATON_MPI_CALL_H
#define BATON_MPI_CALL_H

#include <baton/mpi.h>

/* Kind, its name in MPI, what its source and target have on a rank (NONE, one
   PART, a BLOCK for each rank), and its traits:

     REDUCES    combines elements by an operation
     ROOTED     has a root
     SOURCE     only the root has a source; TARGET: a target
     LOCAL      each rank decides for itself whether it is in place
     PRIVATE    a rank does not know the sizes of all the others' blocks */
#define BATON__MPI_LIST(X)                                                     \
    X(BARRIER, Barrier, NONE, NONE, 0)                                         \
    X(BCAST, Bcast, NONE, PART, ROOTED)                                        \
    X(REDUCE, Reduce, PART, PART, REDUCES | ROOTED | TARGET | LOCAL)           \
    X(ALLREDUCE, Allreduce, PART, PART, REDUCES)                               \
    X(GATHER, Gather, PART, BLOCKS, ROOTED | TARGET | LOCAL)                   \
    X(GATHERV, Gatherv, PART, BLOCKS, ROOTED | TARGET | LOCAL | PRIVATE)       \
    X(SCATTER, Scatter, BLOCKS, PART, ROOTED | SOURCE | LOCAL)                 \
    X(SCATTERV, Scatterv, BLOCKS, PART, ROOTED | SOURCE | LOCAL | PRIVATE)     \
    X(ALLGATHER, Allgather, PART, BLOCKS, 0)                                   \
    X(ALLGATHERV, Allgatherv, PART, BLOCKS, 0)                                 \
    X(ALLTOALL, Alltoall, BLOCKS, BLOCKS, 0)                                   \
    X(ALLTOALLV, Alltoallv, BLOCKS, BLOCKS, PRIVATE)                           \
    X(REDUCE_SCATTER, Reduce_scatter, BLOCKS, PART, REDUCES)                   \
    X(REDUCE_SCATTER_BLOCK, Reduce_scatter_block, BLOCKS, PART, REDUCES)       \
    X(SCAN, Scan, PART, PART, REDUCES | LOCAL)                                 \
    X(EXSCAN, Exscan, PART, PART, REDUCES | LOCAL)

typedef enum baton__mpi_kind {
#define BATON__MPI_ENUM(KIND, name, source, target, traits) BATON__MPI_##KIND,
    BATON__MPI_LIST(BATON__MPI_ENUM)
#undef BATON__MPI_ENUM
        BATON__MPI_KINDS
} baton__mpi_kind_t;

typedef enum baton__mpi_span {
    BATON__MPI_NONE,
    BATON__MPI_PART,
    BATON__MPI_BLOCKS
} baton__mpi_span_t;

enum baton__mpi_trait {
    BATON__MPI_REDUCES = 1,
    BATON__MPI_ROOTED = 2,
    BATON__MPI_SOURCE = 4,
    BATON__MPI_TARGET = 8,
    BATON__MPI_LOCAL = 16,
    BATON__MPI_PRIVATE = 32
};

typedef struct baton__mpi_traits {
    const char *name; /* "Allreduce" */
    baton__mpi_span_t source, target;
    unsigned traits;
} baton__mpi_traits_t;

extern const baton__mpi_traits_t baton__mpi_traits[BATON__MPI_KINDS];

/* One of a call's buffers: the arguments as they are, of which those that the
   kind has no use for are 0. */
typedef struct baton__mpi_side {
    void *memory; /* may be MPI_IN_PLACE, MPI_BOTTOM */
    int count;
    const int *counts, *displs; /* of kinds with a v; counts also of
                                   Reduce_scatter's target */
    MPI_Datatype type;
} baton__mpi_side_t;

typedef struct baton__mpi_call {
    baton__mpi_kind_t kind;
    baton__mpi_side_t source, target;
    MPI_Op op;
    int root;
    MPI_Comm comm;
} baton__mpi_call_t;

static inline bool baton__mpi_has(const baton__mpi_call_t *call, unsigned trait)
{
    return (baton__mpi_traits[call->kind].traits & trait) != 0;
}

#endif
