/* Shared memory; see share.h. */
#include "transport/shm/share.h"

#include "base/descriptor.h"
#include "base/error.h"
#include "base/random.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

uint64_t baton__share_random(void)
{
    uint64_t number;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) == sizeof number) {
        return number;
    }
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000007) ^ (uint64_t)now.tv_nsec;
}

static baton_status_t share_system_error(const char *what, int error)
{
    return baton__error(BATON_ERR_SYSTEM, "shared memory: %s: %s", what,
                        baton__errno_text(error));
}

/* Linux before 5.14 does not know this advice. On such a kernel
   baton__share_resize reserves the whole file. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

bool baton__share_reserve(void *part, size_t bytes)
{
    int failed;
    do {
        failed = madvise(part, bytes, MADV_POPULATE_WRITE);
    } while (failed != 0 && errno == EINTR);
    return failed == 0 || errno == EINVAL;
}

/* A signal would interrupt fallocate, which then has to begin again: with a
   fast timer it would never end. So signals are blocked meanwhile. The limit
   RLIMIT_FSIZE applies to files without a name, too, and a size above it would
   raise SIGXFSZ, so the limit is checked first. */
int baton__share_resize(int file, size_t bytes, size_t reserved)
{
    struct rlimit most;
    sigset_t all;
    sigset_t before;
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && bytes > most.rlim_cur) {
        return EFBIG;
    }
    if (madvise(NULL, 0, MADV_POPULATE_WRITE) != 0) {
        reserved = bytes;
    }
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = ftruncate(file, (off_t)bytes) == 0 ? 0 : errno;
    while (error == 0 && reserved > 0 &&
           (error = posix_fallocate(file, 0, (off_t)reserved)) == EINTR) {
        error = 0;
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

baton_status_t baton__share_create(size_t bytes, size_t reserved, int *file_out)
{
    char name[48];
    int file = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file < 0) { /* not every file system has O_TMPFILE */
        (void)snprintf(name, sizeof name, "/baton-%ld-%016llx", (long)getpid(),
                       (unsigned long long)baton__share_random());
        file = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
        if (file >= 0) {
            (void)shm_unlink(name);
        }
    }
    file = baton__descriptor_move(file);
    if (file < 0) {
        return share_system_error("shm_open", errno);
    }
    /* Memory is reserved, so that a full /dev/shm is an error now, and not a
       SIGBUS later. */
    int error = baton__share_resize(file, bytes, reserved);
    if (error != 0) {
        baton__descriptor_close(&file);
        return share_system_error("posix_fallocate in /dev/shm", error);
    }
    *file_out = file;
    return BATON_OK;
}

baton_status_t baton__share_map(int file, size_t bytes, void **out)
{
    void *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) {
        return share_system_error("mmap", errno);
    }
    *out = memory;
    return BATON_OK;
}

size_t baton__share_free_bytes(void)
{
    struct statvfs system;
    return statvfs("/dev/shm", &system) == 0
               ? (size_t)system.f_bavail * (size_t)system.f_frsize
               : 0;
}

/* ---- descriptors ------------------------------------------------------- */

typedef union control {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int))];
} control_t;

bool baton__share_send(int socket, const struct sockaddr_un *to,
                       socklen_t to_bytes, const void *data, size_t bytes,
                       int descriptor)
{
    struct sockaddr_un address = *to;
    struct iovec part = {(void *)(uintptr_t)data, bytes};
    control_t control = {.head = {.cmsg_level = SOL_SOCKET,
                                  .cmsg_type = SCM_RIGHTS,
                                  .cmsg_len = CMSG_LEN(sizeof(int))}};
    const struct msghdr message = {.msg_name = &address,
                                   .msg_namelen = to_bytes,
                                   .msg_iov = &part,
                                   .msg_iovlen = 1,
                                   .msg_control = &control,
                                   .msg_controllen = sizeof control};
    memcpy(CMSG_DATA(&control.head), &descriptor, sizeof descriptor);
    return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) ==
           (ssize_t)bytes;
}

bool baton__share_receive(int socket, void *data, size_t bytes,
                          int *descriptor_out)
{
    control_t control;
    struct iovec part = {data, bytes};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    ssize_t got;
    do {
        got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        return false;
    }
    const struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *descriptor_out = -1;
    errno = (message.msg_flags & MSG_CTRUNC) != 0 ? EMFILE : ENOMSG;
    if (head != NULL && head->cmsg_level == SOL_SOCKET &&
        head->cmsg_type == SCM_RIGHTS &&
        head->cmsg_len == CMSG_LEN(sizeof(int))) {
        memcpy(descriptor_out, CMSG_DATA(head), sizeof *descriptor_out);
        *descriptor_out = baton__descriptor_move(*descriptor_out);
    }
    if (got != (ssize_t)bytes) {
        memset(data, 0, bytes);
    }
    return true;
}

static socklen_t address_of(uint64_t secret, int index, struct sockaddr_un *out)
{
    /* Every user can list the names of sockets, so the name has a hash of the
       secret. */
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length = snprintf(out->sun_path + 1, sizeof out->sun_path - 1,
                          "baton-%016llx-%d",
                          (unsigned long long)baton__mix(secret), index);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                       (size_t)length);
}

int baton__share_bind(const struct sockaddr_un *own, socklen_t bytes)
{
    int receiver = baton__descriptor_move(
        socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (receiver >= 0 && bind(receiver, (struct sockaddr *)own, bytes) != 0) {
        baton__descriptor_close(&receiver);
    }
    return receiver;
}

int baton__share_socket(uint64_t secret, int index)
{
    struct sockaddr_un own;
    socklen_t bytes = address_of(secret, index, &own);
    return baton__share_bind(&own, bytes);
}

bool baton__share_pass(int socket, uint64_t secret, int index, int file)
{
    struct sockaddr_un to;
    socklen_t bytes = address_of(secret, index, &to);
    return baton__share_send(socket, &to, bytes, &secret, sizeof secret, file);
}

int baton__share_take(int socket, uint64_t secret)
{
    uint64_t from = 0;
    int file = -1;
    while (baton__share_receive(socket, &from, sizeof from, &file)) {
        if (from == secret) {
            return file;
        }
        baton__descriptor_close(&file); /* the sender lacks the secret */
    }
    errno = ENOMSG;
    return -1;
}
