/* Comparing options across ranks: an all-reduce of words and of their
   complements, whose minimum tells the smallest and the largest value of each
   word, on all ranks alike. */
#ifndef BATON_COLL_KIT_COMPARE_H
#define BATON_COLL_KIT_COMPARE_H

#include "base/text.h"

#include <baton/schedule.h>

/* An option that must be the same on all ranks. */
typedef struct baton__compared {
    const char *name;
    bool real; /* the word has the bits of a double */
    uint64_t word;
} baton__compared_t;

typedef struct baton__compare {
    baton_schedule_t *schedule; /* the owner's */
    baton__compared_t *list;    /* the first is whether this rank is wrong */
    size_t count;
    uint64_t *words; /* 2 * count */
} baton__compare_t;

uint64_t baton__compare_bits(double value);

/* Commits and starts the schedule, which is empty. `wrong`: this rank's options
   are. The list is copied. */
baton_status_t baton__compare_start(baton__compare_t *self,
                                    baton_schedule_t *schedule,
                                    const baton__compared_t *list, size_t count,
                                    bool wrong);

/* When the epoch has ended: whether some rank is wrong; appends what differs to
   the text, "k is 7 on one rank and 8 on another". */
void baton__compare_end(const baton__compare_t *self, bool *wrong_out,
                        baton__text_t *text);

/* After the schedule's destruction. */
void baton__compare_fini(baton__compare_t *self);

#endif
