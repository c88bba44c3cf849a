/* Null contributions: ranks that contribute nothing to an epoch. An all-reduce
   that supports them sends no payload for such a rank and reduces only the
   vectors of the others. Each vector then has a length at run time: all of its
   bytes, or none. */
#pragma once

#include <baton/coll.h>

/* A vector that may be empty in an epoch; or, if its length is BATON__WHOLE, is
   always whole. */
typedef struct baton__maybe_vector {
    baton_view_t view;
    baton_length_t length;
} baton__maybe_vector_t;

#define BATON__WHOLE ((baton_length_t){UINT32_MAX})

static inline bool baton__is_whole(baton_length_t length)
{
    return length.index == BATON__WHOLE.index;
}

/* Lengths of the vectors that a rank of a tree adds up: its own, and those of
   its children. */
enum { BATON__FLAT_RANKS = 64 };
typedef struct baton__gathered {
    baton_length_t own;
    baton_length_t own_alone; /* all bytes if the first child gave nothing */
    baton_length_t out;
    uint32_t count;
    baton_length_t children[BATON__FLAT_RANKS];
} baton__gathered_t;

/* baton_allreduce_args_t.given points to this. The partial collective owns it,
   and keeps it as long as the schedule. */
struct baton_given {
    /* A call node before the builder's nodes sets the length of the source. If
       the length is 0, the vector contains the neutral element. */
    baton__maybe_vector_t source;
    bool known; /* a builder supports `given`, and uses `source` */
    /* The result in the target, and its reduction. The result is empty if no
       rank contributed. */
    const baton_op_t *op;
    baton_dtype_t dtype;
    baton__maybe_vector_t result;
    /* The target is in device memory, which the host can't fill. */
    bool on_device;
    /* The neutral element; used for averages, and on devices. */
    baton_view_t identity;
    baton_length_t missing; /* bytes of `identity` to copy to the target */
    baton__gathered_t gathered;
};

/* Returns the source of an all-reduce for a builder that supports `given`:
   given->source, if it is the builder's source and no other builder has taken
   it; else the source of `args`, which is whole. (A composed builder passes its
   arguments on, perhaps with another source.) */
baton__maybe_vector_t baton__given_source(const baton_allreduce_args_t *args);

/* Returns a new length or, if `other` is BATON__WHOLE, returns that. */
baton_length_t baton__length_like(baton_schedule_t *schedule,
                                  baton_length_t other);

/* Sets the length of a node, unless the vector is whole. */
void baton__limit_node(baton_schedule_t *schedule, baton_node_t node,
                       baton_length_t length);
baton_node_t baton__add_maybe_recv(baton_schedule_t *schedule, int peer,
                                   baton__maybe_vector_t data);
baton_node_t baton__add_maybe_send(baton_schedule_t *schedule, int peer,
                                   baton__maybe_vector_t data);

/* Adds the end of a builder, after `last`: if no rank contributed, the target
   gets the neutral element. Adds nothing if the result is always whole. */
void baton__add_result(baton_schedule_t *schedule,
                       const baton_allreduce_args_t *args,
                       baton_length_t length, baton_node_t last);
