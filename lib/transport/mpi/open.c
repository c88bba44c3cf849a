/* How an MPI endpoint is opened and closed: collectively, with one outcome on
   all ranks. Opening finds out which ranks share a host, what they share there,
   and how ranks on other hosts can be woken; every rank goes through all of its
   steps. */
#include "transport/mpi/endpoint.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/error.h"
#include "base/log.h"
#include "transport/group.h"

#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* What has not answered by then can't be reached. */
enum { PROOF_NS = 1000000000 };

/* The ranks of this host, while the endpoint is opened. */
typedef struct host {
    MPI_Comm comm;
    int size;
    int index; /* of this rank */
} host_t;

baton_status_t baton__mpi_agree(MPI_Comm comm, baton_status_t local)
{
    int mine = local;
    int worst = local;
    int code = PMPI_Allreduce(&mine, &worst, 1, MPI_INT, MPI_MIN, comm);
    if (code != MPI_SUCCESS) {
        return baton__mpi_error("MPI_Allreduce", code);
    }
    if (local == BATON_OK && worst != BATON_OK) {
        return baton__error((baton_status_t)worst,
                            "mpi: the group could not be made on another rank "
                            "(%s), whose message says more",
                            baton_status_text((baton_status_t)worst));
    }
    return local;
}

/* True if `mine` is true on all ranks. */
static bool all_of(MPI_Comm comm, bool mine)
{
    int here = mine;
    int all = 0;
    return PMPI_Allreduce(&here, &all, 1, MPI_INT, MPI_MIN, comm) ==
               MPI_SUCCESS &&
           all != 0;
}

/* ---- shared memory ----------------------------------------------------- */

/* What the ranks of a host can't do, and what is done instead. */
typedef enum lack {
    LACK_MEMORY,
    LACK_BUFFERS,
    LACK_SOCKETS,
    LACK_LIVENESS,
    LACK_CMA,
    LACKS
} lack_t;

/* Logs it, by one rank of the host and once in its life: later groups lack the
   same. */
static void log_lack(const host_t *host, lack_t lack)
{
    static _Atomic bool logged[LACKS];
    static const char *const texts[] = {
        [LACK_MEMORY] = "ranks of one host can't share memory (is /dev/shm "
                        "full?): they send all messages over MPI",
        [LACK_BUFFERS] =
            "/dev/shm has little room: ranks have fewer than BATON_SHM_BUFFERS "
            "buffers, so more messages take longer",
        [LACK_SOCKETS] = "ranks of one host are in different network "
                         "namespaces: they send all messages over MPI",
        [LACK_LIVENESS] =
            "ranks of one host can't watch each other (pidfd_open, before "
            "Linux 5.3?): a killed one is noticed by time-outs only",
        [LACK_CMA] = "ranks of one host may not read each other's memory "
                     "(process_vm_readv): MPI copies messages above 68 KiB, "
                     "unless their memory is of baton_memory_alloc"};
    if (host->index == 0 &&
        !atomic_exchange_explicit(&logged[lack], true, memory_order_relaxed)) {
        baton__log(BATON_LOG_WARN, "mpi: %s", texts[lack]);
    }
}

/* The first rank of the host creates what they share, and passes it to the
   others; false if their sockets can't be reached. */
static bool create_host(const host_t *host, int *buffers_out, int *file_out,
                        int socket, uint64_t secret)
{
    bool passed = true;
    int wanted = (int)baton__config_number(BATON__CONFIG_SHM_BUFFERS);
    *buffers_out = baton__host_afford(host->size, wanted);
    if (*buffers_out < wanted) {
        log_lack(host, LACK_BUFFERS);
    }
    if (baton__host_create(host->size, *buffers_out, file_out) == BATON_OK) {
        for (int i = 1; i < host->size; i++) {
            passed &= baton__share_pass(socket, secret, i, *file_out);
        }
    }
    return passed;
}

