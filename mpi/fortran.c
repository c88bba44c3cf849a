/* The symbols that Fortran programs call. MPI's own symbols (libmpi_mpifh) call
   PMPI_ functions, and so would bypass interpose.c. A program with mpif.h or
   the module mpi calls `mpi_iallreduce_`, one with mpi_f08 `ompi_iallreduce_f`;
   both have the same arguments. */
#define _GNU_SOURCE
#include "mpi/runtime.h"

#include <dlfcn.h>

/* The addresses of these variables mean MPI_IN_PLACE, MPI_BOTTOM and
   MPI_STATUS_IGNORE. */
extern int mpi_fortran_in_place_, mpi_fortran_bottom_,
    mpi_fortran_status_ignore_;

typedef MPI_Fint f;

#define ALL(...) __VA_ARGS__

static void *fortran_memory_of(void *argument)
{
    return argument == &mpi_fortran_in_place_ ? MPI_IN_PLACE
           : argument == &mpi_fortran_bottom_ ? MPI_BOTTOM
                                              : argument;
}

static void fortran_tell(int code, f *error_out)
{
    if (error_out != NULL) {
        *error_out = code;
    }
}

static void fortran_give(int code, const MPI_Request *request, f *request_out,
                         f *error_out)
{
    if (code == MPI_SUCCESS) {
        *request_out = PMPI_Request_c2f(*request);
    }
    fortran_tell(code, error_out);
}

/* Expands to the declarations of up to 12 parameters, given their names. */
#define PICK(_1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, picked, ...)   \
    picked
#define DECLARE(...)                                                           \
    PICK(__VA_ARGS__, P12, P11, P10, P9, P8, P7, P6, P5, P4, P3, P2, P1, P)    \
    (__VA_ARGS__)
#define P1(a)       f *a
#define P2(a, ...)  f *a, P1(__VA_ARGS__)
#define P3(a, ...)  f *a, P2(__VA_ARGS__)
#define P4(a, ...)  f *a, P3(__VA_ARGS__)
#define P5(a, ...)  f *a, P4(__VA_ARGS__)
#define P6(a, ...)  f *a, P5(__VA_ARGS__)
#define P7(a, ...)  f *a, P6(__VA_ARGS__)
#define P8(a, ...)  f *a, P7(__VA_ARGS__)
#define P9(a, ...)  f *a, P8(__VA_ARGS__)
#define P10(a, ...) f *a, P9(__VA_ARGS__)
#define P11(a, ...) f *a, P10(__VA_ARGS__)
#define P12(a, ...) f *a, P11(__VA_ARGS__)

/* Defines both symbols of a function, whose body follows the macro. If the
   process's MPI is not the one that this library was built for, the symbols
   call the process's MPI instead. */
