/* The exchanges of records between the ranks while they make a group
   (bootstrap.h says by which means), and how ranks notice meanwhile that one of
   them has ended. */
#include "transport/mpi/endpoint.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/log.h"
#include "base/random.h"

#include <errno.h>
#include <limits.h>
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
    /* The most that one look at the clock adds to the time waited, so that time
       in which the job is stopped hardly counts. */
    MOST_NS = 1000 * NS_PER_MS,
    /* After a rank has ended, this rank waits this long for messages that the
       ended rank had sent, and tries this long to tell other ranks. */
    LAST_NS = 100 * NS_PER_MS,
    /* How long a rank waits for the end_report_t on a connection that it has
       accepted. */
    REPORT_MS = 100
};

/* A rank's record in the first exchange. The version and the wire format come
   first, and the record has the same size in all versions. The other fields are
   read only if all ranks have the same version and wire format. */
typedef struct baton__first_record {
    char version[12];
    /* BATON__WIRE_FORMAT. Builds that are older than this field have the end of
       `version` in these bytes, which is all zeros. They compare these bytes,
       too. */
    uint32_t format;
    /* A number that identifies the endpoint that the rank has cached from an
       earlier group; 0: it has cached no endpoint. */
    uint64_t cached;
    uint64_t host, pids;
    /* Messages to this rank's `place` begin with this number. */
    uint64_t secret;
    pid_t process;
    baton__link_place_t place;
} first_record_t;
static_assert(sizeof(first_record_t) == 136, "as in all versions");

/* The ranks that others wait for, as the bootstrap names them. */
typedef struct missing {
    char text[120];
} missing_t;

/* The message that is sent to a rank's listener, at its `place`, to report that
   another rank has ended. */
typedef struct end_report {
    uint64_t secret;
    int32_t ended; /* a rank whose process has ended */
} end_report_t;

baton_status_t baton__exchange_begin(baton__exchange_t *self,
                                     baton__bootstrap_t *bootstrap)
{
    *self = (baton__exchange_t){.bootstrap = bootstrap,
                                .rank = bootstrap->rank,
                                .size = bootstrap->size,
                                .secret = baton__share_random(),
                                .listener = -1};
    size_t size = (size_t)self->size;
    /* `row` is rounded up so that `records`, which follow the data, are
       aligned. */
    size_t row = (size + BATON__EXCHANGE_BYTES - 1) / BATON__EXCHANGE_BYTES *
                 BATON__EXCHANGE_BYTES;
    self->memory = bootstrap->allocate(size * (row + sizeof *self->records));
    if (self->memory == NULL) {
        return BATON_ERR_NO_MEMORY;
    }
    self->data = self->memory;
    self->records = (void *)(self->data + size * row);
    memset(self->records, 0, size * sizeof *self->records);
    for (size_t i = 0; bootstrap->process_ids != NULL && i < size; i++) {
        const baton__process_id_t *known = &bootstrap->process_ids[i];
        self->records[i] = (first_record_t){.host = (uint64_t)known->host,
                                            .pids = (uint64_t)known->pids,
                                            .process = (pid_t)known->process};
    }
    return BATON_OK;
}

void baton__exchange_end(baton__exchange_t *self)
{
    baton__descriptor_close(&self->listener);
    self->bootstrap->release(self->bootstrap, self->memory);
}

/* True if this rank can look for the process of another rank: the two share a
   host and a PID namespace. */
static bool can_look_for(const baton__exchange_t *self, int rank)
{
    const first_record_t *own = &self->records[self->rank];
    const first_record_t *other = &self->records[rank];
    return own->pids != 0 && own->host == other->host &&
           own->pids == other->pids;
}

/* Returns a rank of this host whose process has ended, or -1. */
static int exchange_find_ended(const baton__exchange_t *self)
{
    int found = -1;
    for (int i = 0; i < self->size && found < 0; i++) {
        struct pollfd end = {.fd = -1, .events = POLLIN};
        int own = -1;
        bool gone = false;
        if (self->cached != NULL) {
            end.fd = self->cached->host.liveness
                         .descriptors[self->cached->peers[i].local];
        } else if (can_look_for(self, i)) {
            end.fd = own = baton__liveness_process(self->records[i].process);
            gone = own < 0 && errno == ESRCH;
        }
        if (gone || poll(&end, 1, 0) == 1) {
            found = i;
        }
        baton__descriptor_close(&own);
    }
    return found;
}

