/* The engine: a stepper, the event loop it sleeps in, a thread, and the rule of
   which thread drives.

   `driving` is the driver lock: the thread that holds it steps. It is only ever
   tried, never waited for with a blocked thread, and while there is a progress
   thread no thread sleeps holding it. An application thread tries it in start,
   test and wait; the progress thread gives it up whenever an application thread
   wants it.

   A simulated engine does the same in virtual time: `driver` is the table of
   what the two do differently. */
#pragma once

#include "progress/event_loop.h"
#include "progress/idle.h"
#include "progress/step.h"
#include "progress/verification.h"
#include "progress/watchdog.h"

#include <baton/engine.h>
#include <pthread.h>

/* ---- who waits, who wakes --------------------------------------------------

   1. The thread that holds the driver lock polls, and nobody needs to wake it.
   2. A driver that leaves arms all transports, unless nobody could be woken; a
      start polls for a moment before, or yields where ranks share processors,
      which may spare the peers a ring.
      Then what comes makes a descriptor readable, and whoever sleeps at the
      descriptors drives next. If nothing runs and no armed receive waits, it
      arms for notices alone: what belongs to epochs that have not begun can
      wait for their start.
   3. If something has come already, it steps a little itself. It kicks who
      sleeps for what is left then, and for what no descriptor tells of. MPI's
      data between hosts needs a look now and then: it sets the thread's timer.
   4. A thread that waits leads. It drives, yields for as long as idle.h says,
      and then sleeps at the descriptors itself; the progress thread is
      not woken meanwhile. Others that wait are parked until their epochs have
      ended, or the leader is gone.
   5. The progress thread drives when it is woken and nobody else does. It
      leaves the lock to an application thread that wants it.
   6. A peer is not woken for a message of an epoch that it has not begun,
      unless this rank has waited for a while: it may have to answer. One that
      has just left is given a moment to come back.

   The flags and counts by which threads tell each other:

       woken      who slept has been woken, and no driver has looked since: a
                  driver that was about to leave looks again
       wanted     application threads that want the lock
       leading    a waiting thread leads
       asleep     it sleeps at the descriptors
       followers  others that are parked, and reigns, how many leaders they
                  have seen go */

typedef struct baton__driver baton__driver_t;

struct baton_engine {
    baton__stepper_t stepper;
    const baton__driver_t *driver;
    const baton__verification_t *verification; /* may be NULL */
    baton__event_loop_t *event_loop;
    baton__device_t *device; /* or NULL; see devices.c */
    baton__watch_t *device_watch;
    bool unarmed; /* the device could not be armed; the lock's */
    bool threaded;
    pthread_t thread;

    /* The lock's. */
    baton__idle_t idle;
    baton__watchdog_t watchdog;
    bool armed;
    uint32_t armed_us;           /* for how long at most to sleep while armed */
    const baton_engine_t *outer; /* whose call node led this thread here */
    uint32_t nested;             /* times that it has entered besides */

    bool gate_closed; /* the leader's */
    uint64_t insisted_ns;

    /* Of all threads. */
    _Atomic bool driving;
    _Atomic int wanted;
    _Atomic bool woken;
    _Atomic bool leading;
    _Atomic bool asleep;
    _Atomic int followers;
    _Atomic uint32_t reigns;
    _Atomic bool stopping;
    _Atomic uint64_t awake_ns; /* the thread's last wake-up, while asked for */
    _Atomic bool asks_awake;
    _Atomic uint32_t calls;       /* to those that are parked: a futex */
    _Atomic uint64_t interrupted; /* the number of its last interrupt, or 0 */
    _Atomic bool tells;           /* ended_fd is armed */
    int ended_fd; /* an eventfd, once it was asked for; else 0 */
};

/* What a thread waits for. */
typedef struct baton__wait {
    baton_condition_fn condition; /* any thread asks it */
    const void *arg;
    const baton_schedule_t *schedule; /* or NULL */
    int timeout_ms;                   /* negative: for ever */
    bool interruptible;
    baton_turn_fn turn; /* called in each turn; or NULL */
    void *turn_arg;
} baton__wait_t;

/* What the caller of a start does next, as far as is known. */
typedef enum baton__next {
    BATON__NEXT_UNKNOWN, /* it has not started an epoch of its own */
    BATON__NEXT_WORK,    /* probably it does not wait at once */
    BATON__NEXT_WAIT
} baton__next_t;

struct baton__driver {
    /* True if the calling thread is inside a step: a call node runs on it. */
    bool (*is_inside)(const baton_engine_t *engine);

    /* Excludes steps, for calls that change what is stepped. They nest, and may
       come from inside a step. */
    void (*enter)(baton_engine_t *engine);
    bool (*try_enter)(baton_engine_t *engine); /* does not wait */
    void (*leave)(baton_engine_t *engine);

    /* Mails a schedule to the driver: its application has started an epoch, or
       something has happened to it. Returns true if it yields for NEXT_WORK, as
       a wait does. */
    bool (*start)(baton_schedule_t *schedule, baton__next_t next);

    /* Makes some progress. */
    baton_status_t (*test)(baton_engine_t *engine);

    /* Progresses until the condition is true. BATON_ERR_TIMEOUT, _INTERRUPTED;
       or the reason why it never will be; or what `turn` has returned. A caller
       that has entered, and begun what it waits for, need not leave before. */
    baton_status_t (*wait)(baton_engine_t *engine, const baton__wait_t *wait);

    /* Optional: baton_group_recover was called. */
    void (*recover)(baton_group_t *group);

    /* Optional: checks that there is memory to commit this schedule. */
    baton_status_t (*check_memory)(const baton_schedule_t *schedule);

    /* Optional: ends at once what is in motion of a schedule that is destroyed,
       and tells its peers. Without it the caller steps until that has ended. */
    void (*forget)(baton_schedule_t *schedule);
};

extern const baton__driver_t baton__real_driver;

/* Whether a thread that sleeps until it is woken looks again now and then all
   the same. Tests say no, before they open an engine: then a wake-up that is
   lost is a hang, and not a delay. */
extern bool baton__engine_rechecks;

/* The number of the interrupts that this thread need not be told of by such a
   wait; and tells it of those until now: BATON_ERR_INTERRUPTED. */
uint64_t baton__engine_heeded(const baton__wait_t *wait);
baton_status_t baton__engine_heed(const baton_engine_t *engine);

static inline bool baton__engine_interrupts(const baton_engine_t *engine,
                                            uint64_t heeded)
{
    /* Pairs with the exchange in baton_engine_interrupt(). */
    return heeded != UINT64_MAX &&
           atomic_load_explicit(&engine->interrupted, memory_order_seq_cst) >
               heeded;
}

/* Closes the engine's device; the thread has ended, and no group is left. */
void baton__engine_close_device(baton_engine_t *engine);

static inline bool baton__engine_is_inside(const baton_engine_t *engine)
{
    return engine->driver->is_inside(engine);
}

/* baton_engine_open for an engine whose groups have their commits verified. */
baton_status_t baton__engine_open(const baton_engine_options_t *options,
                                  const baton__verification_t *verification,
                                  baton_engine_t **out);
