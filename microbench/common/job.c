#include "common/job.h"
#include <stdlib.h>

/* CMakeLists.txt defines JOB_MPI in a build with MPI. */
#ifdef JOB_MPI

#include <baton/mpi.h>
#include <string.h>

const bool job_has_mpi = true;

#else

#include <baton/store.h>

/* How long ranks wait for others to start. */
enum { PATIENCE_MS = 60000 };

const bool job_has_mpi = false;

#endif

const char *job_mpi_version(void)
{
#ifdef JOB_MPI
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    MPI_Get_library_version(text, &(int){0});
    text[strcspn(text, "\n,")] = '\0';
    return text;
#else
    return "none";
#endif
}

void job_begin(void)
{
#ifdef JOB_MPI
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &(int){0});
#endif
}

void job_end(void)
{
#ifdef JOB_MPI
    MPI_Finalize();
#endif
}

void job_abort(void)
{
#ifdef JOB_MPI
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
#endif
    _Exit(EXIT_FAILURE);
}

baton_status_t job_create_group(baton_engine_t *engine, baton_group_t **out)
{
#ifdef JOB_MPI
    return baton_group_create_mpi(engine, MPI_COMM_WORLD, out);
#else
    return baton_group_create_world(engine, PATIENCE_MS, out);
#endif
}

void job_sum_by_mpi(const uint64_t *source, uint64_t *target, size_t count)
{
#ifdef JOB_MPI
    MPI_Allreduce(source, target, (int)count, MPI_UINT64_T, MPI_SUM,
                  MPI_COMM_WORLD);
#endif
}