/* All ranks of the host open it, or none does. */
static bool open_host(baton__mpi_t *mpi, const host_t *host, lack_t *lack_out)
{
    uint64_t secret = host->index == 0 ? baton__share_random() : 0;
    int buffers = 0;
    int file = -1;
    (void)PMPI_Bcast(&secret, 1, MPI_UINT64_T, 0, host->comm);
    int socket = baton__share_socket(secret, host->index);
    bool open = all_of(host->comm, socket >= 0);
    *lack_out = LACK_MEMORY;
    if (open && host->index == 0 &&
        !create_host(host, &buffers, &file, socket, secret)) {
        *lack_out = LACK_SOCKETS;
    }
    open = open && PMPI_Bcast(&buffers, 1, MPI_INT, 0, host->comm) ==
                       MPI_SUCCESS; /* behind what was passed */
    if (open && host->index != 0) {
        file = baton__share_take(socket, secret);
    }
    open = open && file >= 0 &&
           baton__host_open(&mpi->host, file, host->size, host->index,
                            buffers) == BATON_OK;
    if (socket >= 0) {
        (void)close(socket);
    }
    if (file >= 0) {
        (void)close(file);
    }
    return all_of(host->comm, open);
}

static bool reach_all(const baton__mpi_t *mpi)
{
    for (int i = 0; i < mpi->host.count; i++) {
        if (!baton__doorbell_reaches(&mpi->host.doorbell, i)) {
            return false;
        }
    }
    return true;
}

/* The ranks of the host watch each other, in the rounds of liveness.h. */
static void watch_each_other(baton__mpi_t *mpi, const host_t *host)
{
    baton__liveness_t *liveness = &mpi->host.liveness;
    const baton__doorbell_t *doorbell = &mpi->host.doorbell;
    for (int k = 1; k < host->size; k++) {
        baton__liveness_send(doorbell, (host->index + k) % host->size);
        if (k % BATON__LIVENESS_ROUND == 0 || k == host->size - 1) {
            (void)PMPI_Barrier(host->comm);
            baton__liveness_take(liveness, doorbell);
            (void)PMPI_Barrier(host->comm);
        }
    }
    bool complete = baton__liveness_is_complete(liveness, host->index);
    if (!all_of(host->comm, complete)) {
        log_lack(host, LACK_LIVENESS);
    }
}

static void set_near(baton__mpi_t *mpi, int rank, int near)
{
    mpi->peers[rank].near = near;
    mpi->peers[rank].ring = baton__host_ring(&mpi->host, near);
}

/* Numbers the host's ranks: there they have the order of the communicator. */
static void number(baton__mpi_t *mpi)
{
    int count = 0;
    for (int i = 0; i < mpi->size; i++) {
        if (mpi->host_of[i] == mpi->host_of[mpi->rank]) {
            set_near(mpi, i, count++);
        }
    }
}

static bool has_processor_each(const baton__mpi_t *mpi)
{
    const baton_transport_t *transport = &mpi->transport;
    return transport->host_processors > 0 &&
           transport->host_ranks <= transport->host_processors;
}

/* A sender writes what its cache has, which is what it has just summed: that,
   and the two operands, are in the rank's share of a processor's second level
   then. On 4 ranks of 2 processors with 2 MiB each, 1 MiB takes no less. */
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

/* Opens what the ranks of the host share; false if that is only MPI. */
static bool share(baton__mpi_t *mpi, const host_t *host)
{
    bool wanted = baton__config_number(BATON__CONFIG_SHM) != 0;
    bool reads = baton__config_number(BATON__CONFIG_CMA) != 0;
    if (host->size == 1 || !all_of(host->comm, wanted)) {
        return false;
    }
    lack_t lack;
    bool open = open_host(mpi, host, &lack);
    if (!open || !all_of(host->comm, reach_all(mpi))) {
        log_lack(host, open ? LACK_SOCKETS : lack);
        baton__host_close(&mpi->host);
        return false;
    }
    watch_each_other(mpi, host);
    bool permitted = all_of(host->comm, baton__host_probe(&mpi->host, false));
    mpi->reads = all_of(host->comm, reads) && permitted;
    bool writes =
        all_of(host->comm, mpi->reads && baton__host_probe(&mpi->host, true));
    mpi->put_bytes = writes ? most_put(mpi) : 0;
    if (!permitted) {
        log_lack(host, LACK_CMA);
    }
    number(mpi);
    mpi->asks = writes && has_processor_each(mpi);
    if (mpi->host.buffers > 0) {
        mpi->buffered_bytes = mpi->reads && has_processor_each(mpi)
                                  ? BATON__MPI_OWN_BYTES
                                  : BATON__HOST_BUFFER_BYTES;
        mpi->transport.copy_bytes = mpi->buffered_bytes;
    }
    mpi->put_above = mpi->buffered_bytes > BATON__MPI_OWN_BYTES
                         ? mpi->buffered_bytes
                         : BATON__MPI_OWN_BYTES;
    return true;
}

