/* The bootstrap exchange: how ranks exchange data while they make a group. No
   call blocks in MPI, because a rank that has ended, or never comes, would keep
   all others there for good. */
#include "transport/mpi/endpoint.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/log.h"
#include "base/random.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    NS_PER_MS = 1000000,
    /* A rank that waits yields for this long before it begins to sleep. */
    YIELD_NS = 30 * NS_PER_MS,
    /* The longest sleep of a rank that waits for longer than YIELD_NS. */
    LONGEST_NS = 10 * NS_PER_MS,
    /* A sleep lasts the time waited so far, divided by this number. */
    WAITED_FOR_A_SLEEP = 16,
    /* The most that one look at the clock adds to the time waited. */
    MOST_NS = 1000 * NS_PER_MS,
    /* After a rank has ended, this rank waits this long for messages that the
       ended rank had sent, and tries this long to tell other ranks. */
    LAST_NS = 100 * NS_PER_MS,
    /* How long a rank waits for the news_t on a connection that it has
       accepted. */
    NEWS_MS = 100
};

/* A rank's record in the first exchange. The version and the wire format come
   first, and the record has the same size in all versions. The other fields are
   read only if all ranks have the same version and wire format. */
typedef struct baton__member {
    char version[12];
    /* BATON__WIRE_FORMAT. In builds from before this number these bytes are the
       end of `version`, which is 0 there; these builds compare the bytes,
       too. */
    uint32_t format;
    /* A number that identifies the endpoint that the rank has kept; 0: none. */
    uint64_t kept;
    uint64_t host, pids;
    /* Messages to this rank's `place` begin with this number. */
    uint64_t secret;
    pid_t process;
    baton__link_place_t place;
} member_t;
static_assert(sizeof(member_t) == 136, "as in all versions");

/* The message that tells a rank, at its `place`, that another rank has
   ended. */
typedef struct news {
    uint64_t secret;
    int32_t ended; /* a rank whose process has ended */
} news_t;

/* Checks that the program runs with the kind of MPI library that Baton was
   built with: handles are pointers in Open MPI, and numbers in other
   libraries. */
static baton_status_t check_library(void)
{
#ifdef OPEN_MPI
    static const char built_with[] = "Open MPI";
#else
    static const char built_with[] = "MPICH, or one like it";
#endif
    char version[8192] = ""; /* MPICH needs so many bytes; Open MPI needs 256 */
    int length;
    (void)PMPI_Get_library_version(version, &length);
    return (strncmp(version, "Open MPI", 8) == 0) == (built_with[0] == 'O')
               ? BATON_OK
               : baton__error(BATON_ERR_STATE,
                              "mpi: Baton was built with %s, and the program "
                              "runs with \"%.*s\": build both with one MPI",
                              built_with, (int)strcspn(version, "\n,"),
                              version);
}

/* Checks conditions that are the same on all ranks, so that no rank needs to be
   told of a failure. */
static baton_status_t check_comm(MPI_Comm comm)
{
    int yes = 0;
    baton_status_t status = check_library();
    if (status != BATON_OK) {
        return status;
    }
    PMPI_Initialized(&yes);
    if (!yes) {
        return baton__error(BATON_ERR_STATE,
                            "mpi: MPI_Init has not been called: call "
                            "MPI_Init_thread first");
    }
    PMPI_Finalized(&yes);
    if (yes) {
        return baton__error(BATON_ERR_STATE,
                            "mpi: MPI_Finalize has been called already: "
                            "create and destroy groups before it");
    }
    if (comm == MPI_COMM_NULL) {
        return baton__error(BATON_ERR_INVALID,
                            "mpi: the communicator is MPI_COMM_NULL");
    }
    int code = PMPI_Comm_test_inter(comm, &yes);
    return code == MPI_SUCCESS && yes
               ? baton__error(BATON_ERR_INVALID,
                              "mpi: an intercommunicator can't be a group; use "
                              "MPI_Intercomm_merge first")
               : baton__mpi_error("MPI_Comm_test_inter", code);
}

baton_status_t baton__meeting_begin(baton__meeting_t *self, MPI_Comm comm)
{
    *self = (baton__meeting_t){
        .comm = comm, .secret = baton__share_random(), .listener = -1};
    baton_status_t status = check_comm(comm);
    if (status != BATON_OK) {
        return status;
    }
    PMPI_Comm_size(comm, &self->size);
    PMPI_Comm_rank(comm, &self->rank);
    size_t size = (size_t)self->size;
    /* `row` is rounded up so that `members`, which follow the data, are
       aligned. */
    size_t row = (size + BATON__MEETING_BYTES - 1) / BATON__MEETING_BYTES *
                 BATON__MEETING_BYTES;
    const MPI_Aint bytes = (MPI_Aint)(size * (row + sizeof *self->members));
    int code = PMPI_Alloc_mem(bytes, MPI_INFO_NULL, &self->data);
    if (code != MPI_SUCCESS) {
        return baton__mpi_error("MPI_Alloc_mem", code);
    }
    self->members = (void *)(self->data + size * row);
    memset(self->members, 0, size * sizeof *self->members);
    (void)PMPI_Comm_get_errhandler(comm, &self->handler);
    (void)PMPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    return BATON_OK;
}

