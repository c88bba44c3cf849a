/* Fortran's own symbols: libmpi_mpifh calls PMPI_ functions, past those of
   interpose.c. `mpi_iallreduce_` is what mpif.h and the module mpi call, and
   `ompi_iallreduce_f` what mpi_f08 calls; both have the same arguments. */
#include "mpi/requests.h"

#include <dlfcn.h>
#include <mpi-ext.h>

/* Whose addresses stand for MPI_IN_PLACE and MPI_BOTTOM. */
extern int mpi_fortran_in_place_, mpi_fortran_bottom_;

typedef MPI_Fint f;

#define ALL(...) __VA_ARGS__

static void *memory_of(void *argument)
{
    return argument == &mpi_fortran_in_place_ ? MPI_IN_PLACE
           : argument == &mpi_fortran_bottom_ ? MPI_BOTTOM
                                              : argument;
}

static void tell(int code, f *error_out)
{
    if (error_out != NULL) {
        *error_out = code;
    }
}

static void give(int code, MPI_Request request, f *request_out, f *error_out)
{
    if (code == MPI_SUCCESS) {
        *request_out = PMPI_Request_c2f(request);
    }
    tell(code, error_out);
}

#define SYMBOL_OF(mpi, name, parameters)                                       \
    void o##mpi##_##name##_f parameters;                                       \
    void mpi##_##name##_ parameters                                            \
        __attribute__((alias("o" #mpi "_" #name "_f")));                       \
    void o##mpi##_##name##_f parameters
#define SYMBOL(name, parameters) SYMBOL_OF(mpi, name, parameters)

/* A collective: its name twice, its parameters and the arguments of C. No info
   says anything to the library. */
#define FORTRAN(Name, name, parameters, arguments)                             \
    SYMBOL(i##name, (ALL parameters, f * comm, f * request, f * error))        \
    {                                                                          \
        MPI_Request q = MPI_REQUEST_NULL;                                      \
        int code = MPI_I##name(ALL arguments, PMPI_Comm_f2c(*comm), &q);       \
        give(code, q, request, error);                                         \
    }                                                                          \
    SYMBOL(name, (ALL parameters, f * comm, f * error))                        \
    {                                                                          \
        int code = MPI_##Name(ALL arguments, PMPI_Comm_f2c(*comm));            \
        tell(code, error);                                                     \
    }                                                                          \
    SYMBOL_OF(mpix, name##_init,                                               \
              (ALL parameters, f * comm, f * info, f * request, f * error))    \
    {                                                                          \
        MPI_Request q = MPI_REQUEST_NULL;                                      \
        int code = MPIX_##Name##_init(ALL arguments, PMPI_Comm_f2c(*comm),     \
                                      PMPI_Info_f2c(*info), &q);               \
        give(code, q, request, error);                                         \
    }

#define SEND     memory_of(send)
#define RECV     memory_of(recv)
#define TYPE(of) PMPI_Type_f2c(*(of))
#define OP       PMPI_Op_f2c(*op)

SYMBOL(ibarrier, (f * comm, f *request, f *error))
{
    MPI_Request q = MPI_REQUEST_NULL;
    int code = MPI_Ibarrier(PMPI_Comm_f2c(*comm), &q);
    give(code, q, request, error);
}

SYMBOL(barrier, (f * comm, f *error))
{
    int code = MPI_Barrier(PMPI_Comm_f2c(*comm));
    tell(code, error);
}

FORTRAN(Bcast, bcast, (void *recv, f *count, f *type, f *root),
        (RECV, *count, TYPE(type), *root))

#define REDUCED void *send, void *recv, f *count, f *type, f *op
FORTRAN(Reduce, reduce, (REDUCED, f *root),
        (SEND, RECV, *count, TYPE(type), OP, *root))
FORTRAN(Allreduce, allreduce, (REDUCED), (SEND, RECV, *count, TYPE(type), OP))
FORTRAN(Scan, scan, (REDUCED), (SEND, RECV, *count, TYPE(type), OP))
FORTRAN(Exscan, exscan, (REDUCED), (SEND, RECV, *count, TYPE(type), OP))
FORTRAN(Reduce_scatter_block, reduce_scatter_block, (REDUCED),
        (SEND, RECV, *count, TYPE(type), OP))
FORTRAN(Reduce_scatter, reduce_scatter, (REDUCED),
        (SEND, RECV, count, TYPE(type), OP))

#define MOVED void *send, f *scount, f *stype, void *recv, f *rcount, f *rtype
#define EQUAL SEND, *scount, TYPE(stype), RECV, *rcount, TYPE(rtype)
FORTRAN(Gather, gather, (MOVED, f *root), (EQUAL, *root))
FORTRAN(Scatter, scatter, (MOVED, f *root), (EQUAL, *root))
FORTRAN(Allgather, allgather, (MOVED), (EQUAL))
FORTRAN(Alltoall, alltoall, (MOVED), (EQUAL))

#define GATHERED                                                               \
    void *send, f *scount, f *stype, void *recv, f *rcounts, f *displs, f *rtype
#define BLOCKS SEND, *scount, TYPE(stype), RECV, rcounts, displs, TYPE(rtype)
FORTRAN(Gatherv, gatherv, (GATHERED, f *root), (BLOCKS, *root))
FORTRAN(Allgatherv, allgatherv, (GATHERED), (BLOCKS))
FORTRAN(Scatterv, scatterv,
        (void *send, f *scounts, f *displs, f *stype, void *recv, f *rcount,
         f *rtype, f *root),
        (SEND, scounts, displs, TYPE(stype), RECV, *rcount, TYPE(rtype), *root))
FORTRAN(Alltoallv, alltoallv,
        (void *send, f *scounts, f *sdispls, f *stype, void *recv, f *rcounts,
         f *rdispls, f *rtype),
        (SEND, scounts, sdispls, TYPE(stype), RECV, rcounts, rdispls,
         TYPE(rtype)))

SYMBOL_OF(mpix, barrier_init, (f * comm, f *info, f *request, f *error))
{
    MPI_Request q = MPI_REQUEST_NULL;
    int code =
        MPIX_Barrier_init(PMPI_Comm_f2c(*comm), PMPI_Info_f2c(*info), &q);
    give(code, q, request, error);
}

/* ---- requests, of which MPI's Fortran calls PMPI's functions ------------- */

SYMBOL(start, (f * request, f *error))
{
    MPI_Request q = PMPI_Request_f2c(*request);
    int code = MPI_Start(&q);
    give(code, q, request, error); /* MPI may put another in its place */
}

SYMBOL(startall, (f * count, f *requests, f *error))
{
    tell(MPI_SUCCESS, error);
    for (f i = 0; i < *count; i++) {
        ompi_start_f(&requests[i], error);
    }
}

SYMBOL(request_free, (f * request, f *error))
{
    MPI_Request q = PMPI_Request_f2c(*request);
    give(MPI_Request_free(&q), MPI_REQUEST_NULL, request, error);
}

SYMBOL(cancel, (f * request, f *error))
{
    MPI_Request q = PMPI_Request_f2c(*request);
    int code = MPI_Cancel(&q);
    tell(code, error);
}

typedef void (*wait_fn)(f *request, f *status, f *error);
SYMBOL(wait, (f * request, f *status, f *error))
{
    void *next = dlsym(RTLD_NEXT, "ompi_wait_f");
    MPI_Request q = PMPI_Request_f2c(*request);
    baton__mpi_await(1, &q);
    (*(wait_fn *)&next)(request, status, error);
}

/* ---- the life of MPI ----------------------------------------------------- */

SYMBOL(init, (f * error))
{
    int code = MPI_Init(NULL, NULL);
    tell(code, error);
}

SYMBOL(init_thread, (f * required, f *provided, f *error))
{
    int code = MPI_Init_thread(NULL, NULL, *required, provided);
    tell(code, error);
}

SYMBOL(query_thread, (f * provided, f *error))
{
    int code = MPI_Query_thread(provided);
    tell(code, error);
}

SYMBOL(finalize, (f * error))
{
    int code = MPI_Finalize();
    tell(code, error);
}
