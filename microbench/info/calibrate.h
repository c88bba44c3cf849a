/* Measures what messages and reductions cost here; see baton/tuning.h. */
#pragma once

/* Measures the costs. Rank 0 prints them and writes the file `path`. Collective
   over all ranks, of which there are at least two. Returns the process's exit
   status, the same on all ranks. */
int info_calibrate(const char *path);