void baton__meeting_end(baton__meeting_t *self)
{
    (void)PMPI_Comm_set_errhandler(self->comm, self->handler);
    (void)PMPI_Errhandler_free(&self->handler);
    baton__descriptor_close(&self->listener);
    if (self->data != NULL) {
        (void)PMPI_Free_mem(self->data);
    }
}

/* True if this rank can look for the process of another rank: the two share a
   host and a PID namespace. */
static bool is_mate(const baton__meeting_t *self, int rank)
{
    const member_t *own = &self->members[self->rank];
    const member_t *other = &self->members[rank];
    return own->pids != 0 && own->host == other->host &&
           own->pids == other->pids;
}

/* Returns a rank of this host whose process has ended, or -1. */
static int meeting_look_for_ended(const baton__meeting_t *self)
{
    int found = -1;
    for (int i = 0; i < self->size && found < 0; i++) {
        struct pollfd end = {.fd = -1, .events = POLLIN};
        int own = -1;
        bool gone = false;
        if (self->kept != NULL) {
            end.fd = self->kept->host.liveness
                         .descriptors[self->kept->peers[i].near];
        } else if (is_mate(self, i)) {
            end.fd = own = baton__liveness_process(self->members[i].process);
            gone = own < 0 && errno == ESRCH;
        }
        if (gone || poll(&end, 1, 0) == 1) {
            found = i;
        }
        baton__descriptor_close(&own);
    }
    return found;
}

static baton_status_t tell_ended(int rank)
{
    return baton__error(BATON_ERR_TRANSPORT,
                        "mpi: rank %d is gone: its process has ended: create "
                        "the group on a communicator without it",
                        rank);
}

static baton_status_t tell_failed(baton_status_t elsewhere)
{
    return elsewhere == BATON_OK
               ? BATON_OK
               : baton__error(elsewhere,
                              "mpi: the group could not be made on another "
                              "rank (%s), whose message says more",
                              baton_status_text(elsewhere));
}

/* Logs a warning once if this rank has waited for long. Returns true if the
   wait is too long: ranks that have taken part in an exchange should answer
   soon. */
static bool is_too_long(baton__meeting_t *self, uint64_t waited_ns)
{
    uint64_t stall_ms = (uint64_t)baton__config_number(BATON__CONFIG_STALL_MS);
    uint64_t most_ms =
        (uint64_t)baton__config_number(BATON__CONFIG_PEER_TIMEOUT_MS);
    /* Low ranks warn first, since a few warnings mostly suffice. But the low
       ranks may be the ones that are missing, so all others warn in the end. */
    uint64_t turn = 1;
    for (int rank = self->rank; rank > 0; rank /= 2) {
        turn++;
    }
    if (!self->reported && waited_ns >= turn * stall_ms * NS_PER_MS) {
        self->reported = true;
        baton__log(BATON_LOG_WARN,
                   "mpi: rank %d of %d has waited %s in "
                   "baton_group_create_mpi: another rank has not called it, is "
                   "stopped, or has ended",
                   self->rank, self->size, baton__time_text(waited_ns));
    }
    return self->met && most_ms > 0 && waited_ns >= most_ms * NS_PER_MS;
}

/* Tells all other ranks that the rank `ended` has ended. Ranks on other hosts
   wait for data of that rank, and can't look for its process. */
static void tell_all(const baton__meeting_t *self, int ended)
{
    const baton__link_place_t *own = &self->members[self->rank].place;
    struct pollfd *all = baton__alloc((size_t)self->size, sizeof *all);
    int left = 0;
    for (int i = 0; all != NULL && i < self->size; i++) {
        const member_t *to = &self->members[i];
        struct sockaddr_storage at;
        socklen_t bytes;
        all[i].fd = -1;
        if (i != self->rank && i != ended && to->place.port != 0 &&
            baton__links_address(own, &to->place, to->place.port, &at,
                                 &bytes)) {
            all[i] = (struct pollfd){
                .fd = baton__links_begin((struct sockaddr *)&at, bytes),
                .events = POLLOUT};
            left += all[i].fd >= 0;
        }
    }
    const uint64_t until_ns = baton__clock_ns() + LAST_NS;
    while (left > 0 && baton__clock_ns() < until_ns) {
        (void)poll(all, (nfds_t)self->size, 10);
        for (int i = 0; i < self->size; i++) {
            const news_t news = {self->members[i].secret, ended};
            if (all[i].fd >= 0 && all[i].revents != 0) {
                (void)!send(all[i].fd, &news, sizeof news,
                            MSG_DONTWAIT | MSG_NOSIGNAL);
                baton__descriptor_close(&all[i].fd);
                left--;
            }
        }
    }
    for (int i = 0; all != NULL && i < self->size; i++) {
        baton__descriptor_close(&all[i].fd);
    }
    baton__free(all);
}

