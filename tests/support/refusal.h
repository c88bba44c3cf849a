/* Schedules that are to be refused: rank 0 of 3 inproc ranks, one bound buffer
   of 16 bytes, named "wrong". */
#ifndef TESTS_SUPPORT_REFUSAL_H
#define TESTS_SUPPORT_REFUSAL_H

#include "support/cluster.h"

/* Group fixtures, and the ranks they open. */
int refusal_open(void **state);
int refusal_close(void **state);
support_cluster_t *refusal_ranks(void);

#define REFUSAL_BYTES 16

/* The schedule, or one of a name of its own, which other ranks can meet; a part
   of its buffer; a node that it does not have. */
baton_schedule_t *refusal_begin(void);
baton_schedule_t *refusal_begin_named(const char *name);
baton_view_t refusal_part(size_t offset, size_t bytes);
extern const baton_node_t refusal_foreign;

/* The memory behind the buffer. */
extern float refusal_memory[REFUSAL_BYTES / sizeof(float)];

/* Commit refuses, naming the schedule and saying `text`. refused: and it is
   destroyed. */
void refuses(baton_schedule_t *schedule, baton_status_t status,
             const char *text);
void refused(baton_schedule_t *schedule, baton_status_t status,
             const char *text);

#endif
