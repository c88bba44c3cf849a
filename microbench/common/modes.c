#include "common/modes.h"

#define MODE_NAME(MODE, name, ranks) name,
#define HAS_RANKS(MODE, name, ranks) sizeof(ranks) > 1,
const char *const mode_names[] = {BATON_PARTIAL_MODE_LIST(MODE_NAME) NULL};
static const bool has_ranks[] = {BATON_PARTIAL_MODE_LIST(HAS_RANKS)};

bool mode_has_ranks(size_t mode)
{
    return has_ranks[mode];
}

/* Of m ranks that are elected of P, the first one to arrive is, on average,
   arrival number (P + 1) / (m + 1), and the last one is arrival number m (P +
   1) / (m + 1). The mean of k (k + 1) is 2 (P + 1) (P + 2) / ((m + 1) (m + 2))
   for the first one, and m (P + 1) (P + 2) / (m + 2) for the last one. SOLO and
   FULL are computed as if all ranks were elected. */
mode_arrival_t mode_arrival(baton_partial_mode_t mode, uint32_t number,
                            int ranks)
{
    double p = ranks;
    double m = mode == BATON_SOLO || mode == BATON_FULL ? p : number;
    bool last = mode == BATON_FULL || mode == BATON_CANDIDATES_ALL;
    if (mode == BATON_QUORUM) {
        return (mode_arrival_t){m, m * (m - 1)};
    }
    m = mode == BATON_MAJORITY ? 1 : m;
    double place = (p + 1) / (m + 1);
    double next = place * (p + 2) / (m + 2);
    return last
               ? (mode_arrival_t){m * place, m * (m + 1) * next - 2 * m * place}
               : (mode_arrival_t){place, 2 * next - 2 * place};
}
