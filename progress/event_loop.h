/* Where an engine's threads sleep. What can wake them, kicks and the
   descriptors of transports and the device, is one set. The progress thread
   sleeps in an event loop, in which this set is behind a gate, beside a timer.
   An application thread that waits sleeps at the set itself; it closes the gate
   before, so that one thread is woken. The only home of libevent. */
#pragma once

#include <baton/types.h>

typedef struct baton__event_loop baton__event_loop_t;
typedef struct baton__watch baton__watch_t; /* descriptors in the loop */

/* What has descriptors: an endpoint, a device. They are asked for from k = 0
   on, up to the first that is negative, when the watch begins and when it ends.
 */
typedef struct baton__watched {
    const char *name; /* outlives the watch */
    void *object;
    int (*descriptor)(void *object, int k);
    void (*drain)(void *object);
} baton__watched_t;

/* What has ended a wait; if several things have, the last of these. */
typedef enum baton__wakeup {
    BATON__WAKEUP_TIMER,
    BATON__WAKEUP_KICK,
    BATON__WAKEUP_MESSAGE /* a watched descriptor: a peer has probably sent */
} baton__wakeup_t;

baton_status_t baton__event_loop_open(baton__event_loop_t **out);
void baton__event_loop_close(baton__event_loop_t *loop);

/* The progress thread: sleeps until its timer ends or, while the gate is open,
   a kick comes or a descriptor is readable. */
baton__wakeup_t baton__event_loop_wait(baton__event_loop_t *loop);

/* An application thread, one at a time: sleeps for at most `us` microseconds,
   or until a kick comes or a descriptor is readable. */
baton__wakeup_t baton__event_loop_sleep(baton__event_loop_t *loop, uint32_t us);

/* Opens or closes the gate; it is open at first. What is behind it when it
   opens wakes the progress thread. The caller of sleep, or before there is a
   thread.
 */
void baton__event_loop_gate(baton__event_loop_t *loop, bool open);

/* Makes the progress thread's present or next wait end in `us` microseconds, or
   up to a quarter sooner; BATON_SLEEP_FOREVER means never. sooner: does nothing
   if it ends sooner than that anyway. The driver alone calls them. */
void baton__event_loop_set_timer(baton__event_loop_t *loop, uint32_t us);
void baton__event_loop_wait_sooner(baton__event_loop_t *loop, uint32_t us);

/* Ends the present or the next wait or sleep. Any thread; kicks coalesce. */
void baton__event_loop_kick(baton__event_loop_t *loop);

/* Puts the object's descriptors into the set, and drains them while they are
   readable; *out is NULL if it has none. Any thread, also while others sleep.
 */
baton_status_t baton__event_loop_watch(baton__event_loop_t *loop,
                                       const baton__watched_t *watched,
                                       baton__watch_t **out);
void baton__event_loop_unwatch(baton__watch_t *watch); /* NULL is allowed */
