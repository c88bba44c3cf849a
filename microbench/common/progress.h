/* The progress of long work, which is shown in a line of the terminal: on this
   process's standard error or, under mpirun, on that of mpirun. After Ctrl-C a
   command ends early and prints the results that it has. Under mpirun only one
   rank shows the line. */
#pragma once

#include <stdbool.h>

void progress_begin(void);

/* With on = true, the first Ctrl-C from now on does not end the process, so the
   command can print the results that it has. Only for commands of one process:
   mpirun ends its ranks itself. */
void progress_catch(bool on);

/* Updates the line from time to time: the part of the work that is done (0 to
   1; NAN: unknown) and the time left. Returns false after Ctrl-C. */
bool progress_show(double part, const char *what);

/* Removes the line. Returns the seconds since progress_begin. */
double progress_end(void);

bool progress_interrupted(void);

/* Returns the number of columns of a terminal: the variable COLUMNS if it is
   set, else the terminal's own number, else 80. Returns 0 if the descriptor is
   no terminal. */
int terminal_columns(int descriptor);
