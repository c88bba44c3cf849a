/* The engine: owns the progress thread and everything that runs. One a process
   is normal; several are independent of each other.

   Progress. Whoever waits drives: an application thread inside start, test or
   wait steps the engine itself where it can, so a blocking collective pays no
   hand-over between threads; the progress thread takes over what is still in
   flight when the application goes away. With nothing in flight it is asleep
   and uses no processor time. In manual mode there is no thread, and schedules
   progress only inside start, test, wait and baton_engine_step.

   Threads: every call here may come from any thread, also at the same time, and
   several threads may wait for one schedule. But start and destroy of ONE
   schedule need the caller's own order. No call is async-signal-safe. */
#ifndef BATON_ENGINE_H
#define BATON_ENGINE_H

#include <baton/schedule.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct baton_engine baton_engine_t;

typedef enum baton_progress {
    BATON_PROGRESS_DEFAULT, /* what BATON_PROGRESS says; there: thread */
    BATON_PROGRESS_THREAD,
    BATON_PROGRESS_MANUAL
} baton_progress_t;

/* Zero means default, for each field. */
typedef struct baton_engine_options {
    size_t size; /* of this struct: BATON_ENGINE_OPTIONS sets it */
    baton_progress_t progress;
    /* Where the progress thread may run, among the processors that the process
       is bound to: "none" (default: anywhere), "type:index" with an hwloc
       object type ("core:3", "pu:0", "numanode:1"), index from 0. */
    const char *placement;
    /* An epoch without progress for this long is reported to the log, level
       warn, with what it waits for; 0: BATON_STALL_MS (default 5000). */
    uint32_t stall_ms;
} baton_engine_options_t;

#define BATON_ENGINE_OPTIONS                                                   \
    {                                                                          \
        .size = sizeof(baton_engine_options_t)                                 \
    }

/* Opens an engine; NULL options mean all defaults. BATON_ERR_INVALID (options,
   a BATON_* variable out of its range), _NO_MEMORY, _SYSTEM (no thread, no
   event loop). Does not block. */
BATON_CHECKED baton_status_t
baton_engine_open(const baton_engine_options_t *options, baton_engine_t **out);

/* Closes it and joins its thread. Its groups were destroyed before:
   BATON_ERR_BUSY says that one was not, and nothing happened. NULL is allowed.
 */
BATON_CHECKED baton_status_t baton_engine_close(baton_engine_t *engine);

/* One round of progress by the calling thread: true when anything happened.
   Does not block; returns false at once while another thread drives. */
bool baton_engine_step(baton_engine_t *engine);

/* ---- groups ----------------------------------------------------------- */

int baton_group_rank(const baton_group_t *group);
int baton_group_size(const baton_group_t *group);

/* Frees the group; NULL is allowed. Its schedules were destroyed before:
   BATON_ERR_BUSY names one that was not. An MPI group's is collective. */
BATON_CHECKED baton_status_t baton_group_destroy(baton_group_t *group);

/* ---- epochs ----------------------------------------------------------- */

/* Starts this rank's next epoch, and returns: it drives a bounded step but
   never waits. The k-th start of a rank belongs to epoch k. With armed receives
   the epoch may be running or have retired already: then only its on_start
   nodes, or nothing, is left to do. BATON_ERR_STATE before the commit,
   BATON_ERR_BUSY while the last started epoch has not been completed,
   BATON_ERR_FAILED after a failure. */
BATON_CHECKED baton_status_t baton_schedule_start(baton_schedule_t *schedule);

/* *done_out: whether the last started epoch has retired (true before the first
   start). Drives one step, does not block. An epoch that failed: its error. */
BATON_CHECKED baton_status_t baton_schedule_test(baton_schedule_t *schedule,
                                                 bool *done_out);

/* Waits until the last started epoch has retired; at most timeout_ms
   milliseconds, for ever when negative. The epoch's error when it failed;
   BATON_ERR_TIMEOUT leaves the epoch running (wait again) and
   baton_error_message() names the nodes, peers and tags that it waits for. */
BATON_CHECKED baton_status_t baton_schedule_wait(baton_schedule_t *schedule,
                                                 int timeout_ms);

/* Gives up the running epoch. If the schedule has no message the epoch just
   ends and the schedule can be started again. Otherwise peers may hold half of
   what was sent, so the schedule fails: receives are withdrawn, sends are let
   finish. Either way wait returns BATON_ERR_CANCELLED. BATON_ERR_STATE when no
   epoch runs. */
BATON_CHECKED baton_status_t baton_schedule_cancel(baton_schedule_t *schedule);

/* Epochs that have retired here, monotonic: the last one's number. */
uint64_t baton_schedule_epoch(const baton_schedule_t *schedule);

/* Keeps the engine from beginning an epoch beyond `epoch` by an armed receive;
   its message is kept until the limit is raised. Never lowered: a lower value
   has no effect. The limit of a new schedule is UINT64_MAX until the first
   call. Not while another thread calls it on the same schedule. */
void baton_schedule_limit(baton_schedule_t *schedule, uint64_t epoch);

#ifdef __cplusplus
}
#endif
#endif
