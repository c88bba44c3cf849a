/* Peer arithmetic of the builders: pure functions of rank, size and count. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the rank that is `distance` further around the ring. Distances may be
   negative and longer than the ring. */
static inline int baton__rank_shift(int rank, int64_t distance, int size)
{
    int64_t shifted = ((int64_t)rank + distance) % size;
    return (int)(shifted < 0 ? shifted + size : shifted);
}

/* Returns the number of rounds after which all `size` ranks are reached, if
   each round doubles the number of ranks reached: 0 for one rank, 3 for 5 to
   8. */
static inline int baton__log2_ceil(int size)
{
    int rounds = 0;
    while (((int64_t)1 << rounds) < size) {
        rounds++;
    }
    return rounds;
}

/* Returns how many of the ascending `numbers` are below a bound. */
static inline size_t baton__count_below(const uint32_t *numbers, size_t count,
                                        uint64_t bound)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        bool below = numbers[middle] < bound;
        low = below ? middle + 1 : low;
        high = below ? high : middle;
    }
    return low;
}

/* Elements first to first + count - 1 of a vector. */
typedef struct baton__block {
    size_t first;
    size_t count;
} baton__block_t;

/* Returns part `index` of a vector of `count` elements that is cut into `parts`
   parts. The sizes of parts differ by at most one element, and the larger parts
   come first: 11 elements in 4 parts have sizes 3, 3, 3, 2. */
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

/* Algorithms for 2^k ranks run on a core of 2^k ranks. The first 2 * extra
   ranks form pairs. The even rank of a pair is in the core and takes part for
   both: it speaks for two. The ranks without a pair are in the core by
   themselves. Ranks and core ids are in the same order. 6 ranks, a core of 4, 2
   extra:

       rank   0   1   2   3   4   5
              0 <-+   1 <-+   2   3   id
*/
typedef struct baton__fold {
    int core;  /* the largest power of two up to the number of ranks */
    int extra; /* number of ranks outside the core */
    int id;    /* this rank's id in the core; -1: the rank is outside */
    /* The other rank of this rank's pair; -1: the rank is in no pair. */
    int partner;
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

/* Returns the rank whose id in the core is `id`. */
static inline int baton__fold_rank(const baton__fold_t *fold, int id)
{
    return id < fold->extra ? 2 * id : id + fold->extra;
}

/* Turns the offsets of the ranks' blocks into those of the core's blocks: the
   block of a rank that speaks for two consists of the blocks of both, which are
   adjacent. */
static inline void baton__fold_unite(const baton__fold_t *fold, int size,
                                     size_t *at)
{
    for (int id = 0; id < fold->core; id++) {
        at[id] = at[baton__fold_rank(fold, id)];
    }
    at[fold->core] = at[size];
}

/* Ids of a binomial tree are ranks counted from its root. The subtree of an id
   is the ids [id, id + baton__binomial_span). The parent is the id without its
   lowest set bit. The children are id + 2^k for all 2^k below the span. */
static inline int baton__binomial_span(int id, int size)
{
    int64_t span = 1;
    while (id % (2 * span) == 0 && span < size) {
        span *= 2;
    }
    return (int)(id + span <= size ? span : size - id);
}

static inline int baton__binomial_parent(int id)
{
    return id & (id - 1);
}

static inline int baton__binomial_children(int id, int size)
{
    return baton__log2_ceil(baton__binomial_span(id, size));
}

static inline int baton__is_power_of_two(int value)
{
    return (value & (value - 1)) == 0;
}

/* In-order binary tree over the positions 1 to `last`. A position with one more
   factor of 2 is a level higher, so odd positions are leaves. The subtree of a
   left child has only lower positions, that of a right child only higher ones.
   0 means that there is no parent or child.

       last 6:        4
                    /   \
                  2       6
                 / \     /
                1   3   5                                                    */
typedef struct baton__tree {
    int parent;
    int left;
    int right;
} baton__tree_t;

static inline baton__tree_t baton__tree_of(int position, int last)
{
    int64_t bit = position & -position;
    int64_t above = (position - bit) | (2 * bit);
    baton__tree_t tree = {
        .parent = (int)(above <= last ? above : position - bit),
        .left = (int)(bit > 1 ? position - bit / 2 : 0),
    };
    int64_t step = bit / 2;
    while (step > 0 && position + step > last) {
        step /= 2;
    }
    tree.right = (int)(step > 0 ? position + step : 0);
    return tree;
}

/* Returns the root's position, which is the largest power of two up to `last`.
   Returns 0 if there is none. */
static inline int baton__tree_root(int last)
{
    int root = 1;
    while (root <= last / 2) {
        root *= 2;
    }
    return last > 0 ? root : 0;
}

/* Returns the neighbours of a rank, as ranks, in one of two binary trees over
   all ranks; -1 stands for none. Positions in a tree follow the order of ranks.
   In tree 0 rank r is at position r, and position 0 is above the root of the
   other positions. In tree 1 rank r is at position r + 1. So an inner rank of
   one tree is a leaf of the other, and the ranks of a subtree are consecutive.
   (Sanders, Speck, Traff 2009.) */
static inline baton__tree_t baton__twin_of(int rank, int size, int twin)
{
    int last = size - 1 + twin;
    int position = rank + twin;
    baton__tree_t tree = {-1, 0, baton__tree_root(last)};
    if (position > 0) {
        tree = baton__tree_of(position, last);
    }
    if (position > 0 && (twin == 0 || tree.parent > 0)) {
        tree.parent -= twin;
    } else {
        tree.parent = -1;
    }
    tree.left = tree.left > 0 ? tree.left - twin : -1;
    tree.right = tree.right > 0 ? tree.right - twin : -1;
    return tree;
}

/* Returns the position of an id in one of two trees that have a common root,
   position 0, which has one child in each tree. An id is a rank counted from
   the root. In tree 1 the ids 1 to P - 1 are shifted by one position, and the
   last of them is at the front. baton__twin_id is the inverse. */
static inline int baton__twin_position(int id, int size, int twin)
{
    return twin == 0 || id == 0 ? id : id % (size - 1) + 1;
}

static inline int baton__twin_id(int position, int size, int twin)
{
    return twin == 0 || position == 0 ? position
                                      : (position + size - 3) % (size - 1) + 1;
}

/* Returns the number of blocks that a rank has before a step of an all-gather
   on a circulant graph, if it has `have` blocks after the step. If `doubled`,
   the numbers are 1, 2, 4, ... (Bruck). Otherwise each number is half of the
   next one, rounded up: ..., ceil(size / 2), size. Then the blocks that a step
   adds are as many as those that the rank has already, or one fewer. A
   reduce-scatter takes the same steps in the opposite order. */
static inline int baton__circulant_less(int have, int doubled)
{
    if (!doubled) {
        return have / 2 + have % 2;
    }
    int64_t power = 1;
    while (2 * power < have) {
        power *= 2;
    }
    return (int)power;
}
