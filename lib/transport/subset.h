/* The transport of a group that has some of the ranks of another, its root, and
   shares its endpoint: rings, links, segments and descriptors.

   Ranks are translated here, and messages carry the number of their group, the
   channel. Each member computes the same number without asking, from that of
   the group that its own is made of, and what the members call alike: so they
   need not tell each other, and the other ranks have no part in it. The root is
   polled, watched and armed for all: a subset's functions for that are never
   called. A transfer ends with the root's event, which names the schedule. */
#pragma once

#include "transport/group.h"

/* In a header a channel lies in bits of `kind`, `tag` and `epoch` that are 0 in
   those of a root. Some of its bits in `kind` are not. */
enum {
    BATON__CHANNEL_SHIFT = 4,      /* in kind: above baton__message_kind_t */
    BATON__CHANNEL_KIND_BITS = 10, /* there: below BATON__STAGED_KINDS */
    BATON__CHANNEL_TAG_BITS = 32 - BATON__TAG_BITS,
    BATON__CHANNEL_EPOCH_BITS = 20
};

/* The channel of a group that is made of one with this channel. Of a thousand
   groups with one root two have the same by a chance of 2 in a million: then
   the later one is not made. */
uint64_t baton__subset_channel(uint64_t channel, uint64_t key);

/* The channel of a message; 0 for a root's. And its header without that. */
static inline uint64_t baton__subset_channel_of(const baton_header_t *header)
{
    const unsigned mask = (1U << BATON__CHANNEL_KIND_BITS) - 1;
    uint64_t low = (unsigned)header->kind >> BATON__CHANNEL_SHIFT & mask;
    if (low == 0) {
        return 0;
    }
    uint64_t high = header->epoch >> (64 - BATON__CHANNEL_EPOCH_BITS)
                                         << BATON__CHANNEL_TAG_BITS |
                    header->tag >> BATON__TAG_BITS;
    return high << BATON__CHANNEL_KIND_BITS | low;
}
baton_header_t baton__subset_header(const baton_header_t *header);

/* Opens an endpoint for `ranks` of a group, `size` of them.
   BATON_ERR_NO_MEMORY. */
baton_status_t baton__subset_open(const baton_group_t *of, uint64_t channel,
                                  const int *ranks, int size,
                                  const baton_transport_t **transport_out,
                                  void **endpoint_out);

/* Makes a message of this channel, which the root's poll has found, the
   subset's. */
void baton__subset_take(const void *endpoint, baton_message_t *message);

/* The rank in the root; and the one here of a rank of the root, or -1. */
int baton__subset_root_rank(const void *endpoint, int rank);
int baton__subset_rank(const void *endpoint, int root_rank);

/* True if a rank of the group is known to have ended, there or in its root. */
bool baton__has_ended(const baton_group_t *group, int rank);
