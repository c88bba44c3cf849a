/* Null contributions: ranks that contribute nothing to an epoch. An all-reduce
   that supports them sends no payload for such a rank and reduces only what the
   others contributed. Each vector then has a length at run time: all of its
   bytes, or none. */
#pragma once

#include <baton/coll.h>

/* A vector that may be empty in an epoch; or is whole in each, which its length
   says. */
typedef struct baton__maybe_vector {
    baton_view_t view;
    baton_length_t length;
} baton__maybe_vector_t;

#define BATON__WHOLE ((baton_length_t){UINT32_MAX})

static inline bool baton__is_whole(baton_length_t length)
{
    return length.index == BATON__WHOLE.index;
}

/* What a rank of a tree adds up: its own vector and those of its children. */
enum { BATON__FLAT_RANKS = 64 };
typedef struct baton__gathered {
    baton_length_t own;
    baton_length_t own_alone; /* all bytes, if the first child gave nothing */
    baton_length_t out;
    uint32_t count;
    baton_length_t children[BATON__FLAT_RANKS];
} baton__gathered_t;

/* What baton_allreduce_args_t.given points to. The partial collective owns it,
   and keeps it as long as the schedule. */
struct baton_given {
    /* A call node before the builder's nodes sets its length. Where that is 0
       the vector has the neutral element. */
    baton__maybe_vector_t source;
    bool known; /* set by a builder that supports this */
    /* The vector in the target: empty where no rank contributed. */
    const baton_op_t *op;
    baton_dtype_t dtype;
    baton__maybe_vector_t result;
    /* The neutral element, for averages and in device memory. The host can't
       fill that: as many bytes of it as `missing` says are copied. */
    bool on_device;
    baton_view_t identity;
    baton_length_t missing;
    baton__gathered_t gathered;
};

/* The source of an all-reduce by a builder that supports `given`. It is whole
   unless `given` has it, and no other builder has taken that. (A composed
   builder passes its arguments on, perhaps with another source.) */
baton__maybe_vector_t baton__given_source(const baton_allreduce_args_t *args);

/* A new length, where `other` is no whole vector's. */
baton_length_t baton__length_like(baton_schedule_t *schedule,
                                  baton_length_t other);

/* Of a node, unless the vector is whole. */
void baton__limit_node(baton_schedule_t *schedule, baton_node_t node,
                       baton_length_t length);
baton_node_t baton__add_maybe_recv(baton_schedule_t *schedule, int peer,
                                   baton__maybe_vector_t data);
baton_node_t baton__add_maybe_send(baton_schedule_t *schedule, int peer,
                                   baton__maybe_vector_t data);

/* Adds the end of a builder, after `last`: where no rank contributed, the
   target gets the neutral element. Nothing, where the result is whole. */
void baton__add_result(baton_schedule_t *schedule,
                       const baton_allreduce_args_t *args,
                       baton_length_t length, baton_node_t last);

/* Flat tree: all ranks send their vectors to rank 0, which reduces them in the
   order of ranks, and broadcasts the result along a binomial tree. No rank
   between a rank and the root has to be awake, so it takes two turns on a
   processor of each rank, where a binomial tree takes up to log2 P more of its
   inner ones; but the root alone reduces. So it is for few vectors, and for at
   most BATON__FLAT_RANKS ranks. (allreduce_binomial.c) */
void baton__allreduce_flat(baton_schedule_t *schedule,
                           const baton_allreduce_args_t *args);

/* As baton_add_broadcast_binomial, of the bytes that data.length says. The root
   sets it before. */
void baton__broadcast_binomial(baton_schedule_t *schedule, int root,
                               baton__maybe_vector_t data);
