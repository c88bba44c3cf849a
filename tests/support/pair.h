/* Two ranks of a crew, of which 1 sends a number to 0: the smallest schedule
   that has a message. For the main thread. */
#ifndef TESTS_SUPPORT_PAIR_H
#define TESTS_SUPPORT_PAIR_H

#include "support/crew.h"

typedef struct support_pair {
    baton_schedule_t *schedules[2]; /* by rank */
    uint64_t sent, got;
} support_pair_t;

void support_pair_open(support_pair_t *pair, support_crew_t *crew,
                       const char *name);
void support_pair_close(support_pair_t *pair);

/* One epoch of rank 1. */
void support_pair_send(support_pair_t *pair, uint64_t value);

/* Starts and waits. */
void support_run(baton_schedule_t *schedule);

/* Fails the test unless the last error's sentence contains `text`. */
void support_says(const char *text);

#endif
