/* What a step adds to the residual: the gradient, clipped, with momentum
   (Fang et al. 2019, section 2.5: momentum correction). Velocity is written
   when the step has been completed, so here it is computed in a tile, and once
   more then. */
#include "coll/sparse/sparse.h"

#include <math.h>
#include <string.h>

enum {
    TILE_BYTES = 8192,
    STREAM_BYTES = 8 << 20 /* of a vector that caches do not hold */
};

static void add(baton_sparse_t *sparse, void *target, const void *left,
                const void *right, size_t count)
{
    BATON_SUM->reduce(BATON_SUM->arg, target, left, right, count,
                      sparse->options.dtype);
}

static double factor_of(const baton_sparse_t *sparse, double square_sum)
{
    double norm = sqrt(square_sum);
    double most = sparse->options.clip / sqrt((double)sparse->size);
    return norm > most ? most / norm : 1;
}

static double clip_factor(const baton_sparse_t *sparse, const void *gradient)
{
    if (sparse->options.clip == 0 || gradient == NULL) {
        return 1;
    }
    baton_magnitudes_t all = baton_elements_measure(
        sparse->options.dtype, gradient, sparse->options.count);
    return factor_of(sparse, all.square_sum);
}

void baton__sparse_clip(baton_sparse_t *sparse, double square_sum)
{
    sparse->clip_factor = factor_of(sparse, square_sum);
}

void baton__sparse_begin(baton_sparse_t *sparse)
{
    sparse->counting = (baton_sparse_stats_t){0};
    sparse->next = sparse->learned;
    sparse->settled = false;
    sparse->merged = 0;
    sparse->clip_factor =
        sparse->backend->accumulates
            ? sparse->given_factor * clip_factor(sparse, sparse->gradient)
            : 1;
}

/* Elements of a gradient, clipped: in `tile`, or where they are. */
static const void *scaled(const baton_sparse_t *sparse, const char *from,
                          size_t count, double factor, char *tile)
{
    if (factor == 1) {
        return from;
    }
    memcpy(tile, from, count * sparse->element_bytes);
    baton_elements_scale(sparse->options.dtype, tile, count, factor);
    return tile;
}

static const void *clipped(baton_sparse_t *sparse, size_t first, size_t count,
                           char *tile)
{
    return scaled(sparse, sparse->gradient + first * sparse->element_bytes,
                  count, sparse->clip_factor, tile);
}

/* velocity_out = m u + g, or m (u + g); returns what is accumulated. */
static const void *with_momentum(baton_sparse_t *sparse, size_t first,
                                 size_t count, const void *gradient,
                                 char *velocity_out, char *tile)
{
    const char *velocity = sparse->velocity + first * sparse->element_bytes;
    if (sparse->options.nesterov) {
        add(sparse, velocity_out, velocity, gradient, count);
        baton_elements_scale(sparse->options.dtype, velocity_out, count,
                             sparse->options.momentum);
        add(sparse, tile, velocity_out, gradient, count);
        return tile;
    }
    memmove(velocity_out, velocity, count * sparse->element_bytes);
    baton_elements_scale(sparse->options.dtype, velocity_out, count,
                         sparse->options.momentum);
    add(sparse, velocity_out, velocity_out, gradient, count);
    return velocity_out;
}

static void accumulate_tile(baton_sparse_t *sparse, size_t first, size_t count)
{
    _Alignas(64) char gradient_tile[TILE_BYTES], velocity_tile[TILE_BYTES],
        sum_tile[TILE_BYTES];
    size_t offset = first * sparse->element_bytes;
    const void *adds = clipped(sparse, first, count, gradient_tile);
    if (sparse->velocity != NULL) {
        adds =
            with_momentum(sparse, first, count, adds, velocity_tile, sum_tile);
    }
    static _Alignas(64) const char zeros[TILE_BYTES];
    add(sparse, sparse->work + offset,
        sparse->no_residual ? zeros : sparse->residual + offset, adds, count);
}

void baton__sparse_accumulate(baton_sparse_t *sparse, size_t first,
                              size_t count)
{
    if (!sparse->payload) {
        return;
    }
    if (sparse->absent) {
        memset(sparse->work + first * sparse->element_bytes, 0,
               count * sparse->element_bytes);
        return;
    }
    if (sparse->gradient == NULL) {
        size_t offset = first * sparse->element_bytes;
        size_t bytes = count * sparse->element_bytes;
        if (sparse->no_residual) {
            memset(sparse->work + offset, 0, bytes);
        } else {
            memcpy(sparse->work + offset, sparse->residual + offset, bytes);
        }
        return;
    }
    bool plain = sparse->velocity == NULL && sparse->clip_factor == 1 &&
                 !sparse->no_residual;
    size_t tile = plain ? count : TILE_BYTES / sparse->element_bytes;
    for (size_t done = 0; done < count; done += tile) {
        size_t left = count - done;
        accumulate_tile(sparse, first + done, left < tile ? left : tile);
    }
}

