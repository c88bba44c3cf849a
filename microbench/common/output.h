/* Files of results. They are opened before anything is measured, so that a bad
   path is reported at once and not after minutes. Failures are printed on
   standard error. */
#ifndef MICROBENCH_OUTPUT_H
#define MICROBENCH_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

/* Opens a file for writing. Sets *out to NULL if `name` is NULL. */
bool output_open(const char *name, FILE **out);

/* Closes a file. Does nothing if `file` is NULL. */
bool output_close(FILE *file, const char *name);

/* Prints that `doing` failed for the file, with the error's text if `error` is
   not 0. Returns false. */
bool output_fail(const char *doing, const char *name, int error);

/* Returns the number of columns of a terminal: the variable COLUMNS if it is
   set, else the terminal's own number, else 80. Returns 0 if the descriptor is
   no terminal. */
int terminal_columns(int descriptor);

#endif
