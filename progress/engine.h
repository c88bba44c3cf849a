/* The engine: a stepper, the event loop it sleeps in, a thread, and the rule of
   who drives.

   `driving` is the driver lock: whoever holds it steps. It is only ever tried,
   never waited for with a blocked thread, and no one sleeps holding it while
   there is a progress thread. The application tries it in start, test and wait;
   the progress thread gives it up whenever an application thread wants it.

   What a real engine does here a simulated one does in its own way, in virtual
   time: `driver` is the table of these. */
#ifndef BATON_PROGRESS_ENGINE_H
#define BATON_PROGRESS_ENGINE_H

#include "base/error.h"
#include "progress/idle.h"
#include "progress/loop.h"
#include "progress/step.h"
#include "progress/verification.h"

#include <pthread.h>

/* How the progress thread waits. A driver that leaves work behind looks at it
   to know whether the thread will see that by itself.

                 nothing to do, and armed
        +-------------------------------------------+
        |                                           v
      NONE <---- kick, message, timer ----------- LONG
        |  ^
        |  +---- kick, message, timer ---+
        v                                |
      SHORT, then TRUSTING --------------+
        the driver is another thread, or left
        saying that it comes back at once     */
typedef enum baton__wait_mode {
    BATON__WAIT_NONE,     /* it looks, or is about to */
    BATON__WAIT_SHORT,    /* looks again by itself, within BATON__SHORT_US */
    BATON__WAIT_TRUSTING, /* within BATON__SHORT_MAX_US */
    BATON__WAIT_LONG      /* until it is kicked, or a message wakes it */
} baton__wait_mode_t;

/* An application that was expected back and stays away costs an epoch the first
   of these, once; and up to the second after it came back at once for at least
   as long. A look costs 10 to 20 us where the processors are busy. */
enum { BATON__SHORT_US = 100, BATON__SHORT_MAX_US = 400 };

typedef struct baton__driver baton__driver_t;

struct baton_engine {
    baton__stepper_t stepper;
    const baton__driver_t *driver;
    const baton__verification_t
        *verification; /* NULL: groups get no verifier */
    baton__loop_t *loop;
    baton__idle_t idle; /* the driver's */
    bool armed;         /* the driver's: transports make descriptors readable */
    bool watched;       /* the driver's: an outer loop watches the descriptor */
    uint32_t armed_us;  /* then: for how long at most to sleep */
    uint64_t watched_ns; /* the driver's: when stalls were looked for last */
    /* The driver's: the engine whose call node led its thread here. */
    const baton_engine_t *outer;
    uint32_t nested;   /* the driver's: how often it has entered besides */
    uint32_t short_us; /* the thread's: its next short wait */
    uint32_t stall_ms;
    _Atomic bool driving;
    _Atomic int wanted;    /* application threads that try to drive */
    _Atomic bool woken;    /* a message woke the thread, and nobody has driven
                              since */
    _Atomic bool expected; /* a driver left, to come back at once */
    _Atomic uint64_t started_ns; /* by the last start of such a driver */
    _Atomic int wait_mode;       /* baton__wait_mode_t of the thread */
    _Atomic int parked;          /* threads blocked in `park` */
    _Atomic bool stopping;
    bool threaded;
    bool alone; /* one processor */
    pthread_t thread;
    pthread_mutex_t park_lock;
    pthread_cond_t park;
};

/* Why a driver leaves. */
typedef enum baton__leave {
    BATON__LEAVE_AWAY,   /* the caller does something else now */
    BATON__LEAVE_PARKED, /* it blocks, and looks again itself now and then */
    BATON__LEAVE_SOON    /* it is expected back at once */
} baton__leave_t;

/* What somebody waits for: whether it has come true. Any thread. */
typedef bool (*baton__condition_fn)(const void *arg);

struct baton__driver {
    /* Whether the calling thread is inside a step: a call node runs on it. */
    bool (*is_inside)(const baton_engine_t *engine);

    /* Excludes steps, for calls that change what is stepped. They nest, and may
       come from inside a step. */
    void (*enter)(baton_engine_t *engine);
    bool (*try_enter)(baton_engine_t *engine); /* where it need not wait */
    void (*leave)(baton_engine_t *engine);

