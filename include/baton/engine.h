/* An engine owns the progress thread and everything that runs on it. A process
   normally has one; several engines are independent of each other.

   Progress. The caller of wait drives: an application thread inside start, test
   or wait steps the engine itself when it can, so that a blocking collective
   pays for no hand-over between threads. The progress thread takes over what is
   still in flight when the application leaves. It sleeps while nothing is in
   flight, and uses no processor time then. In manual mode there is no thread:
   schedules progress only inside start, test, wait and baton_engine_step.

   Threads: any thread may make any call of this library at any time, unless a
   header says otherwise. No call is async-signal-safe. */
#ifndef BATON_ENGINE_H
#define BATON_ENGINE_H

#include <baton/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct baton_engine baton_engine_t;

typedef enum baton_progress {
    BATON_PROGRESS_DEFAULT, /* as the variable BATON_PROGRESS says: thread, if
                               it is not set */
    BATON_PROGRESS_THREAD,
    BATON_PROGRESS_MANUAL
} baton_progress_t;

/* A field that is zero has its default. */
typedef struct baton_engine_options {
    size_t size; /* set by BATON_ENGINE_OPTIONS */
    baton_progress_t progress;
    /* Where the progress thread may run, within the processors that the process
       is bound to: "none" (the default) for anywhere, or "type:index" with an
       hwloc object type and an index from 0 ("core:3", "pu:0",
       "numanode:1"). */
    const char *placement;
    /* An epoch that makes no progress for this long is logged as a warning,
       with what it waits for, and which rank all others wait for: the ranks ask
       each other. Of those that find the same one of them warns, and the others
       log it at level info. Default: BATON_STALL_MS (5000). */
    uint32_t stall_ms;
} baton_engine_options_t;

#define BATON_ENGINE_OPTIONS BATON_INITIALIZER(baton_engine_options_t)

/* Opens an engine. `options` may be NULL for all defaults. Does not block.
   BATON_ERR_INVALID (options, or a BATON_* variable out of its range),
   _NO_MEMORY, _SYSTEM (no thread, no event loop). */
BATON_CHECKED baton_status_t
baton_engine_open(const baton_engine_options_t *options, baton_engine_t **out);

/* Closes the engine and joins its thread. NULL is allowed. All groups must have
   been destroyed before: BATON_ERR_BUSY names one that was not, and then
   nothing has happened. BATON_ERR_STATE in a call node. */
BATON_CHECKED baton_status_t baton_engine_close(baton_engine_t *engine);

/* The mode of progress in force: thread or manual. */
baton_progress_t baton_engine_progress(const baton_engine_t *engine);

/* ---- manual progress -------------------------------------------------- */

/* Makes one round of progress on the calling thread. True when anything
   happened. Does not block; false at once while another thread drives. */
bool baton_engine_step(baton_engine_t *engine);

#ifdef __cplusplus
}
#endif
#endif
