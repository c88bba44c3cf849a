/* The transport of a group that has some of the ranks of another, its root, and
   shares its endpoint: rings, links, segments and descriptors.

   Ranks are translated here, and messages carry the number of their group, the
   channel. Each member computes the same number without asking: so the members
   need not tell each other, and the other ranks have no part in it. The root is
   polled for all: what has come for a subset is delivered to it, and reported
   by its own poll. A transfer ends with the root's event, which names the
   schedule. */
#ifndef BATON_TRANSPORT_SUBSET_H
#define BATON_TRANSPORT_SUBSET_H

#include "transport/group.h"

/* In a header a channel lies in bits of `kind` and `epoch` that are 0 in those
   of a root. Some of its bits in `kind` are not. */
enum {
    BATON__CHANNEL_SHIFT = 4, /* in kind: above baton__message_kind_t */
    BATON__CHANNEL_BITS = 10, /* there: below BATON__STAGED_KINDS */
    BATON__CHANNEL_MASK = (1 << BATON__CHANNEL_BITS) - 1,
    BATON__CHANNEL_EPOCH_SHIFT = 48 /* in epoch: 16 bits */
};

/* The channel of the `nth` group that is made of one with this channel: from 1
   by shrinks, from 1 + BATON__SUBSET_COPIES as copies. */
#define BATON__SUBSET_COPIES (UINT64_C(1) << 32)
uint32_t baton__subset_channel(uint32_t channel, uint64_t nth);

/* The channel of a message; 0 for a root's. */
static inline uint32_t baton__subset_channel_of(const baton_header_t *header)
{
    uint32_t low = header->kind >> BATON__CHANNEL_SHIFT & BATON__CHANNEL_MASK;
    uint32_t high = (uint32_t)(header->epoch >> BATON__CHANNEL_EPOCH_SHIFT);
    return low != 0 ? high << BATON__CHANNEL_BITS | low : 0;
}

/* Opens an endpoint for `ranks` of the root, `size` of them.
   BATON_ERR_NO_MEMORY. */
baton_status_t baton__subset_open(const baton_group_t *root, uint32_t channel,
                                  const int *ranks, int size,
                                  const baton_transport_t **transport_out,
                                  void **endpoint_out);

/* What the root's poll has found: a message of this channel, which is reported
   next; and the loss of a rank of the root, if it is one of the subset. */
void baton__subset_deliver(void *endpoint, baton_message_t *message);
void baton__subset_lose(void *endpoint, int root_rank, const char *detail);

/* The rank in the root. */
int baton__subset_root_rank(const void *endpoint, int rank);

#endif
