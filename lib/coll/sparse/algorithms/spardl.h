/* Internals of SparDL. spardl.c has the part within a team, spardl_device.c the
   same with the residual on a device, spardl_bags.c the code that both use, and
   spardl_teams.c the exchange between teams. */
#pragma once

#include "coll/kit/pattern.h"
#include "coll/sparse/algorithms/algorithms.h"
#include "coll/sparse/core/device_work.h"

typedef struct spardl spardl_t;

/* A list of entries in memory of the algorithm's own. */
typedef struct spardl_list {
    char *data; /* NULL in a group without payload */
    size_t count;
} spardl_list_t;

/* A block, and the argument of the calls about it. */
typedef struct spardl_block {
    spardl_t *spardl;
    int block;
    int step;  /* step whose bag has the block; -1: this rank's own block */
    int place; /* the block's place in that bag */
    /* Threshold that the search for candidates tries first. */
    baton_magnitude_t guess;
    /* The number of steps that may bring entries of the block before it is
       selected from. */
    int steps;
    /* The next three are used only if `steps` is above 0. */
    baton_node_t accumulated;
    baton_candidates_t candidates;
    /* Sums of the candidates and of the entries that came. */
    spardl_list_t sums;
    spardl_list_t chosen;   /* the selection: in a message, or `own` */
    baton__change_t change; /* on a device: the change by this selection */
} spardl_block_t;

/* A step of Spar-Reduce-Scatter. */
typedef struct spardl_step {
    spardl_t *spardl;
    int gap;
    int blocks; /* in the bag that is sent, and in the received bag */
    baton_node_t arrive;
    baton__message_t send, recv;
    baton_entries_t *lists; /* received lists, by the distance of the block */
    /* On a device: the selections for the bag, and the received entries. */
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
    /* On a device: the mirror of `dropped`. */
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
    void *scratch;          /* for selections */
    baton_candidates_t
        candidates;         /* for a block that is selected from at once */
    baton_entries_t *terms; /* lists of a block that are summed */
    spardl_list_t own;      /* this rank's selection from its own block */
    spardl_list_t sum;      /* the teams' sum of `own`; unused with one team */
    spardl_list_t other;    /* memory for the next sum */
    /* The entries of a list of one block that are at the result's indices. */
    char *common;
    int exchange_count;
    spardl_exchange_t *exchanges; /* R-SAG */
    baton__gather_t *sets;        /* B-SAG */
    baton_entries_t *lists;
    baton__gather_t *result;
    /* Only on a device. */
    baton__mirror_t own_selected, result_indices;
};

/* Returns L: how many entries of a block are kept if k are kept in all. */
size_t baton__spardl_quota(const spardl_t *spardl, size_t k, int block);
baton__block_t baton__spardl_block(const spardl_t *spardl, int block);

/* Returns the block at this distance after this rank's own. */
static inline int baton__spardl_block_at(const spardl_t *spardl, int distance)
{
    return baton__rank_shift(spardl->position, distance, spardl->members);
}

/* Returns how many entries of its own block this rank sends into the exchange:
   L or, with B-SAG, h. */
size_t baton__spardl_share(const spardl_t *spardl);

/* The first call of a step; the argument is the spardl_t. */
baton_status_t baton__spardl_begin(void *arg, baton_call_t *call);

/* Adds the exchange after `ready`, a call that has set `own`. After the node
   that is returned, `sum` is the sum over all teams. */
baton_node_t baton__spardl_add_teams(spardl_t *spardl, baton_node_t ready);

/* Returns how many of these indices are in the block. The indices are sorted,
   and those of the block come first. */
size_t baton__spardl_within(const spardl_t *spardl, int block,
                            const uint32_t *indices, size_t count);

/* Adds this rank's shares of the entries that the exchange has dropped to
   `work`. `indices` are those of the result in this rank's own block. */
void baton__spardl_keep_dropped(spardl_t *spardl, const uint32_t *indices,
                                size_t count);

/* Returns the bytes of scratch memory that the exchange needs. */
size_t baton__spardl_teams_scratch(const spardl_t *spardl);

/* Returns the share that each rank keeps of the entries dropped in an exchange
   of R-SAG. */
double baton__spardl_residual_share(const spardl_exchange_t *exchange);

/* ---- what residuals on the host and on a device share ------------------ */

/* Makes blocks, steps, and rooms for results. Returns NULL if there is no
   memory. */
spardl_t *baton__spardl_open(baton_sparse_t *sparse);

/* Adds the send of a bag after `packed`. */
void baton__spardl_add_send(spardl_t *spardl, int step, baton_node_t packed);
/* Adds the receive of a bag, and after it the call `arrive`, which finds out
   which entries are of which block. */
void baton__spardl_add_arrival(spardl_t *spardl, int step);

/* Adds the all-gather of `sum` in the team, and after it a call that publishes
   the result. Returns that call. */
baton_node_t baton__spardl_add_gather(spardl_t *spardl, baton_node_t ready);
