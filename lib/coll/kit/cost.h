/* The terms of the algorithms' formulas. The formula `cost` of an algorithm's
   record (baton_algorithm_t) is the time of an epoch in the simulator's model:
   a message takes alpha, a byte beta and a reduced byte gamma, and a rank sends
   one message and receives one message at a time. The formula `work` counts the
   messages, copies and reductions that the processors of a single host execute.
   If blocks and segments are equal, `cost` is exact in the cases for which the
   record's function `exact` returns true; tests/sim/test_dense_costs.c compares
   it with the simulator. */
#pragma once

#include <baton/tuning.h>

/* ---- terms ------------------------------------------------------------- */

typedef struct baton__terms {
    baton_cost_case_t of;
    double p, n; /* p: number of ranks. n: bytes of the vector. */
    /* Microseconds of a message, of each byte of a message, and of each reduced
       byte. */
    double alpha, beta, gamma;
    /* log2 of p, rounded up: the number of rounds of most algorithms. */
    double log;
    /* The number of ranks in the core of a fold (pattern.h): the largest power
       of two up to p. */
    double core;
    double core_log; /* log2 of `core` */
    double extra;    /* number of ranks outside the core: p - core */
    /* The bytes of a block: n / p. */
    double block;
    /* The bytes of all blocks but one: n (p - 1) / p. */
    double part;
    /* n (p - 1), the bytes if each rank but one gets the whole vector. */
    double others;
    /* The number of segments of the vector; 1 if there is no segment size. */
    double segments;
} baton__terms_t;

baton__terms_t baton__terms_of(const baton_cost_case_t *of);

/* Returns the number of segments into which `bytes` are cut, at least 1. It is
   1 if segment_bytes is 0. */
double baton__segments(double bytes, double segment_bytes);

double baton__message(const baton__terms_t *t, double bytes);
double baton__reduction(const baton__terms_t *t, double bytes);

/* Returns the time of a message in a round in which the two ranks of each pair
   are `distance` ranks apart. The distance is a power of two. The pairs are
   inside hosts if the number of ranks of a host is a multiple of twice the
   distance. */
double baton__message_over(const baton__terms_t *t, int64_t distance,
                           double bytes);

/* Returns the sum of baton__message_over for the distances 1, 2, 4, ... below
   `ranks`. The first message has `bytes` bytes. Each further message has as
   many bytes or, if `halved`, half as many as the one before it. */
double baton__messages_over(const baton__terms_t *t, double ranks, double bytes,
                            bool halved);

/* Returns the number of consecutive ranks that share a host. Returns 1 if ranks
   of a host are not consecutive. */
int baton__host_block(const baton__terms_t *t);

/* Returns false for an algorithm that the program has added
   (baton_algorithm_add), since nothing is known about its cost. */
static inline bool baton__has_cost(const baton_algorithm_t *algorithm)
{
    return algorithm->cost != NULL || algorithm->phases[0] != NULL;
}

/* Returns the cost by the algorithm's formula, in microseconds. If the
   algorithm consists of phases, adds up the costs of the phases. */
double baton__cost_of(const baton_algorithm_t *algorithm,
                      const baton__terms_t *t);

/* Returns the estimated time on several hosts: baton_algorithm_cost_us, and, if
   no ranks share a host, the additional time of reductions that do not fit in a
   cache. */
double baton__between_us(const baton_algorithm_t *algorithm,
                         const baton_cost_case_t *of);

/* ---- where a formula is exact ------------------------------------------ */

/* Returns true if the link between any two ranks costs the same. */
bool baton__exact_flat(const baton__terms_t *t);

/* Returns true if all links cost the same, and the number of ranks is a power
   of two. */
bool baton__exact_powers(const baton__terms_t *t);

/* Returns true if all links cost the same, or if each host has 2^k ranks and
   there are 2^l ranks in all. */
bool baton__exact_paired(const baton__terms_t *t);

/* Returns true if all links cost the same, and reducing a segment takes no
   longer than its message. */
bool baton__exact_pipeline(const baton__terms_t *t);

/* Returns true if all links cost the same, and reductions cost nothing. */
bool baton__exact_free(const baton__terms_t *t);

/* ---- work on one host -------------------------------------------------- */

typedef struct baton__work {
    double messages;
    /* Bytes that are copied out of messages, or between buffers. */
    double bytes;
    double reduced; /* bytes that are reduced */
} baton__work_t;

typedef struct baton__works {
    baton__work_t most; /* the work of the rank that has the most work */
    baton__work_t all;  /* the work of all ranks together */
    /* True if a rank writes its finished block straight into its peers' memory,
       so that the peers need not copy the block. */
    bool written;
    /* True if no rank forwards data that it has received. Then no message waits
       for another one, and the longest path is the work of one rank, `most`. */
    bool direct;
    /* The bytes that one rank has received or reduced, and that another rank
       then reads. They move from one processor's cache to another's, which
       takes as long as a copy. */
    double passed;
} baton__works_t;

/* A function that returns the work for given terms. The record of an algorithm
   has a pointer to this struct instead of the function, so that parsers of the
   public headers need not know baton__works_t. */
typedef struct baton__work_model {
    baton__works_t (*of)(const baton__terms_t *terms);
} baton__work_model_t;

/* The bytes of the second-level cache that the estimates assume; see cost.c. */
#define BATON__CACHED_BYTES 2097152.0

bool baton__has_processor_each(const baton__terms_t *t);

/* Returns the works of a collective in which all ranks have the same share of
   the work `all`. `passed` is the field of this name. */
baton__works_t baton__evenly(const baton__terms_t *t, baton__work_t all,
                             double passed);

/* Returns the work of two phases that run one after the other. */
baton__works_t baton__both(baton__works_t first, baton__works_t second);

/* Returns the field `passed` of a collective in which each block goes through
   all ranks: by a ring or a chain, or by a tree for each block. */
double baton__passed_on(const baton__terms_t *t);

/* Returns the field `passed` of a collective in which sums go up a single
   binomial tree. */
double baton__passed_up(const baton__terms_t *t);

/* Returns the bytes of all messages of a scatter or gather along a binomial
   tree. Each rank except the root has one message, with the blocks of its
   subtree. The subtree of rank r, counted from the root, has as many ranks as
   the value of r's lowest set bit, or fewer if there are not as many. */
double baton__scattered(const baton__terms_t *t);
