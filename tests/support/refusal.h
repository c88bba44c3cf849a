/* Schedules whose commit must fail. They are named "wrong", have one bound
   buffer of 16 bytes, and belong to rank 0 of 3. */
#pragma once

#include "support/cluster.h"

/* Group fixtures, and the ranks they open. */
int refusal_open(void **state);
int refusal_close(void **state);
support_cluster_t *refusal_ranks(void);

#define REFUSAL_BYTES 16

/* Such a schedule, or one of another name, of which other ranks have theirs; a
   part of its buffer; a node that it does not have. */
baton_schedule_t *refusal_begin(void);
baton_schedule_t *refusal_begin_named(const char *name);
baton_view_t refusal_part(size_t offset, size_t bytes);
extern const baton_node_t refusal_foreign;

/* The memory behind the buffer. */
extern float refusal_memory[REFUSAL_BYTES / sizeof(float)];

/* Expects that commit fails with a message that names the schedule and contains
   `text`. refused() destroys the schedule, too. */
void refuses(baton_schedule_t *schedule, baton_status_t status,
             const char *text);
void refused(baton_schedule_t *schedule, baton_status_t status,
             const char *text);
