/* A dense collective on known data: what each rank has, and what it must get.
 */
#ifndef MICROBENCH_BENCH_OPERATION_H
#define MICROBENCH_BENCH_OPERATION_H

#include <baton/tuning.h>

enum { BENCH_PERIOD = 251 };

/* One rank's part. The whole vector has `count` f32 elements, a whole number of
   blocks where ranks have blocks: broadcast, reduce and all-reduce move all of
   it, reduce-scatter leaves a block on each rank, all-gather and gather join
   the ranks' blocks, scatter and all-to-all split a vector into blocks. A
   broadcast has a target alone. Any rank may be the root, so every rank has
   the memory that a root needs. */
typedef struct bench_operation {
    baton_collective_t collective;
    int rank, ranks;
    int root, roots; /* of the next call; how many take turns: 1 or `ranks` */
    float sums[BENCH_PERIOD]; /* of all ranks' elements; they repeat */
    size_t count, block;
    size_t source_count, target_count;
    float *source, *target;
} bench_operation_t;

/* Describes a vector of `bytes`, rounded up to whole blocks. Sets everything
   but the memory, which the caller provides: source_count and target_count
   elements. */
void bench_operation_init(bench_operation_t *operation,
                          baton_collective_t collective, int rank, int ranks,
                          uint64_t bytes);

/* Fills the source, and the target with what no result can be. What a
   broadcast sends is in the target of the root, which must be set; it stays
   the same whoever sends it on. */
void bench_operation_fill(bench_operation_t *operation);

/* Returns the first wrong element of what the last call, of this root, gave to
   this rank, or target_count. */
size_t bench_operation_check(const bench_operation_t *operation);

/* The element that the target must have. */
float bench_operation_expected(const bench_operation_t *operation, size_t i);

#endif
