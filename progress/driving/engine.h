/* An engine: a stepper, the event loop that its threads sleep in, the progress
   thread, and the rule that says which thread drives.

   `driving` is the driver lock; the thread that holds it steps. Threads only
   try the lock and never block on it. In an engine with a progress thread no
   thread sleeps while it holds the lock. An application thread tries the lock
   in start, test and wait; the progress thread releases it whenever an
   application thread wants it.

   A simulated engine does the same in virtual time: the table `driver` has the
   functions in which the two kinds of engine differ. */
#pragma once

#include "progress/driving/event_loop.h"
#include "progress/driving/idle.h"
#include "progress/driving/step.h"
#include "progress/membership/watchdog.h"

#include <baton/engine.h>

/* ---- waiting and waking ----------------------------------------------------

   1. A thread that holds the driver lock polls, so no peer needs to wake it.
   2. A driver that leaves arms all transports, if there is a thread that they
      can wake. From then on an event makes a descriptor readable, and the
      thread that sleeps at the descriptors drives next. If no epoch runs and
      no armed receive waits, the transports are armed for notices alone:
      messages of epochs that have not begun can wait for their start. A
      start polls for a moment before it leaves, or yields if ranks share
      processors: a message that comes meanwhile needs no wake-up.
   3. If a transport can't be armed because something has come already, the
      leaving driver makes a few steps itself. If work is left after that, or
      something is awaited that no descriptor reports, it kicks the sleeping
      thread. For messages that need a poll now and then, such as MPI's between
      hosts, it sets the progress thread's timer.
   4. One of the waiting threads leads. It drives, yields for as long as idle.h
      says, and then sleeps at the descriptors itself; the progress thread
      is not woken meanwhile. Other waiting threads are parked until their
      epochs have ended or the leader has gone.
   5. The progress thread drives when it is woken and no other thread drives.
      It releases the lock if an application thread wants it.
   6. A message of an epoch that a peer has not begun does not wake that peer.
      But after a sender has waited for a while its messages do wake the peer,
      which may have to answer. A peer that has just stopped driving is not
      woken for a moment, since it may come back by itself.

   Flags and counts by which threads notify each other:

       woken      a sleeping thread was woken, and no thread has driven since:
                  a driver that is about to leave looks once more
       wanted     number of application threads that want the driver lock
       leading    a waiting thread leads
       asleep     the leader sleeps at the descriptors
       followers  number of parked threads
       reigns     number of leaders that have gone */

/* The verifier of one group. */
typedef struct baton__verifier baton__verifier_t;

/* The functions that BATON_VERIFY=1 adds to a commit. lib/sim implements this
   table, and passes it to the engines that it opens (verify.c). */
typedef struct baton__verification {
    /* create makes a group's verifier, and destroy frees it. Neither waits
       for another rank. */
    baton_status_t (*create)(baton_group_t *group, baton__verifier_t **out);
    void (*destroy)(baton__verifier_t *verifier);

    /* Verifies the commit of a schedule; `local` is the status of this rank's
       own checks. Collective: ranks whose own checks failed call it, too.
       BATON_OK if all ranks may commit. */
    baton_status_t (*verify)(baton__verifier_t *verifier,
                             const baton_schedule_t *schedule,
                             baton_status_t local);
} baton__verification_t;

typedef struct baton__driver baton__driver_t;

struct baton_engine {
    baton__stepper_t stepper;
    const baton__driver_t *driver;
    const baton__verification_t *verification; /* may be NULL */
    baton__event_loop_t *event_loop;
    baton__device_t *device; /* NULL if none is attached */
    baton__watch_t *device_watch;
    /* The last call of the device's function `arm` failed, so the descriptor of
       the device reports nothing. Guarded by the driver lock. */
    bool unarmed;
    bool threaded;
    pthread_t thread;

    /* The driver lock guards the fields from here to `nested`. */
    baton__idle_t idle;
    bool armed;
    uint32_t armed_us; /* the longest sleep that the armed transports allow */
    /* The engine that the driver was driving when it took the lock of this
       engine, or NULL. */
    const baton_engine_t *outer;
    uint32_t nested; /* number of nested calls of `enter` */

    /* the leader has closed the gate of the event loop (event_loop.h); only the
       leader accesses this */
    bool gate_closed;
    /* the time at which the transports were last armed with BATON_ARM_INSIST
       (baton/transport.h) */
    uint64_t insisted_ns;

