#include "mpi/runtime.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

baton__mpi_runtime_t baton__mpi = {.level = -1};

int baton__mpi_code(baton_status_t status, const char *message)
{
    (void)fprintf(stderr, "baton_mpi: %s%s%s\n", baton_status_text(status),
                  message[0] != '\0' ? ": " : "", message);
    return status == BATON_ERR_NO_MEMORY ? MPI_ERR_NO_MEM : MPI_ERR_OTHER;
}

/* Returns false if this process is certainly not rank 0. Reads mpirun's
   environment variables instead of asking MPI, since this library can't call an
   MPI that it was not built for. */
static bool may_be_rank_0(void)
{
    const char *rank = getenv("PMIX_RANK");
    rank = rank != NULL ? rank : getenv("PMI_RANK");
    return rank == NULL || strcmp(rank, "0") == 0;
}

static bool is_other;

static void look_at_mpi(void)
{
    char version[8192] = ""; /* long enough for MPICH; Open MPI needs 256 */
    char expected[32];
    int length;
    (void)PMPI_Get_library_version(version, &length);
    length = snprintf(expected, sizeof expected, "Open MPI v%d.",
                      OMPI_MAJOR_VERSION);
    is_other = strncmp(version, expected, (size_t)length) != 0;
    if (is_other && may_be_rank_0()) {
        (void)fprintf(stderr,
                      "baton_mpi: all calls are left to MPI: this MPI is "
                      "\"%.*s\", and this library was built with Open MPI %d\n",
                      (int)strcspn(version, "\n,"), version,
                      OMPI_MAJOR_VERSION);
    }
}

bool baton__mpi_is_other(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, look_at_mpi);
    return is_other;
}

/* At exit, reports that the program has bypassed this library by opening libmpi
   and looking up MPI_Init there. */
__attribute__((destructor)) static void tell_bypassed(void)
{
    const char *log = getenv("BATON_MPI_LOG");
    int started = 0;
    if (baton__mpi.level < 0 && log != NULL && log[0] == '1' &&
        may_be_rank_0() && PMPI_Initialized(&started) == MPI_SUCCESS &&
        started && !baton__mpi_is_other()) {
        (void)fprintf(stderr,
                      "baton_mpi: all calls were left to MPI: the program has "
                      "looked up MPI_Init in libmpi itself; in Python use "
                      "ctypes.CDLL(None), in C dlsym(RTLD_DEFAULT)\n");
    }
}
