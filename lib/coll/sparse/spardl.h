/* SparDL, inside: spardl.c has the part within a team, spardl_device.c the same
   with the residual on a device, spardl_bags.c what both have, and
   spardl_teams.c what teams exchange. */
#pragma once

#include "coll/kit/pattern.h"
#include "coll/sparse/device_work.h"

typedef struct spardl spardl_t;

/* A list of entries in memory of the algorithm's own. */
typedef struct spardl_list {
    char *data; /* NULL without payload */
    size_t count;
} spardl_list_t;

/* A block, and the argument of the calls about it. */
typedef struct spardl_block {
    spardl_t *spardl;
    int block;
    int step;  /* of whose bag it is a part; -1: this rank's own block */
    int place; /* in the bag */
    baton_magnitude_t guess; /* from which on candidates are likely */
    /* How many steps may bring entries for it before it is selected from. */
    int steps;
    /* If there are any: */
    baton_node_t accumulated;
    baton_candidates_t candidates;
    spardl_list_t sums;     /* of candidates and what came, with room for all */
    spardl_list_t chosen;   /* what was selected: in a message, or `own` */
    baton__change_t change; /* on a device: the same there */
} spardl_block_t;

/* A step of Spar-Reduce-Scatter. */
typedef struct spardl_step {
    spardl_t *spardl;
    int gap;
    int blocks; /* in the bag that is sent, and in the one that comes */
    baton_node_t arrive;
    baton__message_t send, recv;
    baton_entries_t *lists; /* that came, by distance */
    /* On a device: what was selected for the bag, and what came. */
    baton__mirror_t selected, received;
    baton__change_t change;
} spardl_step_t;

/* A step of R-SAG. */
typedef struct spardl_exchange {
    spardl_t *spardl;
    int step;
    baton__message_t send, recv;
    spardl_list_t dropped;
    size_t dropped_room;
    /* On a device: `dropped` on its way there. */
    baton__mirror_t adds;
    baton__change_t change;
} spardl_exchange_t;

struct spardl {
    baton_sparse_t *sparse;
    int teams, members; /* d, m */
    int team, position; /* of this rank: g, p */
    int step_count;     /* l */
    spardl_step_t *steps;
    spardl_block_t *blocks; /* by block */
    uint32_t *indices;      /* of one block's selection */
    void *scratch;          /* of selections */
    baton_candidates_t
        candidates;         /* of a block that is selected from at once */
    baton_entries_t *terms; /* candidates and lists of a block, to sum */
    spardl_list_t own;      /* what this rank selected of its own block */
    spardl_list_t sum;      /* and the teams' sum of it; not of one team */
    spardl_list_t other;    /* to sum into */
    char *common;           /* what a list and the result share; of one block */
    int exchange_count;
    spardl_exchange_t *exchanges; /* R-SAG */
    baton__gather_t *sets;        /* B-SAG */
    baton_entries_t *lists;
    baton__gather_t *result;
    /* On a device. */
    baton__mirror_t own_selected, result_indices;
};

/* L: how many entries of a block are kept, of k in all. */
size_t baton__spardl_quota(const spardl_t *spardl, size_t k, int block);
baton__block_t baton__spardl_block(const spardl_t *spardl, int block);

/* The block so far behind this rank's own. */
static inline int baton__spardl_block_at(const spardl_t *spardl, int distance)
{
    return baton__rank_shift(spardl->position, distance, spardl->members);
}

/* How many of its own block this rank sends into the exchange: L, or h. */
size_t baton__spardl_share(const spardl_t *spardl);

/* The first call of a step; the argument is the spardl_t. */
baton_status_t baton__spardl_begin(void *arg, baton_call_t *call);

/* Adds the exchange behind `ready`, which has left this rank's selection in
   `own`. Behind the node returned, `sum` is that of all teams. */
baton_node_t baton__spardl_add_teams(spardl_t *spardl, baton_node_t ready);

/* How many of these indices, of which the first are of a block, are of it. */
size_t baton__spardl_within(const spardl_t *spardl, int block,
                            const uint32_t *indices, size_t count);

/* Adds this rank's share of what the exchange has dropped to `work`, at the
   result's indices of its block. */
void baton__spardl_keep_dropped(spardl_t *spardl, const uint32_t *indices,
                                size_t count);

/* The bytes of scratch memory that the exchange needs. */
size_t baton__spardl_teams_scratch(const spardl_t *spardl);

/* How much of what an exchange of R-SAG dropped stays at this rank. */
double baton__spardl_residual_share(const spardl_exchange_t *exchange);

/* ---- what residuals on the host and on a device share ------------------ */

/* Blocks and steps, and room for results. NULL: no memory. */
spardl_t *baton__spardl_open(baton_sparse_t *sparse);

/* Adds the send of a bag behind `packed`; and the receive of one, with a call
   `arrive` behind it that finds out which entries are of which block. */
void baton__spardl_add_send(spardl_t *spardl, int step, baton_node_t packed);
void baton__spardl_add_arrival(spardl_t *spardl, int step);

/* Adds the all-gather of `sum` in the team, and the call after it that
   publishes the result, which is returned. */
baton_node_t baton__spardl_add_gather(spardl_t *spardl, baton_node_t ready);