static baton_status_t share_or_open_alone(baton__mpi_t *mpi, const host_t *host)
{
    if (share(mpi, host)) {
        return BATON_OK;
    }
    mpi->reads = true;
    mpi->transport.allocate = NULL;
    mpi->transport.release = NULL;
    baton_status_t status = baton__host_open(&mpi->host, -1, 1, 0, 0);
    if (status == BATON_OK) {
        set_near(mpi, mpi->rank, 0);
    }
    return status;
}

/* ---- processors -------------------------------------------------------- */

/* What the control group of this process gives it, in whole processors; 0 if no
   limit is known. */
static int quota(void)
{
    char limit[32];
    double period = 0;
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (file == NULL) {
        return 0;
    }
    bool read = fscanf(file, "%31s %lf", limit, &period) == 2;
    (void)fclose(file);
    double share = read && period > 0 ? atof(limit) / period : 0; /* "max": 0 */
    return share > 0 && share < INT_MAX - 1 ? (int)(share + 0.999) : 0;
}

/* Where this thread may run. Unknown: nowhere; the others wait for this rank
   all the same. */
static cpu_set_t own_processors(void)
{
    cpu_set_t own;
    if (sched_getaffinity(0, sizeof own, &own) != 0) {
        CPU_ZERO(&own);
    }
    return own;
}

/* Counts the processors on which any of the host's ranks may run. All hosts
   agree on the least number: algorithms are chosen by it. */
static void count_processors(baton__mpi_t *mpi, const host_t *host)
{
    cpu_set_t all;
    mpi->processors = own_processors();
    if (PMPI_Allreduce(&mpi->processors, &all, sizeof all, MPI_BYTE, MPI_BOR,
                       host->comm) != MPI_SUCCESS) {
        return;
    }
    int count = CPU_COUNT(&all);
    int most = quota();
    int least = most > 0 && most < count ? most : count;
    if (PMPI_Allreduce(MPI_IN_PLACE, &least, 1, MPI_INT, MPI_MIN, mpi->comm) ==
        MPI_SUCCESS) {
        mpi->transport.host_processors = least;
    }
}

/* Counts the ranks of the whole job on this host, which Open MPI tells. */
static int count_ranks(const host_t *host)
{
    const char *text = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    long job = text != NULL ? strtol(text, NULL, 10) : 0;
    return job > host->size && job < INT_MAX ? (int)job : host->size;
}

/* ---- other hosts ------------------------------------------------------- */

/* Tells all ranks where this one is. */
static baton_status_t exchange_places(baton__mpi_t *mpi, const host_t *host)
{
    baton__links_t *links = &mpi->far.links;
    if (mpi->far.peers == 0) {
        return BATON_OK; /* on all ranks */
    }
    baton_status_t status = baton__mpi_agree(
        mpi->comm, baton__links_open(links, mpi->rank, mpi->size,
                                     host->size == mpi->size));
    if (status != BATON_OK) {
        return status;
    }
    links->nonce = mpi->rank == 0 ? baton__share_random() : 0;
    int code = PMPI_Bcast(&links->nonce, 1, MPI_UINT64_T, 0, mpi->comm);
    if (code == MPI_SUCCESS) {
        code = PMPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, links->places,
                              sizeof *links->places, MPI_BYTE, mpi->comm);
    }
    return baton__mpi_error("MPI_Allgather", code);
}

