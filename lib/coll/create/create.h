/* Collectives by one call. create.c makes a schedule of the operands: it checks
   them, binds the vectors, calls the builder of coll.h, and commits. now.c
   keeps such schedules with the group, by what the ranks have in common, and
   binds the vectors of each call. */
#pragma once

#include <baton/tuning.h>

/* What a vector has: `count` elements, or a block for each rank. */
typedef enum baton__span {
    BATON__SPAN_NONE,
    BATON__SPAN_PART,
    BATON__SPAN_BLOCKS
} baton__span_t;

/* Who says how long the blocks are. */
typedef enum baton__sizes {
    BATON__SIZES_EQUAL,  /* count */
    BATON__SIZES_EITHER, /* count, or counts on all ranks */
    BATON__SIZES_COUNTS, /* counts on all ranks */
    BATON__SIZES_ROOT,   /* counts at the root, count on the others */
    BATON__SIZES_PAIR    /* counts and target_counts */
} baton__sizes_t;

typedef struct baton__collective {
    const char *noun;
    baton_collective_t kind;
    baton__span_t source, target;
    bool reduces, rooted;
    bool source_at_root, target_at_root; /* alone; others have none */
    bool chosen;                         /* its builder takes an algorithm */
    baton__sizes_t sizes;
} baton__collective_t;

extern const baton__collective_t baton__allreduce, baton__reduce,
    baton__reduce_scatter, baton__broadcast, baton__allgather, baton__barrier;

/* Checks the operands alone; `verb` is "create" or "now", for messages. */
baton_status_t baton__operands_check(const baton__collective_t *collective,
                                     const char *verb,
                                     const baton_group_t *group,
                                     const baton_operands_t *on);

/* Operands that were checked. On an error there is no schedule. */
baton_status_t baton__collective_create(const baton__collective_t *collective,
                                        const char *verb, baton_group_t *group,
                                        const baton_operands_t *on,
                                        baton_schedule_t **out);
