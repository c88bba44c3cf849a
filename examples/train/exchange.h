/* One system's way to sum the gradients of a step and to update the weights by
   the sum. */
#ifndef EXAMPLES_EXCHANGE_H
#define EXAMPLES_EXCHANGE_H

#include "net.h"
#include "train.h"

#include <baton/baton.h>

/* Consecutive layers, from the last down to `first_layer`, that are reduced at
   once. */
typedef struct bucket {
    size_t first_layer;
    size_t first, count;   /* of the parameters */
    baton_schedule_t *sum; /* of the gradients; NULL: MPI does it */
} bucket_t;

typedef struct exchange {
    const system_t *system;
    net_t *net;
    bucket_t buckets[NET_MOST_LAYERS];
    size_t bucket_count;
    size_t started; /* buckets of this step */
    baton_partial_t *partial;
    uint64_t applied; /* the last epoch whose sum was */
    baton_sparse_t *sparse;
    float *update;    /* what is selected of the sum, dense */
    double seconds;   /* of this step in calls that start and wait */
    double bytes;     /* sent by this rank in all steps; NAN: not counted */
    double network_s; /* of all steps */
} exchange_t;

void exchange_open(exchange_t *exchange, baton_group_t *group,
                   const system_t *system, net_t *net);
void exchange_close(exchange_t *exchange);

/* Whether the other ranks have ended the next step without this one. */
bool exchange_is_behind(const exchange_t *exchange);

/* The layer's gradient is there. */
void exchange_layer(exchange_t *exchange, size_t layer);

/* All gradients are there: waits for their sum, and updates the weights. */
void exchange_finish(exchange_t *exchange);

#endif
