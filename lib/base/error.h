/* Error messages, stored for the thread that gets the status. */
#pragma once

#include "base/text.h"

#include <stdbool.h>

/* Sets this thread's error message, logs it at level info, and returns
   `status`. Called where a failure is detected. It does nothing for BATON_OK,
   so a caller that adds where an earlier error was met need not ask whether
   there is one. */
baton_status_t baton__error(baton_status_t status, const char *format, ...)
    BATON_PRINTF(2, 3);

/* Sets this thread's message without logging it: for a failure that has been
   logged already, on its way to the thread that waits. */
baton_status_t baton__error_forward(baton_status_t status, const char *message);

/* The text of an errno value, with the process's limit if the error is about
   one. Valid until this thread's next call. */
const char *baton__errno_text(int error);

/* The error with this code, which a callback has returned or a peer has sent;
   BATON_ERR_INVALID if there is none. */
baton_status_t baton__failure_of(int code);

/* True if a wait returned before its epoch ended. */
static inline bool baton__goes_on(baton_status_t status)
{
    return status == BATON_ERR_TIMEOUT || status == BATON_ERR_INTERRUPTED;
}

/* False if a needed pointer is NULL: this thread's error message then names the
   function and the argument `what`. */
bool baton__is_given(const void *pointer, bool needed, const char *function,
                     const char *what);

/* The error for an unknown name of a `what`: lists all names, and the
   nearest. */
baton_status_t baton__error_unknown(const char *what, const char *name,
                                    const char *const *names, size_t count);

/* The status of this thread's last error, for callers of the checks below. */
baton_status_t baton__error_status(void);

/* False if an object is NULL or was destroyed; this thread's error message then
   names the function and the argument `what`. */
bool baton__is_alive(const void *object, bool destroyed, const char *function,
                     const char *what);

/* Adds to the number of engines of this process. A process that is forked while
   there are engines has their memory, which it shares in part with its parent
   and peers, but none of their threads: so it must not use them. */
void baton__process_count(int engines);

/* False in a process that must not use the engines, as it was forked; the
   error, BATON_ERR_STATE, names the function. */
bool baton__process_is_own(const char *function);
