/* Calls MPI as a Fortran program does, by the names that gfortran gives to
   MPI's functions. */
#include "dropin.h"

#include <unistd.h>

typedef MPI_Fint f;

extern int mpi_fortran_in_place_;
void mpi_init_(f *error);
void mpi_finalize_(f *error);
void mpi_query_thread_(f *level, f *error);
void mpi_comm_dup_(f *comm, f *copy, f *error);
void mpi_comm_free_(f *comm, f *error);
void mpi_iallreduce_(void *send, void *recv, f *count, f *type, f *op, f *comm,
                     f *request, f *error);
void mpi_allreduce_(void *send, void *recv, f *count, f *type, f *op, f *comm,
                    f *error);
void ompi_igatherv_f(void *send, f *scount, f *stype, void *recv, f *counts,
                     f *displs, f *rtype, f *root, f *comm, f *request,
                     f *error);
void mpix_allreduce_init_(void *send, void *recv, f *count, f *type, f *op,
                          f *comm, f *info, f *request, f *error);
void mpi_startall_(f *count, f *requests, f *error);
void mpi_request_free_(f *request, f *error);
void mpi_wait_(f *request, f *status, f *error);
void mpi_waitall_(f *count, f *requests, f *statuses, f *error);

int main(void)
{
    f error = -1, level = -1;
    f comm, request[2], status[2 * (sizeof(MPI_Status) / sizeof(f))];
    const char *number = getenv("OMPI_COMM_WORLD_RANK");
    if (number != NULL && strcmp(number, "0") != 0) {
        /* only the value on rank 0 counts */
        (void)setenv("BATON_MPI_FROM", "1000000", 1);
    }
    mpi_init_(&error);
    EXPECT(error == MPI_SUCCESS, "init: %d", error);
    mpi_query_thread_(&level, &error);
    EXPECT(level == MPI_THREAD_SINGLE, "the level is %d", level);
    f world = MPI_Comm_c2f(MPI_COMM_WORLD);
    f real8 = MPI_Type_c2f(MPI_DOUBLE_PRECISION);
    f integer = MPI_Type_c2f(MPI_INTEGER);
    f sum = MPI_Op_c2f(MPI_SUM);
    f size, rank;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    f count = 3;
    double mine[3] = {1, rank, 2};
    double sums[3] = {0, 0, 0};
    mpi_comm_dup_(&world, &comm, &error);
    mpi_iallreduce_(mine, sums, &count, &real8, &sum, &comm, &request[0],
                    &error);
    mpi_comm_free_(&comm, &error);
    mpi_wait_(&request[0], status, &error);
    EXPECT(error == MPI_SUCCESS && sums[0] == size &&
               sums[1] == size * (size - 1) / 2.0,
           "iallreduce: %d, %g, %g", error, sums[0], sums[1]);
    mpi_iallreduce_(&mpi_fortran_in_place_, mine, &count, &real8, &sum, &world,
                    &request[0], &error);
    f one = 1;
    f root = size - 1;
    f ones[16], places[16], ranks[16];
    for (f r = 0; r < size; r++) {
        ones[r] = 1;
        places[r] = size - 1 - r;
    }
    ompi_igatherv_f(&rank, &one, &integer, ranks, ones, places, &integer, &root,
                    &world, &request[1], &error);
    f two = 2;
    mpi_waitall_(&two, request, status, &error);
    EXPECT(error == MPI_SUCCESS && mine[2] == 2 * size, "in place: %g",
           mine[2]);
    for (f r = 0; r < size && rank == root; r++) {
        EXPECT(ranks[r] == size - 1 - r, "igatherv: %d", ranks[r]);
    }
    mpi_allreduce_(&mpi_fortran_in_place_, &one, &one, &integer, &sum, &world,
                   &error);
    EXPECT(one == size, "allreduce: %d", one);
    f info = MPI_Info_c2f(MPI_INFO_NULL);
    mpix_allreduce_init_(mine, sums, &count, &real8, &sum, &world, &info,
                         &request[0], &error);
    one = 1;
    for (int turn = 0; turn < 3; turn++) {
        mine[1] = turn;
        /* this rank comes late, and the other ranks wait for it */
        usleep(rank == turn ? 20000 : 0);
        mpi_startall_(&one, request, &error);
        mpi_wait_(&request[0], status, &error);
        EXPECT(error == MPI_SUCCESS && sums[1] == turn * size,
               "allreduce_init: %d, %g", error, sums[1]);
    }
    mpi_request_free_(&request[0], &error);
    EXPECT(MPI_Request_f2c(request[0]) == MPI_REQUEST_NULL, "request_free");
    MPI_Request left; /* this request is left to MPI, and has a status */
    MPI_Status ended;
    f last = (rank + size - 1) % size, next = (rank + 1) % size;
    MPI_Irecv(&two, 1, MPI_INT, last, 7, MPI_COMM_WORLD, &left);
    MPI_Send(&rank, 1, MPI_INT, next, 7, MPI_COMM_WORLD);
    request[0] = MPI_Request_c2f(left);
    mpi_wait_(&request[0], status, &error);
    MPI_Status_f2c(status, &ended);
    EXPECT(two == last && ended.MPI_SOURCE == last && ended.MPI_TAG == 7,
           "a receive: %d from %d", two, ended.MPI_SOURCE);
    mpi_finalize_(&error);
    return dropin_failures == 0 ? 0 : 1;
}
