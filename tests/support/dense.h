/* Every dense builder, and for any of them its buffers, and whose data must be
   where in its result: one description for proofs, real data and times, on any
   transport. */
#pragma once

#include <baton/tuning.h>

/* An algorithm of the library's table, or one of the names that choose. */
typedef struct dense_builder {
    char name[64]; /* "allreduce_ring" */
    baton_algorithm_t algorithm;
    bool chooses; /* calls one of the others */
} dense_builder_t;

/* The i-th; NULL past the last one. */
const dense_builder_t *dense_builder_at(size_t i);
const dense_builder_t *dense_builder(const char *name);

/* One call. `count`: elements of a vector; of a rank's block where data is
   scattered or gathered. `varied`: blocks differ, some are empty. */
typedef struct dense_case {
    const dense_builder_t *builder;
    int size;
    int root;
    size_t count;
    size_t element; /* bytes */
    bool varied;
    bool in_place;
    baton_dtype_t dtype;
    const baton_op_t *op;
    size_t chunk_bytes;
    const char *algorithm; /* of a builder that chooses, or NULL */
    void *arg;
} dense_case_t;

/* Elements of a rank's source; 0 where it has none. */
size_t dense_source_count(const dense_case_t *c, int rank);

/* Room that a rank's memory must have, in elements: either. */
size_t dense_room(const dense_case_t *c, int rank);

bool dense_has_roots(const dense_builder_t *builder);
bool dense_can_vary(const dense_builder_t *builder);
bool dense_reduces(const dense_builder_t *builder);

/* `count` is of a rank's block, not of the vector. */
bool dense_counts_blocks(const dense_builder_t *builder);

/* Adds the builder's nodes for the schedule's rank. `source` and `target` are
   its memory (NULL: scratch), of dense_room elements each. */
void dense_build(const dense_case_t *c, baton_schedule_t *schedule,
                 void *source, void *target);

/* Where the source's data is put before an epoch, where the result is after
   it, and whether the source is left as it was. */
void *dense_input(const dense_case_t *c, int rank, void *source, void *target);
void *dense_output(const dense_case_t *c, int rank, void *source, void *target);
bool dense_keeps_source(const dense_case_t *c, int rank);

/* Calls fn for each piece of a rank's result: `count` elements at `at` of the
   target must be the reduction of elements `first`... of the sources of ranks
   low to high. */
typedef void (*dense_piece_fn)(void *arg, int low, int high, size_t first,
                               size_t count, size_t at);
void dense_pieces(const dense_case_t *c, int rank, dense_piece_fn fn,
                  void *arg);
