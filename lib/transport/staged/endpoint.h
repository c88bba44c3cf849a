/* The endpoint of the staged transport, and the declarations that its files
   share.

   A send of device memory begins with an offer: a short message with the header
   of the send, so that it arrives in order with the other messages. When the
   engine accepts the message, the receiver asks for the data. Devices with the
   same kin, a number in their ports, can reach each other's memory: then the
   receiver's device copies the data straight from the sender's memory.
   Otherwise the data go in blocks through pinned main memory of both ranks, in
   a pipeline: while one block is copied off the device, the previous block is
   on its way, and the one before that is copied to the other device.

       sender                                        receiver
       OFFER (id, bytes, kin) ------------------->   ARRIVED
                                                     accept
       direct:  GRANT (handle)     <-------------    ASK (0 blocks)
                                   ------------->    device copies
                SENT               <-------------    DONE, RECEIVED
       staged:  copy to main memory <------------    ASK (blocks, block bytes)
                BLOCK              ------------->    copy to the device
                copy to main memory <------------    ASK (more blocks)
                BLOCK              ------------->    copy to the device
                SENT                                 RECEIVED
       drop:    SENT               <-------------    DONE
       withdrawn before it was asked for:
                ABORT (cancelled)  ------------->    RECEIVED (cancelled)
       the device failed:
                SENT (error), ABORT  ----------->    RECEIVED (error)

   The receiver asks for a block only when it has a free buffer for the block.
   So no block waits with data for a buffer, and every buffer becomes free
   again: a block on its way needs only its receiver's buffer, which is
   reserved. A receiver whose target is main memory asks in the same way, which
   bounds the data in flight, but its blocks go straight to the target.

   Main memory is sent as the inner transport sends it. A message from main
   memory for device memory is first received into ordinary memory, which is
   allocated for the message, and is copied from there in blocks. This is the
   only allocation in an epoch; sending from device memory avoids it.

   Files, from the bottom up: pool.c (transfers, buffers, controls), receive.c,
   send.c, staged.c (the transport). */
#pragma once

#include "base/list.h"
#include "transport/around.h"
#include "transport/staged/block.h"
#include "transport/staged/staged.h"

#include <assert.h>

enum {
    /* The most blocks of one message that are asked for and not finished. */
    BATON__STAGED_BLOCKS_AHEAD = 4,
    BATON__STAGED_DIRECT = 8 /* the most copies between devices at a time */
};

/* The upper two bits of a header's kind belong to this transport. */
enum {
    BATON__STAGED_KINDS = 0xc000,
    BATON__STAGED_OFFER = 0x8000,  /* the other bits are the send's kind */
    BATON__STAGED_CONTROL = 0xc000 /* the other bits are a
                                      baton__staged_kind_t */
};

/* The kinds of control messages. In their headers `schedule` is a reference to
   the receiver's record of the transfer, `epoch` is a reference to the sender's
   record, and `tag` is a number whose meaning depends on the kind. */
typedef enum baton__staged_kind {
    /* The receiver asks for blocks. tag: the number of blocks that were asked
       for so far. data: the size of a block. With tag 0 the receiver asks for a
       handle of the sender's memory instead. */
    BATON__STAGED_ASK,
    /* The answer to a request for a handle. tag: 1 if there is a handle; data:
       the handle. */
    BATON__STAGED_GRANT,
    BATON__STAGED_BLOCK, /* tag: the block's number; data: the block's bytes */
    BATON__STAGED_DONE,  /* the receiver needs no more blocks of this message */
    /* The sender ends the transfer; tag: 1 if the send was withdrawn, 0 if it
       failed */
    BATON__STAGED_ABORT
} baton__staged_kind_t;

/* The data of an offer. */
typedef struct baton__staged_offer {
    uint64_t reference; /* reference to the sender's record */
    uint64_t bytes;
    uint64_t kin;
    uint64_t block; /* size of the sender's largest block */
} baton__staged_offer_t;
static_assert(sizeof(baton__staged_offer_t) <= BATON_NOTICE_BYTES &&
                  BATON_DEVICE_HANDLE_BYTES <= BATON_NOTICE_BYTES,
              "these come along with the header");

typedef enum baton__staged_transfer_state {
    BATON__TRANSFER_FREE,
    /* States of a send. */
    BATON__TRANSFER_OFFERED,
    BATON__TRANSFER_GRANTED, /* the receiver's device may read the source */
    BATON__TRANSFER_SENDING,
    /* States of a receive. */
    /* The engine was told of the message and has not accepted it. */
    BATON__TRANSFER_ARRIVED,
    BATON__TRANSFER_ASKED, /* the receiver has asked for a handle */
    /* The device copies from the sender's memory, or will do so when a buffer
       of `direct` is free. */
    BATON__TRANSFER_COPYING,
    /* A message from main memory is on its way to `memory`. */
    BATON__TRANSFER_PULLING,
    BATON__TRANSFER_RECEIVING,
    /* States of sends and receives. */
    BATON__TRANSFER_ENDED, /* the transfer's event has yet to be reported */
    /* The transfer was reported, but peers or the inner transport still refer
       to the record. */
    BATON__TRANSFER_OVER
} baton__staged_transfer_state_t;

