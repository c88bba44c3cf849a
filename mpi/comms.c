#include "mpi/comms.h"

#include "mpi/entries.h"

#include <ctype.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The list of all records. The record of a freed communicator stays in it until
   it is destroyed, which is when the last of its operations has ended. */
static baton__mpi_comm_t *comms;
static pthread_mutex_t comms_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int dead_comms;
static int key;
static _Atomic unsigned freed; /* number of communicators freed so far */

/* ---- the context id ------------------------------------------------------ */

/* Number of bytes of a communicator that are searched for the fields below. The
   whole communicator has 512 bytes. */
enum { LOOKED_AT = 384 };

/* Consecutive fields of a communicator: its name, the context id, and this
   process's rank. Open MPI 4 calls the id `index`. Open MPI 5 stores the id
   twice, and its `index` is another number, which may differ between ranks. */
typedef struct parts {
#if OMPI_MAJOR_VERSION >= 5
    const char *name;
    uint64_t id[2], block[4];
    uint32_t index;
#else
    char name[MPI_MAX_OBJECT_NAME];
    uint32_t index;
#endif
    int rank;
} parts_t;

static parts_t parts_at(MPI_Comm comm, ptrdiff_t offset)
{
    parts_t parts;
    memcpy(&parts, (const char *)comm + offset, sizeof parts);
    return parts;
}

static bool is_there(MPI_Comm comm, const char *name, ptrdiff_t offset,
                     uint32_t index)
{
    int rank;
    const parts_t parts = parts_at(comm, offset);
    (void)PMPI_Comm_rank(comm, &rank);
    return parts.index == index && parts.rank == rank &&
#if OMPI_MAJOR_VERSION >= 5
           memcmp(parts.id, parts.block, sizeof parts.id) == 0 &&
           (parts.id[1] != 0) == (index != 0) && parts.name != NULL &&
#endif
           strcmp(parts.name, name) == 0;
}

/* Writes a name that distinguishes a communicator's groups from those of other
   communicators. */
static void name_group(MPI_Comm comm, char *name, size_t bytes)
{
    const parts_t parts = parts_at(comm, baton__mpi.context_offset);
#if OMPI_MAJOR_VERSION >= 5
    (void)snprintf(name, bytes, "mpi.%" PRIx64 ".%" PRIx64, parts.id[0],
                   parts.id[1]);
#else
    (void)snprintf(name, bytes, "mpi.%" PRIu32, parts.index);
#endif
}

/* ---- the log ------------------------------------------------------------- */

static const char *const whys[BATON__MPI_WHYS] = {
    ": taken by Baton:",
    "; left to MPI (the communicator has one rank):",
    "; left to MPI (the communicator is an intercommunicator):",
    "; left to MPI (some ranks belong to another MPI_COMM_WORLD):",
    "; left to MPI (shorter than BATON_MPI_FROM):",
    "; left to MPI (MPI needs only one round of short messages):",
    "; left to MPI (the first calls on the communicator):",
    "; left to MPI (Baton does not have the reduction):",
    "; left to MPI (the arguments are wrong):",
};

/* On rank 0 of the communicator, writes the log's line about its calls. One
   write makes the whole line, so that lines of different ranks do not mix. */
static void log_calls(const baton__mpi_comm_t *comm)
{
    char name[MPI_MAX_OBJECT_NAME] = "";
    char *line = NULL;
    size_t bytes;
    int length;
    FILE *to = baton__mpi.settings.log && comm->rank == 0
                   ? open_memstream(&line, &bytes)
                   : NULL;
    if (to == NULL) {
        return;
    }
    (void)PMPI_Comm_get_name(comm->handle, name, &length);
    (void)fprintf(to, "baton_mpi: %s, %d ranks",
                  name[0] != '\0' ? name : "a communicator", comm->size);
    bool any = false;
    for (int why = 0; why < BATON__MPI_WHYS; why++) {
        const char *before = whys[why];
        for (int i = 0; i < BATON__MPI_KINDS * BATON__MPI_WAYS; i++) {
            uint32_t count = comm->counts[why][i];
            const char *kind = baton__mpi_traits[i / BATON__MPI_WAYS].name;
            int way = i % BATON__MPI_WAYS;
            bool is_i = way == BATON__MPI_NONBLOCKING;
            if (count > 0) {
                (void)fprintf(to, "%s %" PRIu32 " %s%c%s%s", before, count,
                              is_i ? "I" : "", is_i ? tolower(*kind) : *kind,
                              kind + 1,
                              way == BATON__MPI_PERSISTENT ? "_init" : "");
                before = ",";
                any = true;
            }
        }
    }
    if (comm->flight_ns > 0) {
        const int64_t flight_us = comm->flight_ns / 1000;
        const int64_t waited_us = comm->waited_ns / 1000;
        (void)fprintf(to,
                      "; saved %" PRId64 " us: %" PRId64 " bytes, %" PRId64
                      " us in flight, %" PRId64 " us of them in MPI_Wait",
                      flight_us - waited_us, comm->bytes, flight_us, waited_us);
    }
    if (fclose(to) == 0 && any) {
        (void)fprintf(stderr, "%s\n", line);
    }
    free(line);
}

