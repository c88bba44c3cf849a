/* What eager_sgd prints and writes. */
#ifndef EXAMPLES_EAGER_SGD_REPORT_H
#define EXAMPLES_EAGER_SGD_REPORT_H

#include "eager_sgd_task.h"

#include <baton/partial.h>
#include <stdbool.h>

enum { SYSTEM_NAME = 24, MAX_SYSTEMS = 32 };

typedef struct system {
    char name[SYSTEM_NAME];
    bool is_mpi; /* MPI_Allreduce; else a partial all-reduce of */
    baton_partial_choice_t choice;
} system_t;

/* What a run leaves behind on rank 0. */
typedef struct run {
    system_t system;
    double seconds; /* until the last rank was done */
    double at[EPOCHS];
    score_t score[EPOCHS]; /* with rank 0's weights */
    double divergence;     /* largest difference of a weight between ranks */
} run_t;

void print_task(const task_t *task);

/* A table, and, where there are quorums, which of them was the first to be as
   good as the first system is at its end: within 1 point of accuracy, or 5 % of
   loss, as means of four epochs. */
void print_runs(const run_t *runs, int count);

/* Names may be NULL. False when a file could not be written, which is said. The
   plot is of the loss, or of the accuracy, against time (the paper's figures 10
   and 12); its name ends in .svg or .png, and gnuplot draws it. */
bool write_csv(const char *name, const run_t *runs, int count);
bool write_json(const char *name, const run_t *runs, int count,
                const task_t *task);
bool write_plot(const char *name, const run_t *runs, int count);

#endif