    /* All threads access the fields from here on. */
    _Atomic bool driving;
    _Atomic int wanted;
    _Atomic bool woken;
    _Atomic bool leading;
    _Atomic bool asleep;
    _Atomic int followers;
    _Atomic uint32_t reigns;
    _Atomic bool stopping;
    /* The time at which the progress thread last woke up; written while
       asks_awake is set. */
    _Atomic uint64_t awake_ns;
    _Atomic bool asks_awake;
    _Atomic uint32_t calls;       /* the futex that parked threads sleep on */
    _Atomic uint64_t interrupted; /* number of the last interrupt, or 0 */
    _Atomic bool ended_armed;     /* baton_engine_arm has armed ended_fd */
    int ended_fd; /* the eventfd of baton_engine_arm; 0 before the first call */
};

/* A wait's condition, and its limits. */
typedef struct baton__wait {
    baton_condition_fn condition; /* called with or without the driver lock */
    const void *arg;
    baton_schedule_t *schedule; /* the schedule that is waited for; or NULL */
    int timeout_ms;             /* negative: for ever */
    bool interruptible;
    baton_turn_fn turn; /* called between steps; may be NULL */
    void *turn_arg;
} baton__wait_t;

struct baton__driver {
    /* The size of the struct that begins with the task of a schedule. (A
       simulator's struct has further fields.) */
    size_t task_bytes;

    /* True if the calling thread drives: it has entered, or a call node runs on
       it. */
    bool (*is_inside)(const baton_engine_t *engine);

    /* enter takes the driver lock, for calls that change state that steps use.
       try_enter takes the lock only if it is free, and returns whether it has
       done so. leave releases the lock. Pairs of these calls nest, and may be
       made from inside a step. */
    void (*enter)(baton_engine_t *engine);
    bool (*try_enter)(baton_engine_t *engine);
    void (*leave)(baton_engine_t *engine);

    /* Called when the schedule's application has started an epoch, or when the
       schedule's state has changed otherwise. Steps the schedule if this thread
       can drive, else mails it to the thread that drives. Returns true if this
       thread drove, and starts of this schedule with NEXT_WORK yield the
       processor between polls, as a wait does. */
    bool (*start)(baton_schedule_t *schedule, baton__next_t next);

    /* Makes some progress. */
    baton_status_t (*test)(baton_engine_t *engine);

    /* Makes progress until the condition is true. Otherwise returns
       BATON_ERR_TIMEOUT, BATON_ERR_INTERRUPTED, the reason why the condition
       can never become true, or the error that `turn` returned. The caller
       must not have entered. */
    baton_status_t (*wait)(baton_engine_t *engine, const baton__wait_t *wait);

    /* Optional: called when baton_group_recover has begun a recovery. */
    void (*recover)(baton_group_t *group);

    /* Optional: checks that there is memory to commit this schedule. */
    baton_status_t (*check_memory)(const baton_schedule_t *schedule);

    /* Optional: ends at once all nodes in motion (sched/run.h) of a schedule
       that is destroyed, and notifies its peers. Without this function destroy
       steps until no node is in motion. */
    void (*forget)(baton_schedule_t *schedule);
};

extern const baton__driver_t baton__real_driver;

/* True if sleeping threads also wake up from time to time by themselves. Tests
   clear it before they open an engine, so that a lost wake-up is a hang and not
   just a delay. */
extern bool baton__engine_rechecks;

/* Returns the highest number of an interrupt that does not end this thread's
   wait, because the thread has already returned from a wait for that interrupt;
   UINT64_MAX if the wait can't be interrupted. */
uint64_t baton__engine_heeded(const baton__wait_t *wait);
/* Marks all interrupts of the engine so far as heeded, sets the error message
   and returns BATON_ERR_INTERRUPTED. */
baton_status_t baton__engine_heed(const baton_engine_t *engine);

static inline bool baton__engine_interrupts(const baton_engine_t *engine,
                                            uint64_t heeded)
{
    /* Pairs with the exchange in baton_engine_interrupt(). */
    return heeded != UINT64_MAX &&
           atomic_load_explicit(&engine->interrupted, memory_order_seq_cst) >
               heeded;
}

/* Closes the engine's device, if it has one. The progress thread must have
   ended, and the engine must have no groups. */
void baton__engine_close_device(baton_engine_t *engine);

/* Binds a thread as `placement` says ("core:3", or "none"). The message of
   BATON_ERR_INVALID says what the process may use. */
baton_status_t baton__place_thread(pthread_t thread, const char *placement);

static inline bool baton__engine_is_inside(const baton_engine_t *engine)
{
    return engine->driver->is_inside(engine);
}

/* Opens an engine, like baton_engine_open. `verification` has the functions by
   which commits are verified with BATON_VERIFY=1. */
baton_status_t baton__engine_open(const baton_engine_options_t *options,
                                  const baton__verification_t *verification,
                                  baton_engine_t **out);