/* ---- records ------------------------------------------------------------- */

static void comms_destroy(baton__mpi_comm_t *comm)
{
    if (comm->group != NULL) {
        baton__mpi_entries_reap(comm, true);
        (void)!baton_group_destroy(comm->group);
    }
    if (comm->self != MPI_COMM_NULL) {
        (void)PMPI_Comm_free(&comm->self);
    }
    free(comm);
}

/* Returns the communicator that is stored in a request. Only the requests of
   MPI's nonblocking collectives (Open MPI's coll/libnbc) store theirs. Requests
   that have ended can be read, too, since Open MPI keeps their memory for
   reuse. */
static MPI_Comm comms_owner_of(MPI_Request request)
{
    MPI_Comm owner;
    memcpy(&owner, (const char *)request + baton__mpi.owner_offset,
           sizeof owner);
    return owner;
}

bool baton__mpi_is_first(MPI_Request request, bool frees)
{
    bool found = false;
    (void)pthread_mutex_lock(&comms_lock);
    for (baton__mpi_comm_t *c = comms; c != NULL && !found; c = c->next) {
        int i = atomic_load_explicit(&c->first_count, memory_order_acquire);
        while (!found && !c->dead && i-- > 0) {
            found =
                c->firsts[i] == request && comms_owner_of(request) == c->handle;
        }
        if (found && frees) {
            c->orphans |= 1u << i;
        }
    }
    (void)pthread_mutex_unlock(&comms_lock);
    return found;
}

int baton__mpi_note(int left, int code, MPI_Comm handle,
                    const MPI_Request *request)
{
    baton__mpi_comm_t *comm =
        left == BATON__MPI_LEFT_FIRST ? baton__mpi_comm_of(handle) : NULL;
    if (comm != NULL && code != MPI_SUCCESS) {
        /* A failed call does not count as one of the communicator's first
           calls. If the program repeats the call on this rank, the repetition
           matches the original call of other ranks, where that may have
           succeeded and counted. So only the repetition may count here;
           otherwise ranks would disagree on which calls are the first ones. */
        comm->worth -= comm->counted;
    } else if (comm != NULL && request != NULL &&
               comms_owner_of(*request) == handle) {
        comm->firsts[comm->first_count] = *request;
        /* Pairs with the load in baton__mpi_is_first(). */
        atomic_fetch_add_explicit(&comm->first_count, 1, memory_order_release);
    }
    return code;
}

/* MPI calls this function when the application frees a communicator. The
   library's own operations on the communicator go on afterwards. The requests
   of first calls, which MPI runs, would make Open MPI 4.1.4 crash if they went
   on, so this function waits for them. */
static int on_delete(MPI_Comm handle, int keyval, void *value, void *extra)
{
    baton__mpi_comm_t *comm = value;
    for (int i = 0; i < comm->first_count; i++) {
        MPI_Request first = comm->firsts[i];
        int ended = false;
        while (comms_owner_of(first) == handle && !ended) {
            (void)PMPI_Request_get_status(first, &ended, MPI_STATUS_IGNORE);
            if (!ended) {
                (void)sched_yield();
            }
        }
        if ((comm->orphans >> i & 1u) != 0) {
            (void)PMPI_Request_free(&first);
        }
    }
    log_calls(comm);
    atomic_fetch_add_explicit(&freed, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&dead_comms, 1, memory_order_relaxed);
    comm->dead = true;
    baton__mpi_comms_reap();
    return MPI_SUCCESS;
}

void baton__mpi_comms_reap(void)
{
    if (atomic_load_explicit(&dead_comms, memory_order_relaxed) == 0) {
        return;
    }
    (void)pthread_mutex_lock(&comms_lock);
    baton__mpi_comm_t **at = &comms;
    while (*at != NULL) {
        baton__mpi_comm_t *comm = *at;
        if (comm->dead &&
            atomic_load_explicit(&comm->users, memory_order_acquire) == 0) {
            *at = comm->next;
            atomic_fetch_sub_explicit(&dead_comms, 1, memory_order_relaxed);
            comms_destroy(comm);
        } else {
            at = &comm->next;
        }
    }
    (void)pthread_mutex_unlock(&comms_lock);
}

