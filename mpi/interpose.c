/* The functions of MPI that the application calls. Each function takes its
   call, or leaves it to MPI by calling the PMPI_ function. */
#include "mpi/init.h"
#include "mpi/persistent.h"
#include "mpi/requests.h"

#include <stdlib.h>

#define ALL(...) __VA_ARGS__

/* All members get a value, so that compilers need not clear the struct
   first. */
#define CALL(KIND, WAY, ...)                                                   \
    const baton__mpi_call_t call = {BATON__MPI_##KIND, BATON__MPI_##WAY,       \
                                    __VA_ARGS__, comm}

#define TAKEN_OR(call_, request_)                                              \
    (code >= 0 ? code : baton__mpi_note(code, call_, comm, request_))

/* Defines a collective's blocking, nonblocking and persistent function. The
   macro's arguments are the kind, the name in two spellings, the functions'
   parameters and arguments, and the further members of the call. */
#define INTERPOSE(KIND, Name, name, parameters, arguments, ...)                \
    int MPI_##Name(ALL parameters)                                             \
    {                                                                          \
        if (!baton__mpi.settings.blocking) { /* the default */                 \
            return PMPI_##Name(ALL arguments);                                 \
        }                                                                      \
        CALL(KIND, BLOCKING, __VA_ARGS__);                                     \
        int code = baton__mpi_finish(&call);                                   \
        return TAKEN_OR(PMPI_##Name(ALL arguments), NULL);                     \
    }                                                                          \
    int MPI_I##name(ALL parameters, MPI_Request *request)                      \
    {                                                                          \
        CALL(KIND, NONBLOCKING, __VA_ARGS__);                                  \
        int code = baton__mpi_begin(&call, request);                           \
        return TAKEN_OR(PMPI_I##name(ALL arguments, request), request);        \
    }                                                                          \
    int BATON__MPI_INIT(, Name)(ALL parameters, MPI_Info info,                 \
                                MPI_Request * request)                         \
    {                                                                          \
        CALL(KIND, PERSISTENT, __VA_ARGS__);                                   \
        int code = baton__mpi_begin(&call, request);                           \
        return TAKEN_OR(                                                       \
            BATON__MPI_INIT(P, Name)(ALL arguments, info, request), NULL);     \
    }

#define SIDE(memory, count, counts, displs, type)                              \
    {                                                                          \
        (void *)(memory), count, counts, displs, type                          \
    }
#define NONE SIDE(NULL, 0, NULL, NULL, NULL)

INTERPOSE(BARRIER, Barrier, barrier, (MPI_Comm comm), (comm), NONE, NONE, NULL,
          0)

INTERPOSE(BCAST, Bcast, bcast,
          (void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm),
          (buffer, count, type, root, comm), NONE,
          SIDE(buffer, count, NULL, NULL, type), NULL, root)

#define REDUCES                                                                \
    SIDE(send, count, NULL, NULL, type), SIDE(recv, count, NULL, NULL, type), op

INTERPOSE(REDUCE, Reduce, reduce,
          (const void *send, void *recv, int count, MPI_Datatype type,
           MPI_Op op, int root, MPI_Comm comm),
          (send, recv, count, type, op, root, comm), REDUCES, root)

#define INTERPOSE_SUM(KIND, Name, name)                                        \
    INTERPOSE(KIND, Name, name,                                                \
              (const void *send, void *recv, int count, MPI_Datatype type,     \
               MPI_Op op, MPI_Comm comm),                                      \
              (send, recv, count, type, op, comm), REDUCES, 0)

INTERPOSE_SUM(ALLREDUCE, Allreduce, allreduce)
INTERPOSE_SUM(REDUCE_SCATTER_BLOCK, Reduce_scatter_block, reduce_scatter_block)
INTERPOSE_SUM(SCAN, Scan, scan)
INTERPOSE_SUM(EXSCAN, Exscan, exscan)

INTERPOSE(REDUCE_SCATTER, Reduce_scatter, reduce_scatter,
          (const void *send, void *recv, const int *counts, MPI_Datatype type,
           MPI_Op op, MPI_Comm comm),
          (send, recv, counts, type, op, comm),
          SIDE(send, 0, counts, NULL, type), SIDE(recv, 0, counts, NULL, type),
          op, 0)

#define MOVED                                                                  \
    const void *send, int scount, MPI_Datatype stype, void *recv, int rcount,  \
        MPI_Datatype rtype
#define MOVES send, scount, stype, recv, rcount, rtype
#define EQUAL                                                                  \
    SIDE(send, scount, NULL, NULL, stype),                                     \
        SIDE(recv, rcount, NULL, NULL, rtype), NULL

INTERPOSE(GATHER, Gather, gather, (MOVED, int root, MPI_Comm comm),
          (MOVES, root, comm), EQUAL, root)
INTERPOSE(SCATTER, Scatter, scatter, (MOVED, int root, MPI_Comm comm),
          (MOVES, root, comm), EQUAL, root)
INTERPOSE(ALLGATHER, Allgather, allgather, (MOVED, MPI_Comm comm),
          (MOVES, comm), EQUAL, 0)
INTERPOSE(ALLTOALL, Alltoall, alltoall, (MOVED, MPI_Comm comm), (MOVES, comm),
          EQUAL, 0)

INTERPOSE(GATHERV, Gatherv, gatherv,
          (const void *send, int scount, MPI_Datatype stype, void *recv,
           const int *rcounts, const int *displs, MPI_Datatype rtype, int root,
           MPI_Comm comm),
          (send, scount, stype, recv, rcounts, displs, rtype, root, comm),
          SIDE(send, scount, NULL, NULL, stype),
          SIDE(recv, 0, rcounts, displs, rtype), NULL, root)

INTERPOSE(SCATTERV, Scatterv, scatterv,
          (const void *send, const int *scounts, const int *displs,
           MPI_Datatype stype, void *recv, int rcount, MPI_Datatype rtype,
           int root, MPI_Comm comm),
          (send, scounts, displs, stype, recv, rcount, rtype, root, comm),
          SIDE(send, 0, scounts, displs, stype),
          SIDE(recv, rcount, NULL, NULL, rtype), NULL, root)

INTERPOSE(ALLGATHERV, Allgatherv, allgatherv,
          (const void *send, int scount, MPI_Datatype stype, void *recv,
           const int *rcounts, const int *displs, MPI_Datatype rtype,
           MPI_Comm comm),
          (send, scount, stype, recv, rcounts, displs, rtype, comm),
          SIDE(send, scount, NULL, NULL, stype),
          SIDE(recv, 0, rcounts, displs, rtype), NULL, 0)

INTERPOSE(ALLTOALLV, Alltoallv, alltoallv,
          (const void *send, const int *scounts, const int *sdispls,
           MPI_Datatype stype, void *recv, const int *rcounts,
           const int *rdispls, MPI_Datatype rtype, MPI_Comm comm),
          (send, scounts, sdispls, stype, recv, rcounts, rdispls, rtype, comm),
          SIDE(send, 0, scounts, sdispls, stype),
          SIDE(recv, 0, rcounts, rdispls, rtype), NULL, 0)

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
