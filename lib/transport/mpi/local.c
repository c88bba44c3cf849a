/* Opens the resources that the ranks of one host share: shared memory, sockets
   by which they wake each other, and access to each other's memory. The ranks
   first find out which of these the host permits. Every rank goes through all
   steps, with the same outcome on all ranks of a host. */
#include "transport/mpi/endpoint.h"

#include "base/config.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

/* A rank's text that says why the rank lacks a feature; "" if the rank has the
   feature, or does not know why it lacks the feature. */
typedef char reason_t[200];

static void local_say(const baton__opening_t *host, reason_t *why,
                      const char *what)
{
    (void)snprintf(*why, sizeof *why, "rank %d: %s", host->exchange->rank,
                   what);
}

/* Returns the flags that all ranks of this host have set. If ranks of this host
   give a reason, sets `why` to that of the lowest of these ranks. */
static unsigned all_of(const baton__opening_t *host, unsigned flags,
                       reason_t *why)
{
    struct {
        unsigned flags;
        reason_t why;
    } * all, own = {.flags = flags};
    static_assert(sizeof own <= BATON__EXCHANGE_BYTES, "a record fits");
    memcpy(own.why, *why, sizeof *why);
    all = baton__exchange_gather(host->exchange, &own, sizeof own);
    for (int i = host->exchange->size; all != NULL && i-- > 0;) {
        bool local = host->of[i] == host->of[host->first];
        flags &= local ? all[i].flags : flags;
        if (local && all[i].why[0] != '\0') {
            memcpy(*why, all[i].why, sizeof *why);
        }
    }
    return all != NULL ? flags : 0;
}

/* Features that a host may lack. The messages of log_lack say what Baton does
   if a feature is lacking. */
typedef enum lack {
    LACK_MEMORY,
    LACK_BUFFERS,
    LACK_SOCKETS,
    LACK_LIVENESS,
    LACK_CMA,
    LACKS
} lack_t;

/* Logs that the host lacks a feature. Only the host's first rank logs this, and
   only once in the life of its process, because later groups lack the same
   feature. */
static void log_lack(const baton__opening_t *host, lack_t lack, const char *why)
{
    static _Atomic bool logged[LACKS];
    static const char *const texts[][2] = {
        [LACK_MEMORY] = {"ranks of one host can't share memory",
                         "they send all messages over MPI; without MPI they "
                         "can't make a group"},
        [LACK_BUFFERS] = {"/dev/shm has little room",
                          "ranks have fewer than BATON_SHM_BUFFERS buffers, so "
                          "more messages take longer"},
        [LACK_SOCKETS] =
            {"ranks of one host are in different network namespaces",
             "they send all messages over MPI; without MPI they can't make a "
             "group"},
        [LACK_LIVENESS] =
            {"ranks of one host can't watch each other by "
             "pidfd_open",
             "a rank that is killed is noticed only by time-outs"},
        [LACK_CMA] = {
            "ranks of one host may not read each other's memory by "
            "process_vm_readv",
            "messages above 68 KiB are sent over MPI, or in small parts "
            "without MPI, unless they are in memory from baton_memory_alloc"}};
    if (host->index == 0 &&
        !atomic_exchange_explicit(&logged[lack], true, memory_order_relaxed)) {
        baton__log(BATON_LOG_WARN, "mpi: %s%s%s%s: %s", texts[lack][0],
                   *why != '\0' ? " (" : "", why, *why != '\0' ? ")" : "",
                   texts[lack][1]);
    }
}

/* Creates the memory that the ranks of this host share, and passes its
   descriptor to the other ranks. Called on the host's first rank. */
static baton_status_t create_host(const baton__opening_t *host,
                                  int *buffers_out, int *file_out)
{
    int wanted = (int)baton__config_number(BATON__CONFIG_SHM_BUFFERS);
    *buffers_out = baton__host_afford(host->size, wanted);
    if (*buffers_out < wanted) {
        log_lack(host, LACK_BUFFERS, "");
    }
    baton_status_t status =
        baton__host_create(host->size, *buffers_out, file_out);
    for (int i = 1; status == BATON_OK && i < host->size; i++) {
        /* If this fails, the receiving rank's baton__share_take reports the
           failure. */
        (void)baton__share_pass(host->socket, host->secret, i, *file_out);
    }
    return status;
}

