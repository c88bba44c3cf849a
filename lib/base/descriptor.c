#include "base/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int baton__descriptor_move(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO) {
        return fd;
    }
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    int error = errno;
    (void)close(fd);
    errno = error;
    return moved;
}

FILE *baton__descriptor_fopen(const char *path)
{
    int fd = baton__descriptor_move(open(path, O_RDONLY | O_CLOEXEC));
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (file == NULL && fd >= 0) {
        (void)close(fd);
    }
    return file;
}
