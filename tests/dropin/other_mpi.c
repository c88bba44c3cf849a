/* A program of MPICH with libbaton_mpi in front of it, which was built for
   another MPI. Every call that reads a handle, in C and in Fortran, must reach
   MPICH. Baton makes no group over MPICH here. */
#include <baton/engine.h>
#include <baton/mpi.h>

#include <stdio.h>
#include <string.h>

/* The variables that are MPI_BOTTOM and MPI_IN_PLACE in MPICH's Fortran, and
   MPICH's Fortran functions. */
extern int mpipriv1_[];
void mpi_iallreduce_(void *send, void *recv, int *count, int *type, int *op,
                     int *comm, int *request, int *error);
void mpi_wait_(int *request, int *status, int *error);

static int failures;

static void expect(const char *name, int is, int wanted)
{
    if (is != wanted) {
        (void)printf("%s is %d, expected %d\n", name, is, wanted);
        failures++;
    }
}

static void add(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *count; i++) {
        ((int *)inout)[i] += ((int *)in)[i];
    }
}

enum { REQUESTS = 3 };

static void sum_persistently(int wanted)
{
    MPI_Request requests[REQUESTS];
    MPI_Status statuses[REQUESTS];
    MPI_Op op;
    int one = 1, sums[REQUESTS];
    MPI_Op_create(add, 1, &op);
    for (int i = 0; i < REQUESTS; i++) {
        MPI_Allreduce_init(&one, &sums[i], 1, MPI_INT, op, MPI_COMM_WORLD,
                           MPI_INFO_NULL, &requests[i]);
    }
    for (int round = 0; round < 3; round++) {
        MPI_Startall(REQUESTS - 1, requests);
        MPI_Start(&requests[REQUESTS - 1]);
        MPI_Waitall(REQUESTS, requests, statuses);
        for (int i = 0; i < REQUESTS; i++) {
            expect("a persistent sum", sums[i], wanted);
            sums[i] = 0;
        }
    }
    for (int i = 0; i < REQUESTS; i++) {
        MPI_Request_free(&requests[i]);
    }
    MPI_Op_free(&op);
}

static void sum(int wanted)
{
    MPI_Request request;
    int one = 1, sums[2];
    MPI_Iallreduce(&one, sums, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Allreduce(&one, sums + 1, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    expect("a sum", sums[0], wanted);
    expect("a blocking sum", sums[1], wanted);
}

static void cancel(void)
{
    MPI_Request request;
    MPI_Status status;
    int cancelled = 0, none;
    MPI_Irecv(&none, 1, MPI_INT, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &cancelled);
    expect("cancelled", cancelled, 1);
}

static void sum_in_fortran(int wanted)
{
    int type = MPI_Type_c2f(MPI_INT), op = MPI_Op_c2f(MPI_SUM);
    int comm = MPI_Comm_c2f(MPI_COMM_WORLD), request, error, sum = 1;
    int status[sizeof(MPI_Status) / sizeof(int)];
    mpi_iallreduce_(&mpipriv1_[1], &sum, &(int){1}, &type, &op, &comm, &request,
                    &error);
    mpi_wait_(&request, status, &error);
    expect("a sum of Fortran in place", sum, wanted);
}

static void make_group(void)
{
    baton_engine_t *engine;
    baton_group_t *group;
    expect("opening", baton_engine_open(NULL, &engine), BATON_OK);
    expect("a group", baton_group_create_mpi(engine, MPI_COMM_WORLD, &group),
           BATON_ERR_STATE);
    expect("its message", strstr(baton_error_message(), "MPICH") != NULL, 1);
    expect("closing", baton_engine_close(engine), BATON_OK);
}

int main(int argc, char **argv)
{
    int size, level, all;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    expect("the level", level, MPI_THREAD_FUNNELED);
    MPI_Query_thread(&level);
    expect("the level that is asked for", level, MPI_THREAD_FUNNELED);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    sum_persistently(size);
    sum(size);
    cancel();
    sum_in_fortran(size);
    make_group();
    MPI_Reduce(&failures, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Comm_rank(MPI_COMM_WORLD, &level);
    MPI_Finalize();
    if (level == 0) {
        (void)printf("%d failures\n", all);
    }
    return failures != 0;
}
