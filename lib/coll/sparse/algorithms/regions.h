/* Split and reduce, for TopkDSA and Ok-Topk: each rank owns a region of the
   indices, and receives the entries that each other rank has selected there. */
#pragma once

#include "coll/kit/pattern.h"
#include "coll/sparse/algorithms/algorithms.h"

typedef struct baton__regions {
    baton_sparse_t *sparse;
    size_t capacity; /* the most entries that a rank may select */
    bool fixed;      /* the bounds of the regions never change */
    /* Region r is [bounds[r], bounds[r + 1]). The bounds are a part of exported
       and imported states, as `extra` of the sparse all-reduce, since the rank
       that sums an element determines the order of additions. With
       options.partial the bounds never change, and the backend uses `extra`
       itself. */
    uint64_t *bounds;
    uint32_t *indices; /* the indices of this rank's selection */
    size_t count;
    char *own; /* the entries of this rank's selection */
    /* sends[i] is the message to rank r + 1 + i, and recvs[i] the message from
       rank r - 1 - i, where r is this rank. */
    baton__message_t *sends, *recvs;
    /* The entries of this rank's region, in one list for each rank that has
       selected them. The first list is this rank's own. The next ones are of
       the ranks before this one, the nearest rank first. */
    baton_entries_t *lists;
} baton__regions_t;

void baton__regions_init(baton__regions_t *regions, baton_sparse_t *sparse,
                         size_t capacity, bool fixed);

/* Adds P - 1 sends after `ready`, a call node that must call
   baton__regions_send, and P - 1 receives before `sum`, a call node that must
   call baton__regions_take.
   P is the number of ranks. If the bounds are fixed, the caller must have set
   them before. */
void baton__regions_build(baton__regions_t *regions, baton_node_t ready,
                          baton_node_t sum);

/* Returns the range of a region's indices. */
static inline baton__block_t
baton__regions_block(const baton__regions_t *regions, int owner)
{
    const uint64_t *bounds = regions->bounds;
    return (baton__block_t){(size_t)bounds[owner],
                            (size_t)(bounds[owner + 1] - bounds[owner])};
}

/* Returns the entries of this rank's selection that are in a region. If
   messages carry no data (as in a simulation of costs), `data` is NULL, and
   there are as many entries as in full blocks. */
baton_entries_t baton__regions_entries(const baton__regions_t *regions,
                                       int owner);

baton_status_t baton__regions_send(baton__regions_t *regions,
                                   baton_call_t *call);

/* Fills `lists` from this rank's selection and the received messages. */
void baton__regions_take(baton__regions_t *regions, baton_call_t *call);
