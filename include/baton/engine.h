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

/* The mode of progress in force: thread or manual. */
baton_progress_t baton_engine_progress(const baton_engine_t *engine);

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

/* Starts this rank's next epoch and returns, within microseconds whatever the
   size of its messages: most of the work is left to the progress thread, or to
   the wait. The k-th start of a rank belongs to epoch k. With armed receives
   the epoch may be running or have retired already: then only its on_start
   nodes, or nothing, is left to do. BATON_ERR_STATE before the commit,
   BATON_ERR_BUSY while the last started epoch has not been completed,
   BATON_ERR_FAILED after a failure; what an adder met that was called after the
   commit. */
BATON_CHECKED baton_status_t baton_schedule_start(baton_schedule_t *schedule);

/* *done_out: whether the last started epoch has ended (true before the first
   start). Drives one step, does not block. An epoch that failed: its error. */
BATON_CHECKED baton_status_t baton_schedule_test(baton_schedule_t *schedule,
                                                 bool *done_out);

/* Waits until the epoch that was started last when wait was called has ended;
   at most timeout_ms milliseconds, for ever when negative. The epoch's error
   when it failed: then the memory that is bound is the caller's, as after a
   success. BATON_ERR_TIMEOUT leaves the epoch running (wait again), and
   baton_error_message() names the nodes, peers and tags that it waits for.
   BATON_ERR_STATE in a call node. */
BATON_CHECKED baton_status_t baton_schedule_wait(baton_schedule_t *schedule,
                                                 int timeout_ms);

/* Gives up the running epoch: it fails with BATON_ERR_CANCELLED, here and on
   the peers. BATON_ERR_STATE when no epoch runs. */
BATON_CHECKED baton_status_t baton_schedule_cancel(baton_schedule_t *schedule);

/* The number of the last epoch that has retired here since the commit, or the
   last recovery. */
uint64_t baton_schedule_epoch(const baton_schedule_t *schedule);

/* What this rank has sent for the schedule, in all its epochs: messages, those
   of activates among them, and bytes of payload. */
typedef struct baton_traffic {
    uint64_t messages;
    uint64_t bytes;
} baton_traffic_t;
baton_traffic_t baton_schedule_sent(const baton_schedule_t *schedule);

/* Keeps the engine from beginning an epoch beyond `epoch` by an armed receive;
   its message is kept until the limit is raised. Never lowered: a lower value
   has no effect. The limit of a new schedule, and of one that was recovered, is
   UINT64_MAX until the first call. Not while another thread calls it on the
   same schedule. */
void baton_schedule_limit(baton_schedule_t *schedule, uint64_t epoch);

/* ---- failure and recovery --------------------------------------------- */

/* An epoch fails once, for the first cause that comes to this rank: a node that
   failed, a cancel, a peer that is gone, or the failure of a peer's epoch. Each
   rank that a failed schedule has messages with is told, with the cause and the
   rank that met it, so all of them fail with the same status
   (BATON_ERR_CANCELLED on a rank that commits the schedule only when others
   recover already); a peer that has still an earlier epoch to complete
   completes that first. Then the schedule stays failed until it is recovered or
   destroyed, unless it has no messages and no on_recover: then it can be
   started again at once. */
typedef struct baton_failure {
    baton_status_t status; /* of the first cause */
    int rank;              /* that met it */
    uint64_t epoch;        /* that it failed in there */
    char message[512];     /* what was said there */
} baton_failure_t;

/* How the schedule failed. BATON_ERR_STATE: it has not. */
BATON_CHECKED baton_status_t
baton_schedule_failure(const baton_schedule_t *schedule, baton_failure_t *out);

/* Makes a group usable again after a failure. Collective: all ranks of the
   group call it, whether anything failed there or not. Epochs that still run
   are cancelled first. When it returns, this group's schedules are as after
   their commit, on all ranks: their next epoch is number 1, and no message of
   an earlier epoch can arrive any more. A recovered schedule is started without
   allocating, as ever.

   At most timeout_ms, for ever when negative; with 0 it does what can be done
   at once. BATON_ERR_TIMEOUT names a rank that has not come: call it again, to
   go on. BATON_ERR_FAILED: the group is recovered, but schedules are left that
   can't be (a peer has destroyed its own, or committed another one); they stay
   failed. BATON_ERR_TRANSPORT: a rank is gone. BATON_ERR_STATE in a call node.
 */
BATON_CHECKED baton_status_t baton_group_recover(baton_group_t *group,
                                                 int timeout_ms);

/* Called when the schedule has been recovered, before its next epoch: for who
   keeps state across epochs. `epoch`: the last, before, that any rank has
   completed; so whatever it took is in a result somewhere. All ranks of the
   group have such a schedule. On the driving thread, as a call node's function.
   Before the commit, at most once. */
typedef void (*baton_recover_fn)(void *arg, uint64_t epoch);
void baton_schedule_on_recover(baton_schedule_t *schedule, baton_recover_fn fn,
                               void *arg);

#ifdef __cplusplus
}
#endif
#endif