/* Returns the communicator's ranks as ranks of MPI_COMM_WORLD. Returns NULL if
   some of them are not in MPI_COMM_WORLD, or if there is no memory. */
static int *world_ranks(const baton__mpi_comm_t *comm)
{
    MPI_Group group;
    int *ranks = malloc(2 * (size_t)comm->size * sizeof *ranks);
    if (ranks == NULL || PMPI_Comm_group(comm->handle, &group) != MPI_SUCCESS) {
        free(ranks);
        return NULL;
    }
    int *own = ranks + comm->size;
    for (int r = 0; r < comm->size; r++) {
        own[r] = r;
    }
    (void)PMPI_Group_translate_ranks(group, comm->size, own,
                                     baton__mpi.world_group, ranks);
    (void)PMPI_Group_free(&group);
    for (int r = 0; r < comm->size; r++) {
        if (ranks[r] == MPI_UNDEFINED) {
            free(ranks);
            return NULL;
        }
    }
    return ranks;
}

baton__mpi_why_t baton__mpi_comm_join(baton__mpi_comm_t *comm)
{
    if (comm->group != NULL) {
        return BATON__MPI_TAKEN;
    }
    int *ranks = world_ranks(comm);
    if (ranks == NULL) {
        return comm->why = BATON__MPI_FOREIGN;
    }
    char name[48];
    name_group(comm->handle, name, sizeof name);
    baton_status_t status = baton_group_create_sub(
        baton__mpi.world, ranks, comm->size, name, &comm->group);
    free(ranks);
    if (status != BATON_OK) {
        comm->group = NULL;
        (void)baton__mpi_code(status, baton_error_message());
    }
    return BATON__MPI_TAKEN;
}

static baton__mpi_comm_t *make_record(MPI_Comm handle)
{
    baton__mpi_comm_t *comm = calloc(1, sizeof *comm);
    if (comm == NULL) {
        return NULL;
    }
    comm->handle = handle;
    comm->self = MPI_COMM_NULL;
    comm->worth = handle == MPI_COMM_WORLD ? UINT32_MAX : 0;
    int inter;
    (void)PMPI_Comm_rank(handle, &comm->rank);
    (void)PMPI_Comm_size(handle, &comm->size);
    (void)PMPI_Comm_test_inter(handle, &inter);
    comm->why = comm->size == 1 ? BATON__MPI_SINGLE : BATON__MPI_TAKEN;
    if (inter) {
        comm->why = BATON__MPI_INTER;
    }
    (void)pthread_mutex_lock(&comms_lock);
    comm->next = comms;
    comms = comm;
    (void)pthread_mutex_unlock(&comms_lock);
    (void)PMPI_Comm_set_attr(handle, key, comm);
    return comm;
}

/* A cache holds the record that this thread has asked for last. The cached
   record is not used once any communicator was freed since, because MPI may
   then have given the freed handle to a new communicator. */
baton__mpi_comm_t *baton__mpi_comm_of(MPI_Comm handle)
{
    static _Thread_local struct {
        MPI_Comm handle;
        baton__mpi_comm_t *comm;
        unsigned freed;
    } last;
    unsigned now = atomic_load_explicit(&freed, memory_order_relaxed);
    if (last.comm == NULL || last.handle != handle || last.freed != now) {
        void *value;
        int found = 0;
        (void)PMPI_Comm_get_attr(handle, key, &value, &found);
        last.comm = found ? value : make_record(handle);
        last.handle = handle;
        last.freed = now;
    }
    return last.comm;
}

const char *baton__mpi_comms_open(void)
{
    for (ptrdiff_t at = 0; at + (ptrdiff_t)sizeof(parts_t) <= LOOKED_AT;
         at += (ptrdiff_t) _Alignof(parts_t)) {
        if (is_there(MPI_COMM_SELF, "MPI_COMM_SELF", at, 1) &&
            is_there(MPI_COMM_WORLD, "MPI_COMM_WORLD", at, 0)) {
            baton__mpi.context_offset = at;
            (void)PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_delete,
                                          &key, NULL);
            return NULL;
        }
    }
    return "the context id of a communicator can't be found in this version of "
           "MPI";
}

void baton__mpi_comms_close(void)
{
    while (comms != NULL) {
        baton__mpi_comm_t *comm = comms;
        atomic_store(&comm->users, 0);
        if (comm->dead) {
            baton__mpi_comms_reap();
        } else {
            (void)PMPI_Comm_delete_attr(comm->handle, key);
        }
    }
    (void)PMPI_Comm_free_keyval(&key);
}
