/* The device of an engine, as its groups and schedules see it: the port and its
   streams, and who uses these. */
#ifndef BATON_TRANSPORT_DEVICE_H
#define BATON_TRANSPORT_DEVICE_H

#include <baton/device.h>
#include <pthread.h>

/* Streams of a device that are used, at most. */
enum { BATON__STREAMS_MOST = 16 };

/* Streams with a part of their own. The last one is only waited in, for what
   begins when a stream of the user gets there, if there are enough of them. */
enum {
    BATON__STREAM_IN,  /* copies from the host */
    BATON__STREAM_OUT, /* copies to it */
    BATON__STREAM_WORK /* the first of those for the rest */
};

/* A flag that was some schedule's goes on with the next one's: streams may
   still wait for what the flag has long passed. */
typedef struct baton__flag {
    struct baton__flag *next; /* of those that no schedule has */
    void *flag;
    uint64_t value; /* that it has reached then */
} baton__flag_t;

typedef struct baton__device {
    baton_device_port_t port;
    void *device;
    baton_stream_t streams[BATON__STREAMS_MOST];
    int work_end;         /* behind the last stream for the rest */
    bool waits_in_stream; /* streams[work_end] is there, to be waited in */

    pthread_mutex_t lock; /* of these two */
    uint32_t schedules;   /* that were committed so far */
    baton__flag_t *flags; /* that no schedule has */

    /* The driver's. Schedules with work in each stream for the rest. */
    uint32_t users[BATON__STREAMS_MOST];
    /* The driver's. The schedule whose work in this stream waits for a stream
       of the user: others put nothing behind it. Or NULL. */
    const baton_schedule_t *waiting[BATON__STREAMS_MOST];
} baton__device_t;

#endif
