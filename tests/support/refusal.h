/* Schedules whose commit must fail. They are named "wrong", have one bound
   buffer of 16 bytes, and belong to rank 0 of 3. */
#pragma once

#include "support/cluster.h"

/* The fixtures of a program, and the cluster that they open. */
int refusal_open(void **state);
int refusal_close(void **state);
support_cluster_t *refusal_ranks(void);

#define REFUSAL_BYTES 16

/* refusal_begin returns a schedule as described above. refusal_begin_named
   gives it another name, for tests in which other ranks have schedules of that
   name. refusal_part returns a view of a part of the schedule's buffer.
   refusal_foreign is the id of a node that the schedule does not have. */
baton_schedule_t *refusal_begin(void);
baton_schedule_t *refusal_begin_named(const char *name);
baton_view_t refusal_part(size_t offset, size_t bytes);
extern const baton_node_t refusal_foreign;

/* The memory to which the buffer is bound. */
extern float refusal_memory[REFUSAL_BYTES / sizeof(float)];

/* refuses() and refused() expect that the commit fails with this status, and
   with a message that names the schedule and contains `text`. refused() also
   destroys the schedule. */
void refuses(baton_schedule_t *schedule, baton_status_t status,
             const char *text);
void refused(baton_schedule_t *schedule, baton_status_t status,
             const char *text);
