/* Where the engine sleeps: an event loop over kicks, the transports'
   descriptors and a timer. The only home of libevent. */
#ifndef BATON_PROGRESS_EVENT_LOOP_H
#define BATON_PROGRESS_EVENT_LOOP_H

#include <baton/transport.h>

typedef struct baton__event_loop baton__event_loop_t;
typedef struct baton__watch baton__watch_t; /* descriptors in the loop */

/* What has descriptors: an endpoint, a device. They are asked for from k = 0
   on, up to the first that is negative. */
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

/* Sleeps until a kick, a readable descriptor, or the timer. Only one thread at
   a time may wait. */
baton__wakeup_t baton__event_loop_wait(baton__event_loop_t *loop);

/* Makes that thread's next wait end in `us` microseconds, or up to a quarter
   sooner; BATON_SLEEP_FOREVER means never. */
void baton__event_loop_set_timer(baton__event_loop_t *loop, uint32_t us);

/* Makes the present or the next wait end in `us` microseconds, unless that
   thread sets its timer meanwhile. Any thread; cheaper than a kick, for both.
 */
void baton__event_loop_move_timer(baton__event_loop_t *loop, uint32_t us);

/* A descriptor that is readable when a wait would end, but for its timer; and
   what a wait does then, without waiting. */
int baton__event_loop_descriptor(const baton__event_loop_t *loop);
void baton__event_loop_drain(baton__event_loop_t *loop);

/* Ends the present or the next wait. Any thread; kicks coalesce. */
void baton__event_loop_kick(baton__event_loop_t *loop);

/* Watches the object's descriptors, and drains them when they become readable;
 *out is NULL if it has none. Any thread, also while another waits. */
baton_status_t baton__event_loop_watch(baton__event_loop_t *loop,
                                       const baton__watched_t *watched,
                                       baton__watch_t **out);
void baton__event_loop_unwatch(baton__watch_t *watch); /* NULL is allowed */

#endif