/* From here on this rank answers; tells all where. */
static baton_status_t exchange_answers(baton__mpi_t *mpi)
{
    baton__links_t *links = &mpi->far.links;
    baton__answers_t *answers = &mpi->answers;
    uint16_t port = 0;
    if (mpi->size == 1) {
        return BATON_OK;
    }
    const baton__link_place_t *place =
        mpi->far.peers > 0 ? &links->places[mpi->rank] : NULL;
    int listener = baton__links_listen(place, mpi->size, &port);
    baton_status_t status =
        baton__mpi_agree(mpi->comm, baton__answers_open(answers, listener,
                                                        mpi->rank, mpi->size));
    if (status != BATON_OK) {
        return status;
    }
    links->answers = answers->listener;
    answers->places[mpi->rank].port = port;
    int code =
        PMPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, answers->places,
                       sizeof *answers->places, MPI_BYTE, mpi->comm);
    return baton__mpi_error("MPI_Allgather", code);
}

/* Finds out whether the addresses of other hosts lead there: the first rank of
   this one asks the first one of each, and tells the others. */
static baton_status_t prove_addresses(baton__mpi_t *mpi, const host_t *host)
{
    const uint64_t deadline_ns = baton__clock_ns() + PROOF_NS;
    struct sockaddr_storage to;
    socklen_t bytes;
    int hosts = 0; /* whose first rank was seen */
    for (int i = 0; i < mpi->size && host->index == 0; i++) {
        bool first = mpi->host_of[i] == hosts;
        hosts += first;
        mpi->far.reached[i] =
            first && mpi->host_of[i] != mpi->host_of[mpi->rank] &&
            baton__mpi_answers_at(mpi, i, &to, &bytes) &&
            baton__answers_prove(&mpi->answers, i, (struct sockaddr *)&to,
                                 bytes, deadline_ns);
    }
    int code = PMPI_Bcast(mpi->far.reached, mpi->size, MPI_BYTE, 0, host->comm);
    return baton__mpi_error("MPI_Bcast", code);
}

/* Open MPI 4.1.4 writes to the connection of a rank that is gone as to any
   other, which would end this process, too. An application that handles SIGPIPE
   itself is left to that. */
