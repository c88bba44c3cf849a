/* Detects the state of a machine that alternates between two, seconds apart,
   with different latencies between cores. */
#ifndef MICROBENCH_BENCH_PROBE_H
#define MICROBENCH_BENCH_PROBE_H

#include <stdbool.h>

/* Measures how long a cache line takes from one core to another, in ns. Returns
   0 if two threads of this process can't run at the same time. Takes well under
   10 ms. */
double probe_cache_line_ns(void);

/* True for a latency of the faster state: about 27 ns, against 170 ns. */
bool probe_is_near(double latency_ns);

#endif