void baton__sparse_contribute(baton_sparse_t *sparse, const void *gradient,
                              char *target, bool first)
{
    _Alignas(64) char data[TILE_BYTES];
    const size_t size = sparse->element_bytes, all = sparse->options.count;
    double factor = clip_factor(sparse, gradient);
    size_t tile = TILE_BYTES / size;
    for (size_t done = 0; done < all; done += tile) {
        size_t count = all - done < tile ? all - done : tile;
        const void *adds = scaled(sparse, (const char *)gradient + done * size,
                                  count, factor, data);
        char *to = target + done * size;
        if (first) {
            memcpy(to, adds, count * size);
        } else {
            add(sparse, to, to, adds, count);
        }
    }
}

void baton__sparse_advance(baton_sparse_t *sparse)
{
    _Alignas(64) char gradient_tile[TILE_BYTES], sum_tile[TILE_BYTES];
    if (sparse->velocity == NULL || sparse->gradient == NULL) {
        return;
    }
    size_t count = sparse->options.count;
    size_t tile = TILE_BYTES / sparse->element_bytes;
    for (size_t done = 0; done < count; done += tile) {
        size_t here = count - done < tile ? count - done : tile;
        const void *gradient = clipped(sparse, done, here, gradient_tile);
        (void)with_momentum(sparse, done, here, gradient,
                            sparse->velocity + done * sparse->element_bytes,
                            sum_tile);
    }
    for (size_t i = 0; i < sparse->masked_count; i++) {
        size_t index = sparse->masked[i];
        memset(sparse->velocity + index * sparse->element_bytes, 0,
               sparse->element_bytes);
    }
}

/* Whether work's elements are nothing but residual plus gradient. Then `out`
   adds them up, and selects from them in the same pass; else they have been
   accumulated. */
static bool fused(baton_sparse_t *sparse, size_t first, size_t count,
                  baton_accumulation_t *out)
{
    size_t offset = first * sparse->element_bytes;
    if (!sparse->payload || sparse->absent || sparse->gradient == NULL ||
        sparse->velocity != NULL || sparse->clip_factor != 1 ||
        sparse->no_residual) {
        baton__sparse_accumulate(sparse, first, count);
        return false;
    }
    *out = (baton_accumulation_t){
        .dtype = sparse->options.dtype,
        .sum = sparse->work + offset,
        .left = sparse->residual + offset,
        .right = sparse->gradient + offset,
        .count = count,
        .first = (uint32_t)first,
        .stream = sparse->options.count * sparse->element_bytes >= STREAM_BYTES,
    };
    return true;
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
    baton_accumulation_t of;
    if (!sparse->payload) {
        return k < count ? k : count;
    }
    if (fused(sparse, 0, count, &of)) {
        of.side = side;
        return baton_accumulate_topk(&of, k, indices, scratch, threshold);
    }
    const baton_selection_t from = baton__sparse_selection(sparse, side);
    return baton_select_topk(&from, k, indices, scratch, threshold);
}

size_t baton__sparse_accumulate_at_least(baton_sparse_t *sparse,
                                         baton_side_t side,
                                         baton_magnitude_t threshold,
                                         uint32_t *indices, size_t room)
{
    baton_accumulation_t of;
    if (fused(sparse, 0, sparse->options.count, &of)) {
        of.side = side;
        return baton_accumulate_at_least(&of, threshold, indices, room);
    }
    const baton_selection_t from = baton__sparse_selection(sparse, side);
    return baton_select_at_least(&from, threshold, indices, room);
}

void baton__sparse_candidates(baton_sparse_t *sparse, size_t first,
                              size_t count, size_t k,
                              baton_candidates_t *candidates, void *scratch)
{
    baton_accumulation_t of;
    sparse->counting.block_selections++;
    if (!sparse->payload) {
        return;
    }
    if (!fused(sparse, first, count, &of)) {
        of = (baton_accumulation_t){
            .dtype = sparse->options.dtype,
            .sum = sparse->work + first * sparse->element_bytes,
            .count = count,
            .first = (uint32_t)first,
        };
    }
    baton_candidates_find(&of, k, candidates, scratch);
}
