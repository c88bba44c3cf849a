/* Split and reduce, for TopkDSA and Ok-Topk: each rank owns a region of the
   indices, and receives the entries that each other rank has selected there. */
#pragma once

#include "coll/kit/pattern.h"
#include "coll/sparse/algorithms/algorithms.h"

typedef struct baton__regions {
    baton_sparse_t *sparse;
    size_t room; /* entries of a rank's selection, at most */
    bool fixed;  /* bounds never change */
    /* Region r is [bounds[r], bounds[r + 1]). The bounds are exported and
       imported, as `extra` of the sparse all-reduce, since the rank that sums
       an element determines the order of additions. With options.partial they
       never change, and `extra` is the backend's. */
    uint64_t *bounds;
    uint32_t *indices; /* of this rank's selection */
    size_t count;
    char *own;                       /* the entries of the selection */
    baton__message_t *sends, *recvs; /* [i]: to r + 1 + i, from r - 1 - i */
    /* Entries in this rank's region, a list for each rank. */
    baton_entries_t *lists;
} baton__regions_t;

void baton__regions_init(baton__regions_t *regions, baton_sparse_t *sparse,
                         size_t room, bool fixed);

/* Adds P - 1 sends after `ready`, a call of baton__regions_send, and P - 1
   receives before `sum`, a call of baton__regions_take. Fixed bounds must be
   set before. */
void baton__regions_build(baton__regions_t *regions, baton_node_t ready,
                          baton_node_t sum);

/* Returns the block of a region's indices. */
static inline baton__block_t
baton__regions_block(const baton__regions_t *regions, int owner)
{
    const uint64_t *bounds = regions->bounds;
    return (baton__block_t){(size_t)bounds[owner],
                            (size_t)(bounds[owner + 1] - bounds[owner])};
}

/* Returns this rank's entries in a region. In a group without payload data is
   NULL, and there are as many entries as full blocks have. */
baton_entries_t baton__regions_entries(const baton__regions_t *regions,
                                       int owner);

baton_status_t baton__regions_send(baton__regions_t *regions,
                                   baton_call_t *call);

/* Sets lists: this rank's own entries, then those of r - 1, r - 2, ... */
void baton__regions_take(baton__regions_t *regions, baton_call_t *call);
