/* SparDL, inside: spardl.c has the part within a team, spardl_teams.c what
   teams exchange. */
#ifndef BATON_COLL_SPARDL_H
#define BATON_COLL_SPARDL_H

#include "coll/pattern.h"
#include "coll/sparse/sparse.h"

typedef struct spardl spardl_t;

/* A list of entries in memory of the algorithm's own. */
typedef struct spardl_list {
    char *data; /* NULL without payload */
    size_t count;
} spardl_list_t;

/* Argument of the calls about a block. */
typedef struct spardl_block {
    spardl_t *spardl;
    int block;
    int step;  /* of whose bag it is a part; -1: this rank's own block */
    int place; /* in the bag */
} spardl_block_t;

/* A step of Spar-Reduce-Scatter. */
typedef struct spardl_step {
    spardl_t *spardl;
    int gap;
    int blocks; /* in the bag that is sent, and in the one that comes */
    baton_node_t add;
    baton__message_t send, recv;
} spardl_step_t;

/* A step of R-SAG. */
typedef struct spardl_exchange {
    spardl_t *spardl;
    int step;
    baton__message_t send, recv;
    spardl_list_t dropped;
} spardl_exchange_t;

struct spardl {
    baton_sparse_t *sparse;
    int teams, members; /* d, m */
    int team, position; /* of this rank: g, p */
    int step_count;     /* l */
    spardl_step_t *steps;
    spardl_block_t *blocks; /* by block */
    uint32_t *indices;      /* of one block's selection */
    void *scratch;
    spardl_list_t own;   /* what this rank selected of its own block */
    spardl_list_t sum;   /* and the teams' sum of it */
    spardl_list_t other; /* to sum into */
    spardl_list_t kept;  /* what the residual has at the result's indices */
    int exchange_count;
    spardl_exchange_t *exchanges; /* R-SAG */
    baton__gather_t *sets;        /* B-SAG */
    baton_entries_t *lists;
    baton__gather_t *result;
};

/* L: how many entries of a block are kept, of k in all. */
size_t baton__spardl_quota(const spardl_t *spardl, size_t k, int block);
baton__block_t baton__spardl_block(const spardl_t *spardl, int block);

/* How many of its own block this rank sends into the exchange: L, or h. */
size_t baton__spardl_share(const spardl_t *spardl);

/* At the beginning of a step: h, where k is another than before. */
void baton__spardl_begin_teams(spardl_t *spardl);

/* Adds the exchange behind `ready`, which has left this rank's selection in
   `own`. Behind the node returned, `sum` is that of all teams. */
baton_node_t baton__spardl_add_teams(spardl_t *spardl, baton_node_t ready,
                                     bool *ok);

/* Takes back what the exchange has added to `work`. */
void baton__spardl_undo_teams(spardl_t *spardl);
void baton__spardl_free_teams(spardl_t *spardl);

#endif
