/* The systems under test behind one interface: each sums 64-bit integers of all
   ranks. */
#ifndef MICROBENCH_SKEW_SYSTEMS_H
#define MICROBENCH_SKEW_SYSTEMS_H

#include "common/harness.h"
#include "skew/account.h"
#include "skew/options.h"
#include <baton/partial.h>

typedef struct skew_system {
    skew_choice_t choice;
    size_t count;             /* elements */
    uint64_t *target;         /* of the MPI systems */
    baton_partial_t *partial; /* of the Baton systems */
    uint64_t *pending;        /* scratch for skew_system_pending */
} skew_system_t;

/* Collective, in the same order on all ranks. */
void skew_system_open(const harness_t *harness, skew_choice_t choice,
                      size_t count, uint64_t seed, skew_system_t *out);

/* Collective. No rank may be inside a call. */
void skew_system_close(skew_system_t *system);

/* Contributes `source`, starts and waits. This is the call that is timed. The
   system owns the outcome's data, which stay valid until the next call. */
void skew_system_call(skew_system_t *system, const uint64_t *source,
                      uint64_t iteration, int ranks, skew_outcome_t *out);

/* The sum of this rank's contributions that no call has taken yet, or NULL if
   there are none. */
const uint64_t *skew_system_pending(skew_system_t *system);

#endif
