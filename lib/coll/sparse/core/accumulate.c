/* Accumulation: adds the gradient, clipped and with momentum, to the residual
   (Fang et al. 2019, section 2.5: momentum correction). One pass
   (baton/select.h) reads gradient, residual and velocity, writes `work` and the
   next velocity, and finds large elements. The two velocities are swapped after
   the step has been completed. */
#include "coll/sparse/core/core.h"

#include "base/half.h"

#include <math.h>
#include <string.h>

enum {
    /* Vectors of this size or more do not fit into caches. */
    STREAM_BYTES = 8 << 20,
    /* The number of cache lines ahead of which the velocity is prefetched
       before it is cleared. */
    MASK_AHEAD = 16
};

double baton__clip_factor(double clip, int ranks, double square_sum)
{
    double norm = sqrt(square_sum);
    double most = clip / sqrt((double)ranks);
    return norm > most ? most / norm : 1;
}

static double accumulate_clip_factor(const baton_sparse_t *sparse,
                                     const void *gradient)
{
    if (sparse->options.clip == 0 || gradient == NULL) {
        return 1;
    }
    baton_magnitudes_t all = baton_elements_measure(
        sparse->options.dtype, gradient, sparse->options.count);
    return baton__clip_factor(sparse->options.clip, sparse->size,
                              all.square_sum);
}

void baton__sparse_begin(baton_sparse_t *sparse)
{
    sparse->counting = (baton_sparse_stats_t){0};
    sparse->next = sparse->learned;
    sparse->settled = false;
    sparse->merged = 0;
    sparse->clip_factor =
        sparse->backend->accumulates
            ? sparse->given_factor *
                  accumulate_clip_factor(sparse, sparse->gradient)
            : 1;
}

/* Returns a description of how the elements [first, first + count) of `work`
   are computed, for a selection that computes them in the same pass. If `right`
   of the description is NULL, the elements have been computed already. */
static baton_accumulation_t accumulation(baton_sparse_t *sparse, size_t first,
                                         size_t count, baton_side_t side)
{
    const size_t size = sparse->element_bytes;
    const size_t offset = first * size, bytes = count * size;
    baton_accumulation_t of = {
        .dtype = sparse->options.dtype,
        .side = side,
        .sum = sparse->work + offset,
        .left = sparse->no_residual ? NULL : sparse->residual + offset,
        .count = count,
        .first = (uint32_t)first,
        .stream = sparse->options.count * size >= STREAM_BYTES,
    };
    if (sparse->summed) {
        return of;
    }
    if (sparse->absent || (sparse->gradient == NULL && of.left == NULL)) {
        memset(of.sum, 0, bytes);
    } else if (sparse->gradient == NULL) {
        if (of.sum != of.left) {
            memcpy(of.sum, of.left, bytes);
        }
    } else {
        of.right = sparse->gradient + offset;
        of.scale = sparse->clip_factor != 1;
        of.factor = sparse->clip_factor;
    }
    if (of.right != NULL && sparse->velocity != NULL) {
        of.momentum = sparse->options.momentum;
        of.nesterov = sparse->options.nesterov;
        of.short_velocity = sparse->options.short_velocity;
        size_t from = first * baton__velocity_bytes(sparse);
        of.velocity = sparse->velocity + from;
        of.new_velocity = sparse->new_velocity + from;
    }
    return of;
}

void baton__sparse_accumulate(baton_sparse_t *sparse, size_t first,
                              size_t count)
{
    if (sparse->payload) {
        const baton_accumulation_t of =
            accumulation(sparse, first, count, BATON_SIDE_BOTH);
        (void)baton_accumulate_at_least(&of, UINT64_MAX, NULL, 0);
    }
}