static void outlive_broken_pipes(void)
{
    struct sigaction now;
    if (sigaction(SIGPIPE, NULL, &now) == 0 &&
        (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_DFL) {
        now.sa_handler = SIG_IGN;
        (void)sigaction(SIGPIPE, &now, NULL);
    }
}

/* Finds out which rank is on which host. */
static baton_status_t find_hosts(baton__mpi_t *mpi, const host_t *host)
{
    int lowest = mpi->rank;
    int code = PMPI_Bcast(&lowest, 1, MPI_INT, 0, host->comm);
    if (code == MPI_SUCCESS) {
        code = PMPI_Allgather(&lowest, 1, MPI_INT, mpi->host_of, 1, MPI_INT,
                              mpi->comm);
    }
    if (code == MPI_SUCCESS) {
        baton__group_number_hosts(&mpi->transport, mpi->host_of, mpi->size);
    }
    return baton__mpi_error("MPI_Allgather", code);
}

static int host_of(const void *endpoint, int rank)
{
    const baton__mpi_t *mpi = endpoint;
    return mpi->host_of[rank];
}

static void lose(void *endpoint, int peer, const char *detail)
{
    baton__mpi_t *mpi = endpoint;
    mpi->alone |= peer == mpi->rank;
    if (peer != mpi->rank) {
        baton__mpi_lose(mpi, &mpi->peers[peer], detail);
    }
}

/* Finds the ranks of this host, and opens what they share. */
static baton_status_t meet(baton__mpi_t *mpi)
{
    host_t host;
    int code = PMPI_Comm_split_type(mpi->comm, MPI_COMM_TYPE_SHARED, mpi->rank,
                                    MPI_INFO_NULL, &host.comm);
    if (code != MPI_SUCCESS) {
        return baton__mpi_error("MPI_Comm_split_type", code);
    }
    PMPI_Comm_size(host.comm, &host.size);
    PMPI_Comm_rank(host.comm, &host.index);
    mpi->transport.host_ranks = count_ranks(&host);
    count_processors(mpi, &host);
    baton_status_t status = find_hosts(mpi, &host);
    if (status == BATON_OK) {
        status = share_or_open_alone(mpi, &host);
    }
    status = baton__mpi_agree(mpi->comm, status);
    if (status == BATON_OK) {
        mpi->far.peers = mpi->size - mpi->host.count;
        mpi->transport.strangers = mpi->far.peers > 0; /* no link with it */
        mpi->transport.verify = /* if any rank wants it */
            !all_of(mpi->comm, baton__config_number(BATON__CONFIG_VERIFY) == 0);
        status = exchange_places(mpi, &host);
    }
    if (status == BATON_OK) {
        status = exchange_answers(mpi);
    }
    if (mpi->far.peers > 0) {
        outlive_broken_pipes();
    }
    if (status == BATON_OK && mpi->far.peers > 0) {
        status = prove_addresses(mpi, &host);
    }
    (void)PMPI_Comm_free(&host.comm);
    return status;
}

/* ---- MPI_Finalize ------------------------------------------------------ */

/* The endpoint that was closed last, if its ranks share this host and have all
   left it together. A group of the same ranks takes it over, see take_over():
   to close it and open another takes far longer. Exchanged by threads that
   create or close groups of different ranks. */
static _Atomic(baton__mpi_t *) kept;

/* MPI_Finalize deletes the attributes of MPI_COMM_SELF first. From here on the
   endpoint calls MPI no more; see baton__far_enter(). */
static int on_finalize(MPI_Comm comm, int keyval, void *value, void *extra)
{
    baton__mpi_t *mpi = value;
    baton__mpi_t *unused = mpi;
    (void)comm;
    (void)keyval;
    (void)extra;
    if (mpi->far.closing) { /* the endpoint is being closed, or kept */
        if (atomic_compare_exchange_strong_explicit(&kept, &unused, NULL,
                                                    memory_order_acq_rel,
                                                    memory_order_relaxed)) {
            MPI_Comm own = mpi->comm;
            baton__mpi_free(mpi);
            (void)PMPI_Comm_free(&own);
        }
        return MPI_SUCCESS;
    }
    baton__log(BATON_LOG_ERROR,
               "mpi: rank %d of %d: MPI_Finalize was called before this group "
               "was destroyed: destroy it first",
               mpi->rank, mpi->size);
    atomic_store_explicit(&mpi->far.finalized, true, memory_order_seq_cst);
    while (atomic_load_explicit(&mpi->far.inside, memory_order_seq_cst) > 0) {
        (void)sched_yield();
    }
    return MPI_SUCCESS;
}

static baton_status_t watch_finalize(baton__mpi_t *mpi)
{
    int code = PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_finalize,
                                       &mpi->far.keyval, NULL);
    if (code == MPI_SUCCESS) {
        code = PMPI_Comm_set_attr(MPI_COMM_SELF, mpi->far.keyval, mpi);
    }
    return baton__mpi_error("MPI_Comm_set_attr", code);
}

static void unwatch_finalize(baton__mpi_t *mpi)
{
    if (mpi->far.keyval != MPI_KEYVAL_INVALID) {
        (void)PMPI_Comm_delete_attr(MPI_COMM_SELF, mpi->far.keyval);
        (void)PMPI_Comm_free_keyval(&mpi->far.keyval);
    }
}

/* ---- closing ----------------------------------------------------------- */

void baton__mpi_free(baton__mpi_t *mpi)
{
    baton__far_close(mpi); /* a child closes no descriptors from here on */
    baton__answers_close(&mpi->answers);
    baton__host_close(&mpi->host);
    baton__mpi_free_pools(mpi);
    baton__free(mpi->far.reached);
    baton__free(mpi->host_of);
    baton__free(mpi->peers);
    baton__free(mpi);
}

/* Takes what comes, and drops all of it. */
static void drop_arrivals(baton__mpi_t *mpi)
{
    baton_event_t events[16];
    size_t count = baton__mpi_poll(mpi, events, 16);
    for (size_t i = 0; i < count; i++) {
        if (events[i].kind == BATON_EVENT_ARRIVED) {
            baton__mpi_drop(mpi, events[i].message);
        }
    }
}

static bool is_drained(const baton__mpi_t *mpi, const uint32_t *expected)
{
    for (int i = 0; i < mpi->size; i++) {
        if (mpi->peers[i].near < 0 &&
            mpi->peers[i].packets_taken != expected[i]) {
            return false;
        }
    }
    return mpi->far.count == 0 && mpi->far.packets_unsent == 0;
}

