/* How far long work is: a line on standard error, or mpirun's, if that is a
   terminal, and Ctrl-C, on which a command ends early and prints what it has.
   Under mpirun one rank alone shows it. */
#ifndef MICROBENCH_PROGRESS_H
#define MICROBENCH_PROGRESS_H

#include <stdbool.h>

void progress_begin(void);

/* From here on the first Ctrl-C does not end the process; or each does again.
   For commands of one process: mpirun ends its ranks itself. */
void progress_catch(bool on);

/* Shows which part of the work is done (0 to 1; NAN: unknown) and the time
   left, now and then. Returns false after Ctrl-C. */
bool progress_show(double part, const char *what);

/* Removes the line. Returns the seconds since progress_begin. */
double progress_end(void);

bool progress_interrupted(void);

#endif
