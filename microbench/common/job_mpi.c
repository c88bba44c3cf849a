#include "common/job.h"
#include <baton/mpi.h>
#include <stdlib.h>
#include <string.h>

static const char *job_mpi_version(void)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    text[strcspn(text, "\n,")] = '\0';
    return text;
}

static void job_mpi_begin(int *rank_out, int *size_out)
{
    int level = 0;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, rank_out);
    MPI_Comm_size(MPI_COMM_WORLD, size_out);
}

static void job_mpi_end(void)
{
    MPI_Finalize();
}

static void job_mpi_abort(void)
{
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    abort(); /* MPI_Abort is not declared noreturn */
}

static baton_status_t job_mpi_create_group(baton_engine_t *engine,
                                           baton_group_t **out)
{
    return baton_group_create_mpi(engine, MPI_COMM_WORLD, out);
}

static void job_mpi_broadcast(void *data, size_t bytes)
{
    MPI_Bcast(data, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static void job_mpi_gather(const void *mine, size_t bytes, void *all)
{
    MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE,
                  MPI_COMM_WORLD);
}

static void job_mpi_sum_by_mpi(const uint64_t *source, uint64_t *target,
                               size_t count)
{
    MPI_Allreduce(source, target, (int)count, MPI_UINT64_T, MPI_SUM,
                  MPI_COMM_WORLD);
}

const job_t job = {
    .has_mpi = true,
    .mpi_version = job_mpi_version,
    .begin = job_mpi_begin,
    .end = job_mpi_end,
    .abort = job_mpi_abort,
    .create_group = job_mpi_create_group,
    .broadcast = job_mpi_broadcast,
    .gather = job_mpi_gather,
    .sum_by_mpi = job_mpi_sum_by_mpi,
};