/* Opens the memory that the ranks of this host share. Either all of them open
   it, or none does. */
static bool open_host(baton__mpi_t *mpi, baton__opening_t *host, reason_t *why)
{
    int buffers = 0;
    int file = -1;
    if (host->socket < 0) {
        local_say(host, why, baton__errno_text(host->error));
    } else if (host->index == 0 &&
               create_host(host, &buffers, &file) != BATON_OK) {
        local_say(host, why, baton_error_message());
    }
    /* The first rank takes part in this exchange only after it has passed the
       file. */
    const int *all =
        baton__exchange_gather(host->exchange, &buffers, sizeof buffers);
    if (host->index != 0 && host->socket >= 0) {
        file = baton__share_take(host->socket, host->secret);
        if (file < 0) {
            local_say(host, why, baton__errno_text(errno));
        }
    }
    bool open = all != NULL && file >= 0 &&
                baton__host_open(&mpi->host, file, host->size, host->index,
                                 all[host->first]) == BATON_OK;
    if (file >= 0 && !open) {
        local_say(host, why, baton_error_message());
    }
    baton__descriptor_close(&host->socket);
    baton__descriptor_close(&file);
    if (all_of(host, open, why)) {
        return true;
    }
    if (open) {
        baton__host_close(&mpi->host);
    }
    return false;
}

/* Makes the ranks of each host watch each other, in the rounds of liveness.h.
   True if all ranks of this host are watched. */
static bool watch_each_other(baton__mpi_t *mpi, const baton__opening_t *host,
                             bool open, reason_t *why)
{
    baton__liveness_t *liveness = &mpi->host.liveness;
    const baton__doorbell_t *doorbell = &mpi->host.doorbell;
    for (int k = 1; k < host->most; k++) {
        if (open && k < host->size) {
            baton__liveness_send(liveness, doorbell,
                                 (host->index + k) % host->size);
        }
        if (k % BATON__LIVENESS_ROUND == 0 || k == host->most - 1) {
            (void)baton__exchange_agree(host->exchange, BATON_OK);
            if (open) {
                baton__liveness_take(liveness, doorbell);
            }
            (void)baton__exchange_agree(host->exchange, BATON_OK);
        }
    }
    if (open && liveness->error != 0) {
        local_say(host, why, baton__errno_text(liveness->error));
    }
    return all_of(
        host, open && baton__liveness_is_complete(liveness, host->index), why);
}

static void local_set(baton__mpi_t *mpi, int rank, int local)
{
    mpi->peers[rank].local = local;
    mpi->peers[rank].ring = baton__host_ring(&mpi->host, local);
}

/* Numbers the ranks of this host in the order of the communicator. */
static void local_number(baton__mpi_t *mpi)
{
    int count = 0;
    for (int i = 0; i < mpi->size; i++) {
        if (mpi->host_of[i] == mpi->host_of[mpi->rank]) {
            local_set(mpi, i, count++);
        }
    }
}

static bool has_processor_each(const baton__mpi_t *mpi)
{
    const baton_transport_t *transport = &mpi->transport;
    return transport->host_processors > 0 &&
           transport->host_ranks <= transport->host_processors;
}

/* The longest message that a sender writes into a posted receive. A sender
   should write only data that is in its cache. It has just computed a sum, so
   the sum and its two operands are there if they fit into the rank's share of a
   processor's second-level cache. With 4 ranks on 2 processors that have a
   cache of 2 MiB each, messages of 1 MiB were not faster if they were
   written. */
