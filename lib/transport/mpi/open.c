/* How an MPI endpoint is opened and closed: collectively, with the same outcome
   on all ranks. Opening finds out which ranks share a host, what they can share
   there, and how ranks on other hosts can be woken. Every rank goes through all
   steps of opening. */
#include "transport/mpi/endpoint.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/log.h"
#include "transport/group.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PROOF_NS = 1000000000, /* longest wait for other hosts to answer */
    ASK_NS = 250000000 /* interval between probes of a rank that delays close */
};

/* The bootstrap record, which each rank sends to all others before it opens a
   new endpoint. */
typedef struct card {
    uint64_t host;    /* hash that identifies the host */
    uint64_t network; /* network namespace; 0: unknown */
    /* Whole processors that the cgroup allows; INT_MAX: no known limit. */
    int quota;
    cpu_set_t processors;
    uint64_t secret; /* random; a host uses its first rank's secret */
    uint64_t nonce;  /* random; the group uses rank 0's nonce */
    /* This rank's values of BATON_SHM, BATON_CMA and BATON_VERIFY. */
    bool shares, reads, verifies;
} card_t;
static_assert(sizeof(card_t) <= BATON__MEETING_BYTES, "there is room");

/* This host, while the endpoint is opened. */
typedef struct host {
    baton__meeting_t *meeting;
    const int *of; /* by rank: the number of the rank's host */
    /* size: number of ranks on this host. most: number of ranks on the largest
       host. */
    int size, most;
    int index;          /* index of this rank on the host */
    int first;          /* rank of the host's first rank in the communicator */
    bool shares, reads; /* each is true if all ranks of the host enable it */
    bool reaches;       /* this rank can wake all others of the host */
    uint64_t secret, nonce;
    /* The socket by which the host's first rank passes the descriptor of the
       shared memory to the other ranks; or -1. */
    int socket;
    int error; /* the value of errno if there is no socket */
} host_t;

/* A rank's sentence about why it lacks a feature; "" if it has the feature, or
   can't tell why it lacks it. */
typedef char reason_t[200];

static void open_say(const host_t *host, reason_t *why, const char *what)
{
    (void)snprintf(*why, sizeof *why, "rank %d: %s", host->meeting->rank, what);
}

/* Returns the flags that all ranks of this host have set. If ranks of this host
   give a reason, sets `why` to that of the lowest of these ranks. */
static unsigned all_of(const host_t *host, unsigned flags, reason_t *why)
{
    struct {
        unsigned flags;
        reason_t why;
    } * all, own = {.flags = flags};
    static_assert(sizeof own <= BATON__MEETING_BYTES, "there is room");
    memcpy(own.why, *why, sizeof *why);
    all = baton__meeting_gather(host->meeting, &own, sizeof own);
    for (int i = host->meeting->size; all != NULL && i-- > 0;) {
        bool near = host->of[i] == host->of[host->first];
        flags &= near ? all[i].flags : flags;
        if (near && all[i].why[0] != '\0') {
            memcpy(*why, all[i].why, sizeof *why);
        }
    }
    return all != NULL ? flags : 0;
}

/* ---- shared memory ----------------------------------------------------- */

/* Features that a host may lack. log_lack says what is done instead. */
typedef enum lack {
    LACK_MEMORY,
    LACK_BUFFERS,
    LACK_SOCKETS,
    LACK_LIVENESS,
    LACK_CMA,
    LACKS
} lack_t;

/* Logs that the host lacks a feature. Only one rank of the host does so, and
   only once in its life, because later groups lack the same feature. */
