/* Log messages: to the user's handler, or to standard error when BATON_LOG asks
   for it. */
#ifndef BATON_BASE_LOG_H
#define BATON_BASE_LOG_H

#include <baton/status.h>
#include <stdbool.h>

/* Whether a message of this level goes anywhere: for callers that would have to
   collect it first. */
bool baton__log_wants(baton_log_level_t level);

/* At most BATON__MESSAGE_BYTES of it, without a trailing newline. errno stays
   as it is. */
void baton__log(baton_log_level_t level, const char *format, ...)
    BATON_PRINTF(2, 3);

#endif
