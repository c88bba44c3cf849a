/* Packets between ranks, sent through a ring in shared memory or as an MPI
   message. A packet announces a message, with its data if that is short; or it
   answers an announced message. There are three answers: FIN means that the
   receiver needs the message no longer, CTS (clear to send) that it asks for
   the data, and COPY that it could not read the data of an OFFER. RTS means
   request to send.

       kind    data                      action of the receiver
       SHORT   in the packet             answers FIN, if it was not credited
       BUFFER  in a shm buffer           reads the buffer, and frees it
       OFFER   in the sender's memory,   takes the offer, reads, answers FIN; or
               a segment or by CMA       answers CTS, and gets PUT (or pulls as
                                         with RTS); or answers COPY, and gets
                                         PARTs
       BODY    after the packet, and     keeps the buffers, frees them later
               then in TAILs
       RTS     with the sender           answers CTS, and gets the data as MPI
                                         messages; or answers FIN
       PUT     in the target of posted   none; `bytes` is 0 if the sender could
               receive `place`           not write there
       PART    in the packet: the next   none
               part of data that the
               system refuses to copy
               between processes

   A message is credited if its sender had a credit for it (endpoint.h). After a
   credited message was sent, it belongs to the receiver alone. Of other
   messages the sender keeps a record, with the number `id`, until it gets FIN
   or has sent the data that CTS asked for. `generation` distinguishes
   successive uses of a record. */
#pragma once

#include <assert.h>
#include <baton/transport.h>

/* Identifies the layout and the meaning of all that ranks send each other:
   packets, the records by which they make a group, notices, and packed graphs.
   Whoever changes one of them raises this number. Ranks whose numbers differ
   make no group. */
enum { BATON__WIRE_FORMAT = 6 };

typedef enum baton__packet_kind {
    BATON__PACKET_SHORT,
    BATON__PACKET_BUFFER,
    BATON__PACKET_OFFER,
    BATON__PACKET_BODY,
    BATON__PACKET_TAIL,
    BATON__PACKET_RTS,
    BATON__PACKET_PUT,
    BATON__PACKET_FIN,
    BATON__PACKET_CTS,
    BATON__PACKET_COPY,
    BATON__PACKET_PART,
    /* A packet that carries only the counts that are in every packet over
       MPI. */
    BATON__PACKET_CREDIT,
    BATON__PACKET_ASK, /* asks the receiver for a CREDIT as a reply */
    /* The sender does not know whether the receiver's process has ended. It
       sends this receiver nothing more until LIVES or a DOUBT comes from it,
       until the receiver's answering thread (answers.h) has answered, or until
       DOUBT_NS (net.c; BATON__LIFELINE_NS if there is a lifeline) have passed
       since the loss that raised the doubt. */
    BATON__PACKET_DOUBT,
    BATON__PACKET_LIVES, /* a CREDIT that replies to DOUBT */
    BATON__PACKET_LAST   /* the sender closes its group */
} baton__packet_kind_t;

enum {
    BATON__PACKET_CREDITED = 1,
    BATON__PACKET_NOTICE = 2, /* the packet uses a credit for notices */
    /* OFFER: the sender has just computed the data (token.made in
       baton/transport.h) */
    BATON__PACKET_MADE = 4,
    /* CREDIT, LIVES: the sender has marked the receiver as lost. */
    BATON__PACKET_DISOWNS = 8
};

enum { BATON__SHORT_BYTES = 256 };
static_assert(BATON__SHORT_BYTES >= BATON_NOTICE_BYTES, "a notice is short");

typedef struct baton__packet {
    /* In a ring, the ring uses this word itself. Over MPI, it is the number of
       packets that the sender has sent to this receiver before. */
    uint32_t word;
    uint16_t kind;
    uint16_t flags;
    uint32_t source; /* the sender's rank */
    uint32_t id;
    uint64_t bytes; /* bytes of the message */
    baton_header_t header;
    /* BUFFER: the buffer's index. OFFER: the id of the segment, or 0. CTS: the
       tag of the MPI messages; `bytes` is the size of each of them, and `flags`
       the number of receives posted for them. CTS that answers an OFFER and
       asks the sender to write the data (PUT): the index of the posted receive;
       `bytes` is the post's generation, and `flags` is 0. PART: the post's
       index, or BATON__HOST_POSTS for an OFFER; `bytes` is the size of the
       part. */
    uint32_t place;
    uint32_t generation;
    union {
        /* OFFER: the address of the data. CTS that answers an OFFER: the
           address of the target. */
        uint64_t address;
        unsigned char data[BATON__SHORT_BYTES];
    };
} baton__packet_t;

/* A packet with eight bytes of data fills one cell of a ring. */
#define BATON__PACKET_HEAD offsetof(baton__packet_t, data)
static_assert(BATON__PACKET_HEAD == 56, "a packet's head");

/* A packet over MPI also carries the total numbers of messages, notices and
   bodies that its receiver may have sent, and the number of the receiver's
   packets that the sender has taken. The data of a body continues after
   `packet.data`. */
typedef struct baton__net_packet {
    uint32_t messages, notices, bodies, taken;
    baton__packet_t packet;
} baton__net_packet_t;

#define BATON__NET_PACKET_HEAD offsetof(baton__net_packet_t, packet.data)

/* Open MPI 4.1.4 sends up to 64 KiB, less some 200 bytes for its headers,
   eagerly over TCP. For a longer message it first asks the receiver, as a pull
   does, which takes as long as two more packets. So a body longer than the
   first packet continues in further packets (TAIL), each of which stays in the
   receive buffer in which it came. A packet carries some 600 bytes less than
   the 64 KiB of the body for which a buffer is counted. What is left over comes
   in one more packet, and is appended to the last buffer.

   Messages longer than BATON__BODY_LONGEST are pulled, which saves two copies
   but waits for an answer. Between two hosts on 2 cores of an AMD EPYC,
   exchanges of 128 KiB as bodies took 0.65 to 0.9 of the time that pulls take
   in most runs; exchanges of 256 KiB as bodies were often slower than pulls. */
enum {
    BATON__BODY_BYTES = 64 * 1024,
    BATON__BODY_BUFFERS = 2, /* the most buffers of a message */
    BATON__BODY_LONGEST = BATON__BODY_BUFFERS * BATON__BODY_BYTES,
    BATON__FIRST_BYTES = 64 * 1024 - 512 - BATON__NET_PACKET_HEAD
};

static inline uint32_t baton__body_buffers(uint64_t bytes)
{
    return (uint32_t)((bytes + BATON__BODY_BYTES - 1) / BATON__BODY_BYTES);
}

/* Space for any packet. */
typedef struct baton__net_buffer {
    union {
        baton__net_packet_t head;
        unsigned char bytes[BATON__NET_PACKET_HEAD + BATON__FIRST_BYTES +
                            BATON__BODY_BUFFERS *
                                (BATON__BODY_BYTES - BATON__FIRST_BYTES)];
    };
    struct baton__net_buffer *next;
    /* In the first of buffers that were allocated together: the first of those
       that were allocated before. */
    struct baton__net_buffer *allocated_before;
} baton__net_buffer_t;
