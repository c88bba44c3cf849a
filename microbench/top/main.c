/* baton-top: names the late ranks of a running job, and the time that they cost
   the other ranks. */
#include "common/cli.h"
#include "common/measure.h"
#include "top/top.h"

#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char doc[] =
    "Prints which ranks of a running job are late, and what that costs the "
    "others. It reads counts that the job's ranks on this host always keep. It "
    "neither stops nor asks the ranks, so it also works on a job that hangs. "
    "Every few seconds it prints the counts since the last time; with --once, "
    "those since the job began. With --hosts it runs a baton-top on each of "
    "the job's other hosts, and compares the ranks of all hosts.";

typedef struct request {
    uint64_t job; /* a process; 0: not given */
    double interval_s;
    bool once, json, serve;
    const char *hosts, *via;
    const char *metrics; /* a file, "-" for the standard output, or NULL */
} request_t;

static const cli_option_t options[] = {
    {CLI_ANY,
     "job",
     'j',
     offsetof(request_t, job),
     {CLI_NUMBER(COUNT, "PID", 1, 1 << 30), .operand = true},
     NULL,
     "Process number of any rank of the job; needed if there are several jobs"},
    {CLI_ANY, "once", 0, offsetof(request_t, once), CLI_FLAG, NULL,
     "Print once, with the counts since the job began"},
    {CLI_ANY, "json", 0, offsetof(request_t, json), CLI_FLAG, NULL,
     "Print JSON: an object each time"},
    {CLI_ANY, "prometheus", 'p', offsetof(request_t, metrics), CLI_TEXT("FILE"),
     NULL,
     "Write the counts since the job began to this file, in Prometheus' text "
     "format; those of all jobs of this host if no job is given. \"-\": print "
     "them"},
    {CLI_ANY, "hosts", 0, offsetof(request_t, hosts), CLI_TEXT("LIST"), NULL,
     "Other hosts of the job, with commas between their names: their ranks are "
     "shown, too, and compared with those of this host"},
    {CLI_ANY, "via", 0, offsetof(request_t, via), CLI_TEXT("COMMAND"), "ssh",
     "The command that runs another one on a host: COMMAND HOST ..., for "
     "example \"srun --overlap -w\""},
    {CLI_ANY, "serve", 0, offsetof(request_t, serve), CLI_FLAG, NULL,
     "Send the counts when asked; --hosts runs this on the other hosts"},
    {CLI_ANY, "interval", 'i', offsetof(request_t, interval_s),
     CLI_REAL("SECONDS", 0.1, 3600), "2", "How often to print"},
    {0}};

/* The time between the two readings of a job that is printed once. A rank whose
   counts do not change in this time is reported as waiting. */
enum { GLANCE_MS = 300 };

static void top_resolve(const cli_parser_t *parser)
{
    const request_t *request = parser->values;
    if (request->hosts != NULL &&
        request->hosts[strspn(request->hosts, ",")] == '\0') {
        cli_refuse(parser, "--hosts: names no host");
    }
    if (request->hosts != NULL && request->metrics != NULL) {
        cli_refuse(parser, "--prometheus exports one host's counts: run it on "
                           "each host, without --hosts");
    }
}

static void pause_s(double seconds)
{
    clock_sleep_until(clock_now_us() + 1e6 * seconds);
}

/* Opens the job that the option names or, without the option, the only job. If
   there is no such job, or if there are several, prints an error and ends the
   program. */
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

/* Writes the text to another file and renames that file, so that nobody reads
   an incomplete text. */
static void write_metrics(const request_t *request,
                          const top_reading_t *reading)
{
    char path[4096];
    const bool named = strcmp(request->metrics, "-") != 0;
    int length =
        snprintf(path, sizeof path, "%s.%ld", request->metrics, (long)getpid());
    FILE *to = stdout;
    if (named) {
        to = length < (int)sizeof path ? fopen(path, "w") : NULL;
    }
    if (to != NULL) {
        top_print_metrics(reading, to);
    }
    bool ok = to != NULL && ferror(to) == 0;
    ok = to != NULL && (named ? fclose(to) : fflush(to)) == 0 && ok;
    if (!ok || (named && rename(path, request->metrics) != 0)) {
        (void)fprintf(stderr, "baton-top: %s: %s\n", request->metrics,
                      strerror(errno));
        if (named && to != NULL) {
            (void)unlink(path);
        }
        exit(EXIT_FAILURE);
    }
}

/* Exports the counts of one job until it ends or, without the option --job,
   those of all jobs on this host. */
static void export_metrics(const request_t *request)
{
    const bool all = request->job == 0;
    top_job_t one = {0};
    bool more = true;
    if (!all) {
        one = choose(request);
    }
    while (more) {
        top_job_t *jobs = &one;
        const int count = all ? top_job_list(&jobs) : 1;
        top_reading_t reading = {0};
        more = !request->once && (all || top_job_follow(&one));
        for (int i = 0; i < count; i++) {
            top_read(&jobs[i], &reading);
            if (all) {
                top_job_close(&jobs[i]);
            }
        }
        write_metrics(request, &reading);
        free(reading.entries);
        if (all) {
            free(jobs);
        }
        if (more) {
            pause_s(request->interval_s);
        }
    }
    top_job_close(&one);
}

static top_reading_t read_hosts(const top_job_t *job, top_host_t *hosts,
                                int host_count)
{
    top_reading_t reading = {0};
    top_hosts_ask(hosts, host_count);
    top_read(job, &reading);
    top_hosts_read(hosts, host_count, &reading);
    return reading;
}

int main(int argc, char **argv)
{
    static const cli_program_t program = {.doc = doc,
                                          .options = options,
                                          .command = CLI_ANY,
                                          .resolve = top_resolve};
    request_t request = {.interval_s = 2};
    cli_parse(&program, argc, argv, &request);
    /* Names are printed as UTF-8, since JSON is UTF-8. */
    (void)uselocale(newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0));
    if (request.serve) {
        return top_serve();
    }
    if (request.metrics != NULL) {
        export_metrics(&request);
        return EXIT_SUCCESS;
    }
    top_job_t job = choose(&request);
    int host_count = 0;
    char *names = request.hosts != NULL ? strdup(request.hosts) : NULL;
    top_host_t *hosts =
        names != NULL ? top_hosts_open(names, request.via, &host_count) : NULL;
    const bool screen = !request.once && !request.json && isatty(STDOUT_FILENO);
    const double apart_s =
        request.once ? GLANCE_MS / 1000.0 : request.interval_s;
    const top_reading_t none = {0};
    top_reading_t before = read_hosts(&job, hosts, host_count);
    bool more = true;
    while (more) {
        pause_s(apart_s);
        more = !request.once && top_job_follow(&job);
        const top_reading_t now = read_hosts(&job, hosts, host_count);
        top_reading_t shown = top_since(&now, request.once ? &none : &before);
        top_hosts_compare(&shown, &before);
        if (screen) {
            (void)fputs("\033[H\033[2J", stdout);
        }
        top_print(&(top_report_t){.job = &job,
                                  .hosts = hosts,
                                  .shown = &shown,
                                  .before = &before,
                                  .json = request.json,
                                  .colours = isatty(STDOUT_FILENO) != 0});
        free(before.entries);
        free(shown.entries);
        before = now;
        if (fflush(stdout) != 0) {
            return EXIT_FAILURE;
        }
    }
    free(before.entries);
    free(hosts);
    free(names);
    top_job_close(&job);
    return EXIT_SUCCESS;
}
