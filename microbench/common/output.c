#include "common/output.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static bool fail(const char *doing, const char *name, int error)
{
    (void)fprintf(stderr, "%s: %s %s: %s\n", program_invocation_short_name,
                  doing, name, strerror(error));
    return false;
}

bool output_open(const char *name, FILE **out)
{
    *out = NULL;
    if (name == NULL) {
        return true;
    }
    *out = fopen(name, "we");
    return *out != NULL || fail("can't write", name, errno);
}

bool output_close(FILE *file, const char *name)
{
    if (file == NULL) {
        return true;
    }
    bool failed = ferror(file) != 0;
    failed |= fclose(file) != 0;
    return !failed || fail("can't write all of", name, errno);
}

/* ---- gnuplot's process ------------------------------------------------ */

/* Starts gnuplot with `input` and `output` as its standard streams. */
static int spawn_gnuplot(int input, int output, pid_t *pid_out)
{
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);
    if (error != 0) {
        return error;
    }
    char *argv[] = {"gnuplot", NULL};
    error = posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    if (error == 0) {
        error =
            posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    }
    if (error == 0) {
        error = posix_spawnp(pid_out, "gnuplot", &actions, NULL, argv, environ);
    }
    (void)posix_spawn_file_actions_destroy(&actions);
    return error;
}

static bool fail_spawn(const char *name, int error)
{
    if (error != ENOENT) {
        return fail("can't plot to", name, error);
    }
    (void)fprintf(stderr,
                  "%s: --plot needs gnuplot, which was not found: install it "
                  "(Debian: apt-get install gnuplot-nox)\n",
                  program_invocation_short_name);
    return false;
}

/* Starts gnuplot behind a pipe. The caller keeps `output`. */
static int open_script(output_plot_t *plot, int output)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return errno;
    }
    int error = spawn_gnuplot(ends[0], output, &plot->gnuplot);
    (void)close(ends[0]);
    if (error == 0) {
        plot->script = fdopen(ends[1], "w");
        error = plot->script == NULL ? errno : 0;
    }
    if (error != 0) {
        (void)close(ends[1]);
    }
    return error;
}

bool output_plot_open(const char *name, output_plot_t *out)
{
    *out = (output_plot_t){.name = name};
    if (name == NULL) {
        return true;
    }
    int output = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (output < 0) {
        return fail("can't write", name, errno);
    }
    int error = open_script(out, output);
    (void)close(output);
    return error == 0 || fail_spawn(name, error);
}

void output_plot_size(const output_plot_t *plot, size_t width, size_t height)
{
    bool png = strcmp(strrchr(plot->name, '.'), ".png") == 0;
    (void)fprintf(plot->script,
                  "set terminal %s size %zu,%zu font 'sans,13'%s\n",
                  png ? "pngcairo" : "svg", width, height,
                  png ? "" : " background '#ffffff'");
}

static bool reap(output_plot_t *plot)
{
    int status = 0;
    bool written = fclose(plot->script) == 0;
    plot->script = NULL;
    while (waitpid(plot->gnuplot, &status, 0) < 0 && errno == EINTR) {
    }
    return written && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool output_plot_close(output_plot_t *plot)
{
    if (plot->script == NULL) {
        return true;
    }
    /* If gnuplot has died, writing to it must not kill this process. */
    (void)signal(SIGPIPE, SIG_IGN);
    bool drawn = reap(plot);
    if (!drawn) {
        (void)fprintf(stderr, "%s: gnuplot failed to draw %s\n",
                      program_invocation_short_name, plot->name);
    }
    return drawn;
}

void output_plot_abandon(output_plot_t *plot)
{
    if (plot->script != NULL) {
        (void)reap(plot);
    }
}
