/* The functions of MPI that the application calls. Each function takes its
   call, or leaves it to MPI by calling the PMPI_ function. */
#include "mpi/init.h"
#include "mpi/parameters.h"
#include "mpi/persistent.h"
#include "mpi/requests.h"

#include <stdlib.h>

/* All members of a call get a value, so that compilers need not clear the
   struct first. The members of its parameters come last and replace others. */
#pragma GCC diagnostic ignored "-Woverride-init"
#define CALL(KIND, WAY, list)                                                  \
    const baton__mpi_call_t call = {.kind = BATON__MPI_##KIND,                 \
                                    .way = BATON__MPI_##WAY,                   \
                                    .source = NONE,                            \
                                    .target = NONE,                            \
                                    .op = NULL,                                \
                                    .root = 0,                                 \
                                    list(MEMBERS)}
#define NONE                                                                   \
    {                                                                          \
        .memory = NULL, .count = 0, .counts = NULL, .displs = NULL,            \
        .type = NULL                                                           \
    }

#define TAKEN_OR(call_, request_)                                              \
    (code >= 0 ? code : baton__mpi_note(code, call_, comm, request_))

/* Defines a collective's blocking, nonblocking and persistent function. */
#define INTERPOSE(KIND, Name, name, collective, list, ...)                     \
    int MPI_##Name(list(DECLARE))                                              \
    {                                                                          \
        if (!baton__mpi.settings.blocking) { /* the default */                 \
            return PMPI_##Name(list(NAME));                                    \
        }                                                                      \
        CALL(KIND, BLOCKING, list);                                            \
        int code = baton__mpi_finish(&call);                                   \
        return TAKEN_OR(PMPI_##Name(list(NAME)), NULL);                        \
    }                                                                          \
    int MPI_I##name(list(DECLARE), MPI_Request *request)                       \
    {                                                                          \
        CALL(KIND, NONBLOCKING, list);                                         \
        int code = baton__mpi_begin(&call, request);                           \
        return TAKEN_OR(PMPI_I##name(list(NAME), request), request);           \
    }                                                                          \
    int BATON__MPI_INIT(, Name)(list(DECLARE), MPI_Info info,                  \
                                MPI_Request * request)                         \
    {                                                                          \
        CALL(KIND, PERSISTENT, list);                                          \
        int code = baton__mpi_begin(&call, request);                           \
        return TAKEN_OR(BATON__MPI_INIT(P, Name)(list(NAME), info, request),   \
                        NULL);                                                 \
    }

BATON__MPI_LIST(INTERPOSE)

/* ---- persistent requests ------------------------------------------------- */

int MPI_Start(MPI_Request *request)
{
    int code = baton__mpi_start(request);
    return code < 0 ? PMPI_Start(request) : code;
}

int MPI_Startall(int count, MPI_Request *requests)
{
    if (!baton__mpi_is_on()) {
        return PMPI_Startall(count, requests);
    }
    int code = MPI_SUCCESS;
    for (int i = 0; i < count && code == MPI_SUCCESS; i++) {
        code = MPI_Start(&requests[i]);
    }
    return code;
}

int MPI_Request_free(MPI_Request *request)
{
    int code = baton__mpi_request_free(request);
    return code < 0 ? PMPI_Request_free(request) : code;
}

/* Does nothing for requests of collectives, which MPI does not allow to cancel.
   The library's persistent requests are receives (requests.h), so PMPI_Cancel
   would cancel them. */
int MPI_Cancel(MPI_Request *request)
{
    return request != NULL && baton__mpi_is_on() &&
                   (baton__mpi_known(*request, false) != NULL ||
                    baton__mpi_is_first(*request, false))
               ? MPI_SUCCESS
               : PMPI_Cancel(request);
}

/* ---- waits that replace MPI's own only because they are faster ----------- */

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    baton__mpi_await(1, request);
    return PMPI_Wait(request, status);
}

int MPI_Waitall(int count, MPI_Request *requests, MPI_Status *statuses)
{
    baton__mpi_await(count, requests);
    return PMPI_Waitall(count, requests, statuses);
}

int MPI_Op_create(MPI_User_function *function, int commute, MPI_Op *op)
{
    int code = PMPI_Op_create(function, commute, op);
    if (code == MPI_SUCCESS && baton__mpi_is_on()) {
        baton__mpi_function_add(*op, function, commute != 0);
    }
    return code;
}

int MPI_Op_free(MPI_Op *op)
{
    free(op != NULL && baton__mpi_is_on()
             ? baton__mpi_known(BATON__MPI_OP(*op), true)
             : NULL);
    return PMPI_Op_free(op);
}

/* ---- the life of MPI ----------------------------------------------------- */

int MPI_Init(int *argc, char ***argv)
{
    int provided;
    return baton__mpi_is_other()
               ? PMPI_Init(argc, argv)
               : baton__mpi_init(argc, argv, MPI_THREAD_SINGLE, &provided);
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    return baton__mpi_is_other()
               ? PMPI_Init_thread(argc, argv, required, provided)
               : baton__mpi_init(argc, argv, required, provided);
}

int MPI_Query_thread(int *provided)
{
    if (baton__mpi.level < 0) {
        return PMPI_Query_thread(provided);
    }
    *provided = baton__mpi.level;
    return MPI_SUCCESS;
}

int MPI_Finalize(void)
{
    baton__mpi_shut_down();
    return PMPI_Finalize();
}
