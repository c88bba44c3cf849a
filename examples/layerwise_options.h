/* What layerwise was asked for. */
#ifndef EXAMPLES_LAYERWISE_OPTIONS_H
#define EXAMPLES_LAYERWISE_OPTIONS_H

#include "digits.h"

/* Of the digits. */
enum { TRAINED = 1437, TESTED = DIGITS_COUNT - TRAINED };

typedef struct options {
    int epochs;
    size_t hidden_layers, width;
    size_t batch_of_all; /* images of all ranks in a step */
    size_t bucket_bytes;
    double device_ms; /* of a step */
    bool device_auto; /* device_ms is to be measured */
    double required;  /* accuracy, 0 to 1 */
    const char *digits_name, *csv_name, *json_name, *plot_name; /* or NULL */
} options_t;

/* False when the command line is wrong. Prints why if `speak`. */
bool options_read(int argc, char **argv, bool speak, options_t *out);

#endif
