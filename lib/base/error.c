/* Status texts, and each thread's last error message. */
#include "base/error.h"

#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

static _Thread_local char last_message[BATON__MESSAGE_BYTES];
static _Thread_local baton_status_t last_status;

baton_status_t baton__error_status(void)
{
    return last_status;
}

static const struct status_row {
    int status;
    const char *name, *text;
} statuses[] = {
#define STATUS_ROW(name, value, text) {name, #name, text},
    BATON_STATUS_LIST(STATUS_ROW)};

/* Returns NULL if there is no such status. */
static const struct status_row *status_find(int status)
{
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        if (statuses[i].status == status) {
            return &statuses[i];
        }
    }
    return NULL;
}

const char *baton_status_name(baton_status_t status)
{
    const struct status_row *row = status_find(status);
    return row != NULL ? row->name : "BATON_ERR_?";
}

baton_status_t baton__failure_of(int code)
{
    return code < 0 && status_find(code) != NULL ? (baton_status_t)code
                                                 : BATON_ERR_INVALID;
}

const char *baton_status_text(baton_status_t status)
{
    const struct status_row *row = status_find(status);
    return row != NULL ? row->text : "not a status of Baton";
}

const char *baton_error_message(void)
{
    return last_message;
}

/* Sets this thread's message. The arguments may point into the old message, if
   a caller wraps the message that it got. So the new message is first formatted
   in other memory. */
static void set_message(baton_status_t status, bool logged, const char *format,
                        va_list values)
{
    baton__text_t text = BATON__TEXT(BATON__MESSAGE_BYTES);
    baton__text_add_list(&text, format, values);
    if (logged) {
        baton__log(BATON_LOG_INFO, "%s", text.data);
    }
    (void)baton__error_forward(status, text.data);
}

baton_status_t baton__error(baton_status_t status, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    if (status != BATON_OK) {
        set_message(status, true, format, values);
    }
    va_end(values);
    return status;
}

baton_status_t baton_error_set(baton_status_t status, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    set_message(status, false, format, values);
    va_end(values);
    return status;
}

baton_status_t baton__error_forward(baton_status_t status, const char *message)
{
    last_status = status;
    size_t length = strlen(message);
    if (length < sizeof last_message) {
        memmove(last_message, message, length + 1);
    } else {
        memmove(last_message, message, sizeof last_message - 1);
        baton__text_mark_cut(last_message, sizeof last_message);
    }
    return status;
}

const char *baton__errno_text(int error)
{
    static _Thread_local char text[128];
    bool files = error == EMFILE;
    struct rlimit limit = {0};
    if ((!files && error != EFBIG) ||
        getrlimit(files ? RLIMIT_NOFILE : RLIMIT_FSIZE, &limit) != 0) {
        return strerror(error);
    }
    (void)snprintf(text, sizeof text, "%s (%s is %llu)", strerror(error),
                   files ? "RLIMIT_NOFILE, ulimit -n,"
                         : "RLIMIT_FSIZE, ulimit -f,",
                   (unsigned long long)limit.rlim_cur);
    return text;
}

bool baton__is_given(const void *pointer, bool needed, const char *function,
                     const char *what)
{
    bool right = pointer != NULL || !needed;
    if (!right) {
        (void)baton__error(BATON_ERR_INVALID, "%s: %s is NULL", function, what);
    }
    return right;
}

baton_status_t baton__error_unknown(const char *what, const char *name,
                                    const char *const *names, size_t count)
{
    baton__text_t text = BATON__TEXT(BATON__MESSAGE_BYTES);
    const char *nearest = "";
    size_t least = SIZE_MAX;
    baton__text_add(&text, "no %s is called \"%.40s\"; there are:", what, name);
    for (size_t i = 0; i < count; i++) {
        baton__text_add(&text, " %s", names[i]);
        size_t distance = baton__edit_distance(name, names[i]);
        if (distance < least) {
            least = distance;
            nearest = names[i];
        }
    }
    return baton__error(BATON_ERR_INVALID, "%s; the nearest is %s", text.data,
                        nearest);
}

bool baton__is_alive(const void *object, bool destroyed, const char *function,
                     const char *what)
{
    if (object != NULL && destroyed) {
        (void)baton__error(
            BATON_ERR_INVALID,
            "%s: %s was destroyed; this handle is no longer valid", function,
            what);
    }
    return baton__is_given(object, true, function, what) && !destroyed;
}

/* ---- processes that fork ------------------------------------------------ */

static atomic_int engine_count;
/* True in a process that was forked while its parent had engines. It need not
   be atomic: it is written in the child, which has one thread then. */
static bool forked;

static void note_fork(void)
{
    forked = forked || atomic_load(&engine_count) > 0;
}

static void error_handle_forks(void)
{
    (void)pthread_atfork(NULL, NULL, note_fork);
}

void baton__process_count(int engines)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, error_handle_forks);
    atomic_fetch_add(&engine_count, engines);
}

bool baton__process_is_own(const char *function)
{
    if (forked) {
        (void)baton__error(
            BATON_ERR_STATE,
            "%s: this process was forked from one that uses Baton, and must "
            "not use it: call exec, or fork before baton_engine_open",
            function);
    }
    return !forked;
}
