/* The parameters of MPI's collectives, of which interpose.c makes the functions
   that C programs call, and fortran.c those that Fortran programs call. */
#pragma once

/* The lists of parameters that BATON__MPI_LIST (call.h) names. M is a macro
   that is called for each parameter. */
#define BUFFER_OF_ROOT(M) RECVS(M), ROOT(M), COMM(M)
#define REDUCTION(M)      SIDES(M), COUNT(M), TYPE(M), OP(M), COMM(M)
#define REDUCTION_TO_ROOT(M)                                                   \
    SIDES(M), COUNT(M), TYPE(M), OP(M), ROOT(M), COMM(M)
#define REDUCTION_V(M)      SIDES(M), COUNTS(M), TYPE(M), OP(M), COMM(M)
#define MOVE(M)             SENDS(M), RECVS(M), COMM(M)
#define MOVE_AT_ROOT(M)     SENDS(M), RECVS(M), ROOT(M), COMM(M)
#define GATHER_V(M)         SENDS(M), RECVS_V(M), COMM(M)
#define GATHER_V_TO_ROOT(M) SENDS(M), RECVS_V(M), ROOT(M), COMM(M)
#define SCATTER_V(M)        SENDS_V(M), RECVS(M), ROOT(M), COMM(M)
#define EXCHANGE_V(M)       SENDS_V(M), RECVS_V(M), COMM(M)
#define SIDES(M)            SEND(M), RECV(M)
#define SENDS(M)            SEND(M), SCOUNT(M), STYPE(M)
#define RECVS(M)            RECV(M), RCOUNT(M), RTYPE(M)
#define SENDS_V(M)          SEND(M), SCOUNTS(M), SDISPLS(M), STYPE(M)
#define RECVS_V(M)          RECV(M), RCOUNTS(M), RDISPLS(M), RTYPE(M)

/* A parameter's type and name in C, the argument in C of a Fortran call, and
   the members of a call (call.h) that get the value. COUNT, COUNTS and TYPE are
   for both sides of a call. */
#define SEND(M)                                                                \
    M(const void *, send, fortran_memory_of(send),                             \
      .source.memory = (void *)send)
#define SCOUNT(M)  M(int, scount, *scount, .source.count = scount)
#define SCOUNTS(M) M(const int *, scounts, scounts, .source.counts = scounts)
#define SDISPLS(M) M(const int *, sdispls, sdispls, .source.displs = sdispls)
#define STYPE(M)                                                               \
    M(MPI_Datatype, stype, PMPI_Type_f2c(*stype), .source.type = stype)
#define RECV(M)    M(void *, recv, fortran_memory_of(recv), .target.memory = recv)
#define RCOUNT(M)  M(int, rcount, *rcount, .target.count = rcount)
#define RCOUNTS(M) M(const int *, rcounts, rcounts, .target.counts = rcounts)
#define RDISPLS(M) M(const int *, rdispls, rdispls, .target.displs = rdispls)
#define RTYPE(M)                                                               \
    M(MPI_Datatype, rtype, PMPI_Type_f2c(*rtype), .target.type = rtype)
#define COUNT(M)                                                               \
    M(int, count, *count, .source.count = count, .target.count = count)
#define COUNTS(M)                                                              \
    M(const int *, counts, counts, .source.counts = counts,                    \
      .target.counts = counts)
#define TYPE(M)                                                                \
    M(MPI_Datatype, type, PMPI_Type_f2c(*type), .source.type = type,           \
      .target.type = type)
#define OP(M)   M(MPI_Op, op, PMPI_Op_f2c(*op), .op = op)
#define ROOT(M) M(int, root, *root, .root = root)
#define COMM(M) M(MPI_Comm, comm, PMPI_Comm_f2c(*comm), .comm = comm)

/* Values of M. */
#define DECLARE(type, name, ...)            type name
#define NAME(type, name, ...)               name
#define ARGUMENT(type, name, argument, ...) argument
#define MEMBERS(type, name, argument, ...)  __VA_ARGS__
