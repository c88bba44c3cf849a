/* The terms of the algorithms' formulas. A cost is a closed form in the
   simulator's model: a message takes alpha, a byte beta and a reduced byte
   gamma, and a rank sends one message and receives one message at a time. Work
   is done by the processors of a host. Formulas are exact for equal blocks and
   segments where the record's `exact` says so; tests/sim/test_dense_costs.c
   compares them with the simulator. */
#pragma once

#include <baton/tuning.h>

/* ---- terms ------------------------------------------------------------- */

typedef struct baton__terms {
    baton_cost_case_t of;
    double p, n;               /* ranks; bytes of the vector */
    double alpha, beta, gamma; /* us */
    double log;                /* log2 of p, rounded up: the number of rounds */
    double core;     /* the largest power of two up to p; pattern.h, fold */
    double core_log; /* log2 of `core` */
    double extra;    /* ranks outside the core */
    double block;    /* n / p */
    double part;     /* (p-1) / p n */
    double others;   /* (p-1) n: the vector once for each rank but one */
    double segments; /* segments of the vector; 1 without a segment size */
} baton__terms_t;

baton__terms_t baton__terms_of(const baton_cost_case_t *of);

/* Returns how many segments `bytes` are cut into, at least 1; 1 if
   segment_bytes is 0. */
double baton__segments(double bytes, double segment_bytes);

double baton__message(const baton__terms_t *t, double bytes);
double baton__reduction(const baton__terms_t *t, double bytes);

/* Returns the time of a message in a round in which the ranks of a pair are
   `distance` apart, a power of two. The pairs are inside hosts if the number of
   ranks of a host is a multiple of twice the distance. */
double baton__message_over(const baton__terms_t *t, int64_t distance,
                           double bytes);

/* Returns the sum of baton__message_over for all powers of two below `ranks` as
   the distance. The first message has `bytes` bytes. Each other message has as
   many or, if `halved`, half of the one before it. */
double baton__messages_over(const baton__terms_t *t, double ranks, double bytes,
                            bool halved);

/* Returns how many consecutive ranks share a host; 1 if hosts have no blocks of
   consecutive ranks. */
int baton__host_block(const baton__terms_t *t);

/* Returns the cost by the algorithm's formula, or by those of its phases. */
double baton__cost_of(const baton_algorithm_t *algorithm,
                      const baton__terms_t *t);

/* Returns the time between hosts: baton_algorithm_cost_us, and, if no ranks
   share a host, the extra time of reductions that do not fit in a cache. */
double baton__between_us(const baton_algorithm_t *algorithm,
                         const baton_cost_case_t *of);

/* ---- where a formula is exact ------------------------------------------ */

/* True if all links are alike. */
bool baton__exact_flat(const baton__terms_t *t);

/* True if all links are alike, and the number of ranks is a power of two. */
bool baton__exact_powers(const baton__terms_t *t);

/* True if all links are alike, or if hosts have 2^k ranks each, 2^l in all. */
bool baton__exact_paired(const baton__terms_t *t);

/* True if all links are alike, and reducing a segment takes no longer than its
   message. */
bool baton__exact_pipeline(const baton__terms_t *t);

/* True if all links are alike, and reductions cost nothing. */
bool baton__exact_free(const baton__terms_t *t);

/* ---- work on one host -------------------------------------------------- */

typedef struct baton__work {
    double messages;
    double bytes;   /* bytes copied out of messages, or between buffers */
    double reduced; /* bytes that are reduced */
} baton__work_t;

typedef struct baton__works {
    baton__work_t most; /* of the rank with the most work */
    baton__work_t all;  /* of all ranks together */
    bool written; /* the rank that has made a block writes it to its peers */
    bool direct;  /* nothing is passed on: the longest path is `most` */
    /* Bytes that one rank has received or reduced, and another reads. They go
       from one processor's cache to another's, which costs as much as a copy.
     */
    double passed;
} baton__works_t;

/* A function of the terms. It is in a struct because an algorithm's record
   points to it: so parsers of the public headers need not know its result type.
 */
typedef struct baton__work_model {
    baton__works_t (*of)(const baton__terms_t *terms);
} baton__work_model_t;

#define BATON__CACHED_BYTES 2097152.0 /* a second-level cache; see cost.c */

bool baton__has_processor_each(const baton__terms_t *t);

/* Returns `all` divided evenly among the ranks. */
baton__works_t baton__evenly(const baton__terms_t *t, baton__work_t all,
                             double passed);

/* Returns the work of two phases that run one after the other. */
baton__works_t baton__both(baton__works_t first, baton__works_t second);

/* Returns the bytes that are passed on if each block goes through all ranks, by
   a ring, a chain or a tree of its own. */
double baton__passed_on(const baton__terms_t *t);

/* Returns the bytes that are passed on if sums go up one binomial tree. */
double baton__passed_up(const baton__terms_t *t);

/* Returns the bytes of all messages of a scatter or gather along a binomial
   tree. Each rank except the root has a message with the blocks of its subtree,
   which has as many ranks as the lowest set bit of the rank's number, or as
   many as are left. */
double baton__scattered(const baton__terms_t *t);
