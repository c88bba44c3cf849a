/* An engine's options, the log, and what baton-info prints.

   An application thread inside start, test or wait drives the engine itself
   when it can, so that a blocking collective needs no hand-over between
   threads. The progress thread takes over what is still in flight when the
   application leaves the call. While nothing is in flight it sleeps, and uses
   no processor time. Manual mode has no such thread: schedules progress only
   inside start, test, wait and baton_engine_step.

   No call of the library is async-signal-safe but baton_engine_interrupt and
   baton_engine_notify. The library's threads block all
   signals but those that an instruction raises (SIGSEGV and the like), and so
   do programs that a call node's function starts, unless it unblocks them.

   A process that is forked while its parent has an engine can't use the
   library: it has none of the threads, and shares memory and sockets with the
   parent. There every call on an engine, a group or what is made in one, also
   to destroy it or to open another engine, does nothing and returns
   BATON_ERR_STATE. Fork before baton_engine_open, or call exec. */
#ifndef BATON_ENGINE_H
#define BATON_ENGINE_H

#include <baton/baton.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum baton_progress {
    BATON_PROGRESS_DEFAULT, /* as the variable BATON_PROGRESS says; by default,
                               thread */
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
    /* After so many ms without progress an epoch is logged as a warning, with
       what it waits for. The ranks ask each other, to name the rank that all
       others wait for. Of ranks with the same finding one warns, and the others
       log at level info. Default: BATON_STALL_MS (5000). */
    uint32_t stall_ms;
} baton_engine_options_t;

#define BATON_ENGINE_OPTIONS BATON_INITIALIZER(baton_engine_options_t)

/* The mode of progress in force: thread or manual. */
baton_progress_t baton_engine_progress(const baton_engine_t *engine);

/* ---- progress by the application -------------------------------------- */

/* Makes one round of progress on the calling thread; true if anything happened.
   Does not block; returns false at once while another thread drives. For
   programs that poll: the progress thread, if any, leaves the driving to them,
   and takes over 1 ms after the last such call. */
bool baton_engine_step(baton_engine_t *engine);

/* ---- waits that are interrupted ---------------------------------------- */

/* Ends all waits on this engine that are under way, on any thread, with
   BATON_ERR_INTERRUPTED. Nothing else happens: what a thread waited for goes
   on, and the thread may wait for it again, or cancel it. This is for handlers
   of signals, which set a flag of the program before, and for threads that stop
   others. A thread whose wait returns this looks at its flags, and waits again
   if it was not meant.

       static void stop(int signal)
       {
           stopped = 1;
           baton_engine_interrupt(engine);
       }
       ...
       do {
           status = baton_schedule_wait(schedule, -1);
       } while (status == BATON_ERR_INTERRUPTED && !stopped);

   No interrupt is missed. A thread that is in no wait is told by the next one
   that it begins and that would have to wait: so a signal may come just before
   the wait. Each thread is told once of all interrupts until then, whatever
   other threads are told. A thread that has not waited for long is told of an
   old one; one that is new only if it has started nothing before it waits, or
   it came after its first start.

   These waits are interrupted: those for schedules (also _wait_epoch and
   _wait_with), partial and sparse all-reduces and sets of tensors;
   baton_group_recover, all that are called shrink, and baton_engine_wait; and
   create, connect and agree of sparse.h and tensors.h, of which create then
   fails. A wait whose own thread runs a call node ends when that has returned.
   Calls that could not be continued are not interrupted: baton_now and the
   like, destroy, close, baton_group_tune, commit with BATON_VERIFY=1, and
   creating a group over MPI.

   Any thread, also in a call node. Async-signal-safe, until baton_engine_close
   is called. NULL is allowed. */
void baton_engine_interrupt(baton_engine_t *engine);

/* ---- event loops -------------------------------------------------------

   Gives the engine's descriptor, and arms it: it becomes readable when
   something ends that a program can wait for on this engine: an epoch of a
   schedule, a step of a partial or sparse all-reduce, a recovery, a shrink, or
   what baton_engine_notify tells of. So a program can wait for many things at
   once, and for others, in a loop of its own (epoll, poll, asyncio):

       for (;;) {
           baton_engine_arm(engine, &fd);
           for (each schedule that was started) {
               baton_schedule_test(schedule, &done);
               ...
           }
           if (none of them was done) {
               poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, -1);
           }
       }

   What ends after arm makes the descriptor readable, and what has ended before
   is found by the tests: so arm before them, and nothing is missed. The
   descriptor is readable until the next arm, which drains it; nobody else reads
   it. It may also become readable for nothing. Each arm costs a system call or
   two, and one more where something ends after it, however much does; engines
   that nobody arms pay nothing.

   One thread at a time calls this for an engine, which owns the descriptor, and
   closes it. BATON_ERR_INVALID: a pointer is NULL. BATON_ERR_UNSUPPORTED: with
   manual progress, or simulated, nothing would end meanwhile. BATON_ERR_SYSTEM:
   no descriptor. */
BATON_CHECKED baton_status_t baton_engine_arm(baton_engine_t *engine,
                                              int *fd_out);

/* ---- the log ---------------------------------------------------------- */

/* Log levels. A message is logged when its level is at most the one in force
   (BATON_LOG, default warn). error and warn are for events that no call
   returns: a stalled epoch, an unknown BATON_* variable, MPI_Finalize before a
   group is destroyed. info also has the errors that calls return. Variables
   that begin with BATON_X_ belong to extensions, those with BATON_MPI_ to
   libbaton_mpi; the library ignores both. */
typedef enum baton_log_level {
    BATON_LOG_NONE,
    BATON_LOG_ERROR,
    BATON_LOG_WARN,
    BATON_LOG_INFO,
    BATON_LOG_DEBUG,
    BATON_LOG_TRACE
} baton_log_level_t;

/* Receives one message without a trailing newline. May be called from the
   progress thread; no lock of the library is held. */
typedef void (*baton_log_fn)(void *arg, baton_log_level_t level,
                             const char *message);

/* Installs the process's log handler (NULL removes it). Without one, messages
   go to standard error. Call before engines are opened; not thread-safe. */
void baton_log_set(baton_log_fn handler, void *arg);

/* ---- the library ------------------------------------------------------ */

/* The version of the linked library, "0.1.0"; a static string. */
const char *baton_version(void);

/* ---- what baton-info prints ------------------------------------------- */

/* One BATON_* variable: static strings, and the value in force. */
typedef struct baton_variable {
    const char *name;
    const char *unit;
    const char *summary;
    const char *default_value;
    const char *value;
} baton_variable_t;

/* The i-th variable of the table; false past its end, or if out is NULL. */
bool baton_variable_get(size_t i, baton_variable_t *out);

/* The instruction set that the reduction kernels use here: "avx512", "avx2" or
   "baseline"; a static string. */
const char *baton_kernels_name(void);

#ifdef __cplusplus
}
#endif
#endif
