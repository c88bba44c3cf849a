/* Ranks that have nothing to give. An all-reduce that knows sends no payload
   for them, and reduces what the others gave: a vector then has a length in the
   epoch, all of its bytes or none. */
#ifndef BATON_COLL_GIVEN_H
#define BATON_COLL_GIVEN_H

#include <baton/coll.h>

/* A vector that may be empty in an epoch. */
typedef struct baton__maybe_vector {
    baton_view_t view;
    baton_length_t length;
} baton__maybe_vector_t;

/* target = left (op) right, or whichever of the two there is. */
typedef struct baton__merge {
    baton_length_t left, right;
    baton_length_t both, left_alone, right_alone; /* what nodes work on */
    baton_length_t out;
} baton__merge_t;

enum { BATON__MERGES = 40 }; /* at most one a round, and a fold */

/* Behind baton_allreduce_t.given; of the partial that asks for it, which keeps
   it as long as the schedule. */
struct baton_given {
    baton__maybe_vector_t source; /* its length is set by a call node ahead of
                                     the builder's nodes */
    bool known;                   /* the builder's answer: that it heeds this */
    /* What the target has got: nothing where no rank gave anything. */
    const baton_op_t *op;
    baton_dtype_t dtype;
    baton__maybe_vector_t result;
    uint32_t merge_count;
    baton__merge_t merges[BATON__MERGES];
};

/* Whether the builder that got these arguments is to heed `given`: its source
   is the one that may be empty, and no other builder has done so. A builder
   made of several passes its arguments on, perhaps with another source. */
bool baton__given_applies(const baton_allreduce_t *args);

/* What a merge added. */
typedef struct baton__merged {
    baton_node_t first, last;
    baton__maybe_vector_t sum;
} baton__merged_t;

/*     left.length, right.length --> first: call --> reduce --> copy --> last

   The copies of an operand that is the target already are left out. What sets
   the lengths comes before `first`; that is the caller's. */
baton__merged_t baton__add_merge(baton_schedule_t *schedule,
                                 const baton_allreduce_t *args,
                                 baton_view_t target,
                                 baton__maybe_vector_t left,
                                 baton__maybe_vector_t right);

/* The end of a builder, behind `last`: where nothing has come, the target gets
   the neutral element. */
void baton__add_result(baton_schedule_t *schedule,
                       const baton_allreduce_t *args, baton_length_t length,
                       baton_node_t last);

/* The builders of the same name, where args->given is not NULL. */
void baton__allreduce_binomial_given(baton_schedule_t *schedule,
                                     const baton_allreduce_t *args);
void baton__allreduce_recursive_doubling_given(baton_schedule_t *schedule,
                                               const baton_allreduce_t *args);

/* As baton_broadcast_binomial, of as many bytes as the length says; on the root
   it is set before. */
void baton__broadcast_binomial_given(baton_schedule_t *schedule, int root,
                                     baton__maybe_vector_t data);

#endif
