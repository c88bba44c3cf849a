/* Where the progress thread runs. */
#ifndef BATON_PROGRESS_PLACEMENT_H
#define BATON_PROGRESS_PLACEMENT_H

#include <baton/types.h>
#include <pthread.h>

/* Binds a thread as `placement` says ("core:3"). BATON_ERR_INVALID names what
   the machine has. */
baton_status_t baton__place_thread(pthread_t thread, const char *placement);

#endif
