/* Which rank an epoch waits for, at the end of the chain: each of many ranks
   waits for its neighbour, and one of them for its application.

   A rank whose epoch stalls asks each rank that it waits for what that one
   waits for, and then those in turn. Each answers for itself, at once; the rank
   that asks follows the chain. So a stall costs a rank at most as many small
   messages as there are ranks, or BATON__ASKED_MOST, twice: where a rank has
   made progress between its two answers nothing has stalled. A rank answers in
   a step: with a progress thread also while its application sleeps or computes,
   else only in calls of the library.

   One rank reports: the first that has asked the lowest rank that answers. To
   find that, all ask the two lowest ranks, too.

   Here is what was found out. notice.c has the messages, and watchdog.c
   reports. All functions are the driver's. */
#pragma once

#include "base/text.h"
#include "sched/schedule.h"

enum { BATON__ASKED_MOST = 64, BATON__AWAITS_MOST = 16 };

/* An answer. A rank that waits for others alone has no text; else it is the end
   of a chain, and "rank 3 has" goes before the text. */
typedef struct baton__rank_state {
    uint64_t epoch;    /* that runs there, or the next one */
    uint64_t progress; /* 1 + what has been done for the schedule so far */
    uint64_t ordered;  /* the schedule in order that runs there; 0: none */
    uint64_t ordered_epoch;
    uint32_t first;       /* no other rank had asked it: this one reports */
    uint32_t await_count; /* ranks that it waits for, the first ones */
    int32_t awaits[BATON__AWAITS_MOST];
    char text[128];
} baton__rank_state_t;
static_assert(sizeof(baton__rank_state_t) <= BATON_NOTICE_BYTES,
              "an answer is a notice");

/* What this rank answers for a committed schedule. */
void baton__inquiry_answer(const baton_schedule_t *schedule,
                           baton__rank_state_t *out);

/* Begins one for the running epoch, in place of the last; or its second round,
   if that was about the same. (Without memory there is none, and nobody is
   asked.) `first`: no other rank had asked this one. next returns a rank that
   is to be asked now, or -1; take has its answer. */
void baton__inquiry_begin(baton_schedule_t *schedule, bool first);
int baton__inquiry_next(const baton_schedule_t *schedule);
void baton__inquiry_take(const baton_schedule_t *schedule, int rank,
                         const baton__rank_state_t *state);

/* Appends which ranks the others wait for; nothing if none was asked since the
   epoch's last progress. */
void baton__inquiry_describe(const baton_schedule_t *schedule,
                             baton__text_t *text);

/* True if a rank that was asked twice has made progress in between. */
bool baton__inquiry_saw_progress(const baton_schedule_t *schedule);

/* True if another rank reports the same. */
bool baton__inquiry_leaves_report(const baton_schedule_t *schedule);

/* What has been done for a schedule so far, by this rank. Hellos of its peers
   count; those of other schedules do not. */
uint64_t baton__progress_of(const baton_schedule_t *schedule);

/* Whether a node of a running epoch has fired and not ended. */
bool baton__node_is_awaited(const baton_schedule_t *schedule, uint32_t node);

/* Appends a node that is no message, and where it is. */
void baton__describe_own(const baton_schedule_t *schedule, uint32_t node,
                         baton__text_t *text);
