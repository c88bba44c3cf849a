/* Errors carry a message, kept for the thread that gets the status. */
#pragma once

#include "base/text.h"

#include <stdbool.h>

/* Sets this thread's error message, logs it at level error, and returns
   `status`. Called where a failure is detected. */
baton_status_t baton__error(baton_status_t status, const char *format, ...)
    BATON_PRINTF(2, 3);

/* Sets this thread's message without logging it: for a failure that has been
   logged already, on its way to the thread that waits. */
baton_status_t baton__error_forward(baton_status_t status, const char *message);

/* What an error's number means; with the limit of this process that it is
   about, if it is: for one message of this thread. */
const char *baton__errno_text(int error);

/* The failure that `code` stands for, which a callback returned or a peer sent:
   BATON_ERR_INVALID when it stands for none. */
baton_status_t baton__failure_of(int code);

/* True if a wait has returned, and what it waits for has not ended. */
static inline bool baton__goes_on(baton_status_t status)
{
    return status == BATON_ERR_TIMEOUT || status == BATON_ERR_INTERRUPTED;
}

/* Whether a pointer is given where it is needed; if not, this thread's error
   names the function and the argument. */
bool baton__is_given(const void *pointer, bool needed, const char *function,
                     const char *what);

/* The error that no `what` has this name: lists those that there are, and the
   nearest. */
baton_status_t baton__error_unknown(const char *what, const char *name,
                                    const char *const *names, size_t count);

/* The status of this thread's last error, for callers of the checks below. */
baton_status_t baton__error_status(void);

/* The same of an object, which is not there either once it was destroyed. */
bool baton__is_alive(const void *object, bool destroyed, const char *function,
                     const char *what);

/* Counts the engines of this process. One that is forked while it has some has
   their memory, which its parent's threads and peers share in part, and none of
   the threads: so it must not use them. */
void baton__process_count(int engines);

/* Whether this process may: else BATON_ERR_STATE names the function. */
bool baton__process_is_own(const char *function);
