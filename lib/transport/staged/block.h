/* The block in which a message of device memory passes through the hosts. It
   goes through three stages, each of which works on one block at a time:

       device --copy--> host --send--> host --copy--> device

   With c(b) for a copy of b bytes and s(b) for a message of b bytes, n bytes in
   k = ceil(n / b) blocks take

       T(b) = 2 c(b) + s(b) + (k - 1) max(c(b), s(b))

   as in a linear pipeline (Wang et al. 2017, see baton/coll.h; section 3):
   short blocks pay c(0) and s(0) often, long ones wait long for the first. T is
   flat around its least value, so the best power of two is within a few percent
   of it. */
#pragma once

#include <baton/baton.h>

enum { BATON__BLOCK_LEAST = 4096, BATON__BLOCK_MOST = 1 << 20 };

typedef struct baton__block_model {
    size_t fixed;           /* BATON_DEVICE_BLOCK; 0: it is not set */
    baton_link_cost_t copy; /* between a host and its device */
    baton_link_cost_t send;
} baton__block_model_t;

/* What BATON_DEVICE_BLOCK and the costs in force say, for ranks that are on so
   many hosts. Errors of baton_costs_get, unless the variable is set. */
baton_status_t baton__block_model(int hosts, baton__block_model_t *out);

/* T(b), in us. */
double baton__block_us(const baton__block_model_t *model, double bytes,
                       double block);

/* The block for a message of so many bytes; and the longest of any message. */
size_t baton__block_for(const baton__block_model_t *model, size_t bytes);
size_t baton__block_most(const baton__block_model_t *model);
