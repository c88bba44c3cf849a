/* A group: this rank's place among P, and the tags it has given out. */
#ifndef BATON_TRANSPORT_GROUP_H
#define BATON_TRANSPORT_GROUP_H

#include <baton/transport.h>

/* The next free tags between this rank and one peer. Both ends count the same
   messages, so no rank has to know what another pair of ranks does. */
typedef struct baton__pair {
    int peer;
    uint32_t next_send;
    uint32_t next_recv;
} baton__pair_t;

/* What a step touches comes first. */
struct baton_group {
    const baton_transport_t *transport;
    void *endpoint;
    const struct baton__kind_info *kinds; /* what its nodes do */
    baton_group_t *next;                  /* of the engine's groups */
    uint32_t posted; /* messages in flight here: the driver's */
    int rank;
    int size;
    bool cost_only; /* simulated: buffers have no memory */
    baton_engine_t *engine;
    struct baton__stepper *stepper; /* that steps its schedules */
    uint32_t schedules;   /* that exist; under the engine's driver lock */
    baton__pair_t *pairs; /* ascending peers; only those that were met */
    size_t pair_count;
    size_t pair_capacity;
    struct baton__verifier *verifier; /* with BATON_VERIFY=1; in progress/ */
};

/* The pair's entry, made when it is new; NULL without memory. The pointer holds
   until the next call. */
baton__pair_t *baton__group_pair(baton_group_t *group, int peer);

/* Whether a thread of the engine's own may call the transport. In progress/. */
bool baton__engine_has_thread(const baton_engine_t *engine);

#endif
