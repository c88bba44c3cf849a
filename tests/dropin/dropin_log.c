/* Tests the lines that libbaton_mpi prints on standard error, which ctest
   searches. The argument selects the case. In the case `taken` Baton takes
   calls, and in the case `driven` it does so without a thread. In the other
   cases all calls are left to MPI: because a `request` or a `communicator` has
   another layout than expected; because the program has opened libmpi itself
   (`private`); or because a communicator has a process of another
   MPI_COMM_WORLD (`spawned`). */
#include "dropin.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *which = "";
static int requests; /* number of generalized requests */
static MPI_Request real;
static char *another; /* a copy of a request, at the end of mapped memory */

enum { BYTES = 200 };

/* Returns a request whose fields are in another order than MPI's, and which
   lies at the end of mapped memory. So a read past the request would cause a
   fault. */
int PMPI_Grequest_start(MPI_Grequest_query_function *query,
                        MPI_Grequest_free_function *release,
                        MPI_Grequest_cancel_function *cancel, void *state,
                        MPI_Request *request)
{
    int code =
        NEXT(PMPI_Grequest_start)(query, release, cancel, state, request);
    requests++;
    if (strcmp(which, "request") == 0) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        (void)mprotect(pages + page, page, PROT_NONE);
        another = pages + page - BYTES;
        memcpy(another + BYTES - sizeof cancel, &cancel, sizeof cancel);
        memcpy(another + BYTES - 2 * sizeof query, &query, sizeof query);
        real = *request;
        *request = (void *)another;
    }
    return code;
}

int PMPI_Grequest_complete(MPI_Request request)
{
    return NEXT(PMPI_Grequest_complete)((char *)request == another ? real
                                                                   : request);
}

int PMPI_Wait(MPI_Request *request, MPI_Status *status)
{
    return NEXT(PMPI_Wait)((char *)*request == another ? &real : request,
                           status);
}

/* Counts the registrations of libbaton_mpi's progress function in MPI. The
   library may be linked into this program. */
static int drives;

static int is_ours(int (*progress)(void))
{
    Dl_info of;
    return dladdr(*(void **)&progress, &of) != 0 &&
           (strstr(of.dli_fname, "libbaton_mpi") != NULL ||
            strstr(of.dli_fname, "dropin_log") != NULL);
}

int opal_progress_register(int (*progress)(void));
int opal_progress_register(int (*progress)(void))
{
    drives += is_ours(progress);
    return NEXT(opal_progress_register)(progress);
}

int opal_progress_unregister(int (*progress)(void));
int opal_progress_unregister(int (*progress)(void))
{
    drives -= is_ours(progress);
    return NEXT(opal_progress_unregister)(progress);
}

/* Makes the rank of MPI_COMM_SELF differ from the one in the communicator's
   memory, so that libbaton_mpi can't find the layout of communicators. */
int PMPI_Comm_rank(MPI_Comm comm, int *rank)
{
    int code = NEXT(PMPI_Comm_rank)(comm, rank);
    *rank += comm == MPI_COMM_SELF && strcmp(which, "communicator") == 0;
    return code;
}

/* Makes a communicator of these processes and one that they spawn. Then makes
   the first calls on it, which are left to MPI on every communicator. */
static MPI_Comm with_spawned(char **argv)
{
    MPI_Comm others, all;
    MPI_Request q;
    MPI_Comm_get_parent(&others);
    bool spawned = others != MPI_COMM_NULL;
    if (!spawned) {
        MPI_Comm_spawn(argv[0], argv + 1, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD,
                       &others, MPI_ERRCODES_IGNORE);
    }
    MPI_Intercomm_merge(others, spawned, &all);
    MPI_Comm_disconnect(&others);
    for (int i = 0; i < 20; i++) {
        int one = 1, sum = 0;
        MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, all, &q);
        MPI_Wait(&q, MPI_STATUS_IGNORE);
        EXPECT(sum == 3, "the sum is %d", sum);
    }
    return all;
}

int main(int argc, char **argv)
{
    void *from = RTLD_DEFAULT;
    Dl_info mpi;
    which = argc > 1 ? argv[1] : "";
    if (strcmp(which, "private") == 0 &&
        dladdr(dlsym(RTLD_NEXT, "PMPI_Init"), &mpi) != 0) {
        from = dlopen(mpi.dli_fname, RTLD_NOW | RTLD_LOCAL);
    }
    LOOKED_UP(from, MPI_Init)(&argc, &argv);
    int at_start = requests;
    int one = 1, sum = 0, rank, size;
    MPI_Request q;
    MPI_Comm comm =
        strcmp(which, "spawned") == 0 ? with_spawned(argv) : MPI_COMM_WORLD;
    PMPI_Comm_rank(comm, &rank);
    PMPI_Comm_size(comm, &size);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    const bool driven = strcmp(which, "driven") == 0;
    EXPECT(drives == driven, "what is left pays for progress");
    LOOKED_UP(from, MPI_Iallreduce)
    (&one, &sum, 1, MPI_INT, MPI_SUM, comm, &q);
    LOOKED_UP(from, MPI_Wait)(&q, MPI_STATUS_IGNORE);
    MPI_Ibcast(&one, 1, MPI_INT, 0, comm, &q);
    PMPI_Wait(&q, MPI_STATUS_IGNORE);
    EXPECT(sum == size, "the sum is %d", sum);
    EXPECT(requests - at_start == drives &&
               drives == (driven || strcmp(which, "taken") == 0),
           "%d calls are taken, and progress is on: %d", requests - at_start,
           drives);
    if (drives) { /* the program never frees this communicator */
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        MPI_Ibarrier(comm, &q);
        MPI_Wait(&q, MPI_STATUS_IGNORE);
    }
    LOOKED_UP(from, MPI_Finalize)();
    EXPECT(drives == 0, "progress is on behind MPI");
    if (dropin_failures == 0 && rank == 0) {
        (void)fprintf(stderr, "all is well\n");
    }
    return dropin_failures == 0 ? 0 : 1;
}
