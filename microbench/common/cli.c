#include "common/cli.h"
#include <baton/baton.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

error_t cli_common(int key, struct argp_state *state)
{
    if ((state->flags & ARGP_NO_ERRS) != 0) {
        return ECANCELED;
    }
    if (key == CLI_KEY_VERSION) {
        (void)printf("%s %s\n", state->name, baton_version());
    } else if (key == CLI_KEY_USAGE) {
        argp_state_help(state, stdout, ARGP_HELP_USAGE);
    } else {
        argp_state_help(state, stdout,
                        ARGP_HELP_SHORT_USAGE | ARGP_HELP_LONG | ARGP_HELP_DOC);
    }
    return ECANCELED;
}

error_t cli_default(int key, const char *arg, struct argp_state *state)
{
    switch (key) {
    case CLI_KEY_HELP:
    case CLI_KEY_USAGE:
    case CLI_KEY_VERSION:
        return cli_common(key, state);
    case ARGP_KEY_ARG:
        return cli_bad(state, "argument", arg, "is not an option");
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

error_t cli_bad(struct argp_state *state, const char *option, const char *value,
                const char *complaint)
{
    argp_error(state, "%s: '%s' %s", option, value, complaint);
    return EINVAL;
}

cli_verdict_t cli_parse(const struct argp *argp, int argc, char **argv,
                        bool speak, void *input)
{
    unsigned flags = ARGP_NO_EXIT | ARGP_NO_HELP;
    if (!speak) {
        flags |= ARGP_NO_ERRS;
    }
    error_t error = argp_parse(argp, argc, argv, flags, NULL, input);
    if (error == ECANCELED) {
        return CLI_DONE;
    }
    return error == 0 ? CLI_RUN : CLI_BAD;
}

/* Reads the digits at the front; strtoull alone would take a sign or blanks. */
static bool read_digits(const char *text, uint64_t *out, const char **end)
{
    if (*text < '0' || *text > '9') {
        return false;
    }
    char *after = NULL;
    errno = 0;
    *out = strtoull(text, &after, 10);
    *end = after;
    return errno == 0;
}

bool cli_count(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
    uint64_t value = 0;
    const char *end = NULL;
    if (!read_digits(text, &value, &end) || *end != '\0' || value < min ||
        value > max) {
        return false;
    }
    *out = value;
    return true;
}

static bool read_suffix(const char *text, unsigned *shift_out)
{
    static const char suffixes[] = "KMG";
    if (*text == '\0') {
        *shift_out = 0;
        return true;
    }
    const char *found = strchr(suffixes, *text);
    if (found == NULL || text[1] != '\0') {
        return false;
    }
    *shift_out = 10 * (unsigned)(found - suffixes + 1);
    return true;
}

bool cli_bytes(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
    uint64_t value = 0;
    const char *end = NULL;
    unsigned shift = 0;
    if (!read_digits(text, &value, &end) || !read_suffix(end, &shift) ||
        value > max >> shift || value << shift < min) {
        return false;
    }
    *out = value << shift;
    return true;
}

bool cli_real(const char *text, double min, double max, double *out)
{
    char *end = NULL;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= min && value <= max)) {
        return false;
    }
    *out = value;
    return true;
}

/* ---- values of options ------------------------------------------------ */

enum { COMPLAINT_BYTES = 96, ITEM_BYTES = 64 };

error_t cli_count_option(struct argp_state *state, const char *option,
                         const char *text, uint64_t min, uint64_t max,
                         uint64_t *out)
{
    if (cli_count(text, min, max, out)) {
        return 0;
    }
    char complaint[COMPLAINT_BYTES];
    (void)snprintf(complaint, sizeof(complaint),
                   "is not from %" PRIu64 " to %" PRIu64, min, max);
    return cli_bad(state, option, text, complaint);
}

error_t cli_real_option(struct argp_state *state, const char *option,
                        const char *text, double min, double max, double *out)
{
    if (cli_real(text, min, max, out)) {
        return 0;
    }
    char complaint[COMPLAINT_BYTES];
    (void)snprintf(complaint, sizeof(complaint),
                   "is not a number from %.15g to %.15g", min, max);
    return cli_bad(state, option, text, complaint);
}

