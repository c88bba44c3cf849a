/* Placement of the ranks that poll: no processor has more of them than
   necessary. */
#include "support/cmocka.h"
#include "transport/shm/host.h"

#include <sched.h>

/* Two processes poll on each processor except one. Wherever this thread runs,
   it must move to that processor if it is the last one. */
TEST(test_spread_moves_where_fewest_poll)
{
    static _Atomic int32_t processors[2 * CPU_SETSIZE];
    baton__host_t host = {.processors = processors};
    cpu_set_t allowed, after;
    int left = 0;
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    while (!CPU_ISSET((size_t)left, &allowed)) {
        left++;
    }
    for (int i = 0; i < 2 * CPU_SETSIZE; i++) {
        processors[host.count] = i / 2 + 1;
        host.count += i / 2 != left;
    }
    host.index = host.count++;
    baton__host_spread(&host);
    assert_int_equal(processors[host.index], left + 1);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&allowed, &after));
    host.index = 0;
    host.spread_ns = 0;
    baton__host_spread(&host);
    assert_int_equal(host.spread_ns, 0);
}

/* Processes that have not polled yet are on no processor. */
TEST(test_spread_counts_only_who_polls)
{
    static _Atomic int32_t processors[2];
    baton__host_t host = {.count = 2, .index = 1, .processors = processors};
    cpu_set_t allowed, first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    if (sched_setaffinity(0, sizeof first, &first) != 0) {
        skip();
    }
    baton__host_spread(&host);
    /* The rank did not look for another processor. */
    assert_int_equal(host.spread_ns, 0);
    assert_int_equal(sched_setaffinity(0, sizeof allowed, &allowed), 0);
}
