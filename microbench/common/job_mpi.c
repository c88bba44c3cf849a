#include "common/job.h"
#include <baton/mpi.h>
#include <stdlib.h>
#include <string.h>

const char *job_mpi_version(void)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    text[strcspn(text, "\n,")] = '\0';
    return text;
}

void job_begin(int *rank_out, int *size_out)
{
    int level = 0;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, rank_out);
    MPI_Comm_size(MPI_COMM_WORLD, size_out);
}

void job_end(void)
{
    MPI_Finalize();
}

void job_abort(void)
{
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    abort(); /* MPI_Abort is not declared noreturn */
}

baton_status_t job_create_group(baton_engine_t *engine, baton_group_t **out)
{
    return baton_group_create_mpi(engine, MPI_COMM_WORLD, out);
}

void job_broadcast(void *data, size_t bytes)
{
    MPI_Bcast(data, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
}

void job_gather(const void *mine, size_t bytes, void *all)
{
    MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE,
                  MPI_COMM_WORLD);
}

static void sum_by_mpi(const uint64_t *source, uint64_t *target, size_t count)
{
    MPI_Allreduce(source, target, (int)count, MPI_UINT64_T, MPI_SUM,
                  MPI_COMM_WORLD);
}

void (*const job_sum_by_mpi)(const uint64_t *source, uint64_t *target,
                             size_t count) = sum_by_mpi;
