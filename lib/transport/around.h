/* Transports around another one, whose calls they pass on: staged/ and subset.
   Their endpoints begin with this. */
#pragma once

#include <baton/transport.h>

typedef struct baton__around {
    baton_transport_t transport;
    const baton_transport_t *inner;
    void *endpoint; /* the inner one */
} baton__around_t;

/* A table with those of the inner transport's functions that may be passed on
   as they are called. What looks at headers, or reports events, is the outer
   transport's own: reserve, send, poll, accept, drop, arm, close, and of what
   is optional lend, post_receive, withdraw_receive and takes_device. */
baton_transport_t baton__around(const baton_transport_t *inner);
