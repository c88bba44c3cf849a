/* Measures what messages and reductions cost here; see baton/tuning.h. */
#ifndef MICROBENCH_INFO_CALIBRATE_H
#define MICROBENCH_INFO_CALIBRATE_H

/* All ranks of MPI_COMM_WORLD, at least two. Rank 0 prints what it measured and
   writes the file. Returns the process's exit status, the same on all. */
int info_calibrate(const char *path);

#endif