/* Sets the error that `rank` has ended. The error also names `missing`, the
   ranks that this rank was waiting for ("" if none): `rank` may have ended
   because it had waited too long for them. */
static baton_status_t tell_ended(const baton__exchange_t *self, int rank,
                                 const char *missing)
{
    const int process = self->cached != NULL
                            ? self->cached->processes[rank].number
                            : (int)self->records[rank].process;
    char place[32] = ""; /* unknown before the first exchange */
    if (process > 0) {
        (void)snprintf(place, sizeof place, " (process %d)", process);
    }
    return baton__error(
        BATON_ERR_TRANSPORT,
        "%s: rank %d%s is gone: its process has ended%s%s: "
        "create the group without it",
        self->bootstrap->function, rank, place,
        missing[0] != '\0' ? ", while this rank waited for " : "", missing);
}

static baton_status_t tell_failed(const baton__exchange_t *self,
                                  baton_status_t elsewhere)
{
    return elsewhere == BATON_OK
               ? BATON_OK
               : baton__error(elsewhere,
                              "%s: the group could not be made on another "
                              "rank (%s), whose message says more",
                              self->bootstrap->function,
                              baton_status_text(elsewhere));
}

/* Names the ranks that have not taken part in the current exchange. */
static missing_t find_missing(const baton__exchange_t *self)
{
    missing_t missing = {"another rank"};
    if (self->bootstrap->missing != NULL) {
        self->bootstrap->missing(self->bootstrap, missing.text,
                                 sizeof missing.text);
    }
    return missing;
}

/* Logs a warning once if this rank has waited for long. Returns true if the
   wait is too long. In the first exchange the bootstrap sets the limit
   (first_ms); in later ones it is BATON_PEER_TIMEOUT_MS, because all ranks are
   making the group by then. */
static bool is_too_long(baton__exchange_t *self, uint64_t waited_ns)
{
    uint64_t stall_ms = (uint64_t)baton__config_number(BATON__CONFIG_STALL_MS);
    uint64_t most_ms =
        self->past_first
            ? (uint64_t)baton__config_number(BATON__CONFIG_PEER_TIMEOUT_MS)
            : self->bootstrap->first_ms;
    /* Ranks with higher numbers warn later, so that mostly only a few warnings
       appear. If the low ranks are the ones that are missing, the others still
       warn. */
    uint64_t turn = 1;
    for (int rank = self->rank; rank > 0; rank /= 2) {
        turn++;
    }
    if (!self->reported && waited_ns >= turn * stall_ms * NS_PER_MS) {
        self->reported = true;
        baton__log(BATON_LOG_WARN,
                   "%s: rank %d of %d has waited %s for %s: a rank has not "
                   "called it, is stopped, or has ended",
                   self->bootstrap->function, self->rank, self->size,
                   baton__time_text(waited_ns), find_missing(self).text);
    }
    return most_ms > 0 && waited_ns >= most_ms * NS_PER_MS;
}

/* Tells all other ranks that the rank `ended` has ended. Ranks on other hosts
   wait for data of that rank, and can't look for its process. */
