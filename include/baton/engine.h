/* Options of an engine, interrupts, event loops, the log, and BATON_*
   variables.

   An application thread inside start, test or wait drives the engine itself
   when it can, so that a blocking collective needs no hand-over between
   threads. The progress thread takes over when the application leaves the call
   while epochs are in flight. While nothing is in flight the progress thread
   sleeps, and uses no processor time. Manual mode has no progress thread:
   schedules progress only inside start, test, wait and baton_engine_step.

   Only baton_engine_interrupt and baton_engine_notify are async-signal-safe.
   The library's threads block all signals except those that an instruction
   raises (SIGSEGV and the like). Programs that a call node's function starts
   inherit this, unless the function unblocks the signals.

   A process that is forked while its parent has an engine can't use the
   library: the child has none of the library's threads, and shares memory and
   sockets with the parent. In the child every call on an engine, a group, or an
   object of a group, even to destroy it or to open another engine, does nothing
   and returns BATON_ERR_STATE. Fork before baton_engine_open, or call exec. */
#ifndef BATON_ENGINE_H
#define BATON_ENGINE_H

#include <baton/baton.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum baton_progress {
    /* As the variable BATON_PROGRESS says: `thread` unless it is set. */
    BATON_PROGRESS_DEFAULT,
    BATON_PROGRESS_THREAD,
    BATON_PROGRESS_MANUAL
} baton_progress_t;

/* A field that is zero has its default. */
typedef struct baton_engine_options {
    size_t size;               /* set by BATON_ENGINE_OPTIONS */
    baton_progress_t progress; /* the mode; 0: BATON_PROGRESS_DEFAULT */
    /* Where the progress thread may run, within the processors that the process
       is bound to: "none" (the default) for anywhere, or "type:index" with an
       hwloc object type and an index from 0 ("core:3", "pu:0",
       "numanode:1"). */
    const char *placement;
    /* After this many ms without progress of an epoch a warning is logged. It
       names the message that the epoch waits for, and the rank that all others
       wait for, which the ranks find by asking each other. Of the ranks with
       the same finding one warns, and the others log at level info. Default:
       BATON_STALL_MS (5000). */
    uint32_t stall_ms;
} baton_engine_options_t;

#define BATON_ENGINE_OPTIONS BATON_INITIALIZER(baton_engine_options_t)

/* The engine's mode of progress: thread or manual. */
baton_progress_t baton_engine_progress(const baton_engine_t *engine);

/* ---- progress by the application -------------------------------------- */

/* Makes one round of progress on the calling thread, and returns true if
   anything happened. Does not block; returns false at once while another thread
   drives. For programs that poll: the progress thread, if any, leaves the
   driving to them, and takes over 1 ms after the last such call. */
bool baton_engine_step(baton_engine_t *engine);

/* ---- waits that are interrupted ---------------------------------------- */

/* Ends all current waits on this engine, on any thread, with
   BATON_ERR_INTERRUPTED. Nothing else happens: epochs go on, and a thread may
   wait for its epoch again, or cancel it. This call is for signal handlers,
   which first set a flag of the program, and for threads that stop others. A
   thread whose wait returns this status looks at the program's flags, and waits
   again if none concerns it.

       static void stop(int signal)
       {
           stopped = 1;
           baton_engine_interrupt(engine);
       }
       ...
       do {
           status = baton_schedule_wait(schedule, -1);
       } while (status == BATON_ERR_INTERRUPTED && !stopped);

   No interrupt is missed. If a thread is in no wait, its next wait that would
   have to block returns BATON_ERR_INTERRUPTED: so a signal may come just before
   the wait. One such return covers all earlier interrupts for its thread, but
   not for other threads. A thread that has not waited for a long time may get
   an old interrupt. A new thread gets an older interrupt only if it waits
   before it has started anything.

   These waits are interrupted: waits for schedules (also _wait_epoch and
   _wait_with), partial and sparse all-reduces and sets of tensors;
   baton_group_recover, all functions whose names end in _shrink, and
   baton_engine_wait; and create, connect and agree of sparse.h and tensors.h.
   (An interrupted create has failed; the other waits can be called again.) A
   wait whose own thread runs a call node ends after that node's function has
   returned. Calls that could not be continued are not interrupted: baton_now
   and the like, destroy, close, baton_group_tune, commit with BATON_VERIFY=1,
   and creating a group over MPI.

   Any thread, also in a call node. Async-signal-safe, until baton_engine_close
   is called. NULL is allowed. */
void baton_engine_interrupt(baton_engine_t *engine);

/* ---- event loops -------------------------------------------------------

   Returns the engine's descriptor, and arms it: it becomes readable when
   something ends that a program can wait for on this engine: an epoch of a
   schedule, a step of a partial or sparse all-reduce, a recovery, a shrink; and
   on baton_engine_notify. So a program can wait for many epochs, and for other
   descriptors, in a loop of its own (epoll, poll, asyncio):

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

   An epoch that ends after arm makes the descriptor readable; the tests find
   those that have ended before. So arm first, then test, and nothing is missed.
   The descriptor stays readable until the next arm, which drains it; do not
   read from it. Spurious wake-ups are possible. Each arm costs one or two
   system calls, and one more if anything ends after it; an engine that is never
   armed pays nothing.

   One thread at a time calls this for an engine. The engine owns the
   descriptor, and closes it. BATON_ERR_INVALID: a pointer is NULL.
   BATON_ERR_UNSUPPORTED: progress is manual, or the engine simulated, so no
   epoch would end meanwhile. BATON_ERR_SYSTEM: no descriptor could be
   opened. */
BATON_CHECKED baton_status_t baton_engine_arm(baton_engine_t *engine,
                                              int *fd_out);

/* ---- the log ---------------------------------------------------------- */

/* Log levels. A message is logged if its level is at most the one in force
   (BATON_LOG, default warn). error and warn are for events that no call
   reports: a stalled epoch, an unknown BATON_* variable, MPI_Finalize before a
   group is destroyed. info includes the errors that calls return. Variables
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

/* Installs the process's log handler (NULL removes it). Without a handler,
   messages go to standard error. Call before engines are opened; not
   thread-safe. */
void baton_log_set(baton_log_fn handler, void *arg);

/* ---- the library ------------------------------------------------------ */

/* The version of the linked library, "0.1.0"; a static string. */
const char *baton_version(void);

/* ---- variables and kernels -------------------------------------------- */

/* One BATON_* variable. All strings are static. `value` is the value in
   force. */
typedef struct baton_variable {
    const char *name;
    const char *unit;
    const char *summary;
    const char *default_value;
    const char *value;
} baton_variable_t;

/* Gets the i-th variable of the table. Returns false past the table's end, or
   if out is NULL. */
bool baton_variable_get(size_t i, baton_variable_t *out);

/* The instruction set that the reduction kernels use here: "avx512", "avx2" or
   "baseline"; a static string. */
const char *baton_kernels_name(void);

#ifdef __cplusplus
}
#endif
#endif
