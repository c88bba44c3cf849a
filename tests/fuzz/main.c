/* The command line of baton-fuzz. It tries seeds until one fails a check. */
#include "common/cli.h"
#include "fuzz/run.h"
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    EXIT_USAGE = 2,
    TIMEOUT_S = 60 /* the most seconds for one run */
};

typedef struct arguments {
    double seconds; /* the limit of time; negative: there is none */
    uint64_t seeds; /* the limit of seeds; 0: there is none */
    uint64_t seed;  /* the first seed */
    bool twice;
} arguments_t;

static const cli_option_t options[] = {
    {CLI_ANY, "seconds", 't', offsetof(arguments_t, seconds),
     CLI_REAL("S", 0, 1e9), NULL,
     "Seconds to run; by default 10, unless --seeds is given"},
    {CLI_ANY, "seeds", 'n', offsetof(arguments_t, seeds),
     CLI_COUNT(1, UINT64_MAX), NULL, "Number of seeds to run"},
    {CLI_ANY, "seed", 's', offsetof(arguments_t, seed),
     CLI_COUNT(0, UINT64_MAX), "1", "The first seed"},
    {CLI_ANY, "twice", '2', offsetof(arguments_t, twice), CLI_FLAG, NULL,
     "Run each seed twice and compare the two runs"},
    {0}};

static double now_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- reports ---------------------------------------------------------- */

typedef struct progress {
    uint64_t runs;
    uint64_t messages;
    uint64_t digest; /* the digest of all runs */
    double began_s;
    double told_s;
} progress_t;

static void tell(const progress_t *progress, const char *before)
{
    double seconds = now_s() - progress->began_s;
    (void)printf("%s%" PRIu64 " runs, %" PRIu64
                 " messages, %.1f s, %.0f runs/s, digest %016" PRIx64 "\n",
                 before, progress->runs, progress->messages, seconds,
                 (double)progress->runs / (seconds > 0 ? seconds : 1),
                 progress->digest);
    (void)fflush(stdout);
}

static void report(uint64_t seed, const char *failure)
{
    (void)printf("seed %" PRIu64 " fails: %s\n", seed, failure);
    fuzz_print(seed, stdout);
    (void)printf("repeat it: BATON_SEED=%" PRIu64 " %s\n", seed, fuzz_name);
}

/* ---- running ---------------------------------------------------------- */

static fuzz_outcome_t run_seed(uint64_t seed, bool twice)
{
    fuzz_outcome_t outcome = fuzz_run(seed);
    if (twice && outcome.passed) {
        fuzz_outcome_t again = fuzz_run(seed);
        if (again.digest != outcome.digest) {
            outcome.passed = false;
            (void)snprintf(outcome.failure, sizeof outcome.failure,
                           "determinism: its second run has digest %016" PRIx64,
                           again.digest);
        }
    }
    return outcome;
}

static bool goes_on(const arguments_t *arguments, const progress_t *progress)
{
    return (arguments->seeds == 0 || progress->runs < arguments->seeds) &&
           (arguments->seconds < 0 ||
            now_s() - progress->began_s < arguments->seconds);
}

/* The message that is printed if a run crashes or never ends. */
static char last_words[128];

static void report_signal(int number)
{
    (void)!write(STDOUT_FILENO, last_words, strlen(last_words));
    _exit(EXIT_FAILURE);
}

static int run(const arguments_t *arguments)
{
    progress_t progress = {.began_s = now_s()};
    progress.told_s = progress.began_s;
    (void)signal(SIGALRM, report_signal);
    (void)signal(SIGSEGV, report_signal);
    (void)signal(SIGABRT, report_signal);
    while (goes_on(arguments, &progress)) {
        uint64_t seed = arguments->seed + progress.runs;
        (void)snprintf(last_words, sizeof last_words,
                       "seed %" PRIu64 " fails: it crashes or never ends\n"
                       "repeat it: BATON_SEED=%" PRIu64 " %s\n",
                       seed, seed, fuzz_name);
        (void)alarm(TIMEOUT_S);
        fuzz_outcome_t outcome = run_seed(seed, arguments->twice);
        progress.runs++;
        progress.messages += outcome.messages;
        progress.digest =
            (progress.digest ^ outcome.digest) * UINT64_C(1099511628211);
        if (!outcome.passed) {
            report(seed, outcome.failure);
            tell(&progress, "");
            return EXIT_FAILURE;
        }
        if (now_s() - progress.told_s > 5) {
            progress.told_s = now_s();
            tell(&progress, "... ");
        }
    }
    tell(&progress, "all pass: ");
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    const cli_program_t program = {fuzz_doc, options, CLI_ANY, NULL, NULL};
    arguments_t arguments = {.seconds = -1};
    cli_parse(&program, argc, argv, &arguments);
    const char *only = getenv("BATON_SEED");
    if (only != NULL && only[0] != '\0') {
        if (!cli_read_count(only, &arguments.seed)) {
            (void)fprintf(stderr, "fuzz: BATON_SEED: '%s' is not a number\n",
                          only);
            return EXIT_USAGE;
        }
        arguments.seeds = 1;
        arguments.seconds = -1;
    }
    if (arguments.seconds < 0 && arguments.seeds == 0) {
        arguments.seconds = 10;
    }
    return run(&arguments);
}
