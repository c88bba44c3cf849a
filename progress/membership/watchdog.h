/* The watchdog: reports epochs that have made no progress for too long. */
#pragma once

#include "progress/state/stepper.h"

/* the longest time after a look until the next one is due */
enum { BATON__WATCHDOG_LOOK_MS = 500 };

/* Looks at running epochs, if it is time to. If an epoch has stalled, the
   watchdog begins an inquiry (inquiry.h), in two rounds; a later look logs the
   stall, with the answers of other ranks. As long as the stall lasts, a further
   round follows now and then, and the stall is logged again, as a warning, if
   the answers show that this rank is the one that must warn. Each look begins
   inquiries about the epochs of which this rank has warned, and about only one
   other epoch. This bounds the messages and the log if many epochs stall.

   Long before that, from the first look that finds no progress on, the watchdog
   has the transport check whether the ranks that an epoch waits for live. A
   rank that does not answer is then lost: the epoch fails with that rank's
   name, and so do the epochs that wait for this rank. The transport also checks
   the ranks that a recovery, a shrink or a farewell waits for. */
void baton__watchdog_look(baton__stepper_t *stepper);

/* Appends a paragraph about what the running epoch of a schedule waits for. */
void baton__describe_wait(const baton_schedule_t *schedule,
                          baton__text_t *text);
