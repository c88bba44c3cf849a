/* Fortran's own symbols: libmpi_mpifh calls PMPI_ functions, past those of
   interpose.c. `mpi_iallreduce_` is what mpif.h and the module mpi call, and
   `ompi_iallreduce_f` what mpi_f08 calls; both have the same arguments. */
#include "mpi/requests.h"

/* Whose addresses stand for MPI_IN_PLACE, MPI_BOTTOM and MPI_STATUS_IGNORE. */
extern int mpi_fortran_in_place_, mpi_fortran_bottom_,
    mpi_fortran_status_ignore_;

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

static void give(int code, const MPI_Request *request, f *request_out,
                 f *error_out)
{
    if (code == MPI_SUCCESS) {
        *request_out = PMPI_Request_c2f(*request);
    }
    tell(code, error_out);
}

#define SYMBOL_OF(mpi, name, parameters)                                       \
    void o##mpi##_##name##_f parameters;                                       \
    void mpi##_##name##_ parameters                                            \
        __attribute__((alias("o" #mpi "_" #name "_f")));                       \
    void o##mpi##_##name##_f parameters
#define SYMBOL(name, parameters) SYMBOL_OF(mpi, name, parameters)
#if OMPI_MAJOR_VERSION >= 5
#define SYMBOL_INIT(name, parameters) SYMBOL_OF(mpi, name##_init, parameters)
#else
#define SYMBOL_INIT(name, parameters) SYMBOL_OF(mpix, name##_init, parameters)
#endif

/* A collective: its name twice, its parameters and the arguments of C. No info
   says anything to the library. */
#define FORTRAN(Name, name, parameters, arguments)                             \
    SYMBOL(i##name, (ALL parameters, f * request, f * error))                  \
    {                                                                          \
        MPI_Request q = MPI_REQUEST_NULL;                                      \
        give(MPI_I##name(ALL arguments, &q), &q, request, error);              \
    }                                                                          \
    SYMBOL(name, (ALL parameters, f * error))                                  \
    {                                                                          \
        tell(MPI_##Name(ALL arguments), error);                                \
    }                                                                          \
    SYMBOL_INIT(name, (ALL parameters, f * info, f * request, f * error))      \
    {                                                                          \
        MPI_Request q = MPI_REQUEST_NULL;                                      \
        give(BATON__MPI_INIT(, Name)(ALL arguments, PMPI_Info_f2c(*info), &q), \
             &q, request, error);                                              \
    }

#define SEND     memory_of(send)
#define RECV     memory_of(recv)
#define TYPE(of) PMPI_Type_f2c(*(of))
#define COMM     PMPI_Comm_f2c(*comm)
#define OP       PMPI_Op_f2c(*op)

FORTRAN(Barrier, barrier, (f * comm), (COMM))
FORTRAN(Bcast, bcast, (void *recv, f *count, f *type, f *root, f *comm),
        (RECV, *count, TYPE(type), *root, COMM))

#define REDUCED void *send, void *recv, f *count, f *type, f *op
#define SUMMED  SEND, RECV, *count, TYPE(type), OP
FORTRAN(Reduce, reduce, (REDUCED, f *root, f *comm), (SUMMED, *root, COMM))
FORTRAN(Allreduce, allreduce, (REDUCED, f *comm), (SUMMED, COMM))
FORTRAN(Scan, scan, (REDUCED, f *comm), (SUMMED, COMM))
FORTRAN(Exscan, exscan, (REDUCED, f *comm), (SUMMED, COMM))
FORTRAN(Reduce_scatter_block, reduce_scatter_block, (REDUCED, f *comm),
        (SUMMED, COMM))
FORTRAN(Reduce_scatter, reduce_scatter, (REDUCED, f *comm),
        (SEND, RECV, count, TYPE(type), OP, COMM))

#define MOVED void *send, f *scount, f *stype, void *recv, f *rcount, f *rtype
#define EQUAL SEND, *scount, TYPE(stype), RECV, *rcount, TYPE(rtype)
FORTRAN(Gather, gather, (MOVED, f *root, f *comm), (EQUAL, *root, COMM))
FORTRAN(Scatter, scatter, (MOVED, f *root, f *comm), (EQUAL, *root, COMM))
FORTRAN(Allgather, allgather, (MOVED, f *comm), (EQUAL, COMM))
FORTRAN(Alltoall, alltoall, (MOVED, f *comm), (EQUAL, COMM))

#define GATHERED                                                               \
    void *send, f *scount, f *stype, void *recv, f *rcounts, f *displs, f *rtype
#define BLOCKS SEND, *scount, TYPE(stype), RECV, rcounts, displs, TYPE(rtype)
FORTRAN(Gatherv, gatherv, (GATHERED, f *root, f *comm), (BLOCKS, *root, COMM))
FORTRAN(Allgatherv, allgatherv, (GATHERED, f *comm), (BLOCKS, COMM))
FORTRAN(Scatterv, scatterv,
        (void *send, f *scounts, f *displs, f *stype, void *recv, f *rcount,
         f *rtype, f *root, f *comm),
        (SEND, scounts, displs, TYPE(stype), RECV, *rcount, TYPE(rtype), *root,
         COMM))
FORTRAN(Alltoallv, alltoallv,
        (void *send, f *scounts, f *sdispls, f *stype, void *recv, f *rcounts,
         f *rdispls, f *rtype, f *comm),
        (SEND, scounts, sdispls, TYPE(stype), RECV, rcounts, rdispls,
         TYPE(rtype), COMM))

/* ---- requests, of which MPI's Fortran calls PMPI's functions ------------- */

SYMBOL(start, (f * request, f *error))
{
    MPI_Request q = PMPI_Request_f2c(*request);
    /* MPI may put another in its place. */
    give(MPI_Start(&q), &q, request, error);
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
    give(MPI_Request_free(&q), &q, request, error);
}

SYMBOL(cancel, (f * request, f *error))
{
    tell(MPI_Cancel(&(MPI_Request){PMPI_Request_f2c(*request)}), error);
}

SYMBOL(wait, (f * request, f *status, f *error))
{
    MPI_Request q = PMPI_Request_f2c(*request);
    MPI_Status ended;
    int code = MPI_Wait(&q, &ended);
    if (code == MPI_SUCCESS && status != &mpi_fortran_status_ignore_) {
        (void)PMPI_Status_c2f(&ended, status);
    }
    give(code, &q, request, error);
}

/* ---- the life of MPI ----------------------------------------------------- */

#define LIFE(Name, name, parameters, arguments)                                \
    SYMBOL(name, parameters)                                                   \
    {                                                                          \
        tell(MPI_##Name arguments, error);                                     \
    }

LIFE(Init, init, (f * error), (NULL, NULL))
LIFE(Init_thread, init_thread, (f * required, f *provided, f *error),
     (NULL, NULL, *required, provided))
LIFE(Query_thread, query_thread, (f * provided, f *error), (provided))
LIFE(Finalize, finalize, (f * error), ())
