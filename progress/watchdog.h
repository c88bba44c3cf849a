/* The watchdog: reports epochs that have made no progress for too long. */
#pragma once

#include "base/text.h"
#include "progress/stepper.h"

typedef struct baton__watchdog {
    uint32_t stall_ms;  /* without progress for so long an epoch is reported */
    uint64_t looked_ns; /* when it last looked */
} baton__watchdog_t;

/* Looks at running epochs, if it is time to. The ranks that one waits for which
   stalls are asked what they wait for; at the next look it is logged, with what
   they have answered. One is asked about in each look, which bounds the
   messages and the log where many stall.

   Long before that the transport is asked whether the ranks that an epoch waits
   for live, from the first look on in which it has made no progress. So one
   that does not answer is lost to a rank that waits for it, whose epoch fails
   with its name, and with it the epochs of all that wait for that rank. It is
   the same of ranks that a recovery, a shrink or a farewell waits for; those of
   this host from the second look on. The driver's. */
void baton__watchdog_look(baton__watchdog_t *watchdog,
                          const baton__stepper_t *stepper);

/* Appends a paragraph: what the running epoch of a schedule waits for. The
   driver's. */
void baton__describe_wait(const baton_schedule_t *schedule,
                          baton__text_t *text);
