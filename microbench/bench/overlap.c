#include "bench/bench.h"
int bench_overlap(const bench_options_t *options)
{
    (void)options;
    return 0;
}
