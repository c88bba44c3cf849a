/* Shared memory; see share.h. */
#include "transport/shm/share.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
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

void baton__share_name(char name[BATON__SHARE_NAME_BYTES])
{
    snprintf(name, BATON__SHARE_NAME_BYTES, "/baton-%ld-%016llx",
             (long)getpid(), (unsigned long long)baton__share_random());
}

static baton_status_t system_error(const char *what, int error)
{
    return baton__error(BATON_ERR_SYSTEM, "shared memory: %s: %s", what,
                        strerror(error));
}

baton_status_t baton__share_map(const char *name, size_t bytes, bool create,
                                void **out)
{
    int flags = create ? O_RDWR | O_CREAT | O_EXCL : O_RDWR;
    int file = shm_open(name, flags, 0600);
    if (file < 0) {
        return system_error("shm_open", errno);
    }
    /* Not ftruncate: a full /dev/shm is an error now, not SIGBUS later. */
    int error = create ? posix_fallocate(file, 0, (off_t)bytes) : 0;
    if (error != 0) {
        close(file);
        return system_error("posix_fallocate in /dev/shm", error);
    }
    void *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    error = errno;
    close(file);
    if (memory == MAP_FAILED) {
        return system_error("mmap", error);
    }
    *out = memory;
    return BATON_OK;
}

size_t baton__share_room(void)
{
    struct statvfs room;
    return statvfs("/dev/shm", &room) == 0
               ? (size_t)room.f_bavail * (size_t)room.f_frsize
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
    if (head != NULL && head->cmsg_level == SOL_SOCKET &&
        head->cmsg_type == SCM_RIGHTS &&
        head->cmsg_len == CMSG_LEN(sizeof(int))) {
        memcpy(descriptor_out, CMSG_DATA(head), sizeof *descriptor_out);
    }
    if (got != (ssize_t)bytes) {
        memset(data, 0, bytes);
    }
    return true;
}
