/* One line on a terminal that says what the program is doing. */
#ifndef MICROBENCH_PROGRESS_H
#define MICROBENCH_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct progress {
    bool shown;       /* there is a terminal, and this process speaks */
    double start_us;  /* when it was made */
    double drawn_us;  /* when the line was last drawn or cleared: what goes to
                         standard output then has time to get there first */
    uint64_t done;    /* steps; the owner counts them */
    uint64_t planned; /* likewise */
} progress_t;

void progress_init(progress_t *progress, bool speak, uint64_t planned);

/* Whether the line should be drawn again: never in the first second, then 5
   times a second. */
bool progress_due(const progress_t *progress);

/* Draws the line, with how many seconds are left once a step has been done. */
void progress_say(progress_t *progress, const char *text);

/* Takes the line away, so that a table can be printed. */
void progress_clear(progress_t *progress);

#endif
