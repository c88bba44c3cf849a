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

void job_begin(void)
{
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &(int){0});
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

static void sum_by_mpi(const uint64_t *source, uint64_t *target, size_t count)
{
    MPI_Allreduce(source, target, (int)count, MPI_UINT64_T, MPI_SUM,
                  MPI_COMM_WORLD);
}

void (*const job_sum_by_mpi)(const uint64_t *source, uint64_t *target,
                             size_t count) = sum_by_mpi;
