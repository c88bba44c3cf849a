#include "bench/bench.h"
#include <string.h>

/* The elements of a vector repeat after BENCH_PERIOD elements. The vector of
   each rank begins this many elements later in the period than that of the rank
   before. Elements are small integers, so the sum over 65,536 ranks is
   exact. */
enum { RANK_STEP = 31 };

static float element(int rank, size_t i)
{
    size_t place = i + (size_t)rank * RANK_STEP;
    return (float)(1 + place % BENCH_PERIOD);
}

void bench_operation_init(bench_operation_t *operation,
                          baton_collective_t collective, int rank, int ranks,
                          uint64_t bytes)
{
    const baton_collective_facts_t *facts = baton_collective_facts(collective);
    bool blocks = facts->source == BATON_SPAN_BLOCKS ||
                  facts->target == BATON_SPAN_BLOCKS;
    size_t parts = blocks ? (size_t)ranks : 1;
    size_t part_bytes = parts * sizeof(float);
    size_t block = ((size_t)bytes + part_bytes - 1) / part_bytes;
    const size_t counts[] = {
        [BATON_SPAN_PART] = block, [BATON_SPAN_BLOCKS] = block * parts};
    *operation = (bench_operation_t){
        .collective = collective,
        .rank = rank,
        .ranks = ranks,
        .roots = facts->rooted ? ranks : 1,
        .count = block * parts,
        .block = block,
        .source_count = counts[facts->source],
        .target_count = counts[facts->target],
    };
    for (size_t i = 0; i < BENCH_PERIOD * (size_t)ranks; i++) {
        operation->sums[i % BENCH_PERIOD] +=
            element((int)(i / BENCH_PERIOD), i % BENCH_PERIOD);
    }
}

/* Fills a vector with the rank's elements. If `rank` is negative, fills it with
   -1. Computes the first period, and copies it to the others. */
static void bench_operation_fill_vector(float *vector, size_t count, int rank)
{
    size_t done = count < BENCH_PERIOD ? count : BENCH_PERIOD;
    for (size_t i = 0; i < done; i++) {
        vector[i] = rank < 0 ? -1 : element(rank, i);
    }
    while (done < count) {
        size_t more = count - done < done ? count - done : done;
        memcpy(&vector[done], vector, more * sizeof(float));
        done += more;
    }
}

void bench_operation_fill(bench_operation_t *operation)
{
    bool sends_target = operation->collective == BATON_COLLECTIVE_BROADCAST &&
                        operation->rank == operation->root;
    bench_operation_fill_vector(operation->source, operation->source_count,
                                operation->rank);
    if (!operation->in_place) {
        bench_operation_fill_vector(operation->target, operation->target_count,
                                    sends_target ? 0 : -1);
    }
}

float bench_operation_expected(const bench_operation_t *operation, size_t i)
{
    /* The index of the first element of this rank's block. */
    size_t first = (size_t)operation->rank * operation->block;
    int from = (int)(i / operation->block);
    switch ((int)operation->collective) {
    case BATON_COLLECTIVE_ALLREDUCE:
    case BATON_COLLECTIVE_REDUCE:
        return operation->sums[i % BENCH_PERIOD];
    case BATON_COLLECTIVE_REDUCE_SCATTER:
        return operation->sums[(first + i) % BENCH_PERIOD];
    case BATON_COLLECTIVE_ALLGATHER:
    case BATON_COLLECTIVE_GATHER:
        return element(from, i % operation->block);
    case BATON_COLLECTIVE_ALLTOALL:
        return element(from, first + i % operation->block);
    case BATON_COLLECTIVE_SCATTER:
        return element(operation->root, first + i);
    default:
        return element(0, i);
    }
}

/* Returns whether every later period of the target equals the first one. */
static bool repeats(const bench_operation_t *operation)
{
    size_t count = operation->target_count;
    return count > BENCH_PERIOD &&
           memcmp(&operation->target[BENCH_PERIOD], operation->target,
                  (count - BENCH_PERIOD) * sizeof(float)) == 0;
}

size_t bench_operation_check(const bench_operation_t *operation)
{
    size_t count = operation->target_count;
    if (baton_collective_facts(operation->collective)->target_at_root &&
        operation->rank != operation->root) {
        return count; /* this rank has got no result in the last call */
    }
    if (operation->collective == BATON_COLLECTIVE_ALLREDUCE &&
        repeats(operation)) {
        count = BENCH_PERIOD;
    }
    for (size_t i = 0; i < count; i++) {
        float expected = bench_operation_expected(operation, i);
        if (!(operation->target[i] >= expected &&
              operation->target[i] <= expected)) {
            return i;
        }
    }
    return operation->target_count;
}
