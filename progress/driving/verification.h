/* The functions that BATON_VERIFY=1 adds to a commit. lib/sim implements this
   table, and passes it to the engines that it opens (verify.c). */
#pragma once

#include <baton/baton.h>

/* The verifier of one group. */
typedef struct baton__verifier baton__verifier_t;

typedef struct baton__verification {
    /* create makes a group's verifier, and destroy frees it. Neither waits
       for another rank. */
    baton_status_t (*create)(baton_group_t *group, baton__verifier_t **out);
    void (*destroy)(baton__verifier_t *verifier);

    /* Verifies the commit of a schedule; `local` is the status of this rank's
       own checks. Collective: ranks whose own checks failed call it, too.
       BATON_OK if all ranks may commit. */
    baton_status_t (*verify)(baton__verifier_t *verifier,
                             const baton_schedule_t *schedule,
                             baton_status_t local);
} baton__verification_t;