#define SYMBOL_OF(mpi, name, ...)                                              \
    static void name##_here(DECLARE(__VA_ARGS__));                             \
    void o##mpi##_##name##_f(DECLARE(__VA_ARGS__));                            \
    void mpi##_##name##_(DECLARE(__VA_ARGS__))                                 \
        __attribute__((alias("o" #mpi "_" #name "_f")));                       \
    void o##mpi##_##name##_f(DECLARE(__VA_ARGS__))                             \
    {                                                                          \
        if (baton__mpi_is_other()) {                                           \
            void *theirs = dlsym(RTLD_NEXT, #mpi "_" #name "_");               \
            (*(void (**)(DECLARE(__VA_ARGS__))) & theirs)(__VA_ARGS__);        \
        } else {                                                               \
            name##_here(__VA_ARGS__);                                          \
        }                                                                      \
    }                                                                          \
    static void name##_here(DECLARE(__VA_ARGS__))
#define SYMBOL(name, ...) SYMBOL_OF(mpi, name, __VA_ARGS__)
#if OMPI_MAJOR_VERSION >= 5
#define SYMBOL_INIT(name, ...) SYMBOL_OF(mpi, name##_init, __VA_ARGS__)
#else
#define SYMBOL_INIT(name, ...) SYMBOL_OF(mpix, name##_init, __VA_ARGS__)
#endif

/* Defines the symbols of a collective, given its name in two spellings, its
   parameters in Fortran and its arguments in C. Info arguments are ignored. */
#define FORTRAN(Name, name, parameters, arguments)                             \
    SYMBOL(i##name, ALL parameters, request, error)                            \
    {                                                                          \
        MPI_Request q = MPI_REQUEST_NULL;                                      \
        fortran_give(MPI_I##name(ALL arguments, &q), &q, request, error);      \
    }                                                                          \
    SYMBOL(name, ALL parameters, error)                                        \
    {                                                                          \
        fortran_tell(MPI_##Name(ALL arguments), error);                        \
    }                                                                          \
    SYMBOL_INIT(name, ALL parameters, info, request, error)                    \
    {                                                                          \
        MPI_Request q = MPI_REQUEST_NULL;                                      \
        fortran_give(                                                          \
            BATON__MPI_INIT(, Name)(ALL arguments, PMPI_Info_f2c(*info), &q),  \
            &q, request, error);                                               \
    }

#define SEND     fortran_memory_of(send)
#define RECV     fortran_memory_of(recv)
#define TYPE(of) PMPI_Type_f2c(*(of))
#define COMM     PMPI_Comm_f2c(*comm)
#define OP       PMPI_Op_f2c(*op)

FORTRAN(Barrier, barrier, (comm), (COMM))
FORTRAN(Bcast, bcast, (recv, count, type, root, comm),
        (RECV, *count, TYPE(type), *root, COMM))

#define REDUCED send, recv, count, type, op
#define SUMMED  SEND, RECV, *count, TYPE(type), OP
FORTRAN(Reduce, reduce, (REDUCED, root, comm), (SUMMED, *root, COMM))
FORTRAN(Allreduce, allreduce, (REDUCED, comm), (SUMMED, COMM))
FORTRAN(Scan, scan, (REDUCED, comm), (SUMMED, COMM))
FORTRAN(Exscan, exscan, (REDUCED, comm), (SUMMED, COMM))
FORTRAN(Reduce_scatter_block, reduce_scatter_block, (REDUCED, comm),
        (SUMMED, COMM))
FORTRAN(Reduce_scatter, reduce_scatter, (REDUCED, comm),
        (SEND, RECV, count, TYPE(type), OP, COMM))

#define MOVED send, scount, stype, recv, rcount, rtype
#define EQUAL SEND, *scount, TYPE(stype), RECV, *rcount, TYPE(rtype)
FORTRAN(Gather, gather, (MOVED, root, comm), (EQUAL, *root, COMM))
FORTRAN(Scatter, scatter, (MOVED, root, comm), (EQUAL, *root, COMM))
FORTRAN(Allgather, allgather, (MOVED, comm), (EQUAL, COMM))
FORTRAN(Alltoall, alltoall, (MOVED, comm), (EQUAL, COMM))

#define GATHERED send, scount, stype, recv, rcounts, displs, rtype
#define BLOCKS   SEND, *scount, TYPE(stype), RECV, rcounts, displs, TYPE(rtype)
FORTRAN(Gatherv, gatherv, (GATHERED, root, comm), (BLOCKS, *root, COMM))
FORTRAN(Allgatherv, allgatherv, (GATHERED, comm), (BLOCKS, COMM))
FORTRAN(Scatterv, scatterv,
        (send, scounts, displs, stype, recv, rcount, rtype, root, comm),
        (SEND, scounts, displs, TYPE(stype), RECV, *rcount, TYPE(rtype), *root,
         COMM))
FORTRAN(Alltoallv, alltoallv,
        (send, scounts, sdispls, stype, recv, rcounts, rdispls, rtype, comm),
        (SEND, scounts, sdispls, TYPE(stype), RECV, rcounts, rdispls,
         TYPE(rtype), COMM))

/* ---- requests ------------------------------------------------------------ */

SYMBOL(start, request, error)
{
    MPI_Request q = PMPI_Request_f2c(*request);
    /* MPI may replace the request by another one. */
    fortran_give(MPI_Start(&q), &q, request, error);
}

SYMBOL(startall, count, requests, error)
{
    fortran_tell(MPI_SUCCESS, error);
    for (f i = 0; i < *count; i++) {
        ompi_start_f(&requests[i], error);
    }
}

SYMBOL(request_free, request, error)
{
    MPI_Request q = PMPI_Request_f2c(*request);
    fortran_give(MPI_Request_free(&q), &q, request, error);
}

SYMBOL(cancel, request, error)
{
    fortran_tell(MPI_Cancel(&(MPI_Request){PMPI_Request_f2c(*request)}), error);
}

SYMBOL(wait, request, status, error)
{
    MPI_Request q = PMPI_Request_f2c(*request);
    MPI_Status ended;
    int code = MPI_Wait(&q, &ended);
    if (code == MPI_SUCCESS && status != &mpi_fortran_status_ignore_) {
        (void)PMPI_Status_c2f(&ended, status);
    }
    fortran_give(code, &q, request, error);
}

/* ---- the life of MPI ----------------------------------------------------- */

#define LIFE(Name, name, parameters, arguments)                                \
    SYMBOL(name, ALL parameters)                                               \
    {                                                                          \
        fortran_tell(MPI_##Name arguments, error);                             \
    }

LIFE(Init, init, (error), (NULL, NULL))
LIFE(Init_thread, init_thread, (required, provided, error),
     (NULL, NULL, *required, provided))
LIFE(Query_thread, query_thread, (provided, error), (provided))
LIFE(Finalize, finalize, (error), ())