void baton__sparse_contribute(baton_sparse_t *sparse, const void *gradient,
                              char *velocity, char *target, bool first)
{
    double factor = accumulate_clip_factor(sparse, gradient);
    const baton_accumulation_t of = {
        .dtype = sparse->options.dtype,
        .sum = target,
        .left = first ? NULL : target,
        .right = gradient,
        .count = sparse->options.count,
        .scale = factor != 1,
        .factor = factor,
        .momentum = sparse->options.momentum,
        .nesterov = sparse->options.nesterov,
        .velocity = velocity,
        .short_velocity = sparse->options.short_velocity && velocity != NULL,
        .new_velocity = velocity};
    (void)baton_accumulate_at_least(&of, UINT64_MAX, NULL, 0);
}

void baton__sparse_read_velocity(const baton_sparse_t *sparse,
                                 const char *velocity, void *to)
{
    const uint16_t *halves = (const void *)velocity;
    if (!sparse->options.short_velocity) {
        memcpy(to, velocity, sparse->options.count * sparse->element_bytes);
        return;
    }
    for (size_t i = 0; i < sparse->options.count; i++) {
        float value = baton__f32_of_bf16(halves[i]);
        memcpy((char *)to + i * sizeof value, &value, sizeof value);
    }
}

void baton__sparse_write_velocity(const baton_sparse_t *sparse, char *velocity,
                                  const void *from)
{
    uint16_t *halves = (void *)velocity;
    float value;
    if (!sparse->options.short_velocity) {
        memcpy(velocity, from, sparse->options.count * sparse->element_bytes);
        return;
    }
    for (size_t i = 0; i < sparse->options.count; i++) {
        memcpy(&value, (const char *)from + i * sizeof value, sizeof value);
        halves[i] = baton__bf16_of_f32(value);
    }
}

void baton__sparse_mask(const baton_sparse_t *sparse, char *velocity,
                        const uint32_t *indices, size_t count)
{
    const size_t size = baton__velocity_bytes(sparse);
    for (size_t i = 0; i < count; i++) {
        size_t ahead = i + MASK_AHEAD < count ? i + MASK_AHEAD : i;
        __builtin_prefetch(velocity + indices[ahead] * size);
        memset(velocity + indices[i] * size, 0, size);
    }
}

void baton__sparse_advance(baton_sparse_t *sparse)
{
    if (sparse->velocity == NULL || sparse->gradient == NULL) {
        return;
    }
    baton__sparse_exchange(&sparse->velocity, &sparse->new_velocity);
    baton__sparse_mask(sparse, sparse->velocity, sparse->masked,
                       sparse->masked_count);
}

baton_selection_t baton__sparse_selection(const baton_sparse_t *sparse,
                                          baton_side_t side)
{
    return (baton_selection_t){.dtype = sparse->options.dtype,
                               .side = side,
                               .values = sparse->work,
                               .count = sparse->options.count};
}

size_t baton__sparse_accumulate_topk(baton_sparse_t *sparse, baton_side_t side,
                                     uint32_t *indices, void *scratch,
                                     baton_magnitude_t *threshold)
{
    size_t count = sparse->options.count, k = sparse->k;
    if (!sparse->payload) {
        return k < count ? k : count;
    }
    baton_accumulation_t of = accumulation(sparse, 0, count, side);
    of.guess = &sparse->guess;
    return baton_accumulate_topk(&of, k, indices, scratch, threshold);
}

size_t baton__sparse_accumulate_at_least(baton_sparse_t *sparse,
                                         baton_side_t side,
                                         baton_magnitude_t threshold,
                                         uint32_t *indices, size_t room)
{
    const baton_accumulation_t of =
        accumulation(sparse, 0, sparse->options.count, side);
    return baton_accumulate_at_least(&of, threshold, indices, room);
}

void baton__sparse_candidates(baton_sparse_t *sparse, size_t first,
                              size_t count, size_t k,
                              baton_candidates_t *candidates,
                              baton_magnitude_t *guess, void *scratch)
{
    sparse->counting.block_selections++;
    if (sparse->payload) {
        baton_accumulation_t of =
            accumulation(sparse, first, count, BATON_SIDE_BOTH);
        of.guess = guess;
        baton_candidates_find(&of, k, candidates, scratch);
    }
}