/* All ranks tell each other how many packets they have sent; from then on none
   sends any. Each takes what the others have sent, so that nothing is left of
   it when the communicator is freed. False if MPI is still at it, as a rank is
   lost that has not told: the communicator must not be freed then. */
static bool drain(baton__mpi_t *mpi, uint64_t deadline_ns)
{
    size_t size = (size_t)mpi->size;
    uint32_t *counts = baton__alloc(2 * size, sizeof *counts);
    if (counts == NULL || !baton__far_enter(mpi)) {
        baton__free(counts);
        return true;
    }
    MPI_Request request;
    int told = 0;
    mpi->far.closing = true;
    for (size_t i = 0; i < size; i++) {
        counts[i] = mpi->peers[i].packets_sent;
    }
    int code = PMPI_Ialltoall(counts, 1, MPI_UINT32_T, counts + size, 1,
                              MPI_UINT32_T, mpi->comm, &request);
    while (code == MPI_SUCCESS && !mpi->lost_any &&
           baton__clock_ns() < deadline_ns) {
        code =
            told ? MPI_SUCCESS : PMPI_Test(&request, &told, MPI_STATUS_IGNORE);
        drop_arrivals(mpi);
        if (told && is_drained(mpi, counts + size)) {
            break;
        }
        (void)sched_yield();
    }
    baton__far_leave(mpi);
    if (told) {
        baton__free(counts); /* else MPI may still write there */
    }
    return told != 0;
}

/* NULL, too. in_use: MPI may still use its communicator. */
static void free_endpoint(baton__mpi_t *mpi, bool in_use)
{
    if (mpi != NULL) {
        MPI_Comm comm = mpi->comm;
        mpi->far.closing = true;
        unwatch_finalize(mpi);
        baton__mpi_free(mpi);
        if (!in_use) {
            (void)PMPI_Comm_free(&comm);
        }
    }
}

/* True if all its ranks are on this host, and nothing of this one is left in
   motion. */
static bool is_as_new(const baton__mpi_t *mpi)
{
    return mpi->far.peers == 0 && mpi->host.count > 1 && !mpi->lost_any &&
           !mpi->alone && mpi->listed == NULL && mpi->far.count == 0 &&
           mpi->in_use == 0;
}

static void close_endpoint(void *endpoint)
{
    baton__mpi_t *mpi = endpoint;
    bool idle = true;
    baton__mpi_flush_bells(mpi);
    if (atomic_load_explicit(&mpi->far.finalized, memory_order_relaxed)) {
        baton__mpi_free(mpi);
        return;
    }
    uint64_t ms = (uint64_t)baton__config_number(BATON__CONFIG_DESTROY_MS);
    if (mpi->far.peers > 0 && !mpi->lost_any) {
        idle = drain(mpi, baton__clock_ns() + ms * 1000000);
    }
    mpi->far.closing = true;
    if (is_as_new(mpi)) {
        baton__doorbell_disarm(&mpi->host.doorbell);
        baton__answers_hang_up(&mpi->answers);
        baton__mappings_clear(&mpi->host.mappings);
        baton__segments_clear(&mpi->host.segments);
        mpi = atomic_exchange_explicit(&kept, mpi, memory_order_acq_rel);
    }
    free_endpoint(mpi, !idle);
}

/* ---- opening ----------------------------------------------------------- */

static const baton_transport_t mpi_transport = {
    .size = sizeof(baton_transport_t),
    .name = "mpi",
    .reserve = baton__mpi_reserve,
    .send = baton__mpi_send,
    .notify = baton__mpi_notify,
    .withdraw = baton__mpi_withdraw,
    .poll = baton__mpi_poll,
    .flush = baton__mpi_flush_bells,
    .accept = baton__mpi_accept,
    .drop = baton__mpi_drop,
    .descriptor = baton__mpi_descriptor,
    .drain = baton__mpi_drain,
    .arm = baton__mpi_arm,
    .disarm = baton__mpi_disarm,
    .close = close_endpoint,
    .max_bytes = PTRDIFF_MAX,
    .lend = baton__mpi_lend,
    .read = baton__mpi_read,
    .post_receive = baton__mpi_post_receive,
    .withdraw_receive = baton__mpi_withdraw_receive,
    .allocate = baton__mpi_allocate,
    .release = baton__mpi_deallocate,
    .takes_device = baton__mpi_takes_device,
    .is_copying = baton__mpi_is_copying,
    .host_of = host_of,
    .lose = lose,
    .ask = baton__mpi_ask,
};

