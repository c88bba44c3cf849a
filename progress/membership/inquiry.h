/* Finds the rank that an epoch waits for, at the end of a chain: many ranks may
   each wait for a neighbour, and the last of them waits for its application.

   A rank whose epoch stalls asks the ranks that it awaits which ranks they
   await, and then asks those, too. Each rank answers for itself, at once; the
   rank that asks follows the chain. It asks each rank twice: if a rank has made
   progress between its two answers, nothing has stalled. So at first a stall
   costs a rank at most two inquiries for each rank of the group, and in a large
   group about twice BATON__ASKED_MOST inquiries. A rank answers in a step: with
   a progress thread also while its application sleeps or computes, otherwise
   only in calls of the library.

   Only one rank reports a stall: the first rank that has asked the lowest rank.
   So all ranks ask the lowest rank, too, and the second lowest in case the
   lowest does not answer. The rank that reports goes on asking, twice in each
   stall period, which shows that it still lives and waits. The others ask ever
   less often. If the lowest rank has not been asked by the first one for two
   periods (or for one, if the lowest rank has made progress since), the next
   rank that asks takes the first one's place, and reports. For the first one
   may have been stopped before its report, or may wait for nothing any more.
   The numbers of epochs play no part in this, since the ranks of a chain may
   wait in different epochs.

   This file keeps the answers. notice_inquiry.c sends the messages, and
   watchdog.c reports. */
#pragma once

#include "progress/state/task.h"

enum { BATON__ASKED_MOST = 64, BATON__AWAITS_MOST = 16 };

/* A rank's answer to an INQUIRY. The text is empty if the rank waits only for
   other ranks. Else the rank is the end of a chain, and the text says for what
   it waits, as a continuation of "rank 3 has". */
typedef struct baton__rank_state {
    /* the epoch that runs on the rank; if none runs, the next one */
    uint64_t epoch;
    /* 2 + baton__progress_of on the rank, or 1 if the rank does not have the
       schedule. */
    uint64_t progress;
    /* the identity of the in_order schedule that runs on the rank; 0: no such
       schedule runs */
    uint64_t ordered;
    uint64_t ordered_epoch;
    /* 1: the rank that gets this answer was the first to ask about the
       stall. */
    uint32_t first;
    /* Number of ranks in `awaits`, which has the first ranks that the answering
       rank waits for. */
    uint32_t await_count;
    int32_t awaits[BATON__AWAITS_MOST];
    char text[128];
} baton__rank_state_t;
static_assert(sizeof(baton__rank_state_t) <= BATON_NOTICE_BYTES,
              "an answer is a notice");

/* Writes this rank's answer about a committed schedule. */
void baton__inquiry_answer(const baton_schedule_t *schedule,
                           baton__rank_state_t *out);

/* Begins an inquiry about the running epoch. If the last inquiry was about the
   same stall, begins the second round of it instead. `first` is true if no
   other rank has asked this one about that stall. If there is no memory, no
   rank is asked. */
void baton__inquiry_begin(baton__task_t *task, bool first);
/* Returns a rank that must be asked now, or -1 if there is none. */
int baton__inquiry_next(const baton__task_t *task);
/* Takes the answer of a rank. */
void baton__inquiry_take(const baton_schedule_t *schedule, int rank,
                         const baton__rank_state_t *state);

/* Appends the result of the inquiry to the text: the ranks at the end of the
   chain, with the texts of their answers, or a circle of ranks that wait for
   each other. Appends nothing if the epoch has made progress since the inquiry
   began. */
void baton__inquiry_describe(const baton_schedule_t *schedule,
                             baton__text_t *text);

/* True if a rank that was asked twice has made progress in between. */
bool baton__inquiry_saw_progress(const baton__task_t *task);

/* True if another rank reports the same stall. */
bool baton__inquiry_leaves_report(const baton__task_t *task);

/* Returns a number that grows when this rank makes progress in the schedule, or
   gets a HELLO (notice.h) from one of the schedule's peers. */
uint64_t baton__progress_of(const baton_schedule_t *schedule);

/* True if a node of the running epoch has fired and not ended. */
bool baton__node_is_awaited(const baton_schedule_t *schedule, uint32_t node);

/* Appends the name and the state of a node that is no send or receive to the
   text. */
void baton__describe_own(const baton_schedule_t *schedule, uint32_t node,
                         baton__text_t *text);
