/* What the files of the partial collectives share. */
#ifndef BATON_COLL_PARTIAL_PARTS_H
#define BATON_COLL_PARTIAL_PARTS_H

#include "coll/activation.h"
#include "coll/contribution.h"
#include "coll/given.h"
#include "coll/partial_change.h"
#include "coll/partial_rule.h"
#include "coll/partial_stats.h"
#include "coll/quorum.h"

struct baton_partial {
    baton_schedule_t *schedule;
    int rank, size;
    baton_keep_t keep;
    uint64_t seed;
    uint32_t sync_every;    /* 0: never */
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

    /* How epochs begin; the driver's. */
    baton_node_t start;            /* the on_start */
    baton_partial_choice_t choice; /* the mode of the running epoch */
    baton_partial_choice_t first_choice;
    bool changes;
    baton__change_t change;
    baton_partial_policy_fn policy;
    void *policy_arg;
    uint32_t digest; /* of the options, to compare with peers */
    baton__wave_t wave;
    baton__quorum_t *quorum; /* NULL where nothing is counted */
};

/* The rule of the running epoch; `arg` is the partial. */
baton__rule_t baton__partial_rule_at(void *arg, uint64_t epoch);

/* Adds what begins an epoch; returns the node behind which it works. */
baton_node_t baton__partial_add_begin(baton_partial_t *partial);

/* Of the rank that another one has reached: BATON_ERR_MISMATCH, naming both,
   where their options differ. In a call node behind the begin. */
baton_status_t baton__partial_check_peers(const baton_partial_t *partial,
                                          baton_call_t *call);

#endif
