#include "skew_progress.h"
#include "cli.h"
#include "harness.h"
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define REDRAW_US 200000.0

/* mpirun gives its ranks a pipe as standard error and forwards what comes out
   of it to its own. So behind a pipe the parent's standard error decides. */
static bool has_terminal(void)
{
    if (isatty(STDERR_FILENO)) {
        return true;
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

void skew_progress_init(skew_progress_t *progress, int rank, uint64_t planned)
{
    *progress = (skew_progress_t){
        .shown = rank == 0 && has_terminal(),
        .planned = planned,
    };
}

static double left_s(const skew_progress_t *progress, double now_us)
{
    if (progress->done == 0) {
        return 0;
    }
    double each_us = (now_us - progress->start_us) / (double)progress->done;
    return each_us * (double)(progress->planned - progress->done) / 1e6;
}

static void draw(skew_progress_t *progress, uint64_t bytes, double now_us)
{
    char size[16];
    (void)fprintf(stderr,
                  "\rmeasuring %s bytes: iteration %" PRIu64 " of %" PRIu64
                  " in all, %.0f s left \033[K",
                  cli_format_bytes(bytes, size, sizeof(size)),
                  progress->done + 1, progress->planned,
                  left_s(progress, now_us));
    (void)fflush(stderr);
    progress->drawn_us = now_us;
}

void skew_progress_iteration(skew_progress_t *progress, uint64_t bytes)
{
    if (!progress->shown) {
        return;
    }
    double now_us = clock_now_us();
    if (progress->start_us <= 0) {
        progress->start_us = now_us;
        progress->drawn_us = now_us;
    }
    if (now_us - progress->drawn_us >= REDRAW_US) {
        draw(progress, bytes, now_us);
    }
    progress->done++;
}

void skew_progress_clear(skew_progress_t *progress)
{
    if (progress->shown) {
        (void)fputs("\r\033[K", stderr);
        (void)fflush(stderr);
        progress->drawn_us = clock_now_us();
    }
}
