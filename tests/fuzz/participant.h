/* A participant: its schedule, and the application that runs it. */
#pragma once

#include "fuzz/cluster.h"

/* Builds and commits its schedule. */
baton_status_t fuzz_participant_commit(fuzz_participant_t *participant);

/* Schedules its next step. */
void fuzz_participant_begin(fuzz_participant_t *participant);

/* Checks what must hold once its group has recovered; after the last step. */
void fuzz_participant_recovered(fuzz_participant_t *participant);
void fuzz_participant_audit(fuzz_participant_t *participant);
