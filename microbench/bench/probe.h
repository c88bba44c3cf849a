/* The state of a machine whose times flip between two, seconds apart. */
#ifndef MICROBENCH_BENCH_PROBE_H
#define MICROBENCH_BENCH_PROBE_H

#include <stdbool.h>

/* How long a cache line takes from one core to another, in ns; 0 when two
   threads of this process don't run side by side. Takes well under 10 ms. */
double probe_line_ns(void);

/* Whether a latency is of the faster state ('near' about 27 ns, 'far' 170). */
bool probe_is_near(double line_ns);

#endif
