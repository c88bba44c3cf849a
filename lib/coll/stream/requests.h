/* Requests that a user's stream makes of this rank alone: a schedule of one
   rank that has an epoch for each. The engine's driver serves a request when
   the stream gets there that it was made on, so what the owner keeps account of
   is read and written on the driver alone, and in the order of the streams.

       begin: call --> serve: device call --> end: call

   Its group has one rank, so a recovery of the owner's group leaves requests in
   streams as they are; and a request that fails does not keep the next one from
   being served. */
#pragma once

#include <baton/device.h>

/* More than can be in streams at once. */
enum { BATON__REQUESTS = 16 };

typedef struct baton__requests {
    baton_schedule_t *schedule;
    size_t bytes;     /* of a request */
    char *queue;      /* epoch e's request is at e % BATON__REQUESTS */
    uint64_t started; /* the application's */
    uint64_t begun;   /* the last request's epoch; the driver's */
    /* On the driver: before the work, which is when the stream has got there;
       puts the work into a stream of the device; and behind it. begin and end
       may be NULL. */
    void (*begin)(void *arg, const void *request);
    baton_status_t (*serve)(void *arg, const void *request,
                            baton_stream_t stream);
    void (*end)(void *arg, const void *request);
    void *arg;
} baton__requests_t;

/* begin, serve, end, arg and bytes are set; the group has one rank. "what name"
   is the schedule's. */
baton_status_t baton__requests_init(baton__requests_t *self,
                                    baton_group_t *group, const char *what,
                                    const char *name);

/* As baton_schedule_destroy. */
baton_status_t baton__requests_fini(baton__requests_t *self);

/* Makes a request in the order of the stream; what is put there later comes
   behind it if `ordered`. As baton_schedule_start_on. */
baton_status_t baton__requests_start_on(baton__requests_t *self,
                                        const void *request,
                                        baton_stream_t stream, bool ordered);

/* Makes a request behind those that are in streams, and waits for it. */
baton_status_t baton__requests_run(baton__requests_t *self,
                                   const void *request);
