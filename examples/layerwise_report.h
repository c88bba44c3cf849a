/* What layerwise prints and writes. */
#ifndef EXAMPLES_LAYERWISE_REPORT_H
#define EXAMPLES_LAYERWISE_REPORT_H

#include <stdbool.h>
#include <stddef.h>

/* Ways to sum the gradients. */
typedef enum system {
    BLOCKING,
    FORK_JOIN,
    REDUCE_BROADCAST,
    OVERLAPPED,
    SYSTEMS
} system_t;
extern const char *const names[SYSTEMS];

enum { MOST_EPOCHS = 1000, MOST_SPANS = 256 };

/* Something that took time in the step whose timeline is drawn. */
typedef struct span {
    bool communication;
    const char *what;    /* "F", "B": forward, backward; "" for an all-reduce */
    size_t number;       /* of the layer or the bucket */
    double from_s, to_s; /* from the beginning of the step */
} span_t;

/* What a system leaves behind on rank 0. Times of a step are medians. */
typedef struct outcome {
    double loss[MOST_EPOCHS];     /* of the training set, mean of an epoch */
    double accuracy[MOST_EPOCHS]; /* of the test set, 0 to 1 */
    double step_s;
    double communication_s; /* in calls that start and wait */
    double hidden; /* share of fork and join's communication that is not here */
    double divergence; /* largest difference of a weight between ranks */
    span_t spans[MOST_SPANS];
    size_t span_count;
} outcome_t;

/* What was trained. */
typedef struct setting {
    int ranks;
    size_t layers, parameters, buckets, batch;
    int epochs;
    double device_ms;
    bool generated; /* the digits are made up */
    const char *source;
} setting_t;

void print_setting(const setting_t *setting);
void print_outcomes(const setting_t *setting, const outcome_t *outcomes);

/* Names may be NULL. False when a file could not be written, which is said. The
   CSV has a row for each system and epoch. The plot is a timeline of one step;
   its name ends in .svg or .png, and gnuplot draws it. */
bool write_csv(const char *name, const setting_t *setting,
               const outcome_t *outcomes);
bool write_json(const char *name, const setting_t *setting,
                const outcome_t *outcomes);
bool write_plot(const char *name, const setting_t *setting,
                const outcome_t *outcomes);

#endif
