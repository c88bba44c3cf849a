/* A collective call of the application, and the traits of each kind of
   collective. The library takes a call, which means that Baton runs it, or
   leaves it to MPI. The decision depends only on properties that all ranks of
   the communicator know; docs/mpi.md has the table of these properties. */
#pragma once

#include <baton/mpi.h>

/* The name of a function that creates a persistent collective, which is an
   extension in Open MPI 4. If P is the letter P, it is the name in PMPI. */
#if OMPI_MAJOR_VERSION >= 5
#define BATON__MPI_INIT(P, Name) P##MPI_##Name##_init
#else
#include <mpi-ext.h>
#define BATON__MPI_INIT(P, Name) P##MPIX_##Name##_init
#endif

/* The kinds of collectives: enumerator, name in MPI, name in Baton, the extents
   of the source and of the target on a rank, and traits. The extents are NONE:
   the collective has no such side; PART: one vector or block of `count`
   elements; BLOCKS: one block for each rank. The traits are:

     REDUCES    the collective combines elements by an operation
     ROOTED     the collective has a root
     SOURCE     only the root has a source
     TARGET     only the root has a target
     LOCAL      each rank decides for itself whether it works in place
     PRIVATE    a rank does not know the sizes of all other ranks' blocks */
#define BATON__MPI_LIST(X)                                                     \
    X(BARRIER, Barrier, barrier, NONE, NONE, 0)                                \
    X(BCAST, Bcast, broadcast, NONE, PART, ROOTED)                             \
    X(REDUCE, Reduce, reduce, PART, PART, REDUCES | ROOTED | TARGET | LOCAL)   \
    X(ALLREDUCE, Allreduce, allreduce, PART, PART, REDUCES)                    \
    X(GATHER, Gather, gather, PART, BLOCKS, ROOTED | TARGET | LOCAL)           \
    X(GATHERV, Gatherv, gatherv, PART, BLOCKS,                                 \
      ROOTED | TARGET | LOCAL | PRIVATE)                                       \
    X(SCATTER, Scatter, scatter, BLOCKS, PART, ROOTED | SOURCE | LOCAL)        \
    X(SCATTERV, Scatterv, scatterv, BLOCKS, PART,                              \
      ROOTED | SOURCE | LOCAL | PRIVATE)                                       \
    X(ALLGATHER, Allgather, allgather, PART, BLOCKS, 0)                        \
    X(ALLGATHERV, Allgatherv, allgatherv, PART, BLOCKS, 0)                     \
    X(ALLTOALL, Alltoall, alltoall, BLOCKS, BLOCKS, 0)                         \
    X(ALLTOALLV, Alltoallv, alltoallv, BLOCKS, BLOCKS, PRIVATE)                \
    X(REDUCE_SCATTER, Reduce_scatter, reduce_scatter, BLOCKS, PART,            \
      REDUCES | LOCAL)                                                         \
    X(REDUCE_SCATTER_BLOCK, Reduce_scatter_block, reduce_scatter, BLOCKS,      \
      PART, REDUCES | LOCAL)                                                   \
    X(SCAN, Scan, scan, PART, PART, REDUCES | LOCAL)                           \
    X(EXSCAN, Exscan, exscan, PART, PART, REDUCES | LOCAL)

typedef enum baton__mpi_kind {
#define BATON__MPI_ENUM(KIND, ...) BATON__MPI_##KIND,
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

/* The arguments of a call that describe one of its sides: its source (the send
   buffer) or its target (the receive buffer). Arguments that this kind of
   collective does not have are 0. */
typedef struct baton__mpi_side {
    void *memory; /* the buffer; may be MPI_IN_PLACE or MPI_BOTTOM */
    int count;
    /* A count and a displacement for each block, in collectives whose names end
       with v, such as Alltoallv. The target of Reduce_scatter has `counts`
       alone. */
    const int *counts, *displs;
    MPI_Datatype type;
} baton__mpi_side_t;

typedef enum baton__mpi_way {
    BATON__MPI_BLOCKING,
    BATON__MPI_NONBLOCKING,
    BATON__MPI_PERSISTENT,
    BATON__MPI_WAYS
} baton__mpi_way_t;

typedef struct baton__mpi_call {
    baton__mpi_kind_t kind;
    baton__mpi_way_t way;
    baton__mpi_side_t source, target;
    MPI_Op op;
    int root;
    MPI_Comm comm;
} baton__mpi_call_t;

/* Return values of functions that may take a call, in place of an MPI error
   code. LEFT: the function has done nothing, and its caller passes the call on
   to MPI. LEFT_FIRST: the same, for the reason BATON__MPI_FIRST (comms.h). */
#define BATON__MPI_LEFT       (-1)
#define BATON__MPI_LEFT_FIRST (-2)

static inline bool baton__mpi_has(const baton__mpi_call_t *call, unsigned trait)
{
    return (baton__mpi_traits[call->kind].traits & trait) != 0;
}
