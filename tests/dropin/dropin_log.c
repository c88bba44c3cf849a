/* What libbaton_mpi says on standard error, for which ctest looks, by the
   argument: `taken`; or why all calls are left: a `request` or a `communicator`
   is laid out differently, or in `private` the program has opened MPI for
   itself. */
#include "dropin.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *which = "";
static int requests; /* generalized ones */
static MPI_Request real;
static char *another; /* a request in memory that ends with it */

enum { BYTES = 200 };

static void *next_of(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

/* What MPI was given is in another order, as far behind as there is room. */
int PMPI_Grequest_start(MPI_Grequest_query_function *query,
                        MPI_Grequest_free_function *release,
                        MPI_Grequest_cancel_function *cancel, void *state,
                        MPI_Request *request)
{
    typedef int (*start_fn)(
        MPI_Grequest_query_function *, MPI_Grequest_free_function *,
        MPI_Grequest_cancel_function *, void *, MPI_Request *);
    void *next = next_of("PMPI_Grequest_start");
    int code = (*(start_fn *)&next)(query, release, cancel, state, request);
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
    void *next = next_of("PMPI_Grequest_complete");
    return (*(int (**)(MPI_Request)) &
            next)((char *)request == another ? real : request);
}

int PMPI_Wait(MPI_Request *request, MPI_Status *status)
{
    void *next = next_of("PMPI_Wait");
    return (*(int (**)(MPI_Request *, MPI_Status *)) &
            next)((char *)*request == another ? &real : request, status);
}

/* The library's progress within MPI's calls. */
static int drives;
int opal_progress_register(int (*progress)(void));
int opal_progress_register(int (*progress)(void))
{
    Dl_info of;
    void *next = next_of("opal_progress_register");
    if (dladdr(*(void **)&progress, &of) != 0) {
        drives += strstr(of.dli_fname, "libbaton_mpi") != NULL;
    }
    return (*(int (**)(int (*)(void))) & next)(progress);
}

/* The rank is where it is looked for, and another. */
int PMPI_Comm_rank(MPI_Comm comm, int *rank)
{
    void *next = next_of("PMPI_Comm_rank");
    int code = (*(int (**)(MPI_Comm, int *)) & next)(comm, rank);
    *rank += comm == MPI_COMM_SELF && strcmp(which, "communicator") == 0;
    return code;
}

int main(int argc, char **argv)
{
    typedef int (*init_fn)(int *, char ***);
    typedef int (*reduce_fn)(const void *, void *, int, MPI_Datatype, MPI_Op,
                             MPI_Comm, MPI_Request *);
    typedef int (*wait_fn)(MPI_Request *, MPI_Status *);
    void *from = RTLD_DEFAULT;
    Dl_info mpi;
    which = argc > 1 ? argv[1] : "";
    if (strcmp(which, "private") == 0 &&
        dladdr(next_of("PMPI_Init"), &mpi) != 0) {
        from = dlopen(mpi.dli_fname, RTLD_NOW | RTLD_LOCAL);
    }
    void *init = dlsym(from, "MPI_Init");
    void *reduce = dlsym(from, "MPI_Iallreduce");
    void *wait = dlsym(from, "MPI_Wait");
    void *finalize = dlsym(from, "MPI_Finalize");
    (*(init_fn *)&init)(&argc, &argv);
    int at_start = requests;
    int one = 1;
    int sum = 0;
    int rank;
    int size;
    MPI_Request q;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    EXPECT(drives == 0, "what is left pays for progress");
    (*(reduce_fn *)&reduce)(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD,
                            &q);
    (*(wait_fn *)&wait)(&q, MPI_STATUS_IGNORE);
    MPI_Ibcast(&one, 1, MPI_INT, 0, MPI_COMM_WORLD, &q);
    PMPI_Wait(&q, MPI_STATUS_IGNORE);
    EXPECT(sum == size, "the sum is %d", sum);
    EXPECT(requests - at_start == drives &&
               drives == (strcmp(which, "taken") == 0),
           "%d calls are taken, and progress is on: %d", requests - at_start,
           drives);
    (*(int (**)(void)) & finalize)();
    if (dropin_failures == 0 && rank == 0) {
        (void)fprintf(stderr, "all is well\n");
    }
    return dropin_failures == 0 ? 0 : 1;
}