typedef struct baton__staged_transfer {
    /* The next transfer in the list; a transfer is in one list at a time. */
    struct baton__staged_transfer *next;
    uint32_t id;
    /* Counts the uses of the record. A reference contains this number, so that
       a reference to an earlier use is recognised. */
    uint32_t generation;
    baton__staged_transfer_state_t state;
    bool sends;
    /* The inner transport has not yet reported the end of the offer's send. */
    bool offer_posted;
    baton_status_t status;
    const char *detail; /* a sentence about the error, or NULL */
    int peer;
    baton_token_t token;
    uint64_t remote; /* reference to the peer's record of this transfer */
    baton__staged_offer_t offer;
    const char *source;
    char *target;
    size_t bytes;
    size_t block_bytes;
    /* Number of blocks of the message. After an error it is lowered to the
       blocks that still have to end. */
    uint32_t blocks;
    uint32_t granted; /* number of blocks that the receiver has asked for */
    /* Number of blocks that have begun. A block begins when the sender copies
       it off the device, and when the receiver gets it. */
    uint32_t started;
    uint32_t finished;       /* number of blocks that have ended */
    baton_message_t message; /* the message as the engine sees it */
    /* Memory for a message from main memory, which is received here first. */
    char *memory;

    /* True if a control message of this transfer waits until the inner
       transport can take it; false if all were sent. The next three fields are
       the kind, the tag and the handle of the last control message. */
    bool control_waits;
    baton__staged_kind_t control;
    uint32_t number;
    unsigned char handle[BATON_DEVICE_HANDLE_BYTES];
} baton__staged_transfer_t;

BATON__LIST(baton__staged_list, baton__staged_transfer_t)

/* Records never move, since lists, buffers and the engine hold their
   addresses. */
typedef struct baton__staged_transfer_slab {
    struct baton__staged_transfer_slab *next;
    uint32_t first; /* id of the first record */
    uint32_t count;
    baton__staged_transfer_t records[];
} baton__staged_transfer_slab_t;

typedef struct baton__staged_transfer_pool {
    bool sends;
    baton__staged_transfer_slab_t *slabs; /* largest first */
    baton__staged_transfer_t *unused;
    uint32_t capacity;
} baton__staged_transfer_pool_t;

/* A buffer of pinned memory that holds one block at a time, and the state of
   the block's copy from or to the device. A copy that goes directly from device
   to device has a buffer without memory: `memory` is NULL. */
typedef struct baton__staged_buffer {
    struct baton__staged_buffer *next; /* a buffer is in one list at a time */
    char *memory;
    void *event; /* the device's event that is recorded after the copy */
    uint32_t index;
    uint32_t block;
    baton_status_t status; /* BATON_OK, or an error if the end of the copy can't
                              be detected */
    baton__staged_transfer_t *transfer;
} baton__staged_buffer_t;

BATON__LIST(baton__staged_copies, baton__staged_buffer_t)
BATON__LIST(baton__staged_messages, baton_message_t)

typedef struct baton__staged_buffers {
    baton__staged_buffer_t *all;
    uint32_t count;
    baton__staged_buffer_t *unused;
    uint32_t unused_count;
    /* The copies in progress, in the stream's order. */
    baton__staged_copies_t copies;
    baton_stream_t stream;
} baton__staged_buffers_t;

typedef struct baton__staged_peer {
    bool reserved; /* the inner transport has capacity for blocks with
                      this peer */
    /* BATON_OK, or the error that this peer's loss was reported with. */
    baton_status_t lost;
} baton__staged_peer_t;

typedef struct baton__staged {
    baton__around_t around;
    int rank, size;
    baton_device_port_t port;
    void *device;
    bool direct_allowed; /* devices of the same kin may copy from each other */

    baton__block_model_t model;
    size_t block_bytes; /* the largest block: the size of a buffer */
    char *pinned;
    baton__staged_buffers_t out, in, direct;
    /* Number of buffers of `in` that are reserved for blocks that the receiver
       has asked for */
    uint32_t promised;
    uint32_t pulling; /* number of receives in the state PULLING */
    /* a copy was submitted since the endpoint was last asked to arm */
    bool submitted;

    baton__staged_transfer_pool_t sends, receives;
    int64_t reserved_sends, reserved_receives;
    baton__staged_peer_t *peers;

    /* sends that have blocks which have not begun */
    baton__staged_list_t sending;
    baton__staged_list_t receiving; /* receives in the state RECEIVING */
    /* receives that wait for a buffer of `direct` */
    baton__staged_list_t copying;
    baton__staged_list_t ended; /* transfers whose events have yet to be
                                   reported */
    /* Messages that have yet to be reported. An offer gets its record when it
       is reported. If no record is free, the offer waits here, and so do all
       later messages. */
    baton__staged_messages_t arrived;
    /* Number of control messages that wait until the inner transport can take
       them. */
    uint32_t controls;
    /* Requests from receivers for sends that were withdrawn. They have yet to
       be answered. */
    baton_message_t *refused;
    char device_error[256]; /* message of the device's last error */
} baton__staged_t;

