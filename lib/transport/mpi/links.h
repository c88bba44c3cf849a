/* Links between ranks on different hosts: a TCP connection between each two
   that have messages with each other, over which one wakes the other, and by
   which it notices that the other has ended. The messages themselves go over
   MPI.

   A rank that waits for another host sleeps on its links. A peer that sends it
   something over MPI then rings: it writes how many packets it has sent so far,
   so that the rank does not sleep for good before it has them all. While there
   is no link the rank polls now and then instead.

   The end of a link tells that the peer's process has ended, as its children
   close their copies. An error of one tells nothing, as firewalls make them,
   too. Whether the peer answers is answers.h's. */
#pragma once

#include <baton/types.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum baton__link_state {
    BATON__LINK_NONE,
    BATON__LINK_CONNECTING,
    BATON__LINK_OPEN,
    BATON__LINK_ENDED /* the peer has closed it, or died */
} baton__link_state_t;

enum {
    BATON__LINK_ADDRESSES = 4, /* of a rank, at most */
    BATON__LINK_PENDING = 16,  /* connections not identified yet */
    BATON__LINK_WORD = 8       /* bytes of what is written: see links.c */
};

typedef struct baton__link {
    int fd;
    baton__link_state_t state;
    bool opened;       /* it was open once: the peer can be reached so */
    bool reset;        /* since it was open: by the peer's end, or a firewall */
    int error;         /* that a write has met; 0: none */
    bool farewell;     /* the peer has announced that it closes, */
    bool gave_up;      /* after a loss: it waits for nobody */
    uint32_t blamed;   /* 1 + the rank that it has lost first; 0: untold */
    const char *lost;  /* why the peer is lost; NULL: it is not */
    uint32_t reported; /* packets sent to the peer, as it knows */
    uint32_t announced; /* packets that the peer has sent, as it told */
    /* The beginning of a word that has come, the rest of one to be written. */
    unsigned char in[BATON__LINK_WORD], out[BATON__LINK_WORD];
    size_t in_bytes, out_bytes;
    /* Set by drain, from any thread; pairs with the exchange in poll. */
    _Atomic bool touched;
} baton__link_t;

typedef struct baton__link_address {
    uint16_t family; /* AF_INET, AF_INET6; 0 if there is no address */
    uint16_t prefix; /* bits of the network's part */
    unsigned char bytes[16];
} baton__link_address_t;

/* Where a rank can be reached; ranks exchange these when a group is made. */
typedef struct baton__link_place {
    uint16_t port; /* in network order; 0 if it can't be reached */
    baton__link_address_t addresses[BATON__LINK_ADDRESSES];
} baton__link_place_t;

typedef struct baton__links {
    int listener; /* -1 if there are no links */
    int epoll;
    int rank;
    int size;
    uint64_t nonce;    /* of the group */
    bool gives_up;     /* this rank closes after a loss, */
    uint32_t blamed;   /* of 1 + this rank; 0: it tells of none */
    int answers;       /* another listener that children close; -1: none */
    baton__link_t *at; /* of each rank */
    baton__link_place_t *places; /* of each rank, once they were exchanged */
    int pending[BATON__LINK_PENDING];
    _Atomic bool rang;         /* some link was touched; stored with release */
    struct baton__links *next; /* of all that are open */
} baton__links_t;

/* Finds the addresses by which other hosts reach this one. `alone`: all ranks
   are on one host, and may use the loopback interface if there are none. */
void baton__links_find(baton__link_place_t *place, bool alone);

/* Opens a listener for where this rank is, or for this host alone (NULL), and
   stores its port in network order; -1 if it can't be had. */
int baton__links_listen(const baton__link_place_t *place, int backlog,
                        uint16_t *port_out);

/* The address at which a port of another rank can be reached from here; false
   if it has none. */
bool baton__links_address(const baton__link_place_t *mine,
                          const baton__link_place_t *his, uint16_t port,
                          struct sockaddr_storage *out, socklen_t *bytes_out);

/* Begins to connect there: a descriptor, which is writable once it is; or -1,
   with errno. */
int baton__links_begin(const struct sockaddr *to, socklen_t bytes);

/* No links, so far. */
void baton__links_init(baton__links_t *links);

/* Opens this rank's end, and stores in `places` where it is; without a network
   it can't be reached. `alone`: see find. BATON_ERR_NO_MEMORY. */
baton_status_t baton__links_open(baton__links_t *links, int rank, int size,
                                 bool alone);

/* Announces on each link that this rank closes, and ends them. */
void baton__links_close(baton__links_t *links);

/* Connects to `peer`, or leaves that to the peer: the lower rank of two
   connects. */
void baton__links_connect(baton__links_t *links, int peer);

/* Wakes the peer, if there is a link, and tells it how many packets it was
   sent. What can't be written now remains to be reported. */
void baton__links_ring(const baton__links_t *links, int peer,
                       uint32_t packets_sent);

/* Whether there is a link by which the peer can wake this rank. */
static inline bool baton__links_is_open(const baton__links_t *links, int peer)
{
    return links->at != NULL && links->at[peer].state == BATON__LINK_OPEN;
}

/* Looks at the links that were touched. True if one was made, a peer has rung,
   or is lost. */
bool baton__links_poll(baton__links_t *links);

/* Takes what has made the epoll descriptor readable, for the next poll. Any
   thread. */
void baton__links_drain(baton__links_t *links);
