/* A wire carries packets and data between ranks of different hosts. The
   protocol above it (packet.h) needs only this: messages between two ranks that
   have a tag, arrive in the order in which they were sent, and may be received
   from any rank. MPI is a wire (wire_mpi.c), and so is UCX (wire_ucx.c). A
   group whose ranks are all on one host, and may read each other's memory,
   sends nothing over a wire. No two threads call the functions of a wire at a
   time.

   Functions return 0, or an error code of the wire, which `text` explains. */
#pragma once

#include <baton/types.h>

/* The handle of a send or receive in progress. 0: no request, or one that has
   ended. */
typedef uintptr_t baton__request_t;

enum { BATON__WIRE_ANY = -1, BATON__WIRE_TEXT = 256 };

typedef struct baton__wire baton__wire_t;
struct baton__wire {
    /* Begins to send to the rank `to`, or to receive from the rank `from`,
       which may be BATON__WIRE_ANY. The memory belongs to the wire until the
       request has ended. */
    int (*send)(baton__wire_t *self, const void *data, size_t bytes, int to,
                int tag, baton__request_t *out);
    int (*receive)(baton__wire_t *self, void *data, size_t bytes, int from,
                   int tag, baton__request_t *out);

    /* Looks for a request that has ended among `count` requests. Stores the
       request's index in *at_out (-1: none has ended), and in *bytes_out the
       number of bytes that a receive has got. Sets the request to 0. If this
       returns an error code, *at_out is the index of the request that has
       failed, if it is known. If that request was not set to 0, it is still in
       progress, unless *ended_out is true. */
    int (*test)(baton__wire_t *self, int count, baton__request_t *requests,
                int *at_out, bool *ended_out, size_t *bytes_out);

    /* Stores whether a message with this tag has arrived and has no receive
       yet. */
    int (*probe)(baton__wire_t *self, int tag, bool *waits_out);

    /* `release` and `cancel` set the request to 0. After `release` the wire
       completes the request by itself. After `cancel` the wire may end it
       without completing it. */
    int (*release)(baton__wire_t *self, baton__request_t *request);
    void (*cancel)(baton__wire_t *self, baton__request_t *request);

    /* Returns true if receives from any rank can still be used after the error
       `code`, which then only says that some rank has ended. The function is
       NULL if the wire has no such error. */
    bool (*goes_on)(baton__wire_t *self, int code);

    /* Writes a sentence about the error to `out`. */
    void (*text)(int code, char out[BATON__WIRE_TEXT]);

    /* Makes the wire call `ended` when the wire is about to end by itself, as
       MPI does in MPI_Finalize. After this call of `ended`, no function but
       `close` may be called. The function is NULL if the wire does not end
       before the process does. */
    baton_status_t (*watch)(baton__wire_t *self, void (*ended)(void *arg),
                            void *arg);

    /* Frees the wire. If `in_use`, messages may still be on the wire, so the
       memory that they use is left until the process ends. */
    void (*close)(baton__wire_t *self, bool in_use);

    /* The wire can send device memory, and receive into it. */
    bool takes_device;

    /* The functions may be called while other threads of the application call
       the library over which the wire goes. */
    bool is_threaded;
};