static void init_far(baton__far_t *far)
{
    for (int i = 0; i < BATON__MPI_PACKETS; i++) {
        far->arrivals[i] = MPI_REQUEST_NULL;
        far->departures[i] = MPI_REQUEST_NULL;
    }
    baton__links_init(&far->links);
    far->keyval = MPI_KEYVAL_INVALID;
    far->part_bytes = (size_t)baton__config_number(BATON__CONFIG_FAR_PART);
}

baton_status_t baton__mpi_make(MPI_Comm comm, baton__mpi_t **out)
{
    int size = 0;
    int rank = 0;
    PMPI_Comm_size(comm, &size);
    PMPI_Comm_rank(comm, &rank);
    baton__mpi_t *mpi = baton__alloc(1, sizeof *mpi);
    baton__peer_t *peers = baton__alloc((size_t)size, sizeof *peers);
    int *hosts = baton__alloc((size_t)size, sizeof *hosts);
    unsigned char *reached = baton__alloc((size_t)size, 1);
    if (mpi == NULL || peers == NULL || hosts == NULL || reached == NULL) {
        baton__free(reached);
        baton__free(mpi);
        baton__free(peers);
        baton__free(hosts);
        return baton__error(BATON_ERR_NO_MEMORY,
                            "mpi: no memory for a group of %d ranks", size);
    }
    mpi->transport = mpi_transport;
    mpi->comm = comm;
    mpi->size = size;
    mpi->rank = rank;
    mpi->peers = peers;
    mpi->host_of = hosts;
    mpi->window = (uint32_t)baton__config_number(BATON__CONFIG_WINDOW);
    mpi->answers.listener = -1;
    for (int i = 0; i < size; i++) {
        peers[i].near = -1;
        peers[i].notices.limit = BATON__MPI_NOTICES;
        peers[i].notices.granted = BATON__MPI_NOTICES;
        peers[i].notices.reported = BATON__MPI_NOTICES;
    }
    init_far(&mpi->far);
    mpi->far.reached = reached;
    *out = mpi;
    return BATON_OK;
}

