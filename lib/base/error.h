/* Error messages, stored for the thread that gets the status. */
#pragma once

#include "base/text.h"

/* Sets this thread's error message, logs it at level info, and returns
   `status`. Called where a failure is detected. For BATON_OK it does nothing,
   so a caller that adds context to an earlier error need not check whether
   there was one. */
baton_status_t baton__error(baton_status_t status, const char *format, ...)
    BATON_PRINTF(2, 3);

/* Sets this thread's message without logging it. Used for a status that the log
   already has: a failure that was logged where it occurred, and is now reported
   to a thread that waits. */
baton_status_t baton__error_forward(baton_status_t status, const char *message);

/* Returns the text of an errno value. If the error is about a limit of the
   process, the text also names the limit. The text is valid until this thread's
   next call. */
const char *baton__errno_text(int error);

/* Returns the error with the number `code`, which comes from a callback or a
   peer. Returns BATON_ERR_INVALID if no error has this number. */
baton_status_t baton__failure_of(int code);

/* Returns true if the status says that a wait has returned before its epoch has
   ended. */
static inline bool baton__goes_on(baton_status_t status)
{
    return status == BATON_ERR_TIMEOUT || status == BATON_ERR_INTERRUPTED;
}

/* Returns false if a pointer is NULL although it is needed. This thread's error
   message then names the function and the argument `what`. */
bool baton__is_given(const void *pointer, bool needed, const char *function,
                     const char *what);

/* Sets and returns the error that no `what` (such as "reduction") is called
   `name`. The message lists all `names`, and says which is nearest. */
baton_status_t baton__error_unknown(const char *what, const char *name,
                                    const char *const *names, size_t count);

/* Returns the status of this thread's last error. Used after a check that
   returns only false has failed, such as baton__is_given or those below. */
baton_status_t baton__error_status(void);

/* Returns false if an object is NULL or was destroyed. This thread's error
   message then names the function and the argument `what`. */
bool baton__is_alive(const void *object, bool destroyed, const char *function,
                     const char *what);

/* Adds `engines` to the number of engines of this process. A process that is
   forked while there are engines has their memory, which it shares in part with
   its parent and peers, but none of their threads. So the child must not use
   the engines. */
void baton__process_count(int engines);

/* Returns false in a process that was forked while its parent had engines: such
   a child must not use the engines. The error, BATON_ERR_STATE, then names the
   function. */
bool baton__process_is_own(const char *function);
