/* Writes log messages to the user's handler or, if there is none, to standard
   error. */
#pragma once

#include <baton/build.h>
#include <baton/engine.h>

/* Logs a message of at most BATON__MESSAGE_BYTES, without a trailing newline.
   Preserves errno. */
void baton__log(baton_log_level_t level, const char *format, ...)
    BATON_PRINTF(2, 3);
