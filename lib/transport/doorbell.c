/* Doorbells; see doorbell.h. */
#include "transport/doorbell.h"

#include "base/alloc.h"
#include "base/error.h"
#include "transport/share.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

typedef enum rest {
    AWAKE, /* or rung since it last rested */
    RESTING,
    ASLEEP /* on its socket */
} rest_t;

/* One rank's, on its own cache line: peers read it with every send, and only
   the owner's rest writes to it while nobody rings. */
typedef struct line {
    _Alignas(64) _Atomic uint32_t rest; /* rest_t */
    /* Written before the ranks meet in open, constant from then on. */
    uint32_t process;
    uint64_t nonce;
    uint64_t network; /* inode of the network namespace; 0: unknown */
} line_t;

static_assert(sizeof(line_t) == 64, "one cache line a rank");
/* Only a lock-free atomic works between processes. */
static_assert(ATOMIC_INT_LOCK_FREE == 2, "atomics between processes");

struct baton__doorbell {
    line_t *lines;
    int count;
    int index;
    int socket;
};

/* In the abstract namespace: nothing to unlink, gone with its process. Such a
   name is of any bytes. */
static socklen_t address_of(const line_t *line, struct sockaddr_un *address)
{
    static const char PREFIX[] = "baton-";
    char *name = address->sun_path + 1;
    address->sun_family = AF_UNIX;
    address->sun_path[0] = '\0';
    memcpy(name, PREFIX, sizeof PREFIX);
    name += sizeof PREFIX;
    memcpy(name, &line->process, sizeof line->process);
    name += sizeof line->process;
    memcpy(name, &line->nonce, sizeof line->nonce);
    name += sizeof line->nonce;
    return (socklen_t)(name - (char *)address);
}

static baton_status_t system_error(const char *what)
{
    return baton__error(BATON_ERR_SYSTEM, "doorbell: %s: %s", what,
                        strerror(errno));
}

static baton_status_t open_socket(baton__doorbell_t *bell)
{
    bell->socket =
        socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (bell->socket < 0) {
        return system_error("socket");
    }
    line_t *own = &bell->lines[bell->index];
    own->process = (uint32_t)getpid();
    own->nonce = baton__share_random();
    struct stat network;
    if (stat("/proc/self/ns/net", &network) == 0) {
        own->network = (uint64_t)network.st_ino;
    }
    struct sockaddr_un address;
    socklen_t bytes = address_of(own, &address);
    if (bind(bell->socket, (struct sockaddr *)&address, bytes) != 0) {
        return system_error("bind");
    }
    return BATON_OK;
}

baton_status_t baton__doorbell_open(const char *name, int count, int index,
                                    bool create, baton__doorbell_t **out)
{
    baton__doorbell_t *bell = baton__alloc(1, sizeof *bell);
    if (!bell) {
        return baton__error(BATON_ERR_NO_MEMORY, "doorbell: out of memory");
    }
    bell->count = count;
    bell->index = index;
    bell->socket = -1;
    void *lines = NULL;
    baton_status_t status =
        baton__share_map(name, (size_t)count * sizeof(line_t), create, &lines);
    if (!status) {
        bell->lines = lines;
        status = open_socket(bell);
    }
    if (status) {
        baton__doorbell_close(bell);
        return status;
    }
    *out = bell;
    return BATON_OK;
}

void baton__doorbell_close(baton__doorbell_t *bell)
{
    if (!bell) {
        return;
    }
    if (bell->lines) {
        baton__doorbell_awake(bell);
        baton__share_unmap(bell->lines,
                           (size_t)bell->count * sizeof *bell->lines);
    }
    if (bell->socket >= 0) {
        close(bell->socket);
    }
    baton__free(bell);
}

bool baton__doorbell_reaches(const baton__doorbell_t *bell, int index)
{
    return bell->lines[index].network == bell->lines[bell->index].network;
}

/* The message was stored before; this orders it before the load of the state.
   The thread sanitizer knows no fences, so there a read-modify-write that
   changes nothing takes its place. */
static void fence(line_t *line)
{
#if defined(__SANITIZE_THREAD__)
    atomic_fetch_add_explicit(&line->rest, 0, memory_order_seq_cst);
#else
    (void)line;
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* Either this load sees the state of rest(), or the polls after rest() see the
   message: between store and load both sides have a full fence. */
void baton__doorbell_ring(baton__doorbell_t *bell, int index)
{
    line_t *line = &bell->lines[index];
    fence(line);
    if (atomic_load_explicit(&line->rest, memory_order_relaxed) == AWAKE ||
        atomic_exchange_explicit(&line->rest, AWAKE, memory_order_acq_rel) !=
            ASLEEP) {
        return;
    }
    struct sockaddr_un address;
    socklen_t bytes = address_of(line, &address);
    /* EAGAIN: it rings already. ECONNREFUSED: the peer is gone, which is for
       the transport to notice. */
    (void)sendto(bell->socket, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL,
                 (struct sockaddr *)&address, bytes);
}

bool baton__doorbell_rest(baton__doorbell_t *bell)
{
    line_t *own = &bell->lines[bell->index];
    uint32_t state = atomic_load_explicit(&own->rest, memory_order_acquire);
    if (state == RESTING ||
        (state == ASLEEP && atomic_compare_exchange_strong_explicit(
                                &own->rest, &state, RESTING,
                                memory_order_acq_rel, memory_order_acquire))) {
        return false;
    }
    atomic_store_explicit(&own->rest, RESTING, memory_order_seq_cst);
    fence(own);
    return true;
}

bool baton__doorbell_is_silent(const baton__doorbell_t *bell)
{
    return atomic_load_explicit(&bell->lines[bell->index].rest,
                                memory_order_acquire) != AWAKE;
}

bool baton__doorbell_sleep(baton__doorbell_t *bell)
{
    line_t *own = &bell->lines[bell->index];
    uint32_t resting = RESTING;
    return atomic_compare_exchange_strong_explicit(&own->rest, &resting, ASLEEP,
                                                   memory_order_acq_rel,
                                                   memory_order_acquire);
}

/* Relaxed: a ring that comes too late is only a wake-up too many. */
void baton__doorbell_awake(baton__doorbell_t *bell)
{
    atomic_store_explicit(&bell->lines[bell->index].rest, AWAKE,
                          memory_order_relaxed);
}

int baton__doorbell_descriptor(const baton__doorbell_t *bell)
{
    return bell->socket;
}

void baton__doorbell_hush(baton__doorbell_t *bell)
{
    char byte;
    (void)!recv(bell->socket, &byte, sizeof byte, MSG_DONTWAIT);
}
