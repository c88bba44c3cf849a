/* The symbols that Fortran programs call. MPI's own symbols (libmpi_mpifh) call
   PMPI_ functions, and so would bypass interpose.c. A program with mpif.h or
   the module mpi calls `mpi_iallreduce_`, one with mpi_f08 `ompi_iallreduce_f`;
   both have the same arguments. */
#define _GNU_SOURCE
#include "mpi/parameters.h"
#include "mpi/runtime.h"

#include <dlfcn.h>

/* The addresses of these variables mean MPI_IN_PLACE, MPI_BOTTOM and
   MPI_STATUS_IGNORE. */
extern int mpi_fortran_in_place_, mpi_fortran_bottom_,
    mpi_fortran_status_ignore_;

typedef MPI_Fint f;

static void *fortran_memory_of(void *argument)
{
    if (argument == &mpi_fortran_in_place_) {
        return MPI_IN_PLACE;
    }
    return argument == &mpi_fortran_bottom_ ? MPI_BOTTOM : argument;
}

static void fortran_set(f *error_out, int code)
{
    if (error_out != NULL) {
        *error_out = code;
    }
}

static void fortran_return(int code, const MPI_Request *request, f *request_out,
                           f *error_out)
{
    if (code == MPI_SUCCESS) {
        *request_out = PMPI_Request_c2f(*request);
    }
    fortran_set(error_out, code);
}

#define POINTER(type, name, ...) f *name

/* Defines both symbols of a function, whose body follows the macro. If the
   process's MPI is not the one that this library was built for, the symbols
   call the process's MPI instead. */
#define SYMBOL_OF(mpi, name, parameters, names)                                \
    static void name##_here parameters;                                        \
    void o##mpi##_##name##_f parameters;                                       \
    void mpi##_##name##_ parameters                                            \
        __attribute__((alias("o" #mpi "_" #name "_f")));                       \
    void o##mpi##_##name##_f parameters                                        \
    {                                                                          \
        if (baton__mpi_is_other()) {                                           \
            void *theirs = dlsym(RTLD_NEXT, #mpi "_" #name "_");               \
            (*(void(**) parameters) & theirs) names;                           \
        } else {                                                               \
            name##_here names;                                                 \
        }                                                                      \
    }                                                                          \
    static void name##_here parameters
#define SYMBOL(name, parameters, names) SYMBOL_OF(mpi, name, parameters, names)
#if OMPI_MAJOR_VERSION >= 5
#define SYMBOL_INIT(name, parameters, names)                                   \
    SYMBOL_OF(mpi, name##_init, parameters, names)
#else
#define SYMBOL_INIT(name, parameters, names)                                   \
    SYMBOL_OF(mpix, name##_init, parameters, names)
#endif

/* Defines the symbols of a collective. Info arguments are ignored. */
#define FORTRAN(KIND, Name, name, collective, list, ...)                       \
    SYMBOL(i##name, (list(POINTER), f * request, f * error),                   \
           (list(NAME), request, error))                                       \
    {                                                                          \
        MPI_Request q = MPI_REQUEST_NULL;                                      \
        fortran_return(MPI_I##name(list(ARGUMENT), &q), &q, request, error);   \
    }                                                                          \
    SYMBOL(name, (list(POINTER), f * error), (list(NAME), error))              \
    {                                                                          \
        fortran_set(error, MPI_##Name(list(ARGUMENT)));                        \
    }                                                                          \
    SYMBOL_INIT(name, (list(POINTER), f * info, f * request, f * error),       \
                (list(NAME), info, request, error))                            \
    {                                                                          \
        MPI_Request q = MPI_REQUEST_NULL;                                      \
        fortran_return(                                                        \
            BATON__MPI_INIT(, Name)(list(ARGUMENT), PMPI_Info_f2c(*info), &q), \
            &q, request, error);                                               \
    }

BATON__MPI_LIST(FORTRAN)

/* ---- requests ------------------------------------------------------------ */

SYMBOL(start, (f * request, f *error), (request, error))
{
    MPI_Request q = PMPI_Request_f2c(*request);
    /* MPI may replace the request by another one. */
    fortran_return(MPI_Start(&q), &q, request, error);
}

SYMBOL(startall, (f * count, f *requests, f *error), (count, requests, error))
{
    fortran_set(error, MPI_SUCCESS);
    for (f i = 0; i < *count; i++) {
        ompi_start_f(&requests[i], error);
    }
}

SYMBOL(request_free, (f * request, f *error), (request, error))
{
    MPI_Request q = PMPI_Request_f2c(*request);
    fortran_return(MPI_Request_free(&q), &q, request, error);
}

SYMBOL(cancel, (f * request, f *error), (request, error))
{
    fortran_set(error, MPI_Cancel(&(MPI_Request){PMPI_Request_f2c(*request)}));
}

SYMBOL(wait, (f * request, f *status, f *error), (request, status, error))
{
    MPI_Request q = PMPI_Request_f2c(*request);
    MPI_Status ended;
    int code = MPI_Wait(&q, &ended);
    if (code == MPI_SUCCESS && status != &mpi_fortran_status_ignore_) {
        (void)PMPI_Status_c2f(&ended, status);
    }
    fortran_return(code, &q, request, error);
}

/* ---- the life of MPI ----------------------------------------------------- */

#define LIFE(Name, name, parameters, names, arguments)                         \
    SYMBOL(name, parameters, names)                                            \
    {                                                                          \
        fortran_set(error, MPI_##Name arguments);                              \
    }

LIFE(Init, init, (f * error), (error), (NULL, NULL))
LIFE(Init_thread, init_thread, (f * required, f *provided, f *error),
     (required, provided, error), (NULL, NULL, *required, provided))
LIFE(Query_thread, query_thread, (f * provided, f *error), (provided, error),
     (provided))
LIFE(Finalize, finalize, (f * error), (error), ())
