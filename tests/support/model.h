/* A sequential model of a run. For small graphs it computes from scratch which
   nodes must be ready after each move. The moves are those of progress/: pop a
   ready node and issue it, or complete a message. */
#ifndef TESTS_SUPPORT_MODEL_H
#define TESTS_SUPPORT_MODEL_H

#include "sched/schedule.h"

enum { MODEL_NODES = 7 };

typedef enum model_action {
    MODEL_CALL,
    MODEL_SKIP,
    MODEL_SEND,
    MODEL_RECV,
    MODEL_ACTIONS
} model_action_t;

/* A graph. Edges lead from lower to higher ids. */
typedef struct model_graph {
    uint32_t count;
    uint32_t preds[MODEL_NODES]; /* a mask */
    uint32_t need[MODEL_NODES];
    model_action_t action[MODEL_NODES];
    bool optional[MODEL_NODES];
} model_graph_t;

typedef enum model_status {
    WAITING,
    READY,
    ISSUED,
    SATISFIED,
    SKIPPED
} model_status_t;

/* A run, its memory and the model's state, which are copied as a whole. */
typedef struct model_snapshot {
    baton__run_t run;
    uint32_t left[MODEL_NODES];
    uint32_t ready[MODEL_NODES];
    uint8_t state[MODEL_NODES];
    model_status_t status[MODEL_NODES];
} model_snapshot_t;

extern model_graph_t model_graph;
extern model_snapshot_t model_snapshot;

/* Group fixtures. */
int model_open(void **state);
int model_close(void **state);

/* Commits a schedule of the graph; resets the run and the model. */
baton_schedule_t *model_build(void);
void model_reset(const baton_schedule_t *schedule);

uint32_t model_count_bits(uint32_t mask);

/* The moves, made by the run and by the model. */
void model_begin(void);
void model_retire(void);
void model_pop(void);
bool model_can_complete(uint32_t node);
void model_complete(uint32_t node);

/* Fails unless run and model agree on which nodes are ready and whether the
   epoch is over. */
void model_compare(void);

/* For a run in which no move is left: fails unless exactly those nodes have
   fired that an epoch fires. */
void model_expect_quiescent(void);

#endif
