/* The endpoint of the staged transport, and what its files share.

   A send of device memory is an offer: a short message with the header of the
   send, so that it arrives in order with the others. The receiver asks for the
   data when the message is accepted. Between devices of one kind they are
   copied straight from one memory to the other; else in blocks through pinned
   memory of both hosts, so that a block is copied off the device while the one
   before it is on its way, and the one before that is copied to the other
   device.

       sender                                        receiver
       OFFER (id, bytes, kin) ------------------->   ARRIVED
                                                     accept
       direct:  GRANT (handle)     <-------------    ASK (0 blocks)
                                   ------------->    device copies
                SENT               <-------------    DONE, RECEIVED
       staged:  copy to the host   <-------------    ASK (blocks, block bytes)
                BLOCK              ------------->    copy to the device
                copy to the host   <-------------    ASK (more blocks)
                BLOCK              ------------->    copy to the device
                SENT                                 RECEIVED
       drop:    SENT               <-------------    DONE
       withdrawn before it was asked for:
                ABORT (cancelled)  ------------->    RECEIVED (cancelled)
       the device failed:
                SENT (error), ABORT  ----------->    RECEIVED (error)

   The receiver asks for a block only when a buffer is free for it, so none
   waits with data for a buffer, and buffers are always given back: a block on
   its way out needs nothing but its receiver's buffer, which is there. A
   receiver whose target is host memory asks in the same way, which bounds what
   is in flight, but its blocks go straight to the target.

   Host memory is sent as ever. Where it is received into device memory, the
   message is received into ordinary memory first, which is allocated for it,
   and copied from there by blocks. That is the one allocation in an epoch;
   sending from device memory avoids it.

   Files, from the bottom up: pool.c (transfers, buffers, controls), receive.c,
   send.c, staged.c (the transport). */
#pragma once

#include "base/list.h"
#include "transport/around.h"
#include "transport/staged/block.h"
#include "transport/staged/staged.h"

#include <assert.h>

enum {
    BATON__STAGED_BLOCKS_AHEAD = 4, /* asked for, of one message */
    BATON__STAGED_DIRECT = 8        /* copies between devices at a time */
};

/* A header's kind: the upper two bits are the transport's. */
enum {
    BATON__STAGED_KINDS = 0xc000,
    BATON__STAGED_OFFER = 0x8000,  /* the rest is the send's kind */
    BATON__STAGED_CONTROL = 0xc000 /* the rest is a baton__staged_kind_t */
};

/* The header of each: `schedule` refers to the receiver's record of the
   transfer, `epoch` to the sender's, `tag` is a number. */
typedef enum baton__staged_kind {
    BATON__STAGED_ASK,   /* tag: blocks so far, 0: for a handle; data: bytes of
                            a block */
    BATON__STAGED_GRANT, /* tag: whether there is a handle; data: the handle */
    BATON__STAGED_BLOCK, /* tag: which; data: its */
    BATON__STAGED_DONE,  /* the receiver needs no more of it */
    BATON__STAGED_ABORT  /* tag: 1: it was withdrawn, 0: it failed */
} baton__staged_kind_t;

/* The data of an offer. */
typedef struct baton__staged_offer {
    uint64_t reference; /* of the sender's record */
    uint64_t bytes;
    uint64_t kin;
    uint64_t block; /* the sender's largest */
} baton__staged_offer_t;
static_assert(sizeof(baton__staged_offer_t) <= BATON_NOTICE_BYTES &&
                  BATON_DEVICE_HANDLE_BYTES <= BATON_NOTICE_BYTES,
              "these come along with the header");

typedef enum baton__staged_transfer_state {
    BATON__TRANSFER_FREE,
    /* of a send */
    BATON__TRANSFER_OFFERED,
    BATON__TRANSFER_GRANTED, /* the receiver's device reads it */
    BATON__TRANSFER_SENDING,
    /* of a receive */
    BATON__TRANSFER_ARRIVED, /* the engine has the message */
    BATON__TRANSFER_ASKED,   /* for a handle */
    BATON__TRANSFER_COPYING, /* between devices, or waiting for that */
    BATON__TRANSFER_PULLING, /* an ordinary message, to `memory` */
    BATON__TRANSFER_RECEIVING,
    /* of both */
    BATON__TRANSFER_ENDED, /* its event is to be reported */
    BATON__TRANSFER_OVER   /* peers or the inner transport still know it */
} baton__staged_transfer_state_t;

