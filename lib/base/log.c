/* Log messages: to the user's handler, else to standard error. */
#include "base/log.h"

#include "base/config.h"
#include "base/text.h"

#include <errno.h>
#include <unistd.h>

/* These variables need not be atomic: baton_log_set is documented as not
   thread-safe, and opening an engine (which creates its thread) orders the
   writes before all reads. */
static baton_log_fn log_handler;
static void *log_arg;

void baton_log_set(baton_log_fn handler, void *arg)
{
    log_handler = handler;
    log_arg = arg;
}

/* Writes the whole line at once, so that lines of several ranks do not mix. */
static void write_line(const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t written = write(STDERR_FILENO, data, bytes);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return; /* an error of the log can't be logged */
        }
        data += written;
        bytes -= (size_t)written;
    }
}

void baton__log(baton_log_level_t level, const char *format, ...)
{
    /* The words of BATON_LOG, in the order of the log levels. */
    static const char *const names[] = {"none", "error", "warn",
                                        "info", "debug", "trace"};
    if ((int64_t)level > baton__config_number(BATON__CONFIG_LOG) ||
        level == BATON_LOG_NONE) {
        return;
    }
    /* A log call must not change its caller's errno. */
    int saved_errno = errno;
    baton__text_t text = BATON__TEXT(BATON__MESSAGE_BYTES);
    BATON__TEXT_ADD_ARGUMENTS(&text, format);
    if (log_handler != NULL) {
        log_handler(log_arg, level, text.data);
    } else {
        baton__text_t line = BATON__TEXT(BATON__MESSAGE_BYTES + 32);
        baton__text_add(&line, "baton: %s: %s\n", names[level], text.data);
        write_line(line.data, line.used);
    }
    errno = saved_errno;
}
