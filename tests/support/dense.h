/* Describes the cases of every dense builder: the buffers of a rank, and the
   ranks whose data each part of its result must contain. Proofs, tests with
   real data, and measurements use this description, with any transport. */
#pragma once

#include <baton/tuning.h>

/* An algorithm of the library's table, or a builder that chooses one. */
typedef struct dense_builder {
    char name[64]; /* such as "allreduce_ring" */
    baton_algorithm_t algorithm;
    bool chooses; /* the builder calls another builder, which it chooses */
} dense_builder_t;

/* Returns the i-th builder, or NULL after the last one. */
const dense_builder_t *dense_builder_at(size_t i);
const dense_builder_t *dense_builder(const char *name);

/* One call of a builder. */
typedef struct dense_case {
    const dense_builder_t *builder;
    int size;
    int root;
    /* The number of elements of a vector or, if data are scattered or gathered,
       of a rank's block. */
    size_t count;
    size_t element; /* bytes of an element */
    bool varied;    /* blocks differ in size, and some are empty */
    bool in_place;
    baton_dtype_t dtype;
    const baton_op_t *op;
    size_t chunk_bytes;
    /* For a builder that chooses an algorithm: the algorithm that it is told to
       use. NULL: the builder chooses. */
    const char *algorithm;
    void *arg;
    /* Errors to make in the views of the source [0] and the target [1]: their
       fields are added to the fields of the views. */
    baton_view_t wrong[2];
    bool no_args; /* the builder gets NULL */
} dense_case_t;

/* Return the number of elements of a rank's source or target. Return 0 if it
   has none. */
size_t dense_source_count(const dense_case_t *c, int rank);
size_t dense_target_count(const dense_case_t *c, int rank);

/* Returns the number of elements for which a rank's source must have memory.
   Its target must have memory for as many. */
size_t dense_room(const dense_case_t *c, int rank);

bool dense_has_roots(const dense_builder_t *builder);
bool dense_can_vary(const dense_builder_t *builder);
bool dense_reduces(const dense_builder_t *builder);

/* Returns whether `count` is the number of elements of a rank's block, not of
   the vector. */
bool dense_counts_blocks(const dense_builder_t *builder);

/* Adds the builder's nodes for the schedule's rank. `source` and `target` are
   the rank's memory, of dense_room elements each. NULL: scratch memory is
   used. */
void dense_build(const dense_case_t *c, baton_schedule_t *schedule,
                 void *source, void *target);

/* dense_input returns the place where the source's data must be before an
   epoch. dense_output returns the place of the result after it.
   dense_keeps_source returns whether an epoch leaves the source unchanged. */
void *dense_input(const dense_case_t *c, int rank, void *source, void *target);
void *dense_output(const dense_case_t *c, int rank, void *source, void *target);
bool dense_keeps_source(const dense_case_t *c, int rank);

/* dense_pieces calls fn for each piece of a rank's result. The piece is `count`
   elements of the target, from index `at` on. It must be the reduction of the
   sources of ranks low to high, from index `first` on. */
typedef void (*dense_piece_fn)(void *arg, int low, int high, size_t first,
                               size_t count, size_t at);
void dense_pieces(const dense_case_t *c, int rank, dense_piece_fn fn,
                  void *arg);
