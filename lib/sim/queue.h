/* The simulator's events in order of time, and those of one time in the order
   in which they were pushed: a heap in which each entry comes before its four
   children. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct baton__sim_entry {
    double at;
    uint64_t number; /* number of pushes before this one */
    uint32_t kind;   /* kind and index are the owner's */
    uint32_t index;
} baton__sim_entry_t;

typedef struct baton__sim_queue {
    baton__sim_entry_t *entries;
    size_t count, room;
    uint64_t pushed;
} baton__sim_queue_t;

/* {0} is an empty queue. fini frees the memory of its entries. */
void baton__sim_queue_fini(baton__sim_queue_t *queue);

/* `at` is not negative. Returns false, with no effect, if there is no memory.
 */
bool baton__sim_queue_push(baton__sim_queue_t *queue, double at, uint32_t kind,
                           uint32_t index);

/* Stores the first entry's time. Returns false if the queue is empty. */
bool baton__sim_queue_peek(const baton__sim_queue_t *queue, double *at_out);

/* Removes the first entry, of a queue that is not empty. */
baton__sim_entry_t baton__sim_queue_pop(baton__sim_queue_t *queue);
