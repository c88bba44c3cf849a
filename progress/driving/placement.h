/* Binds the progress thread to processors. */
#pragma once

#include <baton/types.h>
#include <pthread.h>

/* Binds a thread as `placement` says ("core:3", or "none"). The message of
   BATON_ERR_INVALID says what the process may use. */
baton_status_t baton__place_thread(pthread_t thread, const char *placement);