/* Returns a rank that has ended, as another rank has reported; -1 if no rank
   has reported one. */
static int take_news(const baton__meeting_t *self)
{
    news_t news = {.ended = -1};
    int fd = self->listener >= 0
                 ? baton__descriptor_move(
                       accept4(self->listener, NULL, NULL, SOCK_CLOEXEC))
                 : -1;
    if (fd < 0) {
        return -1;
    }
    struct pollfd comes = {.fd = fd, .events = POLLIN};
    (void)poll(&comes, 1, NEWS_MS);
    ssize_t got = recv(fd, &news, sizeof news, MSG_DONTWAIT);
    baton__descriptor_close(&fd);
    return got == sizeof news && news.secret == self->secret &&
                   news.ended < self->size
               ? news.ended
               : -1;
}

/* Waits until a request of the MPI function `name` is complete. If that fails,
   self->status is set, and the memory that MPI may still write to is never
   freed. */
static void meeting_complete(baton__meeting_t *self, const char *name, int code,
                             MPI_Request request)
{
    uint64_t seen_ns = baton__clock_ns();
    /* The time waited so far, without the time in which the job was stopped. */
    uint64_t waited_ns = 0;
    /* The value of waited_ns when this rank learned that `ended` has ended. */
    uint64_t ended_ns = 0;
    int ended = -1;    /* a rank that has ended; -1: none */
    bool told = false; /* another rank has reported the end of `ended` */
    int done = 0;
    while (code == MPI_SUCCESS) {
        code = PMPI_Test(&request, &done, MPI_STATUS_IGNORE);
        const uint64_t now_ns = baton__clock_ns();
        const uint64_t since_ns = now_ns - seen_ns;
        waited_ns += since_ns < MOST_NS ? since_ns : MOST_NS;
        seen_ns = now_ns;
        if (code != MPI_SUCCESS || done) {
            break;
        }
        if (waited_ns < YIELD_NS) {
            (void)sched_yield();
            continue;
        }
        const uint64_t ns = waited_ns / WAITED_FOR_A_SLEEP;
        (void)nanosleep(
            &(struct timespec){.tv_nsec =
                                   (long)(ns < LONGEST_NS ? ns : LONGEST_NS)},
            NULL);
        if (ended < 0) {
            ended = meeting_look_for_ended(self);
            ended_ns = waited_ns;
        }
        if (ended < 0) {
            ended = take_news(self);
            told = ended >= 0;
        }
        if (is_too_long(self, waited_ns) ||
            (ended >= 0 && waited_ns >= ended_ns + LAST_NS)) {
            break;
        }
    }
    self->met = true;
    if (done && code == MPI_SUCCESS) {
        return;
    }
    self->data = NULL;
    ended = ended < 0 ? meeting_look_for_ended(self)
                      : ended; /* MPI may notice the rank's end first */
    if (ended >= 0 && !told) {
        tell_all(self, ended);
    }
    self->status =
        ended >= 0 ? tell_ended(ended)
        : code != MPI_SUCCESS
            ? baton__mpi_error(name, code)
            : baton__error(
                  BATON_ERR_TRANSPORT,
                  "mpi: a rank has called baton_group_create_mpi, and not "
                  "answered for %s (BATON_PEER_TIMEOUT_MS): it is stopped, "
                  "has ended, or is out of reach",
                  baton__time_text(waited_ns));
}

static void meeting_reduce(baton__meeting_t *self, int count, MPI_Datatype type,
                           MPI_Op op)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int code = PMPI_Iallreduce(MPI_IN_PLACE, self->data, count, type, op,
                               self->comm, &request);
    meeting_complete(self, "MPI_Iallreduce", code, request);
}

void *baton__meeting_gather(baton__meeting_t *self, const void *own,
                            size_t bytes)
{
    const size_t all = (size_t)self->size * bytes;
    if (self->data != NULL) {
        /* MPI_Iallgather is not used: for it Open MPI sends a message from each
           rank to each other rank. */
        memset(self->data, 0, all);
        memcpy(self->data + (size_t)self->rank * bytes, own, bytes);
        meeting_reduce(self, (int)all, MPI_BYTE, MPI_BOR);
    }
    return self->data;
}

