/* Internals of SparDL. spardl.c has the part within a team, spardl_device.c the
   same with the residual on a device, spardl_bags.c the code that both use, and
   spardl_teams.c the exchange between teams, R-SAG or B-SAG.

   A bag is what a rank sends in one step of Spar-Reduce-Scatter: one message
   with the entries that the rank has selected from several blocks. */
#pragma once

#include "coll/kit/pattern.h"
#include "coll/sparse/algorithms/algorithms.h"
#include "coll/sparse/core/device_work.h"

typedef struct spardl spardl_t;

/* A list of entries, in memory that the algorithm has allocated. */
typedef struct spardl_list {
    /* NULL if messages carry no data, as in a simulation of costs. */
    char *data;
    size_t count;
} spardl_list_t;

/* A block of the vector. It is the argument of the calls that work on the
   block. */
typedef struct spardl_block {
    spardl_t *spardl;
    int block;
    /* The step whose bag contains the block; -1: this rank's own block, which
       is in no bag. */
    int step;
    int place; /* the index of the block in the bag of `step` */
    /* The threshold that the search for candidates tries first. */
    baton_magnitude_t guess;
    /* The number of steps before the selection from the block. Each of them may
       bring entries of the block. */
    int steps;
    /* The next three fields are used only if `steps` is above 0. */
    baton_node_t accumulated;
    baton_candidates_t candidates;
    /* Sums of the candidates and of the received entries. */
    spardl_list_t sums;
    /* The entries selected from the block; they lie in a message or in
       `own`. */
    spardl_list_t chosen;
    /* On a device: the change of `work` by this selection. */
    baton__change_t change;
} spardl_block_t;

/* A step of Spar-Reduce-Scatter: this rank sends one bag and receives one. */
typedef struct spardl_step {
    spardl_t *spardl;
    /* This rank sends its bag to the member `gap` positions after it, and
       receives a bag from the member `gap` positions before it. */
    int gap;
    /* The number of blocks in each of these two bags. */
    int blocks;
    baton_node_t arrive;
    baton__message_t send, recv;
    /* The received entries of each block. lists[j] are those of the block that
       is j blocks after this rank's own. */
    baton_entries_t *lists;
    /* On a device: mirrors of the selections for the bag, and of the received
       entries. */
    baton__mirror_t selected, received;
    baton__change_t change;
} spardl_step_t;

/* A step of R-SAG, one of the two exchanges between teams (spardl_teams.c). */
typedef struct spardl_exchange {
    spardl_t *spardl;
    int step;
    baton__message_t send, recv;
    spardl_list_t dropped;
    size_t dropped_capacity;
    /* On a device: the mirror of `dropped`. */
    baton__mirror_t adds;
    baton__change_t change;
} spardl_exchange_t;

struct spardl {
    baton_sparse_t *sparse;
    /* Number of teams, and of members of a team: d and m in spardl.c. */
    int teams, members;
    /* This rank's team, and its position there: g and p in spardl.c. */
    int team, position;
    int step_count; /* number of steps within a team: l in spardl.c */
    spardl_step_t *steps;
    spardl_block_t *blocks; /* blocks[b] is block b of the vector */
    uint32_t *indices;      /* memory for the indices selected from a block */
    void *scratch; /* memory that one selection or exchange uses at a time */
    /* The candidates of a block from which this rank selects before any step.
       Selections from such blocks come one after another, so they share this
       memory. */
    baton_candidates_t candidates;
    baton_entries_t *terms; /* the lists that are added up for a block */
    spardl_list_t own;      /* this rank's selection from its own block */
    /* The sum of the teams' `own`; unused if there is one team. */
    spardl_list_t sum;
    /* With R-SAG: memory for the next `sum`; each exchange swaps `sum` and
       `other`. */
    spardl_list_t other;
    /* Memory for those entries of a block's list that are at the result's
       indices. */
    char *common;
    int exchange_count;
    spardl_exchange_t *exchanges; /* exchanges[i] is step i of R-SAG */
    baton__gather_t *sets;        /* with B-SAG: the all-gather between teams */
    baton_entries_t *lists;
    baton__gather_t *result;
    /* The next two fields are used only with gradients on a device. */
    baton__mirror_t own_selected, result_indices;
};

/* Returns the number of entries of a block that are kept if k entries are kept
   in all: L in spardl.c. */
size_t baton__spardl_quota_of(const spardl_t *spardl, size_t k, int block);

/* Returns the quota of a block in this step: L in spardl.c. */
static inline size_t baton__spardl_quota(const spardl_t *spardl, int block)
{
    return baton__spardl_quota_of(spardl, spardl->sparse->k, block);
}

/* Returns the largest quota that a block may ever have. */
static inline size_t baton__spardl_most(const spardl_t *spardl, int block)
{
    return baton__spardl_quota_of(spardl, spardl->sparse->options.max_k, block);
}

baton__block_t baton__spardl_block(const spardl_t *spardl, int block);

/* Returns the block that is `distance` blocks after this rank's own. */
static inline int baton__spardl_block_at(const spardl_t *spardl, int distance)
{
    return baton__rank_shift(spardl->position, distance, spardl->members);
}

/* Returns the number of entries of its own block that this rank sends into the
   exchange between teams: the quota of the block or, with B-SAG, h (see
   spardl_teams.c). */
size_t baton__spardl_share(const spardl_t *spardl);

/* Begins a step: calls baton__sparse_begin and, with B-SAG, gives h its initial
   value if k has changed. This is the function of the schedule's first call
   node; `arg` is the spardl_t. */
baton_status_t baton__spardl_begin(void *arg, baton_call_t *call);

/* Adds the exchange between teams, after `ready`, a call that has set `own`.
   Returns the node after which `sum` is the sum over all teams. */
baton_node_t baton__spardl_add_teams(spardl_t *spardl, baton_node_t ready);

/* Returns the number of `indices` that are in the block. The indices are
   ascending, and none of them comes before the block. */
size_t baton__spardl_within(const spardl_t *spardl, int block,
                            const uint32_t *indices, size_t count);

/* Adds to `work` this rank's shares of the entries that the steps of R-SAG have
   dropped. `indices` are the result's indices in this rank's own block. */
void baton__spardl_keep_dropped(spardl_t *spardl, const uint32_t *indices,
                                size_t count);

/* Returns the bytes of scratch memory that the exchange between teams needs. */
size_t baton__spardl_teams_scratch(const spardl_t *spardl);

/* Several ranks drop the same entries in a step of R-SAG. Returns the share of
   these entries that each of the ranks keeps in its residual. */
double baton__spardl_residual_share(const spardl_exchange_t *exchange);

/* ---- for residuals in main memory and on a device ---------------------- */

/* Allocates SparDL's state, with its blocks and steps, and the buffers
   for results. Returns NULL if there is no memory. */
spardl_t *baton__spardl_open(baton_sparse_t *sparse);

/* Adds the send of the bag that this rank sends in a step, after the node
   `packed`, which completes the message. */
void baton__spardl_add_send(spardl_t *spardl, int step, baton_node_t packed);
/* Adds the receive of the bag that comes in a step, and after it the step's
   call node `arrive`, which finds the entries of each block in the bag. */
void baton__spardl_add_arrival(spardl_t *spardl, int step);

/* Adds the all-gather of `sum` in the team, and after it a call that publishes
   the result. Returns that call. */
baton_node_t baton__spardl_add_gather(spardl_t *spardl, baton_node_t ready);
