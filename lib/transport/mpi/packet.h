/* What ranks send each other: through a ring in shared memory, or as an MPI
   message. A packet announces a message, with its data if that is short; or it
   answers one.

       SHORT   data in the packet       the receiver needs nothing more
       BUFFER  data in a shm buffer     it reads the buffer, and clears it
       OFFER   data to be read, in a    it takes the offer, reads, answers FIN
               segment or by CMA        (or pulls it, as if it were RTS)
       BODY    data in an MPI message   it receives that
       RTS     data with the sender     it answers CTS, and they come as an MPI
                                        message; or FIN

   A credited message is its receiver's alone once it was sent. Of the others
   the sender keeps a record, `id`, until FIN, or until it has sent what was
   pulled by CTS. `generation` tells uses of one record apart. */
#ifndef BATON_TRANSPORT_MPI_PACKET_H
#define BATON_TRANSPORT_MPI_PACKET_H

#include <assert.h>
#include <baton/transport.h>

typedef enum baton__packet_kind {
    BATON__PACKET_SHORT,
    BATON__PACKET_BUFFER,
    BATON__PACKET_OFFER,
    BATON__PACKET_BODY,
    BATON__PACKET_RTS,
    BATON__PACKET_FIN,
    BATON__PACKET_CTS,
    BATON__PACKET_CREDIT /* the counts that every packet over MPI carries */
} baton__packet_kind_t;

enum {
    BATON__PACKET_CREDITED = 1,
    BATON__PACKET_NOTICE = 2 /* credited, too, from the notices' credits */
};

enum { BATON__SHORT_BYTES = 256 };
static_assert(BATON__SHORT_BYTES >= BATON_NOTICE_BYTES, "a notice is short");

typedef struct baton__packet {
    uint32_t word; /* the ring's */
    uint16_t kind;
    uint16_t flags;
    uint32_t source; /* rank */
    uint32_t id;
    uint64_t bytes; /* of the message */
    baton_header_t header;
    uint32_t place; /* BUFFER: its number. BODY: its place among the tags. CTS:
                       the tag. OFFER: the id of the segment, or 0 */
    uint32_t generation;
    union {
        uint64_t address; /* OFFER */
        unsigned char data[BATON__SHORT_BYTES];
    };
} baton__packet_t;

/* Eight bytes of data, and all else, are one cell of a ring. */
#define BATON__PACKET_HEAD offsetof(baton__packet_t, data)
static_assert(BATON__PACKET_HEAD == 56, "a packet's head");

/* Over MPI a packet carries how many messages and notices its receiver may have
   sent in all, and below which number it may forget its bodies. */
typedef struct baton__far_packet {
    uint32_t messages, notices, bodies;
    baton__packet_t packet;
} baton__far_packet_t;

#define BATON__FAR_PACKET_HEAD offsetof(baton__far_packet_t, packet.data)

#endif
