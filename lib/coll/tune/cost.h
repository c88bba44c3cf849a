/* What the algorithms' formulas are written in: closed forms in the simulator's
   model (alpha a message, beta a byte, gamma a reduced byte, ranks that send
   one message at a time and receive one), and the work of a host's processors.
   Formulas are exact for equal blocks and segments where the record's `exact`
   says so; tests/sim/test_dense_costs.c compares them with the simulator. */
#pragma once

#include <baton/tuning.h>

/* ---- terms ------------------------------------------------------------- */

typedef struct baton__terms {
    baton_cost_case_t of;
    double p, n;               /* ranks; bytes of the vector */
    double alpha, beta, gamma; /* us */
    double log;                /* of p, rounded up: rounds */
    double core;     /* the largest power of two up to p; pattern.h, fold */
    double core_log; /* its rounds */
    double extra;    /* ranks outside the core */
    double block;    /* n / p */
    double part;     /* (p-1) / p n */
    double others;   /* (p-1) n: the vector once for each rank but one */
    double segments; /* of the vector; 1 without a segment size */
} baton__terms_t;

baton__terms_t baton__terms_of(const baton_cost_case_t *of);

/* How many segments of the case's size `bytes` are, at least 1. */
double baton__segments(double bytes, double segment_bytes);

double baton__message(const baton__terms_t *t, double bytes);
double baton__reduction(const baton__terms_t *t, double bytes);

/* A message in a round in which ranks `distance` apart, a power of two, talk:
   inside a host if its ranks are blocks of twice as many. */
double baton__message_over(const baton__terms_t *t, int64_t distance,
                           double bytes);

/* One such message for each distance below `ranks`; `bytes` in the first, in
   the next ones as many, or half as many each time. */
double baton__messages_over(const baton__terms_t *t, double ranks, double bytes,
                            bool halved);

/* Where ranks share hosts: so many of them follow one another on each. */
int baton__host_block(const baton__terms_t *t);

/* By the algorithm's formula, or its phases'. */
double baton__cost_of(const baton_algorithm_t *algorithm,
                      const baton__terms_t *t);

/* Between hosts: baton_algorithm_cost_us, and what caches are too small for
   where no ranks share a host. */
double baton__between_us(const baton_algorithm_t *algorithm,
                         const baton_cost_case_t *of);

/* ---- where a formula is exact ------------------------------------------ */

/* All links are alike. */
bool baton__exact_flat(const baton__terms_t *t);

/* The same, and the number of ranks is a power of two. */
bool baton__exact_powers(const baton__terms_t *t);

/* All links are alike, or hosts have 2^k ranks each, 2^l in all. */
bool baton__exact_paired(const baton__terms_t *t);

/* All links are alike, and a segment is reduced no more slowly than it comes;
   reductions cost nothing. */
bool baton__exact_pipeline(const baton__terms_t *t);
bool baton__exact_free(const baton__terms_t *t);

/* ---- work on one host -------------------------------------------------- */

typedef struct baton__work {
    double messages;
    double bytes;   /* copied out of messages, or between buffers */
    double reduced; /* bytes */
} baton__work_t;

typedef struct baton__works {
    baton__work_t most; /* that one rank has */
    baton__work_t all;
    bool written; /* blocks are written by those that have made them */
    bool direct;  /* nothing is passed on: the longest path is `most` */
    /* Bytes that one rank has received or reduced, and another reads: written
       by one processor and read by another, they cost as much as a copy. */
    double passed;
} baton__works_t;

/* A function of the terms, in a struct: parsers of the public headers, where an
   algorithm's record points to it, need not know what it returns. */
typedef struct baton__work_model {
    baton__works_t (*of)(const baton__terms_t *terms);
} baton__work_model_t;

#define BATON__CACHED_BYTES 2097152.0 /* a second level: cost.c, host_us */

bool baton__has_processor_each(const baton__terms_t *t);

/* All ranks have the same work. */
baton__works_t baton__evenly(const baton__terms_t *t, baton__work_t all,
                             double passed);

/* One phase after another. */
baton__works_t baton__both(baton__works_t first, baton__works_t second);

/* Bytes that are passed on where each block goes through all ranks, by a ring,
   a tree of its own or a chain; and where sums go up one binomial tree. */
double baton__passed_on(const baton__terms_t *t);
double baton__passed_up(const baton__terms_t *t);

/* What goes down a binomial tree of blocks, or up: each rank's subtree, of as
   many ranks as the lowest bit of its number says, or those that are left. */
double baton__scattered(const baton__terms_t *t);