error_t cli_size_option(struct argp_state *state, const char *option,
                        const char *text, uint64_t multiple, uint64_t min,
                        uint64_t max, uint64_t *out)
{
    uint64_t bytes = 0;
    if (cli_bytes(text, min, max, &bytes) && bytes % multiple == 0) {
        *out = bytes;
        return 0;
    }
    char low[16];
    char high[16];
    char kind[40] = "size";
    if (multiple > 1) {
        (void)snprintf(kind, sizeof(kind), "multiple of %" PRIu64, multiple);
    }
    char complaint[COMPLAINT_BYTES];
    (void)snprintf(complaint, sizeof(complaint), "is not a %s from %s to %s",
                   kind, cli_format_bytes(min, low, sizeof(low)),
                   cli_format_bytes(max, high, sizeof(high)));
    return cli_bad(state, option, text, complaint);
}

error_t cli_size_list(struct argp_state *state, const char *option,
                      const char *list, const cli_sizes_t *allowed,
                      uint64_t *sizes, size_t *count_out)
{
    char item[ITEM_BYTES];
    size_t count = 0;
    while (cli_next_item(&list, item, sizeof(item))) {
        if (count == allowed->max_count) {
            char complaint[COMPLAINT_BYTES];
            (void)snprintf(complaint, sizeof(complaint),
                           "is one too many: at most %zu sizes", count);
            return cli_bad(state, option, item, complaint);
        }
        error_t error =
            cli_size_option(state, option, item, allowed->multiple,
                            allowed->min, allowed->max, &sizes[count]);
        if (error != 0) {
            return error;
        }
        count++;
    }
    *count_out = count;
    return 0;
}

error_t cli_word_option(struct argp_state *state, const char *option,
                        const char *word, const char *const *names, size_t *out)
{
    char complaint[2 * COMPLAINT_BYTES] = "is not one of";
    for (size_t i = 0; names[i] != NULL; i++) {
        if (strcmp(word, names[i]) == 0) {
            *out = i;
            return 0;
        }
        size_t end = strlen(complaint);
        (void)snprintf(complaint + end, sizeof(complaint) - end, "%s %s",
                       i > 0 ? "," : "", names[i]);
    }
    return cli_bad(state, option, word, complaint);
}

error_t cli_word_list(struct argp_state *state, const char *option,
                      const char *list, const char *const *names,
                      size_t *indices, size_t *count_out)
{
    char item[ITEM_BYTES];
    size_t count = 0;
    while (cli_next_item(&list, item, sizeof(item))) {
        size_t index = 0;
        error_t error = cli_word_option(state, option, item, names, &index);
        if (error != 0) {
            return error;
        }
        for (size_t i = 0; i < count; i++) {
            if (indices[i] == index) {
                return cli_bad(state, option, item, "is in the list twice");
            }
        }
        indices[count++] = index;
    }
    *count_out = count;
    return 0;
}

error_t cli_plot_option(struct argp_state *state, const char *name,
                        const char **out)
{
    const char *dot = strrchr(name, '.');
    if (dot == NULL || (strcmp(dot, ".svg") != 0 && strcmp(dot, ".png") != 0)) {
        return cli_bad(state, "--plot", name,
                       "is not a name that ends in .svg or .png");
    }
    *out = name;
    return 0;
}

uint64_t cli_default_seed(void)
{
    uint64_t seed = 1;
    const char *text = getenv("BATON_SEED");
    if (text != NULL) {
        (void)cli_count(text, 0, UINT64_MAX, &seed);
    }
    return seed;
}

bool cli_next_item(const char **cursor, char *item, size_t item_bytes)
{
    const char *list = *cursor;
    if (list == NULL) {
        return false;
    }
    size_t length = strcspn(list, ",");
    (void)snprintf(item, item_bytes, "%.*s", (int)length, list);
    *cursor = list[length] == ',' ? list + length + 1 : NULL;
    return true;
}

const char *cli_format_bytes(uint64_t bytes, char *text, size_t text_bytes)
{
    static const char *const suffixes[] = {"", "K", "M", "G"};
    size_t power = 0;
    while (power < 3 && bytes >= 1024 && bytes % 1024 == 0) {
        bytes /= 1024;
        power++;
    }
    (void)snprintf(text, text_bytes, "%" PRIu64 "%s", bytes, suffixes[power]);
    return text;
}
