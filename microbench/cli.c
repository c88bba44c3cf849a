#include "cli.h"
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