/* Checks what no rank can disagree about, so that no rank need be told. */
static baton_status_t check_comm(MPI_Comm comm)
{
    int yes = 0;
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

/* After meeting: the rest that can fail on one rank alone. */
static baton_status_t complete(baton__mpi_t *mpi)
{
    baton_status_t status = baton__mpi_reserve_notices(mpi);
    if (status == BATON_OK) {
        status = baton__far_open(mpi);
    }
    return status == BATON_OK ? watch_finalize(mpi) : status;
}

/* A communicator of the same ranks. A duplicate would be one, too, but run the
   functions by which the application copies its attributes. */
static baton_status_t separate(MPI_Comm comm, MPI_Comm *out)
{
    MPI_Group all;
    int code = PMPI_Comm_group(comm, &all);
    if (code == MPI_SUCCESS) {
        code = PMPI_Comm_create(comm, all, out);
        (void)PMPI_Group_free(&all);
    }
    return baton__mpi_error("MPI_Comm_create", code);
}

static baton_status_t open_new(MPI_Comm comm, baton_status_t local,
                               baton__mpi_t **out)
{
    MPI_Comm own = MPI_COMM_NULL;
    baton_status_t status = separate(comm, &own);
    if (status != BATON_OK) {
        return status;
    }
    (void)PMPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
    status = local != BATON_OK ? local : baton__mpi_make(own, out);
    status = baton__mpi_agree(own, status);
    if (status == BATON_OK && *out != NULL) {
        status = meet(*out);
        status = status == BATON_OK ? complete(*out) : status;
        status = baton__mpi_agree(own, status);
    }
    if (status != BATON_OK && *out == NULL) {
        (void)PMPI_Comm_free(&own);
    }
    return status;
}

/* Finds the least that any rank has of each of two numbers, when all have come.
   They are awaited without a call that blocks in MPI, which would take a
   processor meanwhile: after some yields by sleeps of a part of the time waited
   so far. One that never comes keeps the others here, which say so once. */
static int await_all(MPI_Comm comm, uint64_t least[2])
{
    enum { YIELD_NS = 30000000, SLEEP_PARTS = 16, MOST_NS = 10000000 };
    const uint64_t began_ns = baton__clock_ns();
    uint64_t warn_ns =
        (uint64_t)baton__config_number(BATON__CONFIG_STALL_MS) * 1000000;
    MPI_Request request;
    int come = 0;
    int code = PMPI_Iallreduce(MPI_IN_PLACE, least, 2, MPI_UINT64_T, MPI_MIN,
                               comm, &request);
    while (code == MPI_SUCCESS) {
        code = PMPI_Test(&request, &come, MPI_STATUS_IGNORE);
        if (come || code != MPI_SUCCESS) {
            break;
        }
        uint64_t waited_ns = baton__clock_ns() - began_ns;
        uint64_t sleep_ns = waited_ns / SLEEP_PARTS;
        if (waited_ns < YIELD_NS) {
            (void)sched_yield();
            continue;
        }
        if (waited_ns >= warn_ns) {
            warn_ns = UINT64_MAX;
            baton__log(BATON_LOG_WARN,
                       "mpi: this rank has waited %.1f s in "
                       "baton_group_create_mpi: another rank of the "
                       "communicator has not called it, is stopped, or has "
                       "ended",
                       (double)waited_ns / 1e9);
        }
        const struct timespec sleep = {
            .tv_nsec = (long)(sleep_ns < MOST_NS ? sleep_ns : MOST_NS)};
        (void)nanosleep(&sleep, NULL);
    }
    return code;
}

/* The endpoint that all ranks have kept of a group of these, which may run
   where they did, or NULL. When all have told which they have, each has left
   that group, and its last notices are there: they are dropped before anybody
   sends for the new one. */
static baton__mpi_t *take_over(MPI_Comm comm, baton_status_t local)
{
    baton__mpi_t *mpi =
        atomic_exchange_explicit(&kept, NULL, memory_order_acq_rel);
    int same = MPI_UNEQUAL;
    const cpu_set_t own = own_processors();
    if (mpi != NULL && local == BATON_OK && CPU_EQUAL(&own, &mpi->processors)) {
        (void)PMPI_Comm_compare(comm, mpi->comm, &same);
    }
    uint64_t id =
        same == MPI_CONGRUENT ? mpi->host.doorbell.states[0].nonce : 0;
    uint64_t all[] = {id, ~id};
    int code = await_all(comm, all);
    if (mpi == NULL || code != MPI_SUCCESS || all[0] == 0 ||
        all[0] != ~all[1]) {
        free_endpoint(mpi, false);
        return NULL;
    }
    while (baton__inbox_front(&mpi->host.inbox) != NULL) {
        drop_arrivals(mpi);
    }
    mpi->keeps_off = false;
    mpi->far.closing = false;
    return mpi;
}

baton_status_t baton__mpi_open(MPI_Comm comm, baton_status_t local,
                               const baton_transport_t **transport_out,
                               void **endpoint_out)
{
    baton_status_t status = check_comm(comm);
    if (status != BATON_OK) {
        return status;
    }
    baton__mpi_t *mpi = take_over(comm, local);
    bool taken = mpi != NULL;
    if (taken && mpi->lost_any) { /* which this rank alone may know */
        status = baton__error(BATON_ERR_TRANSPORT,
                              "mpi: a rank of this host has ended: create the "
                              "group on a communicator without it");
    }
    status = taken ? baton__mpi_agree(mpi->comm, status)
                   : open_new(comm, local, &mpi);
    if (status != BATON_OK) {
        free_endpoint(mpi, false);
        return status;
    }
    *transport_out = &mpi->transport;
    *endpoint_out = mpi;
    return BATON_OK;
}
