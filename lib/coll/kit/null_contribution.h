/* Null contributions: ranks that contribute nothing to an epoch. An all-reduce
   that supports them sends no payload for such a rank and reduces only the
   vectors of the others. Each vector then has a length at run time: all of its
   bytes, or none. */
#pragma once

#include <baton/coll.h>

/* A vector that has all of its bytes or none in an epoch, as its length says.
   If the length is BATON__WHOLE, the vector always has all bytes. */
typedef struct baton__maybe_vector {
    baton_view_t view;
    baton_length_t length;
} baton__maybe_vector_t;

#define BATON__WHOLE ((baton_length_t){UINT32_MAX})

static inline bool baton__is_whole(baton_length_t length)
{
    return length.index == BATON__WHOLE.index;
}

/* A rank of a tree adds up its own vector and the partial sums of its `count`
   children, at most BATON__FLAT_RANKS of them. baton__gathered_t has the
   lengths of these vectors (own, children), and of the sum (out). */
enum { BATON__FLAT_RANKS = 64 };
typedef struct baton__gathered {
    baton_length_t own;
    /* The bytes of the rank's own vector if the first child has contributed
       nothing; otherwise 0. */
    baton_length_t own_if_first;
    baton_length_t out;
    uint32_t count;
    baton_length_t children[BATON__FLAT_RANKS];
} baton__gathered_t;

/* The struct to which baton_allreduce_args_t.given points. The partial
   collective owns it, and keeps it as long as the schedule. */
struct baton_given {
    /* The source. A call node that comes before the builder's nodes sets its
       length. If the length is 0, the memory contains the neutral element. */
    baton__maybe_vector_t source;
    bool known; /* the builder supports `given`, and has used `source` */
    /* `result` is the vector in the target, `op` the reduction that makes it,
       and `dtype` its element type. The vector is empty if no rank has
       contributed. */
    const baton_op_t *op;
    baton_dtype_t dtype;
    baton__maybe_vector_t result;
    /* True if the target is in device memory, so that the host can't fill
       it. */
    bool on_device;
    /* A vector of neutral elements: an operand of the division by which
       averages end, and the source of the copy that fills a target in device
       memory. */
    baton_view_t identity;
    /* The number of bytes of `identity` to copy to the target; 0 if there is a
       result. */
    baton_length_t missing;
    baton__gathered_t gathered;
};

/* Returns the source of an all-reduce, for a builder that supports `given`. The
   source is given->source if that has the same memory as args->source, and if
   no other builder has used it; otherwise the source is args->source, which
   always has all of its bytes. (A builder that calls other builders passes
   `given` on to them, perhaps with another source.) */
baton__maybe_vector_t baton__maybe_source(const baton_allreduce_args_t *args);

/* Returns a new length of the schedule. If `other` is BATON__WHOLE, returns
   BATON__WHOLE. */
baton_length_t baton__length_like(baton_schedule_t *schedule,
                                  baton_length_t other);

/* Gives the node this length (baton_set_length): a receive sets the length in
   each epoch, and another node works on that many bytes. Does nothing if the
   length is BATON__WHOLE. */
void baton__limit_node(baton_schedule_t *schedule, baton_node_t node,
                       baton_length_t length);
baton_node_t baton__add_maybe_recv(baton_schedule_t *schedule, int peer,
                                   baton__maybe_vector_t data);
baton_node_t baton__add_maybe_send(baton_schedule_t *schedule, int peer,
                                   baton__maybe_vector_t data);

/* Adds the last nodes of a builder, after `last`: if no rank has contributed,
   they fill the target with the neutral element. Adds nothing if `length` is
   BATON__WHOLE. */
void baton__add_result(baton_schedule_t *schedule,
                       const baton_allreduce_args_t *args,
                       baton_length_t length, baton_node_t last);
