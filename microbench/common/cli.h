/* Command lines. Of programs that run as many ranks every rank parses the same
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

/* What a parser does with the keys that it has no case for: the common options,
   and words that are no option. */
error_t cli_default(int key, const char *arg, struct argp_state *state);

/* Complains of an option's value, as "--bytes: '12' is not a multiple of 8";
   returns EINVAL, which the parser passes on. */
error_t cli_bad(struct argp_state *state, const char *option, const char *value,
                const char *complaint);

/* argp_parse, with `speak` on rank 0 only. */
cli_verdict_t cli_parse(const struct argp *argp, int argc, char **argv,
                        bool speak, void *input);

/* An option's value within [min, max]; else they complain with the range and
   return EINVAL, which the parser passes on. A size has a suffix K, M or G, or
   none, and is a multiple of `multiple`. */
error_t cli_count_option(struct argp_state *state, const char *option,
                         const char *text, uint64_t min, uint64_t max,
                         uint64_t *out);
error_t cli_real_option(struct argp_state *state, const char *option,
                        const char *text, double min, double max, double *out);
error_t cli_size_option(struct argp_state *state, const char *option,
                        const char *text, uint64_t multiple, uint64_t min,
                        uint64_t max, uint64_t *out);

/* A list of at most `max_count` sizes, likewise. */
typedef struct cli_sizes {
    uint64_t multiple, min, max;
    size_t max_count;
} cli_sizes_t;
error_t cli_size_list(struct argp_state *state, const char *option,
                      const char *list, const cli_sizes_t *allowed,
                      uint64_t *sizes, size_t *count_out);

/* A word among names, of which NULL is the last, or a list of such words, each
   at most once: their indices, for which there is room. */
error_t cli_word_option(struct argp_state *state, const char *option,
                        const char *word, const char *const *names,
                        size_t *out);
error_t cli_word_list(struct argp_state *state, const char *option,
                      const char *list, const char *const *names,
                      size_t *indices, size_t *count_out);

/* A plot's file name: gnuplot's terminal follows from it, so a wrong one must
   not surface after minutes. */
error_t cli_plot_option(struct argp_state *state, const char *name,
                        const char **out);

/* BATON_SEED, else 1. (The library warns when it is not a number; here it is
   just not used.) */
uint64_t cli_default_seed(void);

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
