/* The application of a participant. */
#ifndef TESTS_FUZZ_PARTICIPANT_H
#define TESTS_FUZZ_PARTICIPANT_H

#include "fuzz/cluster.h"

/* Schedules the participant's next step. */
void fuzz_participant_begin(fuzz_participant_t *participant);

#endif
