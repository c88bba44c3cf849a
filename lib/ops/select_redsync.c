/* RedSync's selections (Fang et al. 2019, see baton/select.h; algorithms 2 and
   3). Comments below state our choices where the paper leaves details open. On
   CPUs these selections take more passes than baton_select_topk. */
#include "ops/select.h"

#include <math.h>

/* The first threshold of the trimming, as a ratio between the mean (0) and the
   maximum (1) of the magnitudes, and the step by which the ratio is lowered. */
#define TRIM_RATIO 0.8
#define TRIM_STEP  0.2

/* The search ends when its interval is this fraction of the distance from mean
   to maximum, which is far less than the distance between the thresholds for k
   and for 2k elements. */
#define SEARCH_PRECISION 1e-6

typedef struct spread {
    double mean;
    double largest;
} spread_t;

/* Measures mean and maximum of the magnitudes. Returns false if there is no
   element, or if an element is a NaN or an infinity. If only positive or only
   negative elements are selected, the mean is still that of all elements, which
   affects only the time. */
static bool spread_of(const baton_selection_t *from, spread_t *out)
{
    baton_magnitudes_t all =
        baton_elements_measure(from->dtype, from->values, from->count);
    if (from->count == 0 ||
        all.largest >= baton_magnitude_of(from->dtype, INFINITY)) {
        return false;
    }
    out->mean = all.sum / (double)from->count;
    out->largest = baton_magnitude_value(from->dtype, all.largest);
    return true;
}

/* Returns a threshold between mean and maximum. It is at least 1, since the
   mean of very small magnitudes may round to the key 0, which would select
   zeros. */
static baton_magnitude_t select_redsync_between(const baton_selection_t *from,
                                                const spread_t *spread,
                                                double ratio)
{
    double value = spread->mean + ratio * (spread->largest - spread->mean);
    baton_magnitude_t key = baton_magnitude_of(from->dtype, value);
    return key > 0 ? key : 1;
}

size_t baton_select_trimmed(const baton_selection_t *from, size_t k,
                            uint32_t *indices, void *scratch)
{
    spread_t spread;
    if (!baton__topk_is_valid(from, k, indices, scratch, __func__)) {
        return 0;
    }
    k = k < from->count ? k : from->count;
    if (!spread_of(from, &spread)) {
        return baton_select_topk(from, k, indices, scratch, NULL);
    }
    baton_magnitude_t threshold;
    double ratio = TRIM_RATIO;
    do {
        /* A ratio below 0 means a threshold below the mean. The threshold is
           then 1, the lowest key, so all elements that are not zero reach
           it. */
        threshold =
            ratio >= 0 ? select_redsync_between(from, &spread, ratio) : 1;
        ratio -= TRIM_STEP;
    } while (threshold > 1 && baton_select_count(from, threshold) < k);
    return baton__select_from(from, k, threshold, indices, scratch);
}

static baton_magnitude_t exact(const baton_selection_t *from, size_t k,
                               uint32_t *indices, void *scratch)
{
    baton_magnitude_t threshold;
    size_t found = baton_select_topk(from, k, indices, scratch, &threshold);
    return found == k ? threshold : 0;
}

baton_magnitude_t baton_select_search(const baton_selection_t *from, size_t k,
                                      uint32_t *indices, void *scratch)
{
    spread_t spread;
    if (!baton__topk_is_valid(from, k, indices, scratch, __func__)) {
        return 0;
    }
    if (!spread_of(from, &spread) ||
        baton_select_count(from, select_redsync_between(from, &spread, 0)) <
            k) {
        return exact(from, k, indices, scratch);
    }
    double low = 0, high = 1;
    while (high - low > SEARCH_PRECISION) {
        double middle = low + (high - low) / 2;
        baton_magnitude_t threshold =
            select_redsync_between(from, &spread, middle);
        size_t found = baton_select_count(from, threshold);
        if (found >= k && found <= 2 * k) {
            return threshold;
        }
        *(found < k ? &high : &low) = middle;
    }
    /* `low` selects at least k elements. It selects more than 2k elements only
       if values are tied. */
    baton_magnitude_t threshold = select_redsync_between(from, &spread, low);
    return baton_select_count(from, threshold) <= 2 * k
               ? threshold
               : exact(from, k, indices, scratch);
}
