/* How an MPI endpoint is opened: collectively, with the same outcome on all
   ranks. Opening finds out which ranks share a host, what they can share there
   (local.c), and how ranks on other hosts can be woken. Every rank goes through
   all steps of opening. */
#include "transport/mpi/endpoint.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "transport/group.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The longest time that prove_addresses waits for answers from other hosts. */
enum { PROOF_NS = 1000000000 };

/* The bootstrap record, which each rank sends to all others before it opens a
   new endpoint. */
typedef struct record {
    uint64_t host;    /* hash that identifies the host */
    uint64_t network; /* network namespace; 0: unknown */
    /* Whole processors that the cgroup allows; INT_MAX: no known limit. */
    int quota;
    cpu_set_t processors;
    /* Random. By the secret of a host's first rank, the host's ranks find each
       other's sockets (shm/share.h). */
    uint64_t secret;
    /* Random. Rank 0's nonce becomes the group's, by which its connections are
       recognised (links.h). */
    uint64_t nonce;
    /* This rank's values of BATON_SHM, BATON_CMA and BATON_VERIFY. */
    bool shares, reads, verifies;
} record_t;
static_assert(sizeof(record_t) <= BATON__EXCHANGE_BYTES, "a record fits");

/* Returns the number of processors that its control group grants this process,
   rounded up; INT_MAX if there is no known limit. */
