/* What the files of `train` share: its options, the systems that it compares,
   and what a run of one leaves behind. */
#ifndef EXAMPLES_TRAIN_H
#define EXAMPLES_TRAIN_H

#include <baton/baton.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SYSTEM_NAME = 24, MOST_SYSTEMS = 32 };

typedef struct settings {
    const char *task, *mode, *systems, *keep, *late, *behind;
    const char *digits, *csv, *save, *load;
    double scale, delay_ms, device_ms;
    double rate, momentum, required;
    double alpha_us, gbit;
    uint64_t epochs, batch, layers, width, bucket_kib;
    uint64_t seed;
} settings_t;

typedef enum kind {
    MPI,       /* MPI_Allreduce after the backward pass */
    FORK_JOIN, /* all-reduces, started and awaited there */
    OVERLAP,   /* each started when its layers' gradients are there */
    PARTIAL,
    SPARSE
} kind_t;

/* How gradients are summed. */
typedef struct system {
    char name[SYSTEM_NAME];
    kind_t kind;
    baton_partial_mode_t mode;
    uint32_t mode_ranks;
    baton_sparse_algorithm_t algorithm;
    double density;
} system_t;

/* Of a run; NAN where there is none. */
typedef enum figure {
    SECONDS,
    SPEED_UP, /* over the first system */
    LOSS,
    ACCURACY,         /* % */
    TARGET_S,         /* until as good as the first system at its end */
    COMMUNICATION_MS, /* median of the time in calls that start and wait */
    HIDDEN,           /* %, of what fork and join spends there */
    MB_SENT,          /* by the rank that sends most */
    NETWORK_S,        /* of all steps on the network of the options */
    FIGURES
} figure_t;

/* The end of an epoch. */
typedef struct point {
    double seconds, loss, accuracy, mb_sent, network_s;
} point_t;

typedef struct run {
    system_t system;
    double figures[FIGURES];
    uint64_t digest; /* of the bits of the weights */
    bool identical;  /* they are, on all ranks */
    size_t point_count;
    point_t *points;
} run_t;

extern settings_t settings;
extern int rank, size;

/* Reads the command line into `settings`. False when it is wrong, which rank 0
   says. */
bool read_options(int argc, char **argv);

/* Sets the systems to compare. Returns how many; 0: a name is wrong. */
size_t read_systems(run_t runs[MOST_SYSTEMS]);

/* On rank 0: prints and writes what was asked for. False when a file could not
   be written. */
bool report(run_t *runs, size_t count);

/* ---- tools (tools.c) -------------------------------------------------- */

/* Prints the reason, and ends all ranks. */
void die(const char *what);

/* Ends all ranks if a call failed. */
void must(baton_status_t status);

void *zeroed(size_t count, size_t bytes);

/* The k-th number of a random stream, from 0 to 1; centred: with mean 0 and
   variance 1; normal: of a normal distribution. */
double uniform(uint64_t stream, uint64_t k);
float centred(uint64_t stream, uint64_t k);
double normal(uint64_t stream, uint64_t k);

/* Sorts the values. */
double median(double *values, size_t count);

/* Streams of random numbers. From POINTS on there is one for each point. */
enum {
    ORDER,
    LABELS,
    NOISE,
    PROTOTYPES,
    LENGTHS,
    IMAGES,
    PLANE,
    DELAYS,
    LAYERS,
    POINTS = LAYERS + 64
};

#endif
