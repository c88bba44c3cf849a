/* A line on the terminal that shows what the program is doing. */
#ifndef MICROBENCH_PROGRESS_H
#define MICROBENCH_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct progress {
    bool shown;       /* there is a terminal, and this process prints */
    double start_us;  /* when it was initialised */
    double drawn_us;  /* when the line was last drawn or cleared; this leaves
                         standard output time to arrive first */
    uint64_t done;    /* steps, counted by the owner */
    uint64_t planned; /* steps in all */
} progress_t;

void progress_init(progress_t *progress, bool speak, uint64_t planned);

/* Draws the line, with the seconds that are left once a step has been done: not
   in the first second, then 5 times a second. */
void progress_draw(progress_t *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Clears the line so that a table can be printed. */
void progress_clear(progress_t *progress);

#endif
