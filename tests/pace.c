/* A library to preload: it limits each TCP connection to 1 Gbit/s. It serves
   for measurements between emulated hosts on kernels without a queueing
   discipline (tc). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/socket.h>

typedef int (*accept_t)(int, struct sockaddr *, socklen_t *);
typedef int (*socket_t)(int, int, int);

static int pace(int descriptor)
{
    unsigned bytes_per_s = 125000000;
    /* Only TCP's sockets take this option; the others need no limit. */
    (void)setsockopt(descriptor, SOL_SOCKET, SO_MAX_PACING_RATE, &bytes_per_s,
                     sizeof(bytes_per_s));
    return descriptor;
}

int socket(int domain, int type, int protocol)
{
    socket_t next;
    *(void **)&next = dlsym(RTLD_NEXT, "socket");
    return pace(next(domain, type, protocol));
}

int accept(int listener, struct sockaddr *restrict address,
           socklen_t *restrict length)
{
    accept_t next;
    *(void **)&next = dlsym(RTLD_NEXT, "accept");
    return pace(next(listener, address, length));
}
