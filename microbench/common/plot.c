#include "common/plot.h"
#include "common/output.h"
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

/* CMakeLists.txt defines the script's path, as seen from the command's
   folder. */
#ifndef PLOT_SCRIPT
#define PLOT_SCRIPT "../share/baton/plot.gp"
#endif

/* Runs gnuplot with arguments that NULL ends. */
static bool plot_run(const char *name, const char *const *arguments)
{
    pid_t process = 0;
    int status = 0;
    int error = posix_spawnp(&process, "gnuplot", NULL, NULL,
                             (char *const *)arguments, environ);
    if (error != 0) {
        return output_fail("--plot needs gnuplot (Debian: apt-get install "
                           "gnuplot-nox) for",
                           name, error == ENOENT ? 0 : error);
    }
    while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
    }
    return status == 0 || output_fail("gnuplot failed to draw", name, 0);
}

bool plot_check(const char *name)
{
    static const char *const nothing[] = {"gnuplot", "-e", "", NULL};
    FILE *file = NULL;
    return name == NULL ||
           (output_open(name, &file) && output_close(file, name) &&
            plot_run(name, nothing));
}

bool plot_draw(const plot_t *plot, FILE *csv)
{
    char self[PATH_MAX] = "", script[PATH_MAX + 64], data[64];
    (void)!readlink("/proc/self/exe", self, sizeof self - 1);
    (void)snprintf(script, sizeof script, "%s/" PLOT_SCRIPT, dirname(self));
    (void)snprintf(data, sizeof data, "/proc/%ld/fd/%d", (long)getpid(),
                   fileno(csv));
    const char *const arguments[] = {
        "gnuplot", "-c",    script,       data,         plot->name, plot->title,
        plot->x,   plot->y, plot->series, plot->active, NULL};
    return fflush(csv) == 0 && plot_run(plot->name, arguments);
}