static void log_lack(const host_t *host, lack_t lack, const char *why)
{
    static _Atomic bool logged[LACKS];
    static const char *const texts[][2] = {
        [LACK_MEMORY] = {"ranks of one host can't share memory",
                         "they send all messages over MPI"},
        [LACK_BUFFERS] = {"/dev/shm has little room",
                          "ranks have fewer than BATON_SHM_BUFFERS buffers, so "
                          "more messages take longer"},
        [LACK_SOCKETS] = {"ranks of one host are in different network "
                          "namespaces",
                          "they send all messages over MPI"},
        [LACK_LIVENESS] = {"ranks of one host can't watch each other by "
                           "pidfd_open",
                           "a killed one is noticed by time-outs only"},
        [LACK_CMA] = {"ranks of one host may not read each other's memory by "
                      "process_vm_readv",
                      "MPI copies messages above 68 KiB, unless their memory "
                      "is of baton_memory_alloc"}};
    if (host->index == 0 &&
        !atomic_exchange_explicit(&logged[lack], true, memory_order_relaxed)) {
        baton__log(BATON_LOG_WARN, "mpi: %s%s%s%s: %s", texts[lack][0],
                   *why != '\0' ? " (" : "", why, *why != '\0' ? ")" : "",
                   texts[lack][1]);
    }
}

/* Returns the number of processors that its control group grants this process,
   rounded up; INT_MAX if there is no known limit. */
static int open_quota(void)
{
    char text[64];
    char *end = text;
    (void)baton__descriptor_read("/sys/fs/cgroup/cpu.max", text, sizeof text);
    double limit = strtod(text, &end); /* "max" becomes 0 */
    double period = strtod(end, NULL);
    double share = period > 0 ? limit / period : 0;
    return share > 0 && share < INT_MAX - 1 ? (int)(share + 0.999) : INT_MAX;
}

/* Returns the processors on which this thread may run; the empty set if they
   are unknown. This is no error, because the other ranks wait for this rank's
   record in any case. */
static cpu_set_t own_processors(void)
{
    cpu_set_t own;
    if (sched_getaffinity(0, sizeof own, &own) != 0) {
        CPU_ZERO(&own);
    }
    return own;
}

/* Creates the memory that the ranks of this host share, and passes it to them.
   Called on the host's first rank. */
static baton_status_t create_host(const host_t *host, int *buffers_out,
                                  int *file_out)
{
    int wanted = (int)baton__config_number(BATON__CONFIG_SHM_BUFFERS);
    *buffers_out = baton__host_afford(host->size, wanted);
    if (*buffers_out < wanted) {
        log_lack(host, LACK_BUFFERS, "");
    }
    baton_status_t status =
        baton__host_create(host->size, *buffers_out, file_out);
    for (int i = 1; status == BATON_OK && i < host->size; i++) {
        /* If this fails, the receiver's baton__share_take reports that. */
        (void)baton__share_pass(host->socket, host->secret, i, *file_out);
    }
    return status;
}

/* Opens the memory that the ranks of this host share. Either all of them open
   it, or none does. */
