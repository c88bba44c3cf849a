#include "base/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

void baton__descriptor_close(int *fd)
{
    int open = *fd;
    int error = errno;
    /* *fd is set before the close: if another thread forks in between, the
       child must not find a closed descriptor in *fd. */
    *fd = -1;
    if (open >= 0) {
        (void)close(open);
    }
    errno = error;
}

int baton__descriptor_move(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO) {
        return fd;
    }
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    baton__descriptor_close(&fd);
    return moved;
}

FILE *baton__descriptor_fopen(const char *path)
{
    int fd = baton__descriptor_move(open(path, O_RDONLY | O_CLOEXEC));
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (file == NULL) {
        baton__descriptor_close(&fd);
    }
    return file;
}

bool baton__descriptor_read(const char *path, char *out, size_t bytes)
{
    int fd = baton__descriptor_move(open(path, O_RDONLY | O_CLOEXEC));
    ssize_t got = fd >= 0 ? read(fd, out, bytes - 1) : -1;
    out[got > 0 ? got : 0] = '\0';
    baton__descriptor_close(&fd);
    return got > 0;
}
