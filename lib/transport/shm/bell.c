/* Bells; see bell.h. */
#include "transport/shm/bell.h"

#include "base/error.h"
#include "transport/shm/share.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* In the abstract namespace: nothing to unlink, gone with its process. Such a
   name is of any bytes. */
static socklen_t address_of(const baton__bell_line_t *line,
                            struct sockaddr_un *address)
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

static baton_status_t system_error(baton__bell_t *bell, const char *what)
{
    baton_status_t status =
        baton__error(BATON_ERR_SYSTEM, "bell: %s: %s", what, strerror(errno));
    baton__bell_close(bell);
    return status;
}

baton_status_t baton__bell_open(baton__bell_t *bell, baton__bell_line_t *lines,
                                int index)
{
    bell->lines = lines;
    bell->index = index;
    bell->socket =
        socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (bell->socket < 0) {
        return system_error(bell, "socket");
    }
    baton__bell_line_t *own = &lines[index];
    own->process = (uint32_t)getpid();
    own->nonce = baton__share_random();
    struct stat network;
    if (stat("/proc/self/ns/net", &network) == 0) {
        own->network = (uint64_t)network.st_ino;
    }
    struct sockaddr_un address;
    socklen_t bytes = address_of(own, &address);
    if (bind(bell->socket, (struct sockaddr *)&address, bytes) != 0) {
        return system_error(bell, "bind");
    }
    return BATON_OK;
}

void baton__bell_close(baton__bell_t *bell)
{
    if (bell->socket >= 0) {
        (void)close(bell->socket);
    }
    bell->socket = -1;
}

bool baton__bell_reaches(const baton__bell_t *bell, int index)
{
    return bell->lines[index].network == bell->lines[bell->index].network;
}

/* What was stored before is seen by whoever this rank's next load shows to be
   armed, or shows to others that it is. The thread sanitizer knows no fences,
   so there a read-modify-write that changes nothing takes its place. */
static void fence(baton__bell_line_t *line)
{
#if defined(__SANITIZE_THREAD__)
    atomic_fetch_add_explicit(&line->armed, 0, memory_order_seq_cst);
#else
    (void)line;
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* Either this load sees what arm() stored, or the look after arm() sees what
   was sent: between store and load both sides have a full fence. */
bool baton__bell_ring(const baton__bell_t *bell, int index)
{
    baton__bell_line_t *line = &bell->lines[index];
    fence(line);
    if (atomic_load_explicit(&line->armed, memory_order_relaxed) == 0 ||
        atomic_exchange_explicit(&line->armed, 0, memory_order_relaxed) == 0) {
        return true;
    }
    struct sockaddr_un address;
    socklen_t bytes = address_of(line, &address);
    /* EAGAIN: it is readable already. */
    return sendto(bell->socket, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL,
                  (struct sockaddr *)&address, bytes) >= 0 ||
           errno != ECONNREFUSED;
}

void baton__bell_arm(const baton__bell_t *bell)
{
    baton__bell_line_t *own = &bell->lines[bell->index];
    atomic_store_explicit(&own->armed, 1, memory_order_relaxed);
    fence(own);
}

void baton__bell_disarm(const baton__bell_t *bell)
{
    baton__bell_line_t *own = &bell->lines[bell->index];
    /* Read first: peers have it cached. A ring that comes too late is only a
       wake-up too many. */
    if (atomic_load_explicit(&own->armed, memory_order_relaxed) != 0) {
        atomic_store_explicit(&own->armed, 0, memory_order_relaxed);
    }
}

void baton__bell_drain(const baton__bell_t *bell)
{
    char byte;
    (void)!recv(bell->socket, &byte, sizeof byte, MSG_DONTWAIT);
}
