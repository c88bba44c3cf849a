/* Requests in a user's stream that involve only this rank: a schedule of one
   rank has an epoch for each request. The engine's driver, the thread that
   makes the engine's progress, serves a request when the stream reaches the
   place where the request was made. So only the driver reads and writes the
   state of the requests' owner, such as a partial collective, and does so in
   the order of the streams.

       begin: call --> serve: device call --> end: call

   The group of the schedule has one rank. So a recovery of the owner's group
   does not affect requests in streams, and after a request that has failed the
   next one is still served. */
#pragma once

#include <baton/device.h>

/* The number of requests that are stored. It is larger than the number of
   requests that can be in streams at once, so no request is overwritten before
   it is served. */
enum { BATON__REQUESTS = 16 };

typedef struct baton__requests {
    baton_schedule_t *schedule;
    size_t bytes; /* bytes of a request */
    /* The request of epoch e is at index e % BATON__REQUESTS. */
    char *queue;
    /* Number of requests so far. Only the application uses it. */
    uint64_t started;
    /* The epoch of the last request that has begun. Only the driver uses it. */
    uint64_t begun;
    /* Functions of the owner, which the driver calls. `begin` is called when
       the stream has reached the request, before its work. `serve` puts the
       work into a stream of the device. `end` is called after the work. `begin`
       and `end` may be NULL. */
    void (*begin)(void *arg, const void *request);
    baton_status_t (*serve)(void *arg, const void *request,
                            baton_stream_t stream);
    void (*end)(void *arg, const void *request);
    void *arg;
} baton__requests_t;

/* Creates the schedule of the requests, whose name consists of `what`, a space
   and `name`. The fields begin, serve, end, arg and bytes must be set. The
   group must have one rank. */
baton_status_t baton__requests_init(baton__requests_t *self,
                                    baton_group_t *group, const char *what,
                                    const char *name);

/* Destroys the schedule. Fails as baton_schedule_destroy does. */
baton_status_t baton__requests_fini(baton__requests_t *self);

/* Makes a request in the order of the stream. If `ordered`, work that is put
   into the stream later waits until the request has ended. Fails as
   baton_schedule_start_on does. */
baton_status_t baton__requests_start_on(baton__requests_t *self,
                                        const void *request,
                                        baton_stream_t stream, bool ordered);

/* Makes a request that is served after all requests made in streams before it,
   and waits until it has ended. */
baton_status_t baton__requests_run(baton__requests_t *self,
                                   const void *request);