typedef struct baton__staged_transfer {
    struct baton__staged_transfer *next; /* in one list at a time */
    uint32_t id;
    uint32_t generation; /* of the record's use: a reference has it, too */
    baton__staged_transfer_state_t state;
    bool sends;
    bool offer_posted; /* the inner send of the offer has not ended */
    baton_status_t status;
    const char *detail; /* of an error, or NULL */
    int peer;
    baton_token_t token;
    uint64_t remote; /* reference to the peer's record */
    baton__staged_offer_t offer;
    const char *source;
    char *target;
    size_t bytes;
    size_t block_bytes;
    uint32_t blocks;   /* of the message; less after an error */
    uint32_t granted;  /* that the receiver asked for */
    uint32_t started;  /* that were begun: copied off the device; arrived */
    uint32_t finished; /* that are over */
    baton_message_t message; /* what the engine gets */
    char *memory; /* where an ordinary message is received, allocated */

    /* What is to be told the peer, one thing at a time. */
    bool control_waits;
    baton__staged_kind_t control;
    uint32_t number;
    unsigned char handle[BATON_DEVICE_HANDLE_BYTES];
} baton__staged_transfer_t;

BATON__LIST(baton__staged_list, baton__staged_transfer_t)

/* Records never move: others refer to them by address. */
typedef struct baton__staged_transfer_slab {
    struct baton__staged_transfer_slab *next;
    uint32_t first; /* its records' ids begin here */
    uint32_t count;
    baton__staged_transfer_t records[];
} baton__staged_transfer_slab_t;

typedef struct baton__staged_transfer_pool {
    bool sends;
    baton__staged_transfer_slab_t *slabs; /* the largest first */
    baton__staged_transfer_t *unused;
    uint32_t capacity;
} baton__staged_transfer_pool_t;

/* A copy in one of the device's streams: of a block, whose pinned memory this
   has, or between devices. */
typedef struct baton__staged_buffer {
    struct baton__staged_buffer *next; /* in one list at a time */
    char *memory;
    void *event; /* of its copy */
    uint32_t index;
    uint32_t block;
    baton_status_t status; /* an error: its copy can't be waited for */
    baton__staged_transfer_t *transfer;
} baton__staged_buffer_t;

BATON__LIST(baton__staged_copies, baton__staged_buffer_t)
BATON__LIST(baton__staged_messages, baton_message_t)

typedef struct baton__staged_buffers {
    baton__staged_buffer_t *all;
    uint32_t count;
    baton__staged_buffer_t *unused;
    uint32_t unused_count;
    baton__staged_copies_t copies; /* in the order of the stream */
    baton_stream_t stream;
} baton__staged_buffers_t;

typedef struct baton__staged_peer {
    bool reserved;       /* room for blocks, in the inner transport */
    baton_status_t lost; /* or BATON_OK */
} baton__staged_peer_t;

typedef struct baton__staged {
    baton__around_t around;
    int rank, size;
    baton_device_port_t port;
    void *device;
    bool direct_allowed; /* devices of one kin copy from each other */

    baton__block_model_t model;
    size_t block_bytes; /* the longest: of a buffer */
    char *pinned;
    baton__staged_buffers_t out, in, direct;
    uint32_t promised; /* buffers of `in` that blocks were asked for */
    uint32_t pulling;  /* ordinary messages on their way to `memory` */
    bool submitted;    /* copies, since it was last to be armed */

    baton__staged_transfer_pool_t sends, receives;
    int64_t reserved_sends, reserved_receives;
    baton__staged_peer_t *peers;

    baton__staged_list_t sending;   /* with blocks left to begin */
    baton__staged_list_t receiving; /* by blocks */
    baton__staged_list_t copying;   /* between devices */
    baton__staged_list_t ended;     /* events to report */
    /* Messages to report. An offer among them gets its record then, and waits
       here if there is none. */
    baton__staged_messages_t arrived;
    uint32_t controls; /* that wait for room */
    baton_message_t
        *refused;           /* requests to answer: their sends are withdrawn */
    char device_error[256]; /* the last one's sentence */
} baton__staged_t;

/* Tokens of the inner transport's sends and receives: the owner is the
   endpoint, and the node is one of these, and a record or buffer. */
typedef enum baton__staged_tokens {
    BATON__STAGED_TOKEN_OFFER, /* a send's record */
    BATON__STAGED_TOKEN_OUT,   /* a buffer */
    BATON__STAGED_TOKEN_IN,    /* a buffer */
    BATON__STAGED_TOKEN_HOST,  /* a receive's record: a block of it */
    BATON__STAGED_TOKEN_PLAIN, /* a receive's record */
    BATON__STAGED_TOKEN_BITS = 28
} baton__staged_tokens_t;

static inline baton_token_t baton__staged_token(baton__staged_t *self,
                                                baton__staged_tokens_t what,
                                                uint32_t index)
{
    return (baton_token_t){.owner = self,
                           .node = (uint32_t)what << BATON__STAGED_TOKEN_BITS |
                                   index};
}

/* ---- pool.c ----------------------------------------------------------- */

/* Makes room for so many records. */
baton_status_t baton__staged_grow(baton__staged_transfer_pool_t *pool,
                                  int64_t count);
void baton__staged_free_pool(baton__staged_transfer_pool_t *pool);

