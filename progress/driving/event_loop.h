/* Where an engine's threads sleep. The descriptors that can wake them are in
   one set: one for kicks (see baton__event_loop_kick), and those of transports
   and the device. The progress thread sleeps in an event loop that watches a
   timer and a gate; the gate contains the set while it is open. An application
   thread that waits first closes the gate, so that only one thread is woken,
   and then sleeps at the set itself. No other file uses libevent. */
#pragma once

#include <baton/types.h>

typedef struct baton__event_loop baton__event_loop_t;
typedef struct baton__watch baton__watch_t; /* see baton__watched_t */

/* An object with descriptors: an endpoint or a device. When a watch begins, and
   when it ends, the function `descriptor` is called with k = 0, 1 and so on
   until it returns a negative number. */
typedef struct baton__watched {
    /* The object's name in error messages, such as "mpi". The string must stay
       valid until the watch ends. */
    const char *name;
    void *object;
    int (*descriptor)(void *object, int k);
    void (*drain)(void *object);
} baton__watched_t;

/* The cause that has ended a wait. If there are several, it is the last of them
   in this list. */
typedef enum baton__wakeup {
    BATON__WAKEUP_TIMER,
    BATON__WAKEUP_KICK,
    BATON__WAKEUP_MESSAGE /* a watched descriptor: a peer has probably sent */
} baton__wakeup_t;

baton_status_t baton__event_loop_open(baton__event_loop_t **out);
void baton__event_loop_close(baton__event_loop_t *loop);

/* Called by the progress thread: sleeps until its timer ends or, while the gate
   is open, a kick comes or a descriptor is readable. */
baton__wakeup_t baton__event_loop_wait(baton__event_loop_t *loop);

/* Called by one application thread at a time: sleeps for at most `us`
   microseconds, or until a kick comes or a descriptor is readable. */
baton__wakeup_t baton__event_loop_sleep(baton__event_loop_t *loop, uint32_t us);

/* Opens or closes the gate, which is open at first. A kick or a readable
   descriptor that is there when the gate opens wakes the progress thread.
   Called by the application thread that sleeps, or before there is a progress
   thread. */
void baton__event_loop_gate(baton__event_loop_t *loop, bool open);

/* Has the progress thread's present or next wait end in `us` microseconds, or
   up to a quarter sooner; BATON_SLEEP_FOREVER means never. The caller has the
   driver lock. */
void baton__event_loop_set_timer(baton__event_loop_t *loop, uint32_t us);
/* Does what baton__event_loop_set_timer does, unless the timer already ends the
   wait sooner. */
void baton__event_loop_wait_sooner(baton__event_loop_t *loop, uint32_t us);

/* Ends the present or the next wait or sleep. Any thread may call this, and
   signal handlers may. Kicks coalesce. */
void baton__event_loop_kick(baton__event_loop_t *loop);

/* Puts the object's descriptors into the set; while they are readable, threads
   that wake up drain them. *out is NULL if the object has none. Any thread may
   call this, also while other threads sleep. */
baton_status_t baton__event_loop_watch(baton__event_loop_t *loop,
                                       const baton__watched_t *watched,
                                       baton__watch_t **out);
void baton__event_loop_unwatch(baton__watch_t *watch); /* NULL is allowed */
