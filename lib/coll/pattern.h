/* Peer arithmetic of the builders: pure functions of rank, size and count. */
#ifndef BATON_COLL_PATTERN_H
#define BATON_COLL_PATTERN_H

#include <stddef.h>
#include <stdint.h>

/* The rank that lies `distance` further around the ring; distances may be
   negative and longer than the ring. */
static inline int baton__rank_shift(int rank, int64_t distance, int size)
{
    int64_t shifted = ((int64_t)rank + distance) % size;
    return (int)(shifted < 0 ? shifted + size : shifted);
}

/* Rounds that double their reach until it covers `size` ranks: 0 for one rank,
   3 for 5 to 8. */
static inline int baton__log2_ceil(int size)
{
    int rounds = 0;
    while (((int64_t)1 << rounds) < size) {
        rounds++;
    }
    return rounds;
}

/* Elements [first, first + count) of a vector. */
typedef struct baton__block {
    size_t first;
    size_t count;
} baton__block_t;

/* Part `index` of `parts` of a vector of `count` elements. Sizes differ by at
   most one, larger ones first: 11 in 4 is 3, 3, 3, 2. */
static inline baton__block_t baton__block_of(size_t count, size_t parts,
                                             size_t index)
{
    size_t quotient = count / parts;
    size_t larger = count % parts;
    baton__block_t block = {
        .first = index * quotient + (index < larger ? index : larger),
        .count = quotient + (index < larger ? 1 : 0),
    };
    return block;
}

/* Algorithms for powers of two run on a core of them. The first 2 * extra ranks
   form pairs, of which the even rank is in the core and speaks for both; the
   others are in the core by themselves. Ranks and core ids are in the same
   order. 6 ranks, a core of 4, 2 extra:

       rank   0   1   2   3   4   5
              0 <-+   1 <-+   2   3   id
*/
typedef struct baton__fold {
    int core;    /* the largest power of two up to the number of ranks */
    int extra;   /* ranks outside the core */
    int id;      /* this rank's in the core, -1 outside */
    int partner; /* the other rank of this rank's pair, -1 without */
} baton__fold_t;

static inline baton__fold_t baton__fold_of(int rank, int size)
{
    baton__fold_t fold = {.core = 1, .id = -1, .partner = -1};
    while (fold.core <= size / 2) {
        fold.core *= 2;
    }
    fold.extra = size - fold.core;
    if (rank >= 2 * fold.extra) {
        fold.id = rank - fold.extra;
    } else {
        fold.partner = rank ^ 1;
        fold.id = rank % 2 == 0 ? rank / 2 : -1;
    }
    return fold;
}

/* The rank that has this id in the core. */
static inline int baton__fold_rank(const baton__fold_t *fold, int id)
{
    return id < fold->extra ? 2 * id : id + fold->extra;
}

#endif
