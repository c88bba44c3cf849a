/* A collective call of the application, and the traits of each kind of
   collective. The library takes a call, which means that Baton runs it, or
   leaves it to MPI. The decision depends only on properties that all ranks of
   the communicator know; docs/mpi.md has the table of these properties. */
#pragma once

#include <baton/mpi.h>
#include <baton/tuning.h>

/* The name of a function that creates a persistent collective, which is an
   extension in Open MPI 4. If P is the letter P, it is the name in PMPI. */
#if OMPI_MAJOR_VERSION >= 5
#define BATON__MPI_INIT(P, Name) P##MPI_##Name##_init
#else
#include <mpi-ext.h>
#define BATON__MPI_INIT(P, Name) P##MPIX_##Name##_init
#endif

/* The kinds of collectives: enumerator, name in MPI in two spellings,
   enumerator in Baton, the macro of the parameters (parameters.h), and
   traits. */
#define BATON__MPI_LIST(X)                                                     \
    X(BARRIER, Barrier, barrier, BARRIER, COMM, .local = false)                \
    X(BCAST, Bcast, bcast, BROADCAST, BUFFER_OF_ROOT, .one_round = 4)          \
    X(REDUCE, Reduce, reduce, REDUCE, REDUCTION_TO_ROOT, .local = true)        \
    X(ALLREDUCE, Allreduce, allreduce, ALLREDUCE, REDUCTION, .local = false)   \
    X(GATHER, Gather, gather, GATHER, MOVE_AT_ROOT, .one_round = 8,            \
      .local = true)                                                           \
    X(GATHERV, Gatherv, gatherv, GATHER, GATHER_V_TO_ROOT, .local = true,      \
      .hidden = true)                                                          \
    X(SCATTER, Scatter, scatter, SCATTER, MOVE_AT_ROOT, .one_round = 8,        \
      .local = true)                                                           \
    X(SCATTERV, Scatterv, scatterv, SCATTER, SCATTER_V, .local = true,         \
      .hidden = true)                                                          \
    X(ALLGATHER, Allgather, allgather, ALLGATHER, MOVE, .one_round = 8)        \
    X(ALLGATHERV, Allgatherv, allgatherv, ALLGATHER, GATHER_V, .local = false) \
    X(ALLTOALL, Alltoall, alltoall, ALLTOALL, MOVE, .one_round = 8)            \
    X(ALLTOALLV, Alltoallv, alltoallv, ALLTOALL, EXCHANGE_V, .hidden = true)   \
    X(REDUCE_SCATTER, Reduce_scatter, reduce_scatter, REDUCE_SCATTER,          \
      REDUCTION_V, .local = true)                                              \
    X(REDUCE_SCATTER_BLOCK, Reduce_scatter_block, reduce_scatter_block,        \
      REDUCE_SCATTER, REDUCTION, .local = true)                                \
    X(SCAN, Scan, scan, SCAN, REDUCTION, .local = true)                        \
    X(EXSCAN, Exscan, exscan, EXSCAN, REDUCTION, .local = true)

typedef enum baton__mpi_kind {
#define BATON__MPI_ENUM(KIND, ...) BATON__MPI_##KIND,
    BATON__MPI_LIST(BATON__MPI_ENUM)
#undef BATON__MPI_ENUM
        BATON__MPI_KINDS
} baton__mpi_kind_t;

typedef struct baton__mpi_traits {
    const char *name; /* "Allreduce" */
    baton_status_t (*create)(baton_group_t *group,
                             const baton_operands_t *operands,
                             baton_schedule_t **out);
    baton_collective_t collective;
    /* Open MPI runs the collective as one round of messages, all sent at once,
       if blocks are short and there are at most so many ranks. */
    int one_round;
    bool local;  /* each rank decides for itself whether it works in place */
    bool hidden; /* a rank does not know the sizes of all other ranks' blocks */
} baton__mpi_traits_t;

extern const baton__mpi_traits_t baton__mpi_traits[BATON__MPI_KINDS];

/* What Baton says of the collectives: whether they reduce, and which vectors a
   rank has. Set by baton__mpi_facts_open. */
extern baton_collective_facts_t baton__mpi_facts[BATON__MPI_KINDS];
void baton__mpi_facts_open(void);

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

static inline const baton__mpi_traits_t *
baton__mpi_traits_of(const baton__mpi_call_t *call)
{
    return &baton__mpi_traits[call->kind];
}

static inline const baton_collective_facts_t *
baton__mpi_facts_of(const baton__mpi_call_t *call)
{
    return &baton__mpi_facts[call->kind];
}