static void tell_all(const baton__exchange_t *self, int ended)
{
    const baton__link_place_t *own = &self->records[self->rank].place;
    struct pollfd *all = baton__alloc((size_t)self->size, sizeof *all);
    int left = 0;
    for (int i = 0; all != NULL && i < self->size; i++) {
        const first_record_t *to = &self->records[i];
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
            const end_report_t report = {self->records[i].secret, ended};
            if (all[i].fd >= 0 && all[i].revents != 0) {
                (void)!send(all[i].fd, &report, sizeof report,
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

/* Takes one report from another rank. Returns the rank that has ended according
   to it; -1 if there is no report. */
static int receive_end_report(const baton__exchange_t *self)
{
    end_report_t report = {.ended = -1};
    int fd = self->listener >= 0
                 ? baton__descriptor_move(
                       accept4(self->listener, NULL, NULL, SOCK_CLOEXEC))
                 : -1;
    if (fd < 0) {
        return -1;
    }
    struct pollfd comes = {.fd = fd, .events = POLLIN};
    (void)poll(&comes, 1, REPORT_MS);
    ssize_t got = recv(fd, &report, sizeof report, MSG_DONTWAIT);
    baton__descriptor_close(&fd);
    return got == sizeof report && report.secret == self->secret &&
                   report.ended < self->size
               ? report.ended
               : -1;
}

/* A wait for the end of an exchange. */
typedef struct wait {
    bool done;
    /* The time waited so far, without the time in which the job was stopped. */
    uint64_t waited_ns;
    /* The value of waited_ns when this rank learned that `ended` has ended. */
    uint64_t ended_ns;
    int ended;     /* a rank whose process has ended; -1: all live */
    bool reported; /* another rank has reported the end of `ended` */
} wait_t;

/* Looks for a rank that has ended, until one is found. */
static void exchange_look_for_ended(const baton__exchange_t *self, wait_t *wait)
{
    if (wait->ended < 0) {
        wait->ended = exchange_find_ended(self);
        wait->ended_ns = wait->waited_ns;
    }
    if (wait->ended < 0) {
        wait->ended = receive_end_report(self);
        wait->reported = wait->ended >= 0;
    }
}

/* Yields or sleeps, depending on how long this rank has waited. Returns false
   if it must not wait any longer. */
static bool go_on_waiting(baton__exchange_t *self, wait_t *wait)
{
    if (wait->waited_ns < YIELD_NS) {
        (void)sched_yield();
        return true;
    }
    const uint64_t ns = wait->waited_ns / WAITED_FOR_A_SLEEP;
    (void)nanosleep(
        &(struct timespec){.tv_nsec =
                               (long)(ns < LONGEST_NS ? ns : LONGEST_NS)},
        NULL);
    exchange_look_for_ended(self, wait);
    return !is_too_long(self, wait->waited_ns) &&
           (wait->ended < 0 || wait->waited_ns < wait->ended_ns + LAST_NS);
}

/* Waits until the exchange has ended, or must be given up. Returns the status
   of the bootstrap. */
static baton_status_t exchange_wait(baton__exchange_t *self, wait_t *wait)
{
    baton_status_t status = BATON_OK;
    uint64_t seen_ns = baton__clock_ns();
    bool agreed = false;
    do {
        /* If all ranks are on one host, a rank that knows the agreed outcome
           may return, and its application may then remove the store. So if
           another rank of the host has decided that the group is made
           (baton__host_decide), this rank no longer waits for the store. */
        agreed = self->host != NULL && baton__host_has_agreed(self->host);
        status = self->bootstrap->test(self->bootstrap, &wait->done);
        const uint64_t now_ns = baton__clock_ns();
        const uint64_t since_ns = now_ns - seen_ns;
        wait->waited_ns += since_ns < MOST_NS ? since_ns : MOST_NS;
        seen_ns = now_ns;
    } while (status == BATON_OK && !wait->done && !agreed &&
             go_on_waiting(self, wait));
    return status;
}

/* Sets the error of an exchange in which this rank has waited for too long. */
static baton_status_t tell_late(const baton__exchange_t *self,
                                uint64_t waited_ns)
{
    if (!self->past_first) {
        return baton__error(
            BATON_ERR_TIMEOUT, "%s: rank %d of %d has waited %s for %s",
            self->bootstrap->function, self->rank, self->size,
            baton__time_text(waited_ns), find_missing(self).text);
    }
    return baton__error(BATON_ERR_TRANSPORT,
                        "%s has called %s, and not answered for %s "
                        "(BATON_PEER_TIMEOUT_MS): it is stopped, has ended, "
                        "or is out of reach",
                        find_missing(self).text, self->bootstrap->function,
                        baton__time_text(waited_ns));
}

/* Returns the error of an exchange that has failed; `status` is that of the
   bootstrap. */
static baton_status_t find_error(const baton__exchange_t *self,
                                 baton_status_t status, const wait_t *wait)
{
    int ended = wait->ended;
    if (self->bootstrap->is_store && status != BATON_OK) {
        return status; /* the store has failed, even if a rank has ended, too */
    }
    if (ended < 0) {
        /* MPI may have reported an error because a process has ended, before
           this rank has looked for the process. */
        ended = exchange_find_ended(self);
    }
    if (ended >= 0 && !wait->reported) {
        tell_all(self, ended);
    }
    if (ended >= 0) {
        return tell_ended(self, ended, find_missing(self).text);
    }
    return status != BATON_OK ? status : tell_late(self, wait->waited_ns);
}

void baton__exchange_complete(baton__exchange_t *self, baton_status_t status)
{
    wait_t wait = {.ended = -1};
    if (status == BATON_OK) {
        status = exchange_wait(self, &wait);
    }
    if (status != BATON_OK || !wait.done) {
        self->data = NULL;
        self->status = find_error(self, status, &wait);
    }
    self->past_first = true;
}

void *baton__exchange_gather(baton__exchange_t *self, const void *own,
                             size_t bytes)
{
    if (self->data != NULL) {
        memset(self->data, 0, (size_t)self->size * bytes);
        memcpy(self->data + (size_t)self->rank * bytes, own, bytes);
        baton__exchange_complete(
            self, self->bootstrap->gather(self->bootstrap, self->data, bytes));
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
    char text[HOST_NAME_MAX + 40] = "";
    (void)gethostname(text, HOST_NAME_MAX);
    size_t length = strlen(text);
    (void)baton__descriptor_read("/proc/sys/kernel/random/boot_id",
                                 text + length, sizeof text - length);
    for (const char *at = text; *at != '\0'; at++) {
        here.host = baton__mix(here.host ^ (unsigned char)*at);
    }
    here.pids = find_namespace("/proc/self/ns/pid");
    here.network = find_namespace("/proc/self/ns/net");
}

const baton__location_t *baton__location_own(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, find_location);
    return &here;
}

/* Returns true if all ranks have the same version of Baton and the same wire
   format; otherwise sets self->status and ends the exchange. All ranks come to
   the same result. */
static bool have_one_version(baton__exchange_t *self, const first_record_t *all)
{
    const first_record_t *own = &all[self->rank];
    int other = 0;
    while (other < self->size &&
           memcmp(&all[other], own, offsetof(first_record_t, cached)) == 0) {
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
    self->data = NULL;
    return false;
}

bool baton__exchange_first(baton__exchange_t *self, const baton__mpi_t *cached)
{
    const baton__location_t *here_now = baton__location_own();
    first_record_t own = {
        .format = BATON__WIRE_FORMAT,
        .cached = cached != NULL ? cached->host.doorbell.states[0].nonce : 0,
        .host = here_now->host,
        .pids = here_now->pids,
        .secret = self->secret,
        .process = getpid()};
    baton__links_find(&own.place, true);
    self->listener =
        baton__links_listen(&own.place, self->size, &own.place.port);
    (void)snprintf(own.version, sizeof own.version, "%s", baton_version());
    self->cached = self->bootstrap->process_ids == NULL ? cached : NULL;
    const first_record_t *all = baton__exchange_gather(self, &own, sizeof own);
    all = all != NULL && have_one_version(self, all) ? all : NULL;
    bool same = cached != NULL && all != NULL;
    for (int i = 0; all != NULL && i < self->size; i++) {
        same &= all[i].cached == own.cached;
        self->records[i] = all[i];
    }
    self->cached = NULL;
    return same;
}

baton_status_t baton__exchange_agree(baton__exchange_t *self,
                                     baton_status_t local)
{
    const int own = local;
    const int *all = baton__exchange_gather(self, &own, sizeof own);
    int worst = BATON_OK;
    if (all == NULL) {
        return self->status;
    }
    for (int i = 0; i < self->size; i++) {
        worst = all[i] < worst ? all[i] : worst;
    }
    return local == BATON_OK ? tell_failed(self, (baton_status_t)worst) : local;
}

baton_status_t baton__exchange_conclude(baton__exchange_t *self,
                                        baton__host_t *host,
                                        baton_status_t local)
{
    self->host =
        self->bootstrap->is_store && host->count == self->size ? host : NULL;
    baton_status_t all = baton__exchange_agree(self, local);
    bool failed = self->data == NULL;
    /* Every rank takes part in the decision, even after an error. Otherwise the
       ranks would have counted different numbers of decisions (host.h) if they
       keep this memory for a later group. */
    if (baton__host_decide(host, all == BATON_OK) == (all == BATON_OK) ||
        local != BATON_OK) {
        return all;
    }
    if (failed) {
        return BATON_OK;
    }
    int ended = exchange_find_ended(self);
    return ended >= 0 ? tell_ended(self, ended, "")
                      : tell_failed(self, BATON_ERR_TRANSPORT);
}
