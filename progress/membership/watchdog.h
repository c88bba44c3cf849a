/* The watchdog: reports epochs that have made no progress for too long. */
#pragma once

#include "base/text.h"
#include "progress/state/stepper.h"

enum { BATON__WATCHDOG_LOOK_MS = 500 }; /* the longest time between two looks */

typedef struct baton__watchdog {
    /* An epoch that makes no progress for this long has stalled. */
    uint32_t stall_ms;
    uint64_t looked_ns; /* the time at which the watchdog last looked */
} baton__watchdog_t;

/* Looks at running epochs, if it is time to. If an epoch has stalled, the
   watchdog begins an inquiry (inquiry.h), in two rounds; a later look logs the
   stall, with the answers of other ranks. Each look asks about one epoch, which
   bounds the messages and the log if many stall.

   Long before that, from the first look that finds no progress on, the watchdog
   has the transport check whether the ranks that an epoch waits for live. A
   rank that does not answer is then lost: the epoch fails with that rank's
   name, and so do the epochs that wait for this rank. The same check is made of
   ranks that a recovery, a shrink or a farewell waits for. */
void baton__watchdog_look(baton__watchdog_t *watchdog,
                          const baton__stepper_t *stepper);

/* Appends a paragraph about what the running epoch of a schedule waits for. */
void baton__describe_wait(const baton_schedule_t *schedule,
                          baton__text_t *text);