/* A record, or NULL if all are in use. */
baton__staged_transfer_t *
baton__staged_take(baton__staged_transfer_pool_t *pool);

/* The record is over: it is free when its last control has been sent, and its
   offer is no longer on its way. */
void baton__staged_give(baton__staged_t *self,
                        baton__staged_transfer_t *transfer);

baton__staged_transfer_t *
baton__staged_by_id(const baton__staged_transfer_pool_t *pool, uint32_t id);

/* References are what peers know records by; NULL if it has ended. */
uint64_t baton__staged_reference(const baton__staged_transfer_t *transfer);
baton__staged_transfer_t *
baton__staged_find(const baton__staged_transfer_pool_t *pool,
                   uint64_t reference, int peer);

/* The record that this message of the engine is part of, or NULL. */
baton__staged_transfer_t *baton__staged_of(const baton__staged_t *self,
                                           const baton_message_t *message);

/* The transfer has failed, unless it had before. `detail` outlives it; NULL
   stands for this thread's error message, for an error of the device. */
void baton__staged_fail(baton__staged_t *self,
                        baton__staged_transfer_t *transfer,
                        baton_status_t status, const char *detail);

/* The transfer ends, with its status; its event will be reported. */
void baton__staged_end(baton__staged_t *self,
                       baton__staged_transfer_t *transfer);

/* Tells the peer, now or in a later poll. refuse answers a request for a send
   that is over, and drops it. */
void baton__staged_tell(baton__staged_t *self,
                        baton__staged_transfer_t *transfer,
                        baton__staged_kind_t kind, uint32_t number);
void baton__staged_refuse(baton__staged_t *self, baton_message_t *request);
void baton__staged_flush(baton__staged_t *self);

/* Buffers: one that is free, for this transfer, or NULL; copies in progress, in
   order. A copy that can't begin gives its buffer back. */
baton__staged_buffer_t *
baton__staged_take_buffer(baton__staged_buffers_t *of,
                          baton__staged_transfer_t *transfer, uint32_t block);
void baton__staged_give_buffer(baton__staged_buffers_t *of,
                               baton__staged_buffer_t *buffer);
baton_status_t baton__staged_copy(baton__staged_t *self,
                                  baton__staged_buffers_t *of,
                                  baton__staged_buffer_t *buffer, void *target,
                                  const void *source, size_t bytes);

/* Takes the first buffer whose copy is over off the list, and how it ended;
   NULL if there is none. */
baton__staged_buffer_t *baton__staged_copied(baton__staged_t *self,
                                             baton__staged_buffers_t *of,
                                             baton_status_t *status_out);

/* Says in which blocks the message goes. */
void baton__staged_cut(baton__staged_transfer_t *transfer, size_t bytes,
                       size_t block_bytes);

static inline size_t
baton__staged_bytes_of(const baton__staged_transfer_t *transfer, uint32_t block)
{
    size_t begin = (size_t)block * transfer->block_bytes;
    size_t left = transfer->bytes - begin;
    return left < transfer->block_bytes ? left : transfer->block_bytes;
}

/* ---- receive.c ---------------------------------------------------------- */

/* Makes a record of an offer that has arrived. BATON_DONE: *out is the engine's
   message. BATON_AGAIN: it has to wait for a record. Else it was dropped. */
baton_status_t baton__staged_take_offer(baton__staged_t *self,
                                        baton_message_t *offer,
                                        baton_message_t **out);
baton_status_t baton__staged_accept(baton__staged_t *self,
                                    baton__staged_transfer_t *receive,
                                    baton_token_t token, void *target);
baton_status_t baton__staged_accept_plain(baton__staged_t *self,
                                          baton_message_t *message,
                                          baton_token_t token, void *target);
void baton__staged_receive_control(baton__staged_t *self,
                                   baton__staged_kind_t kind,
                                   baton_message_t *message);
void baton__staged_receive_event(baton__staged_t *self,
                                 baton__staged_tokens_t what, uint32_t index,
                                 baton_status_t status);
void baton__staged_receive_progress(baton__staged_t *self);
void baton__staged_receive_lost(baton__staged_t *self,
                                baton__staged_transfer_t *receive,
                                baton_status_t status);

/* ---- send.c ------------------------------------------------------------- */

baton_status_t baton__staged_offer(baton__staged_t *self, baton_token_t token,
                                   int peer, const baton_header_t *header,
                                   const void *data, size_t bytes);
bool baton__staged_withdraw(void *endpoint, baton_token_t token);
void baton__staged_send_control(baton__staged_t *self,
                                baton__staged_kind_t kind,
                                baton_message_t *message);
void baton__staged_send_event(baton__staged_t *self,
                              baton__staged_tokens_t what, uint32_t index,
                              baton_status_t status);
void baton__staged_send_progress(baton__staged_t *self);
void baton__staged_send_lost(baton__staged_t *self,
                             baton__staged_transfer_t *send,
                             baton_status_t status);