static int open_quota(void)
{
    char text[64];
    char *end = text;
    (void)baton__descriptor_read("/sys/fs/cgroup/cpu.max", text, sizeof text);
    /* The text "max", which means no limit, becomes 0. */
    double limit = strtod(text, &end);
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

/* Returns the number of ranks that the whole job has on this host, which Open
   MPI's and MPICH's mpirun store in a variable. */
static int count_ranks(const baton__opening_t *host)
{
    const char *text = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    text = text != NULL ? text : getenv("MPI_LOCALNRANKS");
    long job = text != NULL ? strtol(text, NULL, 10) : 0;
    return job > host->size && job < INT_MAX ? (int)job : host->size;
}

/* ---- bootstrap records --------------------------------------------------- */

static record_t own_record(void)
{
    const baton__location_t *place = baton__location_own();
    return (record_t){.host = place->host,
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
static void read_neighbour(baton__mpi_t *mpi, const record_t *records, int rank,
                           baton__opening_t *host)
{
    const record_t *record = &records[rank];
    const record_t *own = &records[mpi->rank];
    int *least = &mpi->transport.host_processors;
    host->index += rank < mpi->rank;
    host->size++;
    host->shares &= record->shares;
    host->reads &= record->reads;
    host->reaches &= record->network == own->network;
    CPU_OR(&mpi->processors, &mpi->processors, &record->processors);
    *least = record->quota < *least ? record->quota : *least;
}

/* Reads the records of all ranks into the endpoint, and what they say about
   this host into `host`. */
static void read_records(baton__mpi_t *mpi, const record_t *records,
                         baton__opening_t *host)
{
    int *of = mpi->host_of;
    baton_transport_t *transport = &mpi->transport;
    host->shares = host->reads = host->reaches = true;
    transport->host_processors = INT_MAX;
    for (int i = 0; i < mpi->size; i++) {
        of[i] = 0;
        while (records[of[i]].host != records[i].host) {
            of[i]++;
        }
        transport->verify |= records[i].verifies;
        /* Number of ranks below i on the host of rank i. */
        int before = 0;
        for (int k = 0; k < i; k++) {
            before += of[k] == of[i];
        }
        host->most = before < host->most ? host->most : before + 1;
        if (records[i].host == records[mpi->rank].host) {
            host->first = of[i];
            read_neighbour(mpi, records, i, host);
        }
    }
    baton__group_number_hosts(transport, of, mpi->size);
    host->of = of;
    host->secret = records[host->first].secret;
    transport->id = records[0].nonce;
    transport->host_ranks = count_ranks(host);
    int count = CPU_COUNT(&mpi->processors);
    if (count < transport->host_processors) {
        transport->host_processors = count;
    }
    mpi->processors = records[mpi->rank].processors;
}

/* ---- other hosts ------------------------------------------------------- */

/* Opens this rank's listeners. From then on this rank answers other ranks. */
static baton_status_t open_places(baton__mpi_t *mpi,
                                  const baton__opening_t *host)
{
    baton__links_t *links = &mpi->net.links;
    const baton__link_place_t *place = NULL;
    uint16_t port = 0;
    if (mpi->net.peers > 0) {
        links->nonce = mpi->transport.id;
        baton_status_t status = baton__links_open(links, mpi->rank, mpi->size,
                                                  host->size == mpi->size);
        if (status != BATON_OK) {
            return status;
        }
        place = &links->places[mpi->rank];
    } else {
        /* This makes forked children close links->answers, too. */
        baton__links_list(links);
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
static void exchange_places(baton__mpi_t *mpi, baton__exchange_t *exchange)
{
    struct {
        int processors;
        baton__answers_place_t answers;
        baton__link_place_t link;
        baton__process_t process;
    } * all, own = {.processors = mpi->transport.host_processors,
                    .answers = mpi->answers.places[mpi->rank],
                    .process.number = (int)getpid(),
                    .process.pids = baton__location_own()->pids};
    (void)gethostname(own.process.host, sizeof own.process.host - 1);
    static_assert(sizeof own <= BATON__EXCHANGE_BYTES, "a record fits");
    baton__link_place_t *links = mpi->net.links.places;
    if (links != NULL) {
        own.link = links[mpi->rank];
    }
    all = baton__exchange_gather(exchange, &own, sizeof own);
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
static void prove_addresses(baton__mpi_t *mpi, const baton__opening_t *host)
{
    const uint64_t deadline_ns = baton__clock_ns() + PROOF_NS;
    const size_t size = (size_t)mpi->size;
    struct sockaddr_storage to;
    socklen_t bytes;
    int hosts = 0; /* number of hosts whose first rank was seen */
    for (int i = 0; i < mpi->size && host->index == 0; i++) {
        bool first = mpi->host_of[i] == hosts;
        hosts += first;
        mpi->net.reached[i] =
            first && mpi->host_of[i] != mpi->host_of[mpi->rank] &&
            baton__mpi_answers_at(mpi, i, &to, &bytes) &&
            baton__answers_prove(&mpi->answers, i, (struct sockaddr *)&to,
                                 bytes, deadline_ns);
    }
    const unsigned char *all =
        baton__exchange_gather(host->exchange, mpi->net.reached, size);
    if (all != NULL) {
        memcpy(mpi->net.reached, all + (size_t)host->first * size, size);
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
               /* The process is on this host in another PID namespace. In this
                  rank's namespace its number means another process. */
               : 0;
}

static void *board(const void *endpoint, int rank)
{
    const baton__mpi_t *mpi = endpoint;
    int local = mpi->peers[rank].local;
    return local < 0 ? NULL
                     : mpi->host.boards + (size_t)local * BATON_BOARD_BYTES;
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
    .close = baton__mpi_close,
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
    .process = process,
    .board = board,
    .leave = baton__mpi_leave};

/* Initialises an endpoint without ranks, which can be freed by
   baton__mpi_discard. */
static void open_init_group(baton__mpi_t *mpi)
{
    baton__net_t *net = &mpi->net;
    mpi->transport = mpi_transport;
    mpi->window = (uint32_t)baton__config_number(BATON__CONFIG_WINDOW);
    mpi->answers.listener = -1;
    baton__links_init(&net->links);
    net->part_bytes = (size_t)baton__config_number(BATON__CONFIG_FAR_PART);
}

baton_status_t baton__mpi_make(int rank, int size, baton__mpi_t **out)
{
    baton__mpi_t *mpi = baton__alloc(1, sizeof *mpi);
    if (mpi != NULL) {
        open_init_group(mpi);
        mpi->peers = baton__alloc((size_t)size, sizeof *mpi->peers);
        mpi->host_of = baton__alloc((size_t)size, sizeof *mpi->host_of);
        mpi->processes = baton__alloc((size_t)size, sizeof *mpi->processes);
        mpi->net.reached = baton__alloc((size_t)size, 1);
    }
    if (mpi == NULL || mpi->peers == NULL || mpi->host_of == NULL ||
        mpi->processes == NULL || mpi->net.reached == NULL) {
        baton__mpi_discard(mpi, true);
        return baton__error(BATON_ERR_NO_MEMORY,
                            "mpi: no memory for a group of %d ranks", size);
    }
    mpi->rank = rank;
    mpi->size = size;
    for (int i = 0; i < size; i++) {
        baton__peer_t *peer = &mpi->peers[i];
        peer->local = -1;
        peer->notices.limit = BATON__MPI_NOTICES;
        peer->notices.granted = BATON__MPI_NOTICES;
        peer->notices.reported = BATON__MPI_NOTICES;
    }
    *out = mpi;
    return BATON_OK;
}

/* Opens the parts that use MPI, and the listeners. Opening them may fail on one
   rank alone, so the ranks agree afterwards. */
static baton_status_t open_complete(baton__mpi_t *mpi,
                                    const baton__opening_t *host)
{
    baton__bootstrap_t *bootstrap = host->exchange->bootstrap;
    baton_status_t status =
        bootstrap->is_store && mpi->keeps_off
            ? BATON_OK
            : bootstrap->open_wire(bootstrap, host->exchange, !mpi->keeps_off,
                                   &mpi->wire);
    if (status == BATON_OK) {
        status = baton__mpi_reserve_notices(mpi);
    }
    if (status == BATON_OK) {
        status = baton__net_open(mpi);
    }
    if (status == BATON_OK && mpi->size > 1) {
        status = open_places(mpi, host);
    }
    return status == BATON_OK && mpi->wire != NULL && mpi->wire->watch != NULL
               ? mpi->wire->watch(mpi->wire, baton__mpi_on_finalize, mpi)
               : status;
}

/* Opens the memory that the ranks of this host share, the wire, and this rank's
   listeners; then exchanges the addresses of all ranks. */
static baton_status_t mpi_open_parts(baton__mpi_t *mpi, baton__opening_t *host)
{
    baton_status_t status =
        baton__exchange_agree(host->exchange, baton__local_open(mpi, host));
    if (status != BATON_OK) {
        return status;
    }
    mpi->net.peers = mpi->size - mpi->host.count;
    /* Ranks of two hosts make their link at the first reservation, so a notice
       that is sent earlier wakes nobody. */
    mpi->transport.strangers = mpi->net.peers > 0;
    mpi->keeps_off = mpi->net.peers == 0 && mpi->reads;
    status = baton__exchange_agree(host->exchange, open_complete(mpi, host));
    if (status == BATON_OK && mpi->size > 1) {
        exchange_places(mpi, host->exchange);
    }
    if (status == BATON_OK && mpi->net.peers > 0) {
        outlive_broken_pipes();
        prove_addresses(mpi, host);
    }
    return status == BATON_OK ? host->exchange->status : status;
}

/* Opens a new endpoint; `local` is this rank's status so far. `mpi` is NULL
   only if `local` is an error. */
static baton_status_t open_new(baton__mpi_t *mpi, baton__exchange_t *exchange,
                               baton_status_t local)
{
    baton__opening_t host = {.exchange = exchange};
    const record_t own = own_record();
    const record_t *records =
        baton__exchange_gather(exchange, &own, sizeof own);
    if (records == NULL) {
        return exchange->status;
    }
    if (local == BATON_OK && mpi != NULL) {
        read_records(mpi, records, &host);
    }
    host.socket = host.size > 1 && host.shares && host.reaches
                      ? baton__share_socket(host.secret, host.index)
                      : -1;
    host.error = errno;
    /* After this agreement all ranks have opened their sockets, or have failed
       to, so descriptors can be sent. */
    baton_status_t status = baton__exchange_agree(exchange, local);
    if (status == BATON_OK && mpi != NULL) {
        status = mpi_open_parts(mpi, &host);
    }
    baton__descriptor_close(&host.socket);
    return status;
}

baton_status_t baton__mpi_open(baton__exchange_t *exchange,
                               baton_status_t local, baton__mpi_t **out)
{
    const cpu_set_t own = own_processors();
    baton__mpi_t *mpi = baton__mpi_take_cached(exchange, local, &own);
    baton_status_t status = BATON_OK;
    if (baton__exchange_first(exchange, mpi)) {
        /* All ranks have left the previous group, so its last notices are in
           the inbox. They are dropped before the ranks agree that there is a
           new group. */
        while (baton__inbox_front(&mpi->host.inbox) != NULL) {
            baton__mpi_drop_arrivals(mpi);
        }
        mpi->net.closing = false;
        mpi->transport.id++;
    } else {
        baton__mpi_discard(mpi, false);
        mpi = NULL;
        status = local == BATON_OK
                     ? baton__mpi_make(exchange->rank, exchange->size, &mpi)
                     : local;
        status = open_new(mpi, exchange, status);
    }
    if (status != BATON_OK) {
        baton__mpi_discard(mpi, false);
        return status;
    }
    *out = mpi;
    return BATON_OK;
}
