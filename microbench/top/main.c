/* baton-top: which rank of a running job is late, and what that costs the
   others. */
#include "common/cli.h"
#include "top/top.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char doc[] =
    "Prints which ranks of a running job are late, and what that costs the "
    "others. It reads what the job's ranks on this host count always, and "
    "neither stops nor asks them, so that it works on a job that hangs, too. "
    "It prints every few seconds what has happened since; with --once, what "
    "has "
    "happened since the job began.";

typedef struct request {
    uint64_t job; /* a process; 0: not given */
    double interval_s;
    bool once, json;
} request_t;

static const cli_option_t options[] = {
    {CLI_ANY, "job", 'j', offsetof(request_t, job), CLI_COUNT(1, 1 << 30), NULL,
     "Process number of any rank of the job; needed if there are several jobs"},
    {CLI_ANY, "once", 0, offsetof(request_t, once), CLI_FLAG, NULL,
     "Print once, what was counted since the job began"},
    {CLI_ANY, "json", 0, offsetof(request_t, json), CLI_FLAG, NULL,
     "Print JSON: an object each time"},
    {CLI_ANY, "interval", 'i', offsetof(request_t, interval_s),
     CLI_REAL("SECONDS", 0.1, 3600), "2", "How often to print"},
    {0}};

/* Between two looks at a job that is printed once. What has not moved in this
   time is said to wait. */
enum { GLANCE_MS = 300 };

static void pause_s(double seconds)
{
    struct timespec left = {(time_t)seconds, (long)(1e9 * fmod(seconds, 1))};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

/* Opens the job that is meant, or ends the program. */
static top_job_t choose(const request_t *request)
{
    top_job_t job;
    if (request->job != 0) {
        if (top_job_open((int)request->job, &job) != BATON_OK) {
            (void)fprintf(stderr, "baton-top: %s\n", baton_error_message());
            exit(EXIT_FAILURE);
        }
        return job;
    }
    top_job_t *jobs;
    const int count = top_job_list(&jobs);
    if (count != 1) {
        (void)fputs(count == 0
                        ? "baton-top: this user has no job on this host with "
                          "several ranks\n"
                        : "baton-top: there are several jobs; choose one:\n",
                    stderr);
        for (int i = 0; i < count; i++) {
            char path[40];
            char program[40] = "";
            (void)snprintf(path, sizeof path, "/proc/%d/comm", jobs[i].process);
            FILE *file = fopen(path, "r");
            if (file != NULL) {
                (void)!fgets(program, sizeof program, file);
                (void)fclose(file);
            }
            program[strcspn(program, "\n")] = '\0';
            (void)fprintf(stderr, "  --job %-8d %s\n", jobs[i].process,
                          program);
        }
        exit(EXIT_FAILURE);
    }
    job = jobs[0];
    free(jobs);
    return job;
}

static bool has_ended(const top_job_t *job)
{
    return kill(job->process, 0) != 0 && errno == ESRCH;
}

int main(int argc, char **argv)
{
    static const cli_program_t program = {doc, options, CLI_ANY, NULL, NULL};
    request_t request = {.interval_s = 2};
    cli_parse(&program, argc, argv, &request);
    /* for names, since JSON is UTF-8 */
    (void)uselocale(newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0));
    top_job_t job = choose(&request);
    const bool screen = !request.once && !request.json && isatty(STDOUT_FILENO);
    const double apart_s =
        request.once ? GLANCE_MS / 1000.0 : request.interval_s;
    top_reading_t before = {0}, now = {0}, shown = {0};
    bool more = true;
    top_read(&job, &before);
    while (more) {
        pause_s(apart_s);
        more = !request.once && !has_ended(&job);
        top_read(&job, &now);
        top_read(&job, &shown);
        if (!request.once) {
            top_subtract(&shown, &before);
        }
        if (screen) {
            (void)fputs("\033[H\033[2J", stdout);
        }
        top_print(&(top_report_t){.job = &job,
                                  .shown = &shown,
                                  .before = &before,
                                  .now = &now,
                                  .json = request.json,
                                  .colours = isatty(STDOUT_FILENO) != 0},
                  stdout);
        const top_reading_t old = before;
        before = now;
        now = old;
        if (fflush(stdout) != 0) {
            return EXIT_FAILURE;
        }
    }
    free(before.entries);
    free(now.entries);
    free(shown.entries);
    top_job_close(&job);
    return EXIT_SUCCESS;
}
