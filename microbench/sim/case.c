#include "sim/case.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

bool sim_case_fail(const sim_case_t *c, const char *format, ...)
{
    char size[16];
    va_list args;
    va_start(args, format);
    (void)fprintf(stderr, "baton-sim: %s, %d rank%s", c->name, c->ranks,
                  c->ranks == 1 ? "" : "s");
    if (sim_options_has_bytes(c->options)) {
        (void)fprintf(stderr, ", %s bytes",
                      cli_format_bytes(c->bytes, size, sizeof(size)));
    }
    (void)fputs(": ", stderr);
    (void)vfprintf(stderr, format, args);
    (void)fputc('\n', stderr);
    va_end(args);
    return false;
}

bool sim_case_ok(const sim_case_t *c, baton_status_t status)
{
    return status == BATON_OK || sim_case_fail(c, "%s", baton_error_message());
}

void *sim_case_alloc(const sim_case_t *c, size_t count, size_t size)
{
    size_t available =
        (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    if (size > 0 && count > available / size) {
        (void)sim_case_fail(c,
                            "needs %.1f GiB, this machine has %.1f: lower "
                            "--ranks%s",
                            (double)count * (double)size / 0x1p30,
                            (double)available / 0x1p30,
                            c->options->model.cost_only
                                ? ""
                                : " or --bytes, or leave out --payload and "
                                  "--prove");
        return NULL;
    }
    void *memory = calloc(count > 0 ? count : 1, size > 0 ? size : 1);
    if (memory == NULL) {
        (void)sim_case_fail(c, "no memory for %zu bytes", count * size);
    }
    return memory;
}