static size_t most_put(const baton__mpi_t *mpi)
{
    const baton_transport_t *transport = &mpi->transport;
    long known = sysconf(_SC_LEVEL2_CACHE_SIZE);
    size_t bytes = known > 0 ? (size_t)known : (size_t)1 << 20;
    if (!has_processor_each(mpi)) {
        bytes = bytes * (size_t)transport->host_processors /
                (size_t)transport->host_ranks;
    }
    return bytes / 3;
}

/* Flags: how ranks can access each other's memory. */
enum { READS = 1, WRITES = 2 };

/* Finds out how all ranks of this host can access each other's memory. */
static unsigned probe_access(baton__mpi_t *mpi, const baton__opening_t *host,
                             bool open, reason_t *why)
{
    int error = open ? baton__host_probe(&mpi->host, false) : 0;
    unsigned able = open && error == 0 ? READS : 0;
    if (error != 0) {
        local_say(host, why, baton__errno_text(error));
    } else if (open && host->reads &&
               baton__host_probe(&mpi->host, true) == 0) {
        able |= WRITES;
    }
    return all_of(host, able, why);
}

/* Chooses which messages go through buffers, and which are read or written. */
static void choose_ways(baton__mpi_t *mpi, const baton__opening_t *host,
                        unsigned able)
{
    if (!mpi->reads && host->exchange->bootstrap->is_store) {
        /* A group that meets in a store may have no wire. So data that a rank
           may not read from its peer's memory is sent in parts through the
           ring. */
        for (int i = 0; i < mpi->size; i++) {
            mpi->peers[i].refused = true;
        }
        mpi->reads = true;
    }
    mpi->put_bytes = able & WRITES ? most_put(mpi) : 0;
    mpi->asks = able & WRITES && has_processor_each(mpi);
    if (mpi->host.buffers > 0) {
        mpi->buffered_bytes = mpi->reads && has_processor_each(mpi)
                                  ? BATON__MPI_OWN_BYTES
                                  : BATON__HOST_BUFFER_BYTES;
        mpi->transport.copy_bytes = mpi->buffered_bytes;
    }
    mpi->put_above = mpi->buffered_bytes > BATON__MPI_OWN_BYTES
                         ? mpi->buffered_bytes
                         : BATON__MPI_OWN_BYTES;
}

/* Opens the shared memory of this host's ranks. Returns false if they share
   nothing and send over MPI. */
static bool share(baton__mpi_t *mpi, baton__opening_t *host)
{
    reason_t unshared = "";
    reason_t unwatched = "";
    reason_t unread = "";
    bool open = open_host(mpi, host, &unshared);
    bool watch = watch_each_other(mpi, host, open, &unwatched);
    unsigned able = probe_access(mpi, host, open, &unread);
    mpi->reads = able & READS && host->reads;
    if (host->exchange->status != BATON_OK && open) {
        baton__host_close(&mpi->host);
    }
    if (host->exchange->status != BATON_OK || host->size == 1 ||
        !host->shares) {
        return false;
    }
    if (!open) {
        log_lack(host, host->reaches ? LACK_MEMORY : LACK_SOCKETS,
                 host->reaches ? unshared : "");
        return false;
    }
    if (!watch) {
        log_lack(host, LACK_LIVENESS, unwatched);
    }
    if ((able & READS) == 0) {
        log_lack(host, LACK_CMA, unread);
    }
    local_number(mpi);
    choose_ways(mpi, host, able);
    return true;
}

baton_status_t baton__local_open(baton__mpi_t *mpi, baton__opening_t *host)
{
    if (share(mpi, host)) {
        return BATON_OK;
    }
    mpi->reads = true;
    mpi->transport.allocate = NULL;
    mpi->transport.release = NULL;
    int file = -1;
    if (host->size == 1 && host->shares && mpi->size > 1) {
        /* If this fails, no other process can read how late this rank is
           (baton/lateness.h). */
        (void)baton__host_create(1, 0, &file);
    }
    baton_status_t status = baton__host_open(&mpi->host, file, 1, 0, 0);
    baton__descriptor_close(&file);
    if (status == BATON_OK) {
        local_set(mpi, mpi->rank, 0);
    }
    return status;
}
