#include "common/output.h"
#include "common/cli.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

int terminal_columns(int descriptor)
{
    const char *text = getenv("COLUMNS");
    struct winsize size = {0};
    uint64_t given = 0;
    if (isatty(descriptor) == 0) {
        return 0;
    }
    if (text != NULL && cli_read_count(text, &given) && given > 0) {
        return given < INT16_MAX ? (int)given : INT16_MAX;
    }
    (void)ioctl(descriptor, TIOCGWINSZ, &size);
    return size.ws_col > 0 ? size.ws_col : 80;
}

bool output_fail(const char *doing, const char *name, int error)
{
    (void)fprintf(stderr, "%s: %s %s%s%s\n", program_invocation_short_name,
                  doing, name, error != 0 ? ": " : "",
                  error != 0 ? strerror(error) : "");
    return false;
}

bool output_open(const char *name, FILE **out)
{
    *out = name == NULL ? NULL : fopen(name, "we");
    return name == NULL || *out != NULL ||
           output_fail("can't write", name, errno);
}

bool output_close(FILE *file, const char *name)
{
    if (file == NULL) {
        return true;
    }
    bool failed = ferror(file) != 0;
    failed |= fclose(file) != 0;
    return !failed || output_fail("can't write all of", name, errno);
}
