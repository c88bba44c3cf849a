#include "common/progress.h"

#include "common/measure.h"
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { FIRST_US = 1000000, NEXT_US = 500000 };

static volatile sig_atomic_t interrupted;
static double began_us, shown_us; /* shown_us: 0 while there is no line */

static void progress_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

void progress_begin(void)
{
    began_us = clock_now_us();
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
    double elapsed_us = now_us - began_us;
    if (elapsed_us >= FIRST_US && now_us - shown_us >= NEXT_US &&
        isatty(STDERR_FILENO)) {
        (void)fprintf(stderr, "\r\033[K%s: %.0f s", what, elapsed_us / 1e6);
        if (part > 0 && part <= 1) {
            (void)fprintf(stderr, ", %.0f %% done, about %.0f s left",
                          part * 100, elapsed_us / 1e6 * (1 - part) / part);
        }
        (void)fflush(stderr);
        shown_us = now_us;
    }
    return interrupted == 0;
}

void progress_end(void)
{
    if (shown_us > 0) {
        (void)fputs("\r\033[K", stderr);
        shown_us = 0;
    }
}

bool progress_interrupted(void)
{
    return interrupted != 0;
}
