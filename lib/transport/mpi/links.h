/* Links between ranks on different hosts: TCP connections between ranks that
   exchange messages. Over a link each of the two ranks wakes the other, and
   notices when the other has ended. The messages themselves go over MPI.

   A rank that waits for another host sleeps on its links. A peer that has sent
   something to the rank over MPI wakes it: the peer writes to the link how many
   packets it has sent so far, so that the rank does not sleep for good before
   it has received them all. Without a link the rank polls from time to time
   instead.

   When a link reaches its end of file, the peer's process has ended: its forked
   children close their copies of the descriptor, and so do not keep the link
   open. A reset of the link proves nothing: a firewall may have sent it, or the
   kernel of a peer that has ended with unread bytes in the link. So each pair
   of ranks has a second connection, the lifeline, on which nothing is sent once
   it is made. The lifeline never holds unread bytes, so the kernel of a peer
   that ends does not reset the lifeline: the lifeline reaches its end of file.
   A peer whose link was reset, and whose lifeline stays open, is behind a
   firewall. The kernel sends something over an idle lifeline each minute,
   because firewalls forget idle connections. Without a lifeline, answers.h
   finds out whether a peer still answers. */
#pragma once

#include "base/list.h"

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
    BATON__LINK_ENDED /* the peer has closed the link, or has ended */
} baton__link_state_t;

enum {
    BATON__LINK_ADDRESSES = 4, /* the most addresses of a rank */
    /* The most accepted connections that have not sent their greeting. */
    BATON__LINK_PENDING = 16,
    /* The size in bytes of each word on a link, see links.c. */
    BATON__LINK_WORD = 8,
    /* If a peer's process ends and its link is reset, its lifeline ends within
       this time, unless packets of TCP are lost again and again. */
    BATON__LIFELINE_NS = 500000000
};

typedef struct baton__link {
    int fd;
    baton__link_state_t state;
    bool opened; /* the link was open once, so the peer's address is right */
    /* When the link was reset, by the peer's death or by a firewall; 0: the
       link was not reset since it was last open. */
    uint64_t reset_ns;
    int lifeline;       /* the descriptor of the lifeline; -1: there is none */
    bool lifeline_open; /* the lifeline was made, and has not ended */
    bool lifeline_made; /* the lifeline was made once */
    /* The lifeline has reached its end of file: the peer's process has ended,
       or it has closed its group. */
    bool lifeline_ended;
    int error;     /* the errno of a failed write; 0: no write has failed */
    bool farewell; /* the peer has announced that it closes its group */
    /* The peer's farewell says that it closes its group because it has lost a
       rank. Such a peer does not wait for the other ranks to close theirs. */
    bool gave_up;
    /* 1 + the rank that the peer lost first; 0: the peer named none */
    uint32_t blamed;
    bool disowned;    /* the peer has lost this rank, and goes on without it */
    const char *lost; /* why the peer is lost; NULL if it is not lost */
    /* The number of packets from this rank of which the peer knows: this rank
       has told the peer this number, or the peer has taken as many packets. */
    uint32_t reported;
    /* number of packets that the peer says it has sent to this rank */
    uint32_t announced;
    /* in: the first bytes of a word that is being received. out: the last bytes
       of a word that is being written. */
    unsigned char in[BATON__LINK_WORD], out[BATON__LINK_WORD];
    size_t in_bytes, out_bytes;
    /* The link, or its lifeline, has an event that baton__links_poll has not
       handled. Set by baton__links_drain on any thread. The release store there
       pairs with the acquire exchange in baton__links_poll. */
    _Atomic bool touched;
} baton__link_t;

typedef struct baton__link_address {
    uint16_t family; /* AF_INET or AF_INET6; 0 if there is no address */
    uint16_t prefix; /* length of the network's part in bits */
    unsigned char bytes[16];
} baton__link_address_t;

/* The port and addresses of a rank. Ranks exchange them when a group is
   made. */
typedef struct baton__link_place {
    uint16_t port; /* in network order; 0 if the rank can't be reached */
    baton__link_address_t addresses[BATON__LINK_ADDRESSES];
} baton__link_place_t;

