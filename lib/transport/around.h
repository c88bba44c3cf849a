/* Transports that wrap another one and pass calls on to it: staged/ and subset.
   Their endpoints begin with baton__around_t. */
#pragma once

#include <baton/transport.h>

typedef struct baton__around {
    baton_transport_t transport;
    const baton_transport_t *inner;
    void *endpoint; /* the inner endpoint */
    /* By rank of the outer transport: the rank's number in the inner one. NULL:
       the numbers are the same. */
    int *inner_ranks;
} baton__around_t;

/* Returns a copy of the inner transport's table, in which each function calls
   the inner one, with the ranks' inner numbers and otherwise unchanged
   arguments. The outer transport must replace the functions that look at
   headers or report events: send, poll, accept, drop, arm and close, and of the
   optional ones lend, post_receive and takes_device. */
baton_transport_t baton__around(const baton_transport_t *inner);
