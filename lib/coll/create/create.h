/* Collectives by one call. create.c creates a schedule from operands: it checks
   them, binds the vectors, calls the builder of coll.h, and commits. now.c
   keeps such schedules with the group, finds them by the arguments that are the
   same on all ranks, and binds the vectors of each call. */
#pragma once

#include <baton/tuning.h>

/* The operands that give the lengths of the blocks. */
typedef enum baton__sizes {
    BATON__SIZES_EQUAL, /* `count`, which is the length of each block */
    /* `counts` if it is not NULL, otherwise `count`. All ranks must give the
       same one of them. */
    BATON__SIZES_EITHER,
    BATON__SIZES_COUNTS, /* `counts`, which all ranks give */
    BATON__SIZES_ROOT,   /* `counts` at the root, `count` on other ranks */
    /* `counts` for the source, `target_counts` for the target. */
    BATON__SIZES_PAIR
} baton__sizes_t;

typedef struct baton__collective {
    const char *noun;
    baton_collective_t kind;
    const baton_collective_facts_t *facts;
    /* The collective has several algorithms, of which the operands may name
       one. */
    bool chosen;
    baton__sizes_t sizes;
} baton__collective_t;

extern const baton__collective_t baton__allreduce, baton__reduce,
    baton__reduce_scatter, baton__broadcast, baton__allgather, baton__barrier;

/* Checks the operands of a call, before a schedule exists. `verb` ("create" or
   "now") is part of the function's name in error messages. */
baton_status_t baton__operands_check(const baton__collective_t *collective,
                                     const char *verb,
                                     const baton_group_t *group,
                                     const baton_operands_t *on);

/* Checks the operands, and creates and commits a schedule. If it fails, no
   schedule is left. */
baton_status_t baton__collective_create(const baton__collective_t *collective,
                                        const char *verb, baton_group_t *group,
                                        const baton_operands_t *on,
                                        baton_schedule_t **out);
