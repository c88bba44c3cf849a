/* What ranks send each other: through a ring in shared memory, or as an MPI
   message. A packet announces a message, with its data if that is short; or it
   answers one.

       SHORT   data in the packet       the receiver needs nothing more
       BUFFER  data in a shm buffer     it reads the buffer, and clears it
       OFFER   data to be read, in a    it takes the offer, reads, answers FIN;
               segment or by CMA        or answers CTS, and they are PUT (or
                                        pulls it, as if it were RTS); or COPY,
                                        and they come in PARTs
       BODY    data behind the packet,  it keeps all that, and gives it back
               the rest in TAILs
       RTS     data with the sender     it answers CTS, and they come as an MPI
                                        message; or FIN
       PUT     data in the target of a  nothing; no bytes: they can't be written
               posted receive, `place`
       PART    the next of the data     nothing
               that the system refuses
               to copy from process to
               process

   A credited message is its receiver's alone once it was sent. Of the others
   the sender keeps a record, `id`, until FIN, or until it has sent what was
   pulled by CTS. `generation` tells uses of one record apart. */
#pragma once

#include <assert.h>
#include <baton/transport.h>

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
    BATON__PACKET_CREDIT, /* the counts that every packet over MPI carries */
    BATON__PACKET_ASK,    /* is answered by a CREDIT */
    BATON__PACKET_LAST    /* its sender closes its group */
} baton__packet_kind_t;

enum {
    BATON__PACKET_CREDITED = 1,
    BATON__PACKET_NOTICE = 2, /* credited, too, from the notices' credits */
    BATON__PACKET_MADE = 4,   /* OFFER: token.made */
    BATON__PACKET_DISOWNS = 8 /* CREDIT: its receiver is lost to its sender */
};

enum { BATON__SHORT_BYTES = 256 };
static_assert(BATON__SHORT_BYTES >= BATON_NOTICE_BYTES, "a notice is short");

typedef struct baton__packet {
    uint32_t word; /* the ring's; over MPI how many the sender sent before */
    uint16_t kind;
    uint16_t flags;
    uint32_t source; /* rank */
    uint32_t id;
    uint64_t bytes; /* of the message */
    baton_header_t header;
    uint32_t place; /* BUFFER: its number. CTS: the tag; `bytes` are those of
                       each MPI message, and `flags` so many are awaited; to an
                       OFFER: the post, `bytes` its generation. OFFER: the id of
                       the segment, or 0. PART: the post, or BATON__HOST_POSTS
                       for an OFFER; `bytes` are the part's */
    uint32_t generation;
    union {
        uint64_t address; /* OFFER, and CTS to one */
        unsigned char data[BATON__SHORT_BYTES];
    };
} baton__packet_t;

/* Eight bytes of data, and all else, are one cell of a ring. */
#define BATON__PACKET_HEAD offsetof(baton__packet_t, data)
static_assert(BATON__PACKET_HEAD == 56, "a packet's head");

/* Over MPI a packet carries how many messages, notices and bodies its receiver
   may have sent in all, and how many of its packets were taken. A body goes on
   behind `packet.data`. */
typedef struct baton__far_packet {
    uint32_t messages, notices, bodies, taken;
    baton__packet_t packet;
} baton__far_packet_t;

#define BATON__FAR_PACKET_HEAD offsetof(baton__far_packet_t, packet.data)

/* Open MPI 4.1.4 sends up to 64 KiB eagerly over TCP, less some 200 bytes for
   its headers. For more it asks the receiver, as for a pull, which takes as
   long as a second packet twice. So a body has what does not fit into the first
   packet in others, each in a buffer of its own. But a buffer is for 64 KiB,
   and what each lacks of that, 600 bytes, is behind the data of the last.

   Longer messages are pulled: that saves two copies, but waits for an answer.
   Between two hosts on 2 cores of an AMD EPYC exchanges of 128 KiB take 0.65 to
   0.9 of the time as bodies in most runs; of 256 KiB they were often slower. */
enum {
    BATON__BODY_BYTES = 64 * 1024,
    BATON__BODY_BUFFERS = 2, /* of a message */
    BATON__BODY_LONGEST = BATON__BODY_BUFFERS * BATON__BODY_BYTES,
    BATON__FIRST_BYTES = 64 * 1024 - 512 - BATON__FAR_PACKET_HEAD
};

static inline uint32_t baton__body_buffers(uint64_t bytes)
{
    return (uint32_t)((bytes + BATON__BODY_BYTES - 1) / BATON__BODY_BYTES);
}

/* Room for any packet. */
typedef struct baton__far_buffer {
    union {
        baton__far_packet_t head;
        unsigned char bytes[BATON__FAR_PACKET_HEAD + BATON__FIRST_BYTES +
                            BATON__BODY_BUFFERS *
                                (BATON__BODY_BYTES - BATON__FIRST_BYTES)];
    };
    struct baton__far_buffer *next;
} baton__far_buffer_t;
