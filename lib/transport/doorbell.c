/* Doorbells; see doorbell.h. */
#include "transport/doorbell.h"

#include "base/alloc.h"
#include "base/error.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* One rank's, on its own cache line: peers read it with every send, and only
   the owner's rest writes to it while nobody rings. */
typedef struct line {
    _Alignas(64) _Atomic uint32_t resting;
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

static uint64_t random_number(void)
{
    uint64_t number;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) == sizeof number) {
        return number;
    }
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000007) ^ (uint64_t)now.tv_nsec;
}

void baton__doorbell_name(char name[BATON__DOORBELL_NAME_BYTES])
{
    snprintf(name, BATON__DOORBELL_NAME_BYTES, "/baton-%ld-%016llx",
             (long)getpid(), (unsigned long long)random_number());
}

/* In the abstract namespace: nothing to unlink, gone with its process. */
static socklen_t address_of(const line_t *line, struct sockaddr_un *address)
{
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    int used = snprintf(address->sun_path + 1, sizeof address->sun_path - 1,
                        "baton-%lx-%016llx", (unsigned long)line->process,
                        (unsigned long long)line->nonce);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                       (size_t)used);
}

static baton_status_t system_error(const char *what)
{
    return baton__error(BATON_ERR_SYSTEM, "doorbell: %s: %s", what,
                        strerror(errno));
}

static baton_status_t map_lines(baton__doorbell_t *bell, const char *name,
                                bool create)
{
    size_t bytes = (size_t)bell->count * sizeof(line_t);
    int flags = create ? O_RDWR | O_CREAT | O_EXCL : O_RDWR;
    int file = shm_open(name, flags, 0600);
    if (file < 0) {
        return system_error("shm_open");
    }
    if (create) {
        /* Not ftruncate: a full /dev/shm is an error now, not SIGBUS later. */
        int error = posix_fallocate(file, 0, (off_t)bytes);
        if (error) {
            close(file);
            errno = error;
            return system_error("posix_fallocate in /dev/shm");
        }
    }
    void *lines =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (lines == MAP_FAILED) {
        return system_error("mmap");
    }
    bell->lines = lines;
    return BATON_OK;
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
    own->nonce = random_number();
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
    baton_status_t status = map_lines(bell, name, create);
    if (!status) {
        status = open_socket(bell);
    }
    if (status) {
        baton__doorbell_close(bell);
        return status;
    }
    *out = bell;
    return BATON_OK;
}

void baton__doorbell_unlink(const char *name)
{
    shm_unlink(name);
}

void baton__doorbell_close(baton__doorbell_t *bell)
{
    if (!bell) {
        return;
    }
    if (bell->lines) {
        baton__doorbell_awake(bell);
        munmap(bell->lines, (size_t)bell->count * sizeof *bell->lines);
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

/* The message was stored before; this orders it before the load of the flag.
   The thread sanitizer knows no fences, so there a read-modify-write that
   changes nothing takes its place. */
static void fence(line_t *line)
{
#if defined(__SANITIZE_THREAD__)
    atomic_fetch_add_explicit(&line->resting, 0, memory_order_seq_cst);
#else
    (void)line;
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* Either this load sees the flag of rest(), or rest()'s polls see the message:
   between store and load both sides have a full fence. */
void baton__doorbell_ring(baton__doorbell_t *bell, int index)
{
    line_t *line = &bell->lines[index];
    fence(line);
    if (atomic_load_explicit(&line->resting, memory_order_relaxed) == 0 ||
        atomic_exchange_explicit(&line->resting, 0, memory_order_acq_rel) ==
            0) {
        return;
    }
    struct sockaddr_un address;
    socklen_t bytes = address_of(line, &address);
    /* EAGAIN: it rings already. ECONNREFUSED: the peer is gone, which is for
       the transport to notice. */
    (void)sendto(bell->socket, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL,
                 (struct sockaddr *)&address, bytes);
}

void baton__doorbell_rest(baton__doorbell_t *bell)
{
    line_t *own = &bell->lines[bell->index];
    atomic_store_explicit(&own->resting, 1, memory_order_seq_cst);
    fence(own);
}

/* Relaxed: a ring that comes too late is only a wake-up too many. */
void baton__doorbell_awake(baton__doorbell_t *bell)
{
    atomic_store_explicit(&bell->lines[bell->index].resting, 0,
                          memory_order_relaxed);
}

int baton__doorbell_descriptor(const baton__doorbell_t *bell)
{
    return bell->socket;
}

void baton__doorbell_hush(baton__doorbell_t *bell)
{
    char byte;
    ssize_t got;
    do {
        got = recv(bell->socket, &byte, sizeof byte, MSG_DONTWAIT);
    } while (got >= 0 || errno == EINTR);
}
