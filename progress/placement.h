/* Where the progress thread runs. */
#pragma once

#include <baton/types.h>
#include <pthread.h>

/* Binds a thread as `placement` says ("core:3"). BATON_ERR_INVALID names what
   the machine has. */
baton_status_t baton__place_thread(pthread_t thread, const char *placement);
