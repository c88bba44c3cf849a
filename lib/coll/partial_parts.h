/* What the files of the partial collectives share. */
#ifndef BATON_COLL_PARTIAL_PARTS_H
#define BATON_COLL_PARTIAL_PARTS_H

#include "coll/contribution.h"
#include "coll/given.h"
#include "coll/partial_begin.h"
#include "coll/partial_change.h"
#include "coll/partial_stats.h"

struct baton_partial {
    baton_schedule_t *schedule;
    int rank, size;
    baton_keep_t keep;
    uint32_t max_staleness; /* 0: unbounded */
    baton_buffer_t source;  /* bound to the slots that the epoch works on */
    baton_buffer_t target;
    bool payload;             /* vectors have memory */
    bool rides;               /* the count is in the vector */
    baton__control_t control; /* else here: in, and out */
    size_t vector_bytes;      /* of source and target */
    struct baton_given given;
    _Atomic uint64_t steps; /* starts so far */
    uint64_t seen;          /* last step whose result was returned */
    baton__contribution_t contribution;

    baton__stats_t stats;

    baton__begin_t begin; /* the driver's */
    baton_partial_choice_t first_choice;
    baton__change_t change;
    baton_partial_policy_fn policy;
    void *policy_arg;
};

#endif
