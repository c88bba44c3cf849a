/* A participant: its schedule, and the application that runs it. */
#pragma once

#include "fuzz/cluster.h"

/* Builds and commits the participant's schedule. */
baton_status_t fuzz_participant_commit(fuzz_participant_t *participant);

/* Schedules the participant's next step. */
void fuzz_participant_begin(fuzz_participant_t *participant);

/* Check a participant: fuzz_participant_recovered after a recovery of its
   group, fuzz_participant_audit after its last step. */
void fuzz_participant_recovered(fuzz_participant_t *participant);
void fuzz_participant_audit(fuzz_participant_t *participant);
