/* Command lines of programs that run as many ranks: every rank parses the same
   one, rank 0 alone speaks, and none exits on its own (mpirun would call that a
   crash). */
#ifndef MICROBENCH_CLI_H
#define MICROBENCH_CLI_H

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the program does after parsing. */
typedef enum cli_verdict {
    CLI_RUN,
    CLI_DONE, /* help or version was printed: leave with success */
    CLI_BAD   /* the error was printed: leave with a failure */
} cli_verdict_t;

/* Keys of the options that argp would answer by exiting: programs list them
   (CLI_COMMON_OPTIONS) and hand them to cli_common(). */
enum { CLI_KEY_HELP = '?', CLI_KEY_VERSION = 'V', CLI_KEY_USAGE = 0x10000 };
#define CLI_COMMON_OPTIONS                                                     \
    {"help", CLI_KEY_HELP, NULL, 0, "Print this help", -1},                    \
        {"usage", CLI_KEY_USAGE, NULL, 0, "Print a short usage message", -1},  \
    {                                                                          \
        "version", CLI_KEY_VERSION, NULL, 0, "Print the version", -1           \
    }

/* Answers a common option; returns ECANCELED, which the parser passes on. */
error_t cli_common(int key, struct argp_state *state);

/* Complains of an option's value, as "--bytes: '12' is not a multiple of 8";
   returns EINVAL, which the parser passes on. */
error_t cli_bad(struct argp_state *state, const char *option, const char *value,
                const char *complaint);

/* argp_parse, with `speak` on rank 0 only. */
cli_verdict_t cli_parse(const struct argp *argp, int argc, char **argv,
                        bool speak, void *input);

/* Whole-string numbers within [min, max]; false, and nothing written, when the
   text is something else. Bytes take a suffix K, M or G (powers of 1024). */
bool cli_count(const char *text, uint64_t min, uint64_t max, uint64_t *out);
bool cli_bytes(const char *text, uint64_t min, uint64_t max, uint64_t *out);
bool cli_real(const char *text, double min, double max, double *out);

/* Copies the next item of a comma-separated list to `item`, cut to its size,
   and moves *cursor behind it; false past the last. */
bool cli_next_item(const char **cursor, char *item, size_t item_bytes);

/* "64", "4K", "1M": as cli_bytes reads it. Returns `text`. */
const char *cli_format_bytes(uint64_t bytes, char *text, size_t text_bytes);

#endif
