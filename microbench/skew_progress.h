/* One line on a terminal that says what the program is doing. */
#ifndef MICROBENCH_SKEW_PROGRESS_H
#define MICROBENCH_SKEW_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct skew_progress {
    bool shown;       /* on rank 0, when there is a terminal */
    double start_us;  /* when the first iteration began; 0: not yet */
    double drawn_us;  /* when the line was last drawn or cleared: what goes to
                         standard output then has time to get there first */
    uint64_t done;    /* iterations, of all sizes */
    uint64_t planned; /* likewise */
} skew_progress_t;

void skew_progress_init(skew_progress_t *progress, int rank, uint64_t planned);

/* Enters one iteration of `bytes` as begun; redraws at most 5 times a second.
 */
void skew_progress_iteration(skew_progress_t *progress, uint64_t bytes);

/* Takes the line away, so that a table can be printed. */
void skew_progress_clear(skew_progress_t *progress);

#endif
