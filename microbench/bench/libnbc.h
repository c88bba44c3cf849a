/* Which algorithm Open MPI's libnbc takes for MPI_Iallreduce: a variable of the
   tool interface, MPI_T. */
#ifndef MICROBENCH_BENCH_LIBNBC_H
#define MICROBENCH_BENCH_LIBNBC_H

#include <stdbool.h>

/* True when this MPI has the variable, and it can be set. The interface is
   opened once, which takes long. */
bool libnbc_can_choose(void);

/* Takes the ring, or the default again. Applies to calls from now on. */
void libnbc_choose_ring(bool ring);

/* Closes the interface, if it was opened. */
void libnbc_close(void);

#endif
