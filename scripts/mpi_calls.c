/* Times nonblocking collectives of MPI, with or without libbaton_mpi in front
   of MPI. scripts/tables.sh runs this program for the tables of docs/mpi.md.

     mpi_calls MODE:CALL:BYTES ...

   prints "MODE,CALL,BYTES,MICROSECONDS" for each argument: medians on rank 0.
   BYTES are those of a vector, or of each rank's block. MODE:

     wait      MPI_Wait follows at once
     compute   all ranks compute for 200 us before MPI_Wait; this time counts
     early     rank 0 sleeps for 100 us before MPI_Wait and others for 400;
               this time counts
     first     MPI_Comm_dup, and the first call on the new communicator
     next      each of the next five calls on a new communicator

   CALL: Iallreduce, Ireduce_scatter, Ireduce_scatter_block, or Ibcast. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 41, CALLS = 500, DUPS = 81, NEXT = 5, MOST = 1 << 24 };

static int rank, size;
static float *source, *target;
static int *counts;
static double samples[DUPS * NEXT];

static void start(const char *call, int count, MPI_Comm comm, MPI_Request *out)
{
    if (strcmp(call, "Iallreduce") == 0) {
        MPI_Iallreduce(source, target, count, MPI_FLOAT, MPI_SUM, comm, out);
    } else if (strcmp(call, "Ireduce_scatter") == 0) {
        MPI_Ireduce_scatter(source, target, counts, MPI_FLOAT, MPI_SUM, comm,
                            out);
    } else if (strcmp(call, "Ireduce_scatter_block") == 0) {
        MPI_Ireduce_scatter_block(source, target, count, MPI_FLOAT, MPI_SUM,
                                  comm, out);
    } else if (strcmp(call, "Ibcast") == 0) {
        MPI_Ibcast(source, count, MPI_FLOAT, 0, comm, out);
    } else {
        fprintf(stderr, "mpi_calls: no call %s\n", call);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
}

static void run(const char *call, int count, MPI_Comm comm)
{
    MPI_Request request;
    start(call, count, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(int number)
{
    qsort(samples, (size_t)number, sizeof *samples, compare);
    return samples[number / 2] * 1e6;
}

static double at_once(const char *call, int count)
{
    int calls = count < 1 << 14 ? CALLS : CALLS / 10;
    if (count >= 1 << 18) {
        calls = 4;
    }
    for (int round = -1; round < ROUNDS; round++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = MPI_Wtime();
        for (int i = 0; i < calls; i++) {
            run(call, count, MPI_COMM_WORLD);
        }
        samples[round < 0 ? 0 : round] = (MPI_Wtime() - begin) / calls;
    }
    return median(ROUNDS);
}

static double beside(const char *call, int count, int sleeps)
{
    for (int round = -8; round < DUPS; round++) {
        MPI_Request request;
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = MPI_Wtime();
        start(call, count, MPI_COMM_WORLD, &request);
        if (sleeps) {
            usleep(rank == 0 ? 100 : 400);
        }
        while (!sleeps && MPI_Wtime() - begin < 200e-6) {
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        samples[round < 0 ? 0 : round] = MPI_Wtime() - begin;
    }
    return median(DUPS);
}

static double of_new(const char *call, int count, int is_next)
{
    for (int i = 0; i < DUPS; i++) {
        MPI_Comm comm;
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = MPI_Wtime();
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        run(call, count, comm);
        samples[i * (is_next ? NEXT : 1)] = MPI_Wtime() - begin;
        for (int k = 0; k < NEXT && is_next; k++) {
            begin = MPI_Wtime();
            run(call, count, comm);
            samples[i * NEXT + k] = MPI_Wtime() - begin;
        }
        MPI_Comm_free(&comm);
    }
    return median(is_next ? DUPS * NEXT : DUPS);
}

static double measure(const char *mode, const char *call, int count)
{
    if (strcmp(mode, "wait") == 0) {
        return at_once(call, count);
    }
    if (strcmp(mode, "compute") == 0 || strcmp(mode, "early") == 0) {
        return beside(call, count, strcmp(mode, "early") == 0);
    }
    return of_new(call, count, strcmp(mode, "next") == 0);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    source = calloc((size_t)size, MOST);
    target = calloc((size_t)size, MOST);
    counts = calloc((size_t)size, sizeof *counts);
    for (int i = 1; i < argc; i++) {
        char mode[16], call[32];
        int bytes = 0;
        if (sscanf(argv[i], "%15[^:]:%31[^:]:%d", mode, call, &bytes) != 3 ||
            bytes < 4 || bytes > MOST) {
            fprintf(stderr, "mpi_calls: what is %s?\n", argv[i]);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        int count = bytes / (int)sizeof *source;
        for (int k = 0; k < size; k++) {
            counts[k] = count;
        }
        double us = measure(mode, call, count);
        if (rank == 0) {
            printf("%s,%s,%d,%.3f\n", mode, call, bytes, us);
        }
    }
    return MPI_Finalize() != MPI_SUCCESS;
}
