#include "common/progress.h"
#include "common/measure.h"
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FIRST_US  1e6
#define REDRAW_US 2e5

/* Open MPI's mpirun gives its ranks a pipe as standard error and forwards it to
   its own, so the parent's standard error is checked under mpirun. */
static bool has_terminal(void)
{
    if (isatty(STDERR_FILENO)) {
        return true;
    }
    if (getenv("OMPI_COMM_WORLD_RANK") == NULL) {
        return false;
    }
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%ld/fd/2", (long)getppid());
    int fd = open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return false;
    }
    bool terminal = isatty(fd);
    (void)close(fd);
    return terminal;
}

void progress_init(progress_t *progress, bool speak, uint64_t planned)
{
    *progress = (progress_t){
        .shown = speak && has_terminal(),
        .start_us = clock_now_us(),
        .planned = planned,
    };
}

static bool is_due(const progress_t *progress)
{
    if (!progress->shown) {
        return false;
    }
    double now_us = clock_now_us();
    return now_us - progress->start_us >= FIRST_US &&
           now_us - progress->drawn_us >= REDRAW_US;
}

void progress_draw(progress_t *progress, const char *format, ...)
{
    if (!is_due(progress)) {
        return;
    }
    va_list args;
    va_start(args, format);
    progress->drawn_us = clock_now_us();
    (void)fputc('\r', stderr);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    if (progress->done > 0) {
        double each_us =
            (progress->drawn_us - progress->start_us) / (double)progress->done;
        (void)fprintf(stderr, ", %.0f s left",
                      each_us * (double)(progress->planned - progress->done) /
                          1e6);
    }
    (void)fputs(" \033[K", stderr);
    (void)fflush(stderr);
}

void progress_clear(progress_t *progress)
{
    if (progress->shown) {
        (void)fputs("\r\033[K", stderr);
        (void)fflush(stderr);
        progress->drawn_us = clock_now_us();
    }
}
