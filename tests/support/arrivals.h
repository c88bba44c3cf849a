/* A simulated group with a partial all-reduce whose ranks arrive in some order,
   step by step. Each step's active ranks are seen, and the sums of what was
   contributed and what came out. */
#ifndef BATON_TESTS_SUPPORT_ARRIVALS_H
#define BATON_TESTS_SUPPORT_ARRIVALS_H

#include "support/random.h"
#include "support/sim.h"

#include <baton/partial.h>
#include <stdint.h>

enum { ARRIVALS_RANKS = 400 };

typedef struct arrivals {
    baton_sim_t *sim;
    int size;
    uint64_t epoch;
    uint64_t contributed; /* sums modulo 2^64 */
    uint64_t results;
    uint32_t active;   /* of the last epoch */
    uint32_t included; /* ranks whose contribution of the last step is in it */
    double apart_us;   /* between arrivals one after another; 1000 at first */
    support_random_t random;
    struct arrivals_rank {
        struct arrivals *world;
        baton_partial_t *partial;
    } ranks[ARRIVALS_RANKS];
} arrivals_t;

/* Opens a partial on each rank; a message takes 1 us. */
void arrivals_open(arrivals_t *world, int size,
                   const baton_partial_options_t *options);
/* The same with hosts of so many ranks, not with a host for each. */
void arrivals_open_on_hosts(arrivals_t *world, int size, int host_ranks,
                            const baton_partial_options_t *options);
void arrivals_close(arrivals_t *world);

/* How the ranks of a step arrive: apart_us apart, in the order of their numbers
   or in random order; at once; or at random within 40 us. */
typedef enum arrivals_order {
    IN_TURN,
    SHUFFLED,
    TOGETHER,
    RANDOM
} arrivals_order_t;

/* Each rank contributes a random number, starts, and waits for the epoch. Fails
   the test where ranks' results differ. */
void arrivals_step(arrivals_t *world, arrivals_order_t order);

/* Fails the test unless all that was contributed is in a result, or pending. */
void arrivals_expect_conserved(arrivals_t *world);

/* Options of one 64-bit number. */
baton_partial_options_t arrivals_options(baton_partial_mode_t mode,
                                         uint32_t ranks);

/* The quorums 1, 2, P / 2, P - 1, P of `size` ranks without repetition; how
   many there are. */
size_t arrivals_quorums(int size, uint32_t quorums[5]);

/* Steps in all orders: fails the test where fewer than q ranks are active, or
   more although they arrive far apart. */
void arrivals_run_quorum(int size, uint32_t q, uint64_t epochs);

#endif
