/* The engine: a stepper, the loop it sleeps in, a thread, and the rule of who
   drives.

   `driving` is the driver lock: whoever holds it steps. It is only ever tried,
   never waited for with a blocked thread, and no one sleeps holding it while
   there is a progress thread. The application tries it in start, test and wait;
   the progress thread gives it up whenever an application thread wants it.

   The thread announces under the lock how it is going to sleep (`nap`), so a
   driver that leaves work behind knows whether it must be kicked. */
#ifndef BATON_PROGRESS_ENGINE_H
#define BATON_PROGRESS_ENGINE_H

#include "base/error.h"
#include "progress/idle.h"
#include "progress/loop.h"
#include "progress/step.h"

#include <baton/sim.h>
#include <pthread.h>

typedef enum baton__nap {
    BATON__NAP_AWAKE, /* about to look */
    BATON__NAP_SHORT, /* looks again within BATON__TURN_US */
    BATON__NAP_ASLEEP /* until it is kicked or a peer rings */
} baton__nap_t;

/* A short nap. An application that was expected back and stays away costs an
   epoch that much, once. */
enum { BATON__TURN_US = 10000 };

struct baton_engine {
    baton__stepper_t stepper;
    baton_sim_t *sim; /* NULL; else it alone drives, and nothing here is used
                         but the driver lock */
    baton__loop_t *loop;
    baton__idle_t idle; /* the driver's */
    bool resting;       /* the driver's: peers leave notes, or ring */
    uint32_t rest_us;   /* while resting: how long it may sleep */
    /* The driver's: the engine whose call node led its thread here. */
    const baton_engine_t *outer;
    uint32_t stall_ms;
    _Atomic bool driving;
    _Atomic int wanted;  /* application threads that try to drive */
    _Atomic bool rung;   /* the thread was, and nobody has driven since */
    _Atomic bool relied; /* somebody left work to a short nap */
    _Atomic int nap;     /* baton__nap_t of the thread */
    _Atomic int parked;  /* threads blocked in `park` */
    _Atomic bool stopping;
    bool threaded;
    bool alone; /* one processor */
    pthread_t thread;
    pthread_mutex_t park_lock;
    pthread_cond_t park;
};

/* Tries to become the driver; the thread must not be driving already. */
bool baton__engine_try(baton_engine_t *engine);

/* Becomes the driver, waiting for it: for calls that change what is driven. */
void baton__engine_enter(baton_engine_t *engine);

/* Stops driving. Messages that ring find the thread by their bell; it is kicked
   for the rest of what is left behind: nodes that are ready, messages that end
   without a bell. Unless the caller is expected back and the thread naps
   shortly. */
typedef enum baton__leave {
    BATON__LEAVE_BEHIND,  /* the caller does something else now */
    BATON__LEAVE_PARKED,  /* it blocks, and looks again itself now and then */
    BATON__LEAVE_SOON,    /* it is expected back at once */
    BATON__LEAVE_HURRIED, /* that, as it was less than a millisecond ago: there
                             is no time for a rest, let the thread nap shortly
                           */
} baton__leave_t;
void baton__engine_leave(baton_engine_t *engine, baton__leave_t why);

/* The driver lock by itself, for the thread, which comes and goes: no visit is
   counted, nothing handed over. */
bool baton__engine_lock(baton_engine_t *engine);
void baton__engine_unlock(baton_engine_t *engine);

/* Whether the calling thread drives (a call node runs on it). */
bool baton__engine_is_mine(const baton_engine_t *engine);

/* Announces a rest to the peers, polls for what came before, and then announces
   sleep: false when something came. The driver's. */
bool baton__engine_rest(baton_engine_t *engine);

/* Before steps: the end of a rest. Where more threads want to run than can it
   is not: the peers go on leaving notes, and polls cost next to nothing while
   there are none. */
void baton__engine_attend(baton_engine_t *engine);
void baton__engine_awake(baton_engine_t *engine); /* its end in any case */

/* Whether the last started epoch is over, one way or the other; how it ended;
   BATON_ERR_STATE before the commit. */
bool baton__epoch_ended(const baton_schedule_t *schedule);
baton_status_t baton__epoch_outcome(const baton_schedule_t *schedule);
baton_status_t baton__check_committed(const baton_schedule_t *schedule,
                                      const char *verb);

/* Starts the thread, bound as `placement` says; ends it. */
baton_status_t baton__thread_start(baton_engine_t *engine,
                                   const char *placement);
void baton__thread_stop(baton_engine_t *engine);

/* How long the driver may sleep now, resting. */
uint32_t baton__engine_sleep_us(const baton_engine_t *engine);

/* Reports epochs that have not moved for too long. The driver's. */
void baton__watchdog(baton_engine_t *engine);

/* One paragraph: what the running epoch of a schedule waits for. The driver's.
 */
void baton__describe_wait(const baton_schedule_t *schedule,
                          struct baton__text *text);

/* The commit of a verifier's own schedules; see verify.h. */
baton_status_t baton__commit_unverified(baton_schedule_t *schedule);

/* Binds a thread as `placement` says ("core:3"); BATON_ERR_INVALID names what
   the machine has. */
baton_status_t baton__place_thread(pthread_t thread, const char *placement);

#endif
