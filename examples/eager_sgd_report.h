/* What eager_sgd prints and writes. */
#ifndef EXAMPLES_EAGER_SGD_REPORT_H
#define EXAMPLES_EAGER_SGD_REPORT_H

#include <stdbool.h>

enum { EPOCHS = 48, STEPS_AN_EPOCH = 16, STEPS = EPOCHS * STEPS_AN_EPOCH };

typedef enum system { MPI, FULL, SOLO, MAJORITY, QUORUM, SYSTEMS } system_t;
extern const char *const names[SYSTEMS];

/* What a run leaves behind on rank 0. */
typedef struct run {
    double seconds; /* until the last rank was done */
    double at[EPOCHS];
    double loss[EPOCHS]; /* of the validation set, with rank 0's weights */
    double divergence;   /* largest difference of a weight between ranks */
} run_t;

void print_runs(const run_t *runs);

/* Names may be NULL. False when a file could not be written, which is said. The
   plot is of the loss against time (the paper's figure 10); its name ends in
   .svg or .png, and gnuplot draws it. */
bool write_csv(const char *name, const run_t *runs);
bool write_json(const char *name, const run_t *runs, int ranks, double scale);
bool write_plot(const char *name, const run_t *runs);

#endif
