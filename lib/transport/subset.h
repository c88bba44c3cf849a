/* The transport of a subset: a group that has some of the ranks of another one,
   its root, and uses the root's endpoint, with its rings, links, segments and
   descriptors.

   This transport translates ranks, and marks each message with the number of
   its group, the channel. Each member computes the same channel without
   communication: from the channel of the group that the subset is made of, and
   from a key that is the same on all members. So the members need not exchange
   the channel, and the other ranks are not involved. The engine calls the
   root's poll, descriptor and arm (baton/transport.h), which serve all subsets
   of the root, and never those of a subset. So the end of a subset's transfer
   is an event that the root's poll reports. The event's token names the
   schedule, and so the subset. */
#pragma once

#include "transport/group.h"

/* A header carries the channel in bits of `kind`, `tag` and `epoch` that are 0
   in headers of a root. A channel's bits in `kind` are never all 0. */
enum {
    /* First bit in `kind`, above those of baton__message_kind_t. */
    BATON__CHANNEL_SHIFT = 4,
    /* The number of the channel's bits in `kind`. The bits above these are
       BATON__STAGED_KINDS, which the staged transport sets. */
    BATON__CHANNEL_KIND_BITS = 10,
    /* The number of the channel's bits in `tag`: those above the message's own
       tag. */
    BATON__CHANNEL_TAG_BITS = 32 - BATON__TAG_BITS,
    /* The number of the channel's bits in `epoch`, which are the highest bits
       of that field. */
    BATON__CHANNEL_EPOCH_BITS = 20
};

/* Returns the channel of a group that is made, with this key, of a group with
   the channel `channel`. Among a thousand groups with the same root, two have
   the same channel with a probability of 2 in a million; then the later group
   is not created. */
uint64_t baton__subset_channel(uint64_t channel, uint64_t key);

/* Returns the channel in a message's header; 0 if the message is of a root. */
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
/* Returns a header without the channel in it. */
baton_header_t baton__subset_header(const baton_header_t *header);

/* Opens an endpoint for a subset: `size` ranks of the group `of`. Returns
   BATON_ERR_NO_MEMORY if there is no memory. */
baton_status_t baton__subset_open(const baton_group_t *of, uint64_t channel,
                                  const int *ranks, int size,
                                  const baton_transport_t **transport_out,
                                  void **endpoint_out);

/* Converts a message of this channel, which the root's poll has reported, to
   one of the subset: translates its header and its peer. */
void baton__subset_take(const void *endpoint, baton_message_t *message);

/* Returns the number that a rank of the subset has in the root. */
int baton__subset_root_rank(const void *endpoint, int rank);

/* Returns the number that a rank of the root has in the subset; -1 if it is not
   in the subset. */
int baton__subset_rank(const void *endpoint, int root_rank);
