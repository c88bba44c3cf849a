/* What BATON_VERIFY=1 adds to a commit, as seen from below: lib/sim implements
   it, and lib/api gives it to the engines that it opens. */
#ifndef BATON_PROGRESS_VERIFICATION_H
#define BATON_PROGRESS_VERIFICATION_H

#include <baton/schedule.h>

typedef struct baton__verifier baton__verifier_t; /* a group's */

typedef struct baton__verification {
    /* Makes a group's verifier, and frees it. Both are local. */
    baton_status_t (*create)(baton_group_t *group, baton__verifier_t **out);
    void (*destroy)(baton__verifier_t *verifier);

    /* The schedules of its own that a verifier has in its group; whether this
       is one of them. */
    uint32_t schedules;
    bool (*owns)(const baton__verifier_t *verifier,
                 const baton_schedule_t *schedule);

    /* The commit of a schedule that this rank's own checks gave `local`:
       collective, also with an error. BATON_OK: all ranks may go on. */
    baton_status_t (*verify)(baton__verifier_t *verifier,
                             const baton_schedule_t *schedule,
                             baton_status_t local);
} baton__verification_t;

/* Commits a schedule of the verifier's own, which is not verified (commit.c).
 */
baton_status_t baton__commit_unverified(baton_schedule_t *schedule);

#endif