static bool open_host(baton__mpi_t *mpi, host_t *host, reason_t *why)
{
    int buffers = 0;
    int file = -1;
    if (host->socket < 0) {
        open_say(host, why, baton__errno_text(host->error));
    } else if (host->index == 0 &&
               create_host(host, &buffers, &file) != BATON_OK) {
        open_say(host, why, baton_error_message());
    }
    /* This exchange ends after the first rank has passed the file. */
    const int *told =
        baton__meeting_gather(host->meeting, &buffers, sizeof buffers);
    if (host->index != 0 && host->socket >= 0) {
        file = baton__share_take(host->socket, host->secret);
        if (file < 0) {
            open_say(host, why, baton__errno_text(errno));
        }
    }
    bool open = told != NULL && file >= 0 &&
                baton__host_open(&mpi->host, file, host->size, host->index,
                                 told[host->first]) == BATON_OK;
    if (file >= 0 && !open) {
        open_say(host, why, baton_error_message());
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
static bool watch_each_other(baton__mpi_t *mpi, const host_t *host, bool open,
                             reason_t *why)
{
    baton__liveness_t *liveness = &mpi->host.liveness;
    const baton__doorbell_t *doorbell = &mpi->host.doorbell;
    for (int k = 1; k < host->most; k++) {
        if (open && k < host->size) {
            baton__liveness_send(liveness, doorbell,
                                 (host->index + k) % host->size);
        }
        if (k % BATON__LIVENESS_ROUND == 0 || k == host->most - 1) {
            (void)baton__meeting_agree(host->meeting, BATON_OK);
            if (open) {
                baton__liveness_take(liveness, doorbell);
            }
            (void)baton__meeting_agree(host->meeting, BATON_OK);
        }
    }
    if (open && liveness->error != 0) {
        open_say(host, why, baton__errno_text(liveness->error));
    }
    return all_of(
        host, open && baton__liveness_is_complete(liveness, host->index), why);
}

static void set_near(baton__mpi_t *mpi, int rank, int near)
{
    mpi->peers[rank].near = near;
    mpi->peers[rank].ring = baton__host_ring(&mpi->host, near);
}

/* Numbers the ranks of this host in the order of the communicator. */
static void open_number(baton__mpi_t *mpi)
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

/* The longest message that a sender writes into a posted receive. A sender
   should write only data that is in its cache. It has just computed a sum, so
   the sum and its two operands are there if they fit into the rank's share of a
   processor's second-level cache. On 4 ranks of 2 processors with 2 MiB each,
   writing did not make 1 MiB faster. */
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

/* Opens the shared memory of this host's ranks. Returns false if they share
   nothing and send over MPI. */
static bool share(baton__mpi_t *mpi, host_t *host)
{
    /* Flags: how ranks can access each other's memory. */
    enum { READS = 1, WRITES = 2 };
    reason_t unshared = "";
    reason_t unwatched = "";
    reason_t unread = "";
    bool open = open_host(mpi, host, &unshared);
    bool watch = watch_each_other(mpi, host, open, &unwatched);
    int error = open ? baton__host_probe(&mpi->host, false) : 0;
    unsigned able = open && error == 0 ? READS : 0;
    if (error != 0) {
        open_say(host, &unread, baton__errno_text(error));
    } else if (open && host->reads &&
               baton__host_probe(&mpi->host, true) == 0) {
        able |= WRITES;
    }
    able = all_of(host, able, &unread);
    mpi->reads = able & READS && host->reads;
    if (host->meeting->status != BATON_OK && open) {
        baton__host_close(&mpi->host);
    }
    if (host->meeting->status != BATON_OK || host->size == 1 || !host->shares) {
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
    open_number(mpi);
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
    return true;
}

static baton_status_t share_or_open_alone(baton__mpi_t *mpi, host_t *host)
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

/* Returns the number of ranks that the whole job has on this host, which Open
   MPI's and MPICH's mpirun store in a variable. */
static int count_ranks(const host_t *host)
{
    const char *text = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    text = text != NULL ? text : getenv("MPI_LOCALNRANKS");
    long job = text != NULL ? strtol(text, NULL, 10) : 0;
    return job > host->size && job < INT_MAX ? (int)job : host->size;
}

/* ---- bootstrap records --------------------------------------------------- */

static card_t own_card(void)
{
    const baton__location_t *place = baton__meeting_location();
    return (card_t){.host = place->host,
                    .network = place->network,
                    .quota = open_quota(),
                    .processors = own_processors(),
                    .secret = baton__share_random(),
                    .nonce = baton__share_random(),
                    .shares = baton__config_number(BATON__CONFIG_SHM) != 0,
                    .reads = baton__config_number(BATON__CONFIG_CMA) != 0,
                    .verifies =
                        baton__config_number(BATON__CONFIG_VERIFY) != 0};
}

/* Reads the record of a rank of this host, which may be this rank itself. */
static void read_neighbour(baton__mpi_t *mpi, const card_t *cards, int rank,
                           host_t *host)
{
    const card_t *card = &cards[rank];
    const card_t *own = &cards[mpi->rank];
    int *least = &mpi->transport.host_processors;
    host->index += rank < mpi->rank;
    host->size++;
    host->shares &= card->shares;
    host->reads &= card->reads;
    host->reaches &= card->network == own->network;
    CPU_OR(&mpi->processors, &mpi->processors, &card->processors);
    *least = card->quota < *least ? card->quota : *least;
}

/* Reads the records of all ranks, and describes this host. */
static void read_cards(baton__mpi_t *mpi, const card_t *cards, host_t *host)
{
    int *of = mpi->host_of;
    baton_transport_t *transport = &mpi->transport;
    host->shares = host->reads = host->reaches = true;
    transport->host_processors = INT_MAX;
    for (int i = 0; i < mpi->size; i++) {
        of[i] = 0;
        while (cards[of[i]].host != cards[i].host) {
            of[i]++;
        }
        transport->verify |= cards[i].verifies;
        /* Number of ranks before rank i on the host of rank i. */
        int before = 0;
        for (int k = 0; k < i; k++) {
            before += of[k] == of[i];
        }
        host->most = before < host->most ? host->most : before + 1;
        if (cards[i].host == cards[mpi->rank].host) {
            host->first = of[i];
            read_neighbour(mpi, cards, i, host);
        }
    }
    baton__group_number_hosts(transport, of, mpi->size);
    host->of = of;
    host->secret = cards[host->first].secret;
    host->nonce = cards[0].nonce;
    transport->host_ranks = count_ranks(host);
    int count = CPU_COUNT(&mpi->processors);
    if (count < transport->host_processors) {
        transport->host_processors = count;
    }
    mpi->processors = cards[mpi->rank].processors;
}

/* ---- other hosts ------------------------------------------------------- */

/* Opens this rank's listeners. From then on this rank answers other ranks. */
static baton_status_t open_places(baton__mpi_t *mpi, const host_t *host)
{
    baton__links_t *links = &mpi->far.links;
    const baton__link_place_t *place = NULL;
    uint16_t port = 0;
    if (mpi->far.peers > 0) {
        links->nonce = host->nonce;
        baton_status_t status = baton__links_open(links, mpi->rank, mpi->size,
                                                  host->size == mpi->size);
        if (status != BATON_OK) {
            return status;
        }
        place = &links->places[mpi->rank];
    } else {
        baton__links_list(links); /* for links->answers */
    }
    int listener = baton__links_listen(place, mpi->size, &port);
    baton_status_t status =
        baton__answers_open(&mpi->answers, listener, mpi->rank, mpi->size,
                            place != NULL ? &mpi->host.doorbell : NULL);
    if (status == BATON_OK) {
        links->answers = mpi->answers.listener;
        mpi->answers.places[mpi->rank].port = port;
    }
    return status;
}

/* Exchanges the addresses of all ranks. All hosts then use the smallest number
   of processors of any host: algorithms are chosen by this number, and must be
   the same on all ranks. */
static void exchange_places(baton__mpi_t *mpi, baton__meeting_t *meeting)
{
    struct {
        int processors;
        baton__answers_place_t answers;
        baton__link_place_t link;
        baton__process_t process;
    } * all, own = {.processors = mpi->transport.host_processors,
                    .answers = mpi->answers.places[mpi->rank],
                    .process.number = (int)getpid(),
                    .process.pids = baton__meeting_location()->pids};
    (void)gethostname(own.process.host, sizeof own.process.host - 1);
    static_assert(sizeof own <= BATON__MEETING_BYTES, "there is room");
    baton__link_place_t *links = mpi->far.links.places;
    if (links != NULL) {
        own.link = links[mpi->rank];
    }
    all = baton__meeting_gather(meeting, &own, sizeof own);
    for (int i = 0; all != NULL && i < mpi->size; i++) {
        mpi->answers.places[i] = all[i].answers;
        mpi->processes[i] = all[i].process;
        if (links != NULL) {
            links[i] = all[i].link;
        }
        if (all[i].processors < mpi->transport.host_processors) {
            mpi->transport.host_processors = all[i].processors;
        }
    }
}

/* Verifies the addresses of the other hosts: the first rank of this host asks
   the first rank of each other host, and tells the result to the ranks of its
   own host. */
static void prove_addresses(baton__mpi_t *mpi, const host_t *host)
{
    const uint64_t deadline_ns = baton__clock_ns() + PROOF_NS;
    const size_t size = (size_t)mpi->size;
    struct sockaddr_storage to;
    socklen_t bytes;
    int hosts = 0; /* number of hosts whose first rank was seen */
    for (int i = 0; i < mpi->size && host->index == 0; i++) {
        bool first = mpi->host_of[i] == hosts;
        hosts += first;
        mpi->far.reached[i] =
            first && mpi->host_of[i] != mpi->host_of[mpi->rank] &&
            baton__mpi_answers_at(mpi, i, &to, &bytes) &&
            baton__answers_prove(&mpi->answers, i, (struct sockaddr *)&to,
                                 bytes, deadline_ns);
    }
    const unsigned char *told =
        baton__meeting_gather(host->meeting, mpi->far.reached, size);
    if (told != NULL) {
        memcpy(mpi->far.reached, told + (size_t)host->first * size, size);
    }
}

/* Ignores SIGPIPE. Open MPI 4.1.4 does not block this signal when it writes to
   the connection of a rank that has ended, so the signal would end this
   process, too. If the application handles SIGPIPE itself, nothing is
   changed. */
static void outlive_broken_pipes(void)
{
    struct sigaction now;
    if (sigaction(SIGPIPE, NULL, &now) == 0 &&
        (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_DFL) {
        now.sa_handler = SIG_IGN;
        (void)sigaction(SIGPIPE, &now, NULL);
    }
}

static int host_of(const void *endpoint, int rank)
{
    const baton__mpi_t *mpi = endpoint;
    return mpi->host_of[rank];
}

static int process(const void *endpoint, int rank, const char **host_out)
{
    const baton__mpi_t *mpi = endpoint;
    const baton__process_t *found = &mpi->processes[rank];
    *host_out = found->host;
    return mpi->host_of[rank] != mpi->host_of[mpi->rank] ||
                   found->pids == mpi->processes[mpi->rank].pids
               ? found->number
               /* The process is in another PID namespace, so its number means
                  another process here. */
               : 0;
}

static void lose(void *endpoint, int peer, baton_status_t status,
                 const char *detail)
{
    baton__mpi_t *mpi = endpoint;
    mpi->alone |= peer == mpi->rank;
    if (peer != mpi->rank) {
        baton__mpi_lose(mpi, &mpi->peers[peer], status, detail);
    }
}

/* ---- MPI_Finalize ------------------------------------------------------ */

/* The endpoint that was closed last, if all its ranks are on this host and have
   left it together. A later group of the same ranks takes it over (take_kept),
   because closing it and opening another takes far longer. The pointer is
   atomic because threads may create and close groups of different ranks at the
   same time. */
static _Atomic(baton__mpi_t *) kept;

/* Frees an endpoint, and its communicator unless `in_use`, which means that MPI
   may still use the communicator. */
static void open_release(baton__mpi_t *mpi, bool in_use)
{
    MPI_Comm comm = mpi->comm;
    MPI_Group members = mpi->members;
    baton__mpi_free(mpi);
    if (comm != MPI_COMM_NULL && !in_use) {
        (void)PMPI_Comm_free(&comm);
    }
    if (members != MPI_GROUP_NULL) {
        (void)PMPI_Group_free(&members);
    }
}

/* Called by MPI_Finalize, which first deletes the attributes of MPI_COMM_SELF.
   Afterwards the endpoint no longer calls MPI; see baton__far_enter. */
static int on_finalize(MPI_Comm comm, int keyval, void *value, void *extra)
{
    baton__mpi_t *mpi = value;
    baton__mpi_t *unused = mpi;
    (void)comm;
    (void)keyval;
    (void)extra;
    /* Either free_endpoint has deleted the attribute, or the endpoint is
       kept. */
    if (mpi->far.closing) {
        if (atomic_compare_exchange_strong_explicit(&kept, &unused, NULL,
                                                    memory_order_acq_rel,
                                                    memory_order_relaxed)) {
            open_release(mpi, false);
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

/* ---- closing ----------------------------------------------------------- */

void baton__mpi_free(baton__mpi_t *mpi)
{
    /* This also takes the links off the list of links that forked children
       close. */
    baton__far_close(mpi);
    baton__answers_close(&mpi->answers);
    baton__host_close(&mpi->host);
    baton__mpi_free_pools(mpi);
    baton__free(mpi->far.reached);
    baton__free(mpi->host_of);
    baton__free(mpi->processes);
    baton__free(mpi->peers);
    baton__free(mpi);
}

/* Polls once, and drops the messages that arrive. */
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

/* Sends LAST to the ranks on other hosts, as far as there is space. Returns a
   rank that this rank still waits for: LAST was not sent to it, or not received
   from it, or MPI has not completed a packet to it. Returns -1 if there is no
   such rank. */
static int tell_last(baton__mpi_t *mpi)
{
    const baton__packet_t last = {.kind = BATON__PACKET_LAST,
                                  .source = (uint32_t)mpi->rank};
    int awaited = -1;
    for (int i = 0; i < mpi->size; i++) {
        baton__peer_t *peer = &mpi->peers[i];
        if (peer->near < 0 && !peer->told && peer->outbox.head == NULL) {
            peer->told = baton__far_push(mpi, peer, &last, NULL, 0);
        }
        awaited = peer->near >= 0 || (peer->told && peer->has_told &&
                                      baton__far_unsent(mpi, peer) == 0)
                      ? awaited
                      : i;
    }
    return awaited;
}

/* Drains the communicator before it is freed: takes the packets that the other
   ranks have sent. Meanwhile it asks the rank that it waits for whether it
   lives, because that rank may have ended without a link between the two.
   Returns false if a rank may still send, or MPI still has packets or data in
   motion: then the communicator must not be freed. */
static bool open_drain(baton__mpi_t *mpi, uint64_t deadline_ns)
{
    uint64_t now = baton__clock_ns();
    uint64_t asked_ns = now;
    int awaited = -1;
    if (!baton__far_enter(mpi)) {
        return true;
    }
    mpi->far.closing = true;
    while (((awaited = tell_last(mpi)) >= 0 || mpi->far.count > 0) &&
           mpi->first_lost == 0 && now < deadline_ns) {
        drop_arrivals(mpi);
        now = baton__clock_ns();
        if (awaited >= 0 && now - asked_ns >= ASK_NS) {
            asked_ns = now;
            baton__mpi_ask(mpi, awaited);
        }
        (void)sched_yield();
    }
    baton__far_leave(mpi);
    return awaited < 0 && mpi->far.count == 0;
}

/* Takes the endpoint's attribute off MPI_COMM_SELF, and frees the endpoint.
   NULL is allowed. `in_use` is as for open_release. */
static void free_endpoint(baton__mpi_t *mpi, bool in_use)
{
    if (mpi == NULL) {
        return;
    }
    mpi->far.closing = true;
    if (mpi->far.keyval != MPI_KEYVAL_INVALID) {
        (void)PMPI_Comm_delete_attr(MPI_COMM_SELF, mpi->far.keyval);
        (void)PMPI_Comm_free_keyval(&mpi->far.keyval);
    }
    open_release(mpi, in_use);
}

/* True if the endpoint can be kept for another group: all its ranks are on this
   host, none was lost, and nothing of this rank is in motion. */
static bool is_as_new(const baton__mpi_t *mpi)
{
    return mpi->far.peers == 0 && mpi->host.count > 1 && mpi->first_lost == 0 &&
           !mpi->alone && mpi->listed == NULL && mpi->far.count == 0 &&
           mpi->in_use == 0;
}

static void close_endpoint(void *endpoint)
{
    baton__mpi_t *mpi = endpoint;
    baton__mpi_flush_bells(mpi);
    if (atomic_load_explicit(&mpi->far.finalized, memory_order_relaxed)) {
        baton__mpi_free(mpi);
        return;
    }
    uint64_t ms = (uint64_t)baton__config_number(BATON__CONFIG_DESTROY_MS);
    bool in_use = mpi->far.peers > 0 && mpi->first_lost == 0 &&
                  !open_drain(mpi, baton__clock_ns() + ms * 1000000);
    mpi->far.closing = true;
    if (is_as_new(mpi)) {
        baton__doorbell_disarm(&mpi->host.doorbell);
        baton__answers_hang_up(&mpi->answers);
        baton__mappings_clear(&mpi->host.mappings);
        baton__segments_clear(&mpi->host.segments);
        mpi = atomic_exchange_explicit(&kept, mpi, memory_order_acq_rel);
    }
    free_endpoint(mpi, in_use);
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
    .process = process};

/* Initialises an endpoint without ranks. From then on it can be freed. */
static void open_init_group(baton__mpi_t *mpi, MPI_Comm comm)
{
    baton__far_t *far = &mpi->far;
    mpi->transport = mpi_transport;
    mpi->comm = comm;
    mpi->members = MPI_GROUP_NULL;
    mpi->window = (uint32_t)baton__config_number(BATON__CONFIG_WINDOW);
    mpi->answers.listener = -1;
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
    PMPI_Comm_size(comm, &size);
    baton__mpi_t *mpi = baton__alloc(1, sizeof *mpi);
    if (mpi != NULL) {
        open_init_group(mpi, comm);
        mpi->peers = baton__alloc((size_t)size, sizeof *mpi->peers);
        mpi->host_of = baton__alloc((size_t)size, sizeof *mpi->host_of);
        mpi->processes = baton__alloc((size_t)size, sizeof *mpi->processes);
        mpi->far.reached = baton__alloc((size_t)size, 1);
    }
    if (mpi == NULL || mpi->peers == NULL || mpi->host_of == NULL ||
        mpi->processes == NULL || mpi->far.reached == NULL) {
        free_endpoint(mpi, true);
        return baton__error(BATON_ERR_NO_MEMORY,
                            "mpi: no memory for a group of %d ranks", size);
    }
    mpi->size = size;
    PMPI_Comm_rank(comm, &mpi->rank);
    for (int i = 0; i < size; i++) {
        baton__peer_t *peer = &mpi->peers[i];
        peer->near = -1;
        peer->notices.limit = BATON__MPI_NOTICES;
        peer->notices.granted = BATON__MPI_NOTICES;
        peer->notices.reported = BATON__MPI_NOTICES;
    }
    *out = mpi;
    return BATON_OK;
}

/* Opens the parts that use MPI, and the listeners. These may fail on one rank
   alone. */
static baton_status_t open_complete(baton__mpi_t *mpi, const host_t *host)
{
    if (!mpi->keeps_off) {
        baton__meeting_separate(host->meeting, &mpi->comm);
    }
    baton_status_t status = host->meeting->status;
    if (status == BATON_OK) {
        status = baton__mpi_reserve_notices(mpi);
    }
    if (status == BATON_OK) {
        status = baton__far_open(mpi);
    }
    if (status == BATON_OK && mpi->size > 1) {
        status = open_places(mpi, host);
    }
    return status == BATON_OK ? watch_finalize(mpi) : status;
}

/* Opens the memory that the ranks of this host share, and this rank's
   listeners; exchanges the addresses of all ranks. */
static baton_status_t open_meet(baton__mpi_t *mpi, host_t *host)
{
    baton_status_t status =
        baton__meeting_agree(host->meeting, share_or_open_alone(mpi, host));
    if (status != BATON_OK) {
        return status;
    }
    mpi->far.peers = mpi->size - mpi->host.count;
    /* Ranks of two hosts make their link at the first reservation, so a notice
       that is sent earlier wakes nobody. */
    mpi->transport.strangers = mpi->far.peers > 0;
    mpi->keeps_off = mpi->far.peers == 0 && mpi->reads;
    status = baton__meeting_agree(host->meeting, open_complete(mpi, host));
    if (status == BATON_OK && mpi->size > 1) {
        exchange_places(mpi, host->meeting);
    }
    if (status == BATON_OK && mpi->far.peers > 0) {
        outlive_broken_pipes();
        prove_addresses(mpi, host);
    }
    return status == BATON_OK ? host->meeting->status : status;
}

static baton_status_t open_new(baton__meeting_t *meeting, baton_status_t local,
                               baton__mpi_t **out)
{
    host_t host = {.meeting = meeting};
    const card_t own = own_card();
    const card_t *cards = baton__meeting_gather(meeting, &own, sizeof own);
    if (cards == NULL) {
        return meeting->status;
    }
    baton_status_t status =
        local != BATON_OK ? local : baton__mpi_make(meeting->comm, out);
    if (status == BATON_OK && *out != NULL) {
        (*out)->comm = MPI_COMM_NULL;
        (void)PMPI_Comm_group(meeting->comm, &(*out)->members);
        read_cards(*out, cards, &host);
    }
    host.socket = host.size > 1 && host.shares && host.reaches
                      ? baton__share_socket(host.secret, host.index)
                      : -1;
    host.error = errno;
    /* After this, all ranks have their sockets. */
    status = baton__meeting_agree(meeting, status);
    if (status == BATON_OK && *out != NULL) {
        status = open_meet(*out, &host);
    }
    baton__descriptor_close(&host.socket);
    return status;
}

/* Takes the endpoint that this rank has kept, if any. Returns it if it is of a
   group of the same ranks, and this rank may still run on the same processors;
   otherwise frees it, and returns NULL. */
static baton__mpi_t *take_kept(MPI_Comm comm, baton_status_t local)
{
    baton__mpi_t *mpi =
        atomic_exchange_explicit(&kept, NULL, memory_order_acq_rel);
    const cpu_set_t own = own_processors();
    MPI_Group members;
    int same = MPI_UNEQUAL;
    if (mpi != NULL && local == BATON_OK && CPU_EQUAL(&own, &mpi->processors) &&
        PMPI_Comm_group(comm, &members) == MPI_SUCCESS) {
        (void)PMPI_Group_compare(members, mpi->members, &same);
        (void)PMPI_Group_free(&members);
    }
    if (same == MPI_IDENT) {
        return mpi;
    }
    free_endpoint(mpi, false);
    return NULL;
}

baton_status_t baton__mpi_open(baton__meeting_t *meeting, baton_status_t local,
                               baton__mpi_t **out)
{
    baton__mpi_t *mpi = take_kept(meeting->comm, local);
    baton_status_t status = BATON_OK;
    if (baton__meeting_keeps(meeting, mpi)) {
        /* All ranks have left the previous group, so its last notices are in
           the inbox. They are dropped before the ranks agree that there is a
           new group. */
        while (baton__inbox_front(&mpi->host.inbox) != NULL) {
            drop_arrivals(mpi);
        }
        mpi->far.closing = false;
    } else {
        free_endpoint(mpi, false);
        mpi = NULL;
        status = open_new(meeting, local, &mpi);
    }
    if (status != BATON_OK) {
        free_endpoint(mpi, false);
        return status;
    }
    *out = mpi;
    return BATON_OK;
}
