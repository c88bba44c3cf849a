#include "support/random.h"

#include "base/random.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

uint64_t support_seed(void)
{
    static uint64_t seed;
    if (seed == 0) {
        const char *text = getenv("BATON_SEED");
        if (text != NULL && text[0] != '\0') {
            seed = strtoull(text, NULL, 0);
        } else {
            struct timespec now;
            timespec_get(&now, TIME_UTC);
            seed = (uint64_t)now.tv_sec * 1000000007u + (uint64_t)now.tv_nsec;
        }
        seed = seed == 0 ? 1 : seed;
        printf("seed: BATON_SEED=%" PRIu64 "\n", seed);
        fflush(stdout);
    }
    return seed;
}

support_random_t support_random(uint64_t seed, uint64_t stream)
{
    support_random_t random = {seed ^ (stream * UINT64_C(0xd1342543de82ef95))};
    return random;
}

uint64_t support_random_next(support_random_t *random)
{
    random->state += UINT64_C(0x9e3779b97f4a7c15);
    return baton__mix(random->state);
}

uint64_t support_random_below(support_random_t *random, uint64_t bound)
{
    return support_random_next(random) % bound;
}

bool support_once_in(support_random_t *random, uint64_t n)
{
    return support_random_below(random, n) == 0;
}

double support_random_real(support_random_t *random, double limit)
{
    return (double)(support_random_next(random) >> 11) * 0x1p-53 * limit;
}
