/* Comparing options across ranks: an all-reduce of words and of their
   complements, whose minimum tells the smallest and the largest value of each
   word, and the first rank that has it, on all ranks alike. */
#ifndef BATON_COLL_KIT_COMPARE_H
#define BATON_COLL_KIT_COMPARE_H

#include "base/text.h"

#include <baton/baton.h>

/* An option that must be the same on all ranks. */
typedef struct baton__compared {
    const char *name;
    const char *of; /* NULL, or what has it */
    uint64_t word;
    bool real;                          /* it has the bits of a double */
    const char *(*text)(uint64_t word); /* or a name; or NULL */
} baton__compared_t;

/* A field of a struct of options that is an integer; and a double. */
#define BATON__COMPARED(options, field)                                        \
    {                                                                          \
        .name = #field, .word = (uint64_t)(options)->field                     \
    }
#define BATON__COMPARED_REAL(label, value)                                     \
    {                                                                          \
        .name = (label), .word = baton__compare_bits(value), .real = true      \
    }

/* BATON_I64_I32 */
typedef struct baton__ranked {
    int64_t word;
    int32_t rank;
    int32_t unused;
} baton__ranked_t;

typedef struct baton__compare {
    baton_schedule_t *schedule; /* the owner's */
    baton__compared_t *list;    /* the first is how this rank is wrong */
    size_t count, causes;
    baton__ranked_t *words; /* 2 * count */
} baton__compare_t;

uint64_t baton__compare_bits(double value);

/* Commits and starts the schedule, which is empty. `wrong`: how this rank's
   options are, or 0. The list is copied. From its first `causes` options others
   may follow: where one of them differs, the others are not told. */
baton_status_t baton__compare_start(baton__compare_t *self,
                                    baton_schedule_t *schedule,
                                    const baton__compared_t *list, size_t count,
                                    size_t causes, uint64_t wrong);

/* When the epoch has ended: returns the largest `wrong` of all ranks; appends
   what differs to the text. */
uint64_t baton__compare_end(const baton__compare_t *self, baton__text_t *text);

/* Appends "k is 7 BETWEEN 8 BEHIND" where an option's two values differ. */
void baton__compare_add(baton__text_t *text, const baton__compared_t *option,
                        uint64_t first, const char *between, uint64_t second,
                        const char *behind);

/* After the schedule's destruction. */
void baton__compare_fini(baton__compare_t *self);

#endif
