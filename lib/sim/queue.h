/* The simulator's queue of events, ordered by time. Events of the same time
   keep the order in which they were pushed. Most events are pushed in the order
   of their times: an event that is not earlier than the last one of a list is
   appended to this list, in constant time. The others are in a heap in which
   each entry comes before its four children. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct baton__sim_entry {
    double at;
    uint64_t number; /* number of pushes before this one */
    /* The owner of the queue sets `kind` and `index`; the queue only stores
       them. */
    uint32_t kind;
    uint32_t index;
} baton__sim_entry_t;

typedef struct baton__sim_queue {
    /* The list: a ring, whose size is a power of two. */
    baton__sim_entry_t *list;
    size_t list_first, list_count, list_capacity;
    baton__sim_entry_t *heap;
    size_t heap_count, heap_capacity;
    uint64_t pushed;
} baton__sim_queue_t;

/* A queue of zeros is empty. baton__sim_queue_fini frees its entries. */
void baton__sim_queue_fini(baton__sim_queue_t *queue);

/* Pushes an event at time `at`, which is not negative. Returns false, with no
   effect, if there is no memory. */
bool baton__sim_queue_push(baton__sim_queue_t *queue, double at, uint32_t kind,
                           uint32_t index);

/* Stores the first entry's time. Returns false if the queue is empty. */
bool baton__sim_queue_peek(const baton__sim_queue_t *queue, double *at_out);

/* Removes and returns the first entry. The queue must not be empty. */
baton__sim_entry_t baton__sim_queue_pop(baton__sim_queue_t *queue);
