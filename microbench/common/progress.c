#include "common/progress.h"

#include "common/cli.h"
#include "common/measure.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { FIRST_S = 1, NEXT_US = 500000 };

static volatile sig_atomic_t interrupted;
static double began_us, shown_us; /* shown_us is 0 while no line is shown */

/* The descriptor to which the line is written. Under mpirun it is that of
   mpirun's own standard error, since mpirun gives its ranks pipes. */
static int terminal = STDERR_FILENO;

static void progress_interrupt(int signal)
{
    interrupted = 1;
}

int terminal_columns(int descriptor)
{
    const char *text = getenv("COLUMNS");
    struct winsize size = {0};
    uint64_t columns = 0;
    if (isatty(descriptor) == 0) {
        return 0;
    }
    if (text != NULL && cli_read_count(text, &columns) && columns > 0) {
        return columns < INT16_MAX ? (int)columns : INT16_MAX;
    }
    (void)ioctl(descriptor, TIOCGWINSZ, &size);
    return size.ws_col > 0 ? size.ws_col : 80;
}

void progress_begin(void)
{
    char name[32];
    began_us = clock_now_us();
    if (getenv("OMPI_COMM_WORLD_RANK") != NULL && terminal == STDERR_FILENO) {
        (void)snprintf(name, sizeof(name), "/proc/%ld/fd/2", (long)getppid());
        int opened = open(name, O_WRONLY | O_NOCTTY | O_CLOEXEC);
        terminal = opened >= 0 ? opened : STDERR_FILENO;
    }
}

void progress_catch(bool on)
{
    struct sigaction action = {.sa_handler = on ? progress_interrupt : SIG_DFL,
                               .sa_flags = (int)SA_RESETHAND};
    (void)sigaction(SIGINT, &action, NULL);
}

bool progress_show(double part, const char *what)
{
    double now_us = clock_now_us();
    double s = (now_us - began_us) / 1e6;
    if (s < FIRST_S || now_us - shown_us < NEXT_US ||
        terminal_columns(terminal) == 0) {
        return interrupted == 0;
    }
    char times[80], left[48] = "";
    if (part > 0 && part <= 1) {
        (void)snprintf(left, sizeof(left), ", %.0f %% done, about %.0f s left",
                       part * 100, s * (1 - part) / part);
    }
    int used = snprintf(times, sizeof(times), ": %.0f s%s", s, left);
    int most = terminal_columns(terminal) - used - 1;
    (void)dprintf(terminal, "\r\033[K%.*s%s", most > 0 ? most : 0, what, times);
    shown_us = now_us;
    return interrupted == 0;
}

double progress_end(void)
{
    if (shown_us > 0) {
        (void)dprintf(terminal, "\r\033[K");
        shown_us = 0;
    }
    return (clock_now_us() - began_us) / 1e6;
}

bool progress_interrupted(void)
{
    return interrupted != 0;
}
