/* Accumulation: adds the gradient, clipped and with momentum, to the residual
   (Fang et al. 2019, section 2.5: momentum correction). One pass
   (baton/select.h) reads gradient, residual and velocity, writes `work` and the
   next velocity, and finds large elements. The two velocities are swapped after
   the step has been completed. */
#include "coll/sparse/core/core.h"

#include "base/half.h"

#include <math.h>

enum {
    /* Vectors of this many bytes or more do not fit into caches. */
    STREAM_BYTES = 8 << 20,
    /* When the velocity is cleared at some indices, it is prefetched this many
       indices ahead. */
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
    baton_magnitudes_t all =
        baton_elements_measure(sparse->dtype, gradient, sparse->count);
    return baton__clip_factor(sparse->options.clip, sparse->size,
                              all.square_sum);
}

void baton__sparse_begin(baton_sparse_t *sparse)
{
    sparse->counting = (baton_sparse_stats_t){0};
    sparse->next = sparse->learned;
    sparse->completion.done = false;
    sparse->completion.team_sums = 0;
    sparse->input.clip_factor = 1;
    /* Other backends clip the gradient before the step, or on the device. */
    if (sparse->host != NULL) {
        sparse->input.clip_factor =
            sparse->input.factor *
            accumulate_clip_factor(sparse, sparse->input.gradient);
    }
}

/* Returns a description of how the elements [first, first + count) of `work`
   are computed, for a selection that computes them in the same pass. If `right`
   of the description is NULL, the elements have been computed already. */
static baton_accumulation_t accumulation(const baton_sparse_t *sparse,
                                         size_t first, size_t count,
                                         baton_side_t side)
{
    const baton__sparse_input_t *input = &sparse->input;
    const size_t size = sparse->element_bytes;
    const size_t offset = first * size, bytes = count * size;
    baton_accumulation_t of = {
        .dtype = sparse->dtype,
        .side = side,
        .sum = sparse->work + offset,
        .left = input->residual != NULL ? input->residual + offset : NULL,
        .count = count,
        .first = (uint32_t)first,
        .stream = sparse->count * size >= STREAM_BYTES,
    };
    if (input->summed) {
        return of;
    }
    if (input->gradient == NULL) {
        if (of.left == NULL) {
            memset(of.sum, 0, bytes);
        } else if (of.sum != of.left) {
            memcpy(of.sum, of.left, bytes);
        }
        return of;
    }
    of.right = input->gradient + offset;
    of.scale = input->clip_factor != 1;
    of.factor = input->clip_factor;
    if (input->new_velocity != NULL) {
        of.momentum = sparse->options.momentum;
        of.nesterov = sparse->options.nesterov;
        of.short_velocity = sparse->options.short_velocity;
        size_t from = first * baton__velocity_bytes(sparse);
        of.velocity = input->velocity + from;
        of.new_velocity = input->new_velocity + from;
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
                              char *target, bool first)
{
    double factor = accumulate_clip_factor(sparse, gradient);
    char *velocity = sparse->input.velocity;
    const baton_accumulation_t of = {.dtype = sparse->dtype,
                                     .sum = target,
                                     .left = first ? NULL : target,
                                     .right = gradient,
                                     .count = sparse->count,
                                     .scale = factor != 1,
                                     .factor = factor,
                                     .momentum = sparse->options.momentum,
                                     .nesterov = sparse->options.nesterov,
                                     .velocity = velocity,
                                     .short_velocity =
                                         sparse->options.short_velocity,
                                     .new_velocity = velocity};
    (void)baton_accumulate_at_least(&of, UINT64_MAX, NULL, 0);
}

void baton__sparse_read_velocity(const baton_sparse_t *sparse, void *to)
{
    const uint16_t *halves = (const void *)sparse->input.velocity;
    if (!sparse->options.short_velocity) {
        memcpy(to, sparse->input.velocity, sparse->vector_bytes);
        return;
    }
    for (size_t i = 0; i < sparse->count; i++) {
        float value = baton__f32_of_bf16(halves[i]);
        memcpy((char *)to + i * sizeof value, &value, sizeof value);
    }
}

void baton__sparse_write_velocity(const baton_sparse_t *sparse,
                                  const void *from)
{
    uint16_t *halves = (void *)sparse->input.velocity;
    float value;
    if (!sparse->options.short_velocity) {
        memcpy(sparse->input.velocity, from, sparse->vector_bytes);
        return;
    }
    for (size_t i = 0; i < sparse->count; i++) {
        memcpy(&value, (const char *)from + i * sizeof value, sizeof value);
        halves[i] = baton__bf16_of_f32(value);
    }
}

void baton__sparse_mask(const baton_sparse_t *sparse, const uint32_t *indices,
                        size_t count)
{
    const size_t size = baton__velocity_bytes(sparse);
    char *velocity = sparse->input.velocity;
    for (size_t i = 0; i < count; i++) {
        size_t ahead = i + MASK_AHEAD < count ? i + MASK_AHEAD : i;
        __builtin_prefetch(velocity + indices[ahead] * size);
        memset(velocity + indices[i] * size, 0, size);
    }
}

void baton__sparse_advance(baton_sparse_t *sparse, bool dense)
{
    baton__sparse_input_t *input = &sparse->input;
    const baton__completion_t *completion = &sparse->completion;
    const baton__sparse_buffer_t *result = sparse->results.shown;
    if (input->new_velocity == NULL || input->gradient == NULL) {
        return;
    }
    baton__sparse_exchange(&input->velocity, &input->new_velocity);
    if (!dense && completion->selected != NULL) {
        baton__sparse_mask(sparse, completion->selected,
                           completion->selected_count);
    } else if (!dense) {
        baton__sparse_mask(sparse, result->indices, (size_t)*result->count);
    }
}

baton_selection_t baton__sparse_selection(const baton_sparse_t *sparse,
                                          baton_side_t side)
{
    return (baton_selection_t){.dtype = sparse->dtype,
                               .side = side,
                               .values = sparse->work,
                               .count = sparse->count};
}

size_t baton__sparse_accumulate_topk(baton_sparse_t *sparse, baton_side_t side,
                                     uint32_t *indices, void *scratch,
                                     baton_magnitude_t *threshold)
{
    size_t count = sparse->count, k = sparse->k;
    if (!sparse->payload) {
        return k < count ? k : count;
    }
    baton_accumulation_t of = accumulation(sparse, 0, count, side);
    of.guess = &sparse->input.guess;
    return baton_accumulate_topk(&of, k, indices, scratch, threshold);
}

size_t baton__sparse_accumulate_at_least(baton_sparse_t *sparse,
                                         baton_side_t side,
                                         baton_magnitude_t threshold,
                                         uint32_t *indices, size_t capacity)
{
    const baton_accumulation_t of =
        accumulation(sparse, 0, sparse->count, side);
    return baton_accumulate_at_least(&of, threshold, indices, capacity);
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
