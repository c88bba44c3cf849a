/* Fortran's own symbols: libmpi_mpifh calls PMPI_ functions, past those of
   interpose.c. `mpi_iallreduce_` is what mpif.h and the module mpi call, and
   `ompi_iallreduce_f` what mpi_f08 calls; both have the same arguments.
   Persistent collectives are left to MPI here. */
#include "mpi/requests.h"

#include <dlfcn.h>

/* Whose addresses stand for MPI_IN_PLACE and MPI_BOTTOM. */
extern int mpi_fortran_in_place_, mpi_fortran_bottom_;

#define ALL(...) __VA_ARGS__

static void *memory_of(void *argument)
{
    return argument == &mpi_fortran_in_place_ ? MPI_IN_PLACE
           : argument == &mpi_fortran_bottom_ ? MPI_BOTTOM
                                              : argument;
}

static void tell(int code, MPI_Fint *error_out)
{
    if (error_out != NULL) {
        *error_out = code;
    }
}

static void give(int code, MPI_Request request, MPI_Fint *request_out,
                 MPI_Fint *error_out)
{
    if (code == MPI_SUCCESS) {
        *request_out = PMPI_Request_c2f(request);
    }
    tell(code, error_out);
}

#define SYMBOL(name, parameters)                                               \
    void ompi_##name##_f parameters;                                           \
    void mpi_##name##_ parameters __attribute__((alias("ompi_" #name "_f")));  \
    void ompi_##name##_f parameters

/* A collective: its name twice, its parameters and the arguments of C. */
#define FORTRAN(Name, name, parameters, arguments)                             \
    SYMBOL(i##name, (ALL parameters, MPI_Fint * comm, MPI_Fint * request,      \
                     MPI_Fint * error))                                        \
    {                                                                          \
        MPI_Request q = MPI_REQUEST_NULL;                                      \
        int code = MPI_I##name(ALL arguments, PMPI_Comm_f2c(*comm), &q);       \
        give(code, q, request, error);                                         \
    }                                                                          \
    SYMBOL(name, (ALL parameters, MPI_Fint * comm, MPI_Fint * error))          \
    {                                                                          \
        int code = MPI_##Name(ALL arguments, PMPI_Comm_f2c(*comm));            \
        tell(code, error);                                                     \
    }

#define SEND     memory_of(send)
#define RECV     memory_of(recv)
#define TYPE(of) PMPI_Type_f2c(*(of))
#define OP       PMPI_Op_f2c(*op)

SYMBOL(ibarrier, (MPI_Fint * comm, MPI_Fint *request, MPI_Fint *error))
{
    MPI_Request q = MPI_REQUEST_NULL;
    int code = MPI_Ibarrier(PMPI_Comm_f2c(*comm), &q);
    give(code, q, request, error);
}

SYMBOL(barrier, (MPI_Fint * comm, MPI_Fint *error))
{
    int code = MPI_Barrier(PMPI_Comm_f2c(*comm));
    tell(code, error);
}

FORTRAN(Bcast, bcast,
        (void *recv, MPI_Fint *count, MPI_Fint *type, MPI_Fint *root),
        (RECV, *count, TYPE(type), *root))

#define REDUCED                                                                \
    void *send, void *recv, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op
FORTRAN(Reduce, reduce, (REDUCED, MPI_Fint *root),
        (SEND, RECV, *count, TYPE(type), OP, *root))
FORTRAN(Allreduce, allreduce, (REDUCED), (SEND, RECV, *count, TYPE(type), OP))
FORTRAN(Scan, scan, (REDUCED), (SEND, RECV, *count, TYPE(type), OP))
FORTRAN(Exscan, exscan, (REDUCED), (SEND, RECV, *count, TYPE(type), OP))
FORTRAN(Reduce_scatter_block, reduce_scatter_block, (REDUCED),
        (SEND, RECV, *count, TYPE(type), OP))
FORTRAN(Reduce_scatter, reduce_scatter, (REDUCED),
        (SEND, RECV, count, TYPE(type), OP))

#define MOVED                                                                  \
    void *send, MPI_Fint *scount, MPI_Fint *stype, void *recv,                 \
        MPI_Fint *rcount, MPI_Fint *rtype
#define EQUAL SEND, *scount, TYPE(stype), RECV, *rcount, TYPE(rtype)
FORTRAN(Gather, gather, (MOVED, MPI_Fint *root), (EQUAL, *root))
FORTRAN(Scatter, scatter, (MOVED, MPI_Fint *root), (EQUAL, *root))
FORTRAN(Allgather, allgather, (MOVED), (EQUAL))
FORTRAN(Alltoall, alltoall, (MOVED), (EQUAL))

#define GATHERED                                                               \
    void *send, MPI_Fint *scount, MPI_Fint *stype, void *recv,                 \
        MPI_Fint *rcounts, MPI_Fint *displs, MPI_Fint *rtype
#define BLOCKS SEND, *scount, TYPE(stype), RECV, rcounts, displs, TYPE(rtype)
FORTRAN(Gatherv, gatherv, (GATHERED, MPI_Fint *root), (BLOCKS, *root))
FORTRAN(Allgatherv, allgatherv, (GATHERED), (BLOCKS))
FORTRAN(Scatterv, scatterv,
        (void *send, MPI_Fint *scounts, MPI_Fint *displs, MPI_Fint *stype,
         void *recv, MPI_Fint *rcount, MPI_Fint *rtype, MPI_Fint *root),
        (SEND, scounts, displs, TYPE(stype), RECV, *rcount, TYPE(rtype), *root))
FORTRAN(Alltoallv, alltoallv,
        (void *send, MPI_Fint *scounts, MPI_Fint *sdispls, MPI_Fint *stype,
         void *recv, MPI_Fint *rcounts, MPI_Fint *rdispls, MPI_Fint *rtype),
        (SEND, scounts, sdispls, TYPE(stype), RECV, rcounts, rdispls,
         TYPE(rtype)))

/* ---- a wait, which goes on to MPI's own
 * ----------------------------------------
 */

typedef void (*wait_fn)(MPI_Fint *request, MPI_Fint *status, MPI_Fint *error);
SYMBOL(wait, (MPI_Fint * request, MPI_Fint *status, MPI_Fint *error))
{
    void *next = dlsym(RTLD_NEXT, "ompi_wait_f");
    MPI_Request q = PMPI_Request_f2c(*request);
    baton__mpi_await(1, &q);
    (*(wait_fn *)&next)(request, status, error);
}

/* ---- the life of MPI -------------------------------------------------------
 */

SYMBOL(init, (MPI_Fint * error))
{
    int code = MPI_Init(NULL, NULL);
    tell(code, error);
}

SYMBOL(init_thread, (MPI_Fint * required, MPI_Fint *provided, MPI_Fint *error))
{
    int code = MPI_Init_thread(NULL, NULL, *required, provided);
    tell(code, error);
}

SYMBOL(query_thread, (MPI_Fint * provided, MPI_Fint *error))
{
    int code = MPI_Query_thread(provided);
    tell(code, error);
}

SYMBOL(finalize, (MPI_Fint * error))
{
    int code = MPI_Finalize();
    tell(code, error);
}
