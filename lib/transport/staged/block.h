/* The size of the blocks in which a message of device memory passes through
   main memory. A block goes through three stages, each of which works on one
   block at a time:

       device --copy--> CPU --send--> CPU --copy--> device

   With c(b) for a copy of b bytes and s(b) for a message of b bytes, n bytes in
   k = ceil(n / b) blocks take

       T(b) = 2 c(b) + s(b) + (k - 1) max(c(b), s(b))

   as in a linear pipeline (Wang et al. 2017, see baton/coll.h; section 3).
   With short blocks c(0) and s(0) are paid often; with long blocks the later
   stages wait long for the first block. T is flat around its minimum, so the
   best power of two is within a few percent of it. */
#pragma once

#include <baton/baton.h>

enum { BATON__BLOCK_LEAST = 4096, BATON__BLOCK_MOST = 1 << 20 };

typedef struct baton__block_model {
    size_t fixed;           /* BATON_DEVICE_BLOCK, or 0 if that is not set */
    baton_link_cost_t copy; /* cost of a copy from or to the device */
    baton_link_cost_t send;
} baton__block_model_t;

/* Fills the model in with BATON_DEVICE_BLOCK and the costs for a group on
   `hosts` hosts. If the variable is set, errors of baton_costs_get are ignored;
   otherwise they are returned. */
baton_status_t baton__block_model(int hosts, baton__block_model_t *out);

/* Returns T(b) in us, with n = `bytes` and b = `block`. */
double baton__block_us(const baton__block_model_t *model, double bytes,
                       double block);

/* Returns the size of the best block for a message of `bytes` bytes. */
size_t baton__block_for(const baton__block_model_t *model, size_t bytes);