    /* A schedule has mail. start: its application has started an epoch, and is
       expected back as `why` says. */
    void (*start)(baton_schedule_t *schedule, baton__leave_t why);
    void (*post)(baton_schedule_t *schedule);

    /* Goes on a little. */
    baton_status_t (*test)(baton_engine_t *engine);

    /* Goes on until the condition is true. BATON_ERR_TIMEOUT: after timeout_ms,
       unless that is negative; or why it never will be. `schedule` is what is
       waited for, or NULL; `why` how a driver leaves that has got there. */
    baton_status_t (*wait)(baton_engine_t *engine,
                           baton__condition_fn condition, const void *arg,
                           const baton_schedule_t *schedule, int timeout_ms,
                           baton__leave_t why);

    /* A group was called to recover; NULL: who waits for that steps. */
    void (*recover)(baton_group_t *group);

    /* Whether there is memory to commit this schedule; NULL: it shows. */
    baton_status_t (*admit)(const baton_schedule_t *schedule);

    /* Ends what moves of a schedule that is destroyed, and tells its peers, at
       once; NULL: that takes its time. */
    void (*forget)(baton_schedule_t *schedule);
};

extern const baton__driver_t baton__real_driver;

/* ---- who drives (engine.c) -------------------------------------------- */

/* Tries to become the driver. */
bool baton__engine_try(baton_engine_t *engine);

/* Stops driving. Messages find the thread by themselves; it is kicked for the
   rest of what is left behind: turns to be had, and what no message tells of.
   Unless the caller is expected back, and the thread looks shortly. */
void baton__engine_leave(baton_engine_t *engine, baton__leave_t why);

/* The driver lock by itself, for the thread, which comes and goes: nothing is
   handed over. */
bool baton__engine_lock(baton_engine_t *engine);
void baton__engine_unlock(baton_engine_t *engine);

/* Lets transports tell of what happens by their descriptors. False: something
   has happened already. disarm: it is polled for again. */
bool baton__engine_arm(baton_engine_t *engine);
void baton__engine_disarm(baton_engine_t *engine);

/* How long the driver may sleep now, armed. */
uint32_t baton__engine_sleep_us(const baton_engine_t *engine);

static inline bool baton__engine_is_inside(const baton_engine_t *engine)
{
    return engine->driver->is_inside(engine);
}

/* baton_engine_open, with what verifies the commits of its groups. */
baton_status_t baton__engine_open(const baton_engine_options_t *options,
                                  const baton__verification_t *verification,
                                  baton_engine_t **out);

/* ---- its parts -------------------------------------------------------- */

/* The progress thread: starts it, bound as `placement` says; ends it. */
baton_status_t baton__thread_start(baton_engine_t *engine,
                                   const char *placement);
void baton__thread_stop(baton_engine_t *engine);

/* An application thread waits; see baton__driver. */
baton_status_t baton__engine_wait(baton_engine_t *engine,
                                  baton__condition_fn condition,
                                  const void *arg,
                                  const baton_schedule_t *schedule,
                                  int timeout_ms, baton__leave_t why);

/* Reports epochs that have not moved for too long. The driver's. */
void baton__watchdog(baton_engine_t *engine);

/* One paragraph: what the running epoch of a schedule waits for. The driver's.
 */
void baton__describe_wait(const baton_schedule_t *schedule,
                          struct baton__text *text);

/* Binds a thread as `placement` says ("core:3"); BATON_ERR_INVALID names what
   the machine has. */
baton_status_t baton__place_thread(pthread_t thread, const char *placement);

/* ---- epochs (epochs.c) ------------------------------------------------ */

/* Whether epoch `epoch` is over, one way or the other; how it ended. */
bool baton__epoch_ended(const baton_schedule_t *schedule, uint64_t epoch);
baton_status_t baton__epoch_outcome(const baton_schedule_t *schedule,
                                    uint64_t epoch);

/* BATON_ERR_INVALID for NULL, BATON_ERR_STATE before the commit. */
baton_status_t baton__check_committed(const baton_schedule_t *schedule,
                                      const char *function);

/* The commit of a verifier's own schedules; see verify.h. */
baton_status_t baton__commit_unverified(baton_schedule_t *schedule);

#endif