/* Tokens of sends and receives in the inner transport. A token's owner is the
   endpoint, and its node consists of one of these kinds and the index of a
   record or buffer. */
typedef enum baton__staged_tokens {
    /* The token's index is that of the send whose offer this is. */
    BATON__STAGED_TOKEN_OFFER,
    BATON__STAGED_TOKEN_OUT, /* the index is that of a buffer of `out` */
    BATON__STAGED_TOKEN_IN,  /* the index is that of a buffer of `in` */
    /* The index is that of the receive, with a target in main memory, to which
       this block belongs. */
    BATON__STAGED_TOKEN_HOST,
    /* The index is that of the receive of a message from main memory. */
    BATON__STAGED_TOKEN_PLAIN,
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

/* Makes records, if needed, so that the pool has at least `count`. */
baton_status_t baton__staged_grow(baton__staged_transfer_pool_t *pool,
                                  int64_t count);
void baton__staged_free_pool(baton__staged_transfer_pool_t *pool);

/* Returns a free record of the pool, or NULL if all are in use. */
baton__staged_transfer_t *
baton__staged_take(baton__staged_transfer_pool_t *pool);

/* Ends the use of a record. The record becomes free after its last control
   message has been sent and the inner send of its offer has ended. */
void baton__staged_give(baton__staged_t *self,
                        baton__staged_transfer_t *transfer);

baton__staged_transfer_t *
baton__staged_by_id(const baton__staged_transfer_pool_t *pool, uint32_t id);

/* A reference is the number by which peers know a record. baton__staged_find
   returns the record of a reference, or NULL if the record's use has ended, or
   if the record is of another peer. */
uint64_t baton__staged_reference(const baton__staged_transfer_t *transfer);
baton__staged_transfer_t *
baton__staged_find(const baton__staged_transfer_pool_t *pool,
                   uint64_t reference, int peer);

/* Returns the record of a message that was reported to the engine, or NULL if
   the message is the inner transport's. */
baton__staged_transfer_t *baton__staged_of(const baton__staged_t *self,
                                           const baton_message_t *message);

/* Marks the transfer as failed, unless it has failed before. `detail` must
   outlive the transfer. If it is NULL and the status is BATON_ERR_SYSTEM, the
   device has failed, and this thread's error message becomes the detail. */
void baton__staged_fail(baton__staged_t *self,
                        baton__staged_transfer_t *transfer,
                        baton_status_t status, const char *detail);

/* Ends the transfer with its status, so that its event will be reported. */
void baton__staged_end(baton__staged_t *self,
                       baton__staged_transfer_t *transfer);

/* baton__staged_tell sends a control message to the peer; if there is no
   capacity now, a later poll sends it. baton__staged_refuse answers a request
   for a send that has ended, and drops the request. baton__staged_flush sends
   the control messages and the answers that still wait. */
void baton__staged_tell(baton__staged_t *self,
                        baton__staged_transfer_t *transfer,
                        baton__staged_kind_t kind, uint32_t number);
void baton__staged_refuse(baton__staged_t *self, baton_message_t *request);
void baton__staged_flush(baton__staged_t *self);

/* baton__staged_take_buffer returns a free buffer for a block of the transfer,
   or NULL. baton__staged_copy begins a copy that uses this buffer, and appends
   the buffer to the copies in progress, which end in order. If the copy can't
   begin, baton__staged_copy gives the buffer back. */
baton__staged_buffer_t *
baton__staged_take_buffer(baton__staged_buffers_t *of,
                          baton__staged_transfer_t *transfer, uint32_t block);
void baton__staged_give_buffer(baton__staged_buffers_t *of,
                               baton__staged_buffer_t *buffer);
baton_status_t baton__staged_copy(baton__staged_t *self,
                                  baton__staged_buffers_t *of,
                                  baton__staged_buffer_t *buffer, void *target,
                                  const void *source, size_t bytes);

/* If the first of the copies in progress has ended, removes and returns its
   buffer, and stores the copy's status. Otherwise returns NULL. */
baton__staged_buffer_t *baton__staged_copied(baton__staged_t *self,
                                             baton__staged_buffers_t *of,
                                             baton_status_t *status_out);

/* Divides the message into blocks. */
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

/* Makes a record for an offer that has arrived. BATON_DONE: *out is the message
   for the engine. BATON_AGAIN: no record is free, and the offer must wait. Any
   other status: the offer was dropped. */
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