typedef struct baton__links {
    int listener; /* -1: this rank has no links */
    int epoll;
    int rank;
    int size;
    uint64_t nonce; /* the group's random number, which greetings carry */
    /* This rank closes its group because it has lost a rank, and its farewell
       will say so. */
    bool gives_up;
    /* baton__links_lose could not reach a lost rank, so it waits for a shorter
       time for later ones */
    bool hurries;
    /* 1 + the lost rank that the farewell names; 0: it names no rank */
    uint32_t blamed;
    /* The descriptor of the listener of answers.h; -1: it is closed. It is kept
       here because forked children must close it. */
    int answers;
    baton__link_t *at; /* the links, indexed by rank */
    /* The places of all ranks, by rank. They are set after the ranks have
       exchanged them. */
    baton__link_place_t *places;
    int pending[BATON__LINK_PENDING];
    _Atomic bool touched;      /* some link was touched; stored with release */
    struct baton__links *next; /* in the list all_open of links.c */
} baton__links_t;

BATON__LIST(baton__open_links, baton__links_t)

/* Finds the addresses by which other hosts reach this one. If there are none
   and `alone` is true (all ranks are on one host), finds the addresses of the
   loopback interface instead. */
void baton__links_find(baton__link_place_t *place, bool alone);

/* Opens a listener for the addresses of `place`, or for the loopback interface
   if `place` is NULL. Stores the listener's port in network order. Returns the
   listener, or -1 on failure. */
int baton__links_listen(const baton__link_place_t *place, int backlog,
                        uint16_t *port_out);

/* Stores the address at which this rank reaches a port of another rank. Returns
   false if that rank has no address. */
bool baton__links_address(const baton__link_place_t *mine,
                          const baton__link_place_t *his, uint16_t port,
                          struct sockaddr_storage *out, socklen_t *bytes_out);

/* Begins to connect. Returns a descriptor that becomes writable when it is
   connected. On failure returns -1 and sets errno. */
int baton__links_begin(const struct sockaddr *to, socklen_t bytes);

/* Initialises `links` to a state without links. */
void baton__links_init(baton__links_t *links);

/* From this call until baton__links_close, forked children close all
   descriptors of `links` that they inherit. baton__links_open does this,
   too. */
void baton__links_list(baton__links_t *links);

/* Opens this rank's listener, and stores its addresses in `places`. Without a
   network this rank can't be reached, which is no error. `alone` is passed to
   baton__links_find. Returns BATON_ERR_NO_MEMORY if there is no memory. */
baton_status_t baton__links_open(baton__links_t *links, int rank, int size,
                                 bool alone);

/* Announces on each link that this rank closes its group, and closes all
   links. */
void baton__links_close(baton__links_t *links);

/* Called when this rank loses a peer with which it shares no memory. Tells the
   peer that it counts as lost, because the peer may only be stopped: it learns
   of its loss when it continues, even if this rank has left the group by then.
   Returns true if the peer had lost this rank before. The next
   baton__links_poll does not report links that are made here. */
bool baton__links_lose(baton__links_t *links, int peer);

/* Connects to `peer` if this rank is the lower one. Otherwise the peer
   connects. */
void baton__links_connect(baton__links_t *links, int peer);

/* Wakes the peer, if there is a link, by telling it how many packets were sent
   to it. If this number can't be written now, the link's `reported` is not
   updated. */
void baton__links_wake(const baton__links_t *links, int peer,
                       uint32_t packets_sent);

/* True if there is a link by which the peer can wake this rank. */
static inline bool baton__links_is_open(const baton__links_t *links, int peer)
{
    return links->at != NULL && links->at[peer].state == BATON__LINK_OPEN;
}

/* True if there is a lifeline, so that this rank learns at once when the peer's
   process ends. */
static inline bool baton__links_has_lifeline(const baton__links_t *links,
                                             int peer)
{
    return links->at != NULL && links->at[peer].lifeline_open;
}

/* Returns false if the link (or, if there is no link, the lifeline) is open but
   broken, or closed by the peer; the next baton__links_poll then handles it. */
bool baton__links_is_sound(baton__links_t *links, int peer);

/* Handles the links that were touched. Returns true if a link was made, a peer
   has woken this rank, or a peer is lost. */
bool baton__links_poll(baton__links_t *links);

/* Drains the epoll descriptor, and marks the touched links for the next
   baton__links_poll. Any thread may call this. */
void baton__links_drain(baton__links_t *links);
