/* The engine: a stepper, the event loop it sleeps in, a thread, and the rule of
   which thread drives.

   `driving` is the driver lock: the thread that holds it steps. It is only ever
   tried, never waited for with a blocked thread, and while there is a progress
   thread no thread sleeps holding it. An application thread tries it in start,
   test and wait; the progress thread gives it up whenever an application thread
   wants it.

   A simulated engine does the same in virtual time: `driver` is the table of
   what the two do differently. */
#ifndef BATON_PROGRESS_ENGINE_H
#define BATON_PROGRESS_ENGINE_H

#include "progress/event_loop.h"
#include "progress/idle.h"
#include "progress/step.h"
#include "progress/verification.h"
#include "progress/watchdog.h"

#include <pthread.h>

/* ---- how the progress thread sleeps -------------------------------------

   `wait_mode` tells a driver that leaves work behind whether the thread will
   see it without a kick:

       NONE     it looks, or is about to
       SHORT    it looks by itself, within BATON__SHORT_US
       BACKOFF  it looks by itself, within BATON__SHORT_MAX_US
       LONG     it sleeps until a kick, a message to an armed endpoint, or a
                timer that may be long

   The thread itself makes all changes but those from LONG to SHORT and back,
   which the driver makes, and then sets the thread's timer:

       from        when                                          to
       NONE        another thread drives, and is expected        SHORT, then
                   back; or has only just started an epoch       BACKOFF
       NONE        another thread drives, and is not expected    LONG
       NONE        an application thread wants the lock          SHORT
       NONE        there is nothing to do, transports are        LONG
                   armed, and a message would wake the thread
       NONE        the same, but it has to look again soon       SHORT
       LONG        a driver leaves, and is expected back         SHORT
       SHORT,      an application thread waits for so much       LONG
       BACKOFF     data that this takes longer
       any sleep   kick, message or timer                        NONE

   What a driver that leaves does about it:

       it is expected back                           LONG becomes SHORT
       schedules are runnable, or something is       a kick
       awaited that no descriptor tells of
       armed transports need a look now and then     a kick if an epoch waits,
                                                     or in BACKOFF and LONG
       nothing of these                              nothing: messages wake it

   The flags and counts by which threads tell each other:

       armed           the driver has armed the transports: what happens to
                       them makes a descriptor readable. The lock's.
       return_expected a driver left, and is expected back at once: it has
                       armed nothing, and relies on a short sleep of the
                       thread, which takes the flag
       last_start_ns   when such a driver last started an epoch: for a while
                       after that the thread does not compete for the lock
       message_pending a message woke the thread, and no driver has looked
                       since: a driver that was about to leave looks again
       wanted          application threads that want the lock: the thread
                       leaves it to them
       parked          application threads that block until an epoch ends */
typedef enum baton__wait_mode {
    BATON__WAIT_NONE,
    BATON__WAIT_SHORT,
    BATON__WAIT_BACKOFF,
    BATON__WAIT_LONG
} baton__wait_mode_t;

/* If an application was expected back and stays away an epoch waits for the
   first of these; and for up to the second after the application came back at
   once for at least as long. A look costs 10 to 20 us on busy processors. */
enum { BATON__SHORT_US = 100, BATON__SHORT_MAX_US = 400 };

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
    bool watched;      /* an outer event loop watches the descriptor */
    uint32_t armed_us; /* for how long at most to sleep while armed */
    const baton_engine_t *outer; /* whose call node led this thread here */
    uint32_t nested;             /* times that it has entered besides */

    /* The thread's. */
    uint32_t short_us;  /* its next short sleep */
    uint32_t deferrals; /* looks in a row that it left to the application */

    /* Of all threads. */
    _Atomic bool driving;
    _Atomic int wanted;
    _Atomic bool message_pending;
    _Atomic bool return_expected;
    _Atomic uint64_t last_start_ns;
    _Atomic int wait_mode; /* baton__wait_mode_t */
    _Atomic int parked;
    _Atomic bool stopping;
    pthread_mutex_t park_lock;
    pthread_cond_t park;
};

/* Why a driver leaves. */
typedef enum baton__leave {
    BATON__LEAVE_AWAY, /* it does something else, or blocks */
    BATON__LEAVE_SOON  /* it is expected back at once */
} baton__leave_t;

/* Whether what a thread waits for has come true. Any thread. */
typedef bool (*baton__condition_fn)(const void *arg);

struct baton__driver {
    /* True if the calling thread is inside a step: a call node runs on it. */
    bool (*is_inside)(const baton_engine_t *engine);

    /* Excludes steps, for calls that change what is stepped. They nest, and may
       come from inside a step. */
    void (*enter)(baton_engine_t *engine);
    bool (*try_enter)(baton_engine_t *engine); /* does not wait */
    void (*leave)(baton_engine_t *engine);

    /* Mails a schedule to the driver. start: its application has started an
       epoch, and is expected back as `why` says. */
    void (*start)(baton_schedule_t *schedule, baton__leave_t why);
    void (*post)(baton_schedule_t *schedule);

    /* Makes some progress. */
    baton_status_t (*test)(baton_engine_t *engine);

    /* Progresses until the condition is true. BATON_ERR_TIMEOUT after
       timeout_ms, unless that is negative; or the reason why it never will be.
       `schedule` is the one that is waited for, or NULL; `why` says how the
       thread leaves when the condition has come true. */
    baton_status_t (*wait)(baton_engine_t *engine,
                           baton__condition_fn condition, const void *arg,
                           const baton_schedule_t *schedule, int timeout_ms,
                           baton__leave_t why);

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

#endif