static baton__location_t here;

static uint64_t find_namespace(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 ? (uint64_t)found.st_ino : 0;
}

static void find_location(void)
{
    char text[MPI_MAX_PROCESSOR_NAME + 40];
    int length = 0;
    (void)PMPI_Get_processor_name(text, &length);
    (void)baton__descriptor_read("/proc/sys/kernel/random/boot_id",
                                 text + length, sizeof text - (size_t)length);
    for (const char *at = text; *at != '\0'; at++) {
        here.host = baton__mix(here.host ^ (unsigned char)*at);
    }
    here.pids = find_namespace("/proc/self/ns/pid");
    here.network = find_namespace("/proc/self/ns/net");
}

const baton__location_t *baton__meeting_location(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, find_location);
    return &here;
}

/* Returns true if all ranks have the same version of Baton and the same wire
   format; otherwise sets self->status and ends the exchange. All ranks come to
   the same result. */
static bool have_one_version(baton__meeting_t *self, const member_t *all)
{
    const member_t *own = &all[self->rank];
    int other = 0;
    while (other < self->size &&
           memcmp(&all[other], own, offsetof(member_t, kept)) == 0) {
        other++;
    }
    if (other == self->size) {
        return true;
    }
    self->status = baton__error(
        BATON_ERR_MISMATCH,
        "mpi: rank %d runs Baton %.12s, wire format %u, and this one, rank %d, "
        "Baton %.12s, wire format %u: have all ranks load one libbaton",
        other, all[other].version, all[other].format, self->rank, own->version,
        own->format);
    (void)PMPI_Free_mem(self->data);
    self->data = NULL;
    return false;
}

bool baton__meeting_keeps(baton__meeting_t *self, const baton__mpi_t *kept)
{
    const baton__location_t *here_now = baton__meeting_location();
    member_t own = {.format = BATON__WIRE_FORMAT,
                    .kept =
                        kept != NULL ? kept->host.doorbell.states[0].nonce : 0,
                    .host = here_now->host,
                    .pids = here_now->pids,
                    .secret = self->secret,
                    .process = getpid()};
    baton__links_find(&own.place, true);
    self->listener =
        baton__links_listen(&own.place, self->size, &own.place.port);
    (void)snprintf(own.version, sizeof own.version, "%s", baton_version());
    self->kept = kept;
    const member_t *all = baton__meeting_gather(self, &own, sizeof own);
    all = all != NULL && have_one_version(self, all) ? all : NULL;
    bool same = kept != NULL && all != NULL;
    for (int i = 0; all != NULL && i < self->size; i++) {
        same &= all[i].kept == own.kept;
        self->members[i] = all[i];
    }
    self->kept = NULL;
    return same;
}

baton_status_t baton__meeting_agree(baton__meeting_t *self,
                                    baton_status_t local)
{
    int worst = local;
    if (self->data != NULL) {
        memcpy(self->data, &worst, sizeof worst);
        meeting_reduce(self, 1, MPI_INT, MPI_MIN);
    }
    if (self->data == NULL) {
        return self->status;
    }
    memcpy(&worst, self->data, sizeof worst);
    return local == BATON_OK ? tell_failed((baton_status_t)worst) : local;
}

baton_status_t baton__meeting_conclude(baton__meeting_t *self,
                                       baton__host_t *host,
                                       baton_status_t local)
{
    baton_status_t all = baton__meeting_agree(self, local);
    bool missed = self->data == NULL;
    /* Every rank decides, even after an error. Otherwise ranks that keep the
       host would count the host's decisions differently. */
    if (baton__host_decide(host, all == BATON_OK) == (all == BATON_OK) ||
        local != BATON_OK) {
        return all;
    }
    int ended = meeting_look_for_ended(self);
    return missed       ? BATON_OK
           : ended >= 0 ? tell_ended(ended)
                        : tell_failed(BATON_ERR_TRANSPORT);
}

void baton__meeting_separate(baton__meeting_t *self, MPI_Comm *out)
{
    if (self->data != NULL) {
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Comm *own = (MPI_Comm *)(void *)self->data;
        int code = PMPI_Comm_idup(self->comm, own, &request);
        meeting_complete(self, "MPI_Comm_idup", code, request);
    }
    if (self->data != NULL) {
        memcpy(out, self->data, sizeof *out);
        (void)PMPI_Comm_set_errhandler(*out, MPI_ERRORS_RETURN);
    }
}
