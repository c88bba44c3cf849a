/* Measures what messages and reductions cost here; see baton/tuning.h. */
#pragma once

/* Measures the costs. Rank 0 prints them and writes the file `path`.
   Collective. There must be at least two ranks. Returns the process's exit
   status, the same on all ranks. */
int info_calibrate(const char *path);
