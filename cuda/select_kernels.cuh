/* The selection kernels. A selection is a sequence of launches that communicate
   through the device's memory; none needs an answer from the CPU.

       begin                      initializes the selection's state
       estimate                   a threshold from a sample, rather too low
       filter                     pass over the vector: candidates
       radix x 2, 3 or 6          the exact k-th candidate
       tally, scan, emit          candidates to ascending indices

   A vector is cut into tiles of 4 KiB, one for each warp. The filter appends
   the candidates of a tile, in order, to a common list, whose tiles are in no
   order, and notes where each tile's candidates begin. So one pass over the
   vector suffices: tally counts the selected elements of each tile, scan sums
   these counts, and emit writes the indices of each tile to their place.

   If the sample misled (fewer than k elements reach the estimate), or more
   elements are tied than the list has capacity for, radix, tally and emit read
   the vector instead of the candidates. They decide that from the state, so
   the launches are always the same. A launch with nothing to do returns at
   once.

   RedSync's search needs the mean and the largest magnitude, from measure and
   join. It counts no elements: a threshold leaves k to 2k elements if it is at
   most the k-th key and above the (2k+1)-th key. So radix finds both keys, and
   its last block searches. */
#pragma once

#include "cuda/launch.h"
#include "cuda/select_element.h"

namespace baton_cuda
{

enum {
    WARP = 32,
    THREADS = 256, /* threads of a block, unless a kernel says otherwise */
    WARPS = THREADS / WARP,
    /* The number of 16-byte loads by which a thread reads its part of a
       tile. */
    ROUNDS = 8,
    TILE_BYTES = WARP * ROUNDS * 16,
    DIGIT_BITS = 11,
    DIGITS = 1 << DIGIT_BITS,
    MOST_BLOCKS = 512, /* the most blocks of kernels with histograms */
    WIDE = 1024,       /* threads of a kernel with a single block */
    /* For measure and join; equal to those of lib/ops/select_kernels.c. */
    LANES = 16,
    MEASURE_TILE = 4096,
    TILE_LANES = 256
};

#define ALL_TIES UINT32_MAX

/* ---- memory ------------------------------------------------------------ */

/* An element that radix searches by its rank, counted from the largest. */
typedef struct ranked {
    /* The upper digits of the element's key, as far as they were found. After
       the last digit this is the whole key, or 0 if all elements are zeros. */
    uint64_t prefix;
    /* The element's rank among the elements with the same upper digits. */
    uint64_t rank;
    uint64_t above; /* number of elements with larger upper digits */
    uint32_t equal; /* number of elements with the same whole key */
    uint32_t histogram[DIGITS];
} ranked_t;

/* The state of a selection. One thread of a launch writes it, or threads add to
   it atomically; later launches read it. */
typedef struct state {
    uint64_t k;
    /* The largest number of elements that RedSync's search may select; 0 if
       exactly the k largest are wanted. */
    uint64_t most;
    /* The number of candidates that the result needs; 0 if a given threshold
       decides which elements are selected. */
    uint64_t need;
    uint64_t least; /* the smallest key of a candidate */
    /* Number of candidates, including those beyond the capacity. */
    uint32_t found;
    /* Number of blocks of the running launch that have finished. */
    uint32_t tickets;
    /* The result. Elements above the threshold are selected, and of elements
       that equal it the first `ties`. */
    uint64_t threshold;
    uint32_t ties;
    uint32_t done; /* 1: the result is known */
    /* The number of elements or candidates whose key is not 0. */
    uint32_t total;
    uint64_t largest; /* the largest key of all elements, of either sign */
    double mean;      /* the mean magnitude of all elements, of either sign */
    /* The k-th largest element and, in a search, the next one after the `most`
       largest elements. */
    ranked_t ranked[2];
} state_t;

template <baton_dtype_t D> struct vector {
    const typename element<D>::bits_t *values;
    uint64_t count;
    uint32_t first;
    filter<D> by;
};

template <baton_dtype_t D> struct workspace {
    state_t *state;
    /* For each tile: how many elements are selected in earlier tiles of the
       same block. The upper 32 bits count those above the threshold, the lower
       32 bits those equal to it. */
    uint64_t *tally;
    /* For each block of the kernel `tally`: the sum of its tiles' counts. The
       kernel `scan` replaces it by the sum over all earlier blocks. */
    uint64_t *groups;
    /* For each tile: the place of its first candidate in `keys`. */
    uint32_t *bases;
    uint32_t *counts; /* for each tile: the number of candidates */
    typename element<D>::key_t *keys;
    uint32_t *indices;
    /* The number of candidates for which `keys` and `indices` have space. */
    uint64_t capacity;
    uint32_t tiles;
};

/* ---- warps and blocks -------------------------------------------------- */

#define EVERY_LANE 0xffffffffu

__device__ inline unsigned lane_of_thread()
{
    return threadIdx.x % WARP;
}

__device__ inline unsigned warp_of_grid()
{
    return blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
}

template <class type> __device__ type warp_sum(type value)
{
    for (unsigned step = WARP / 2; step > 0; step /= 2) {
        value += __shfl_xor_sync(EVERY_LANE, value, step);
    }
    return value;
}

/* Returns the sum of the values of the warp's lanes with lower numbers than
   this one. */
template <class type> __device__ type warp_sum_below(type value)
{
    const unsigned lane = lane_of_thread();
    type sum = value;
    for (unsigned step = 1; step < WARP; step *= 2) {
        type other = __shfl_up_sync(EVERY_LANE, sum, step);
        sum += lane >= step ? other : 0;
    }
    return sum - value;
}

/* Returns the sum of the values of the block's threads with higher numbers than
   this one. */
template <int threads> __device__ uint32_t block_sum_above(uint32_t value)
{
    __shared__ uint32_t warps[threads / WARP];
    const unsigned lane = lane_of_thread(), warp = threadIdx.x / WARP;
    uint32_t sum = value;
    for (unsigned step = 1; step < WARP; step *= 2) {
        uint32_t other = __shfl_down_sync(EVERY_LANE, sum, step);
        sum += lane + step < WARP ? other : 0;
    }
    if (lane == 0) {
        warps[warp] = sum;
    }
    __syncthreads();
    for (unsigned i = warp + 1; i < threads / WARP; i++) {
        sum += warps[i];
    }
    __syncthreads();
    return sum - value;
}

/* Returns true, in all threads of one block, if all other blocks of the launch
   have written their results. */
__device__ inline bool is_last_block(state_t *state)
{
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(&state->tickets, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) {
        return false;
    }
    __threadfence();
    if (threadIdx.x == 0) {
        state->tickets = 0;
    }
    return true;
}

/* ---- histograms -------------------------------------------------------- */

/* The digit of the element that has a given rank, counted from the largest. */
typedef struct place {
    uint32_t digit;
    uint32_t count; /* number of elements with this digit */
    uint32_t above; /* number of elements with a higher digit */
} place_t;

/* Finds the digit of the element with rank `rank`, from 1 to the sum of the
   histogram. Called by all threads of a block. */
template <int threads>
__device__ place_t place_of(const uint32_t *histogram, uint32_t rank)
{
    const unsigned own = DIGITS / threads, begin = threadIdx.x * own;
    __shared__ place_t place;
    uint32_t sum = 0;
    for (unsigned i = 0; i < own; i++) {
        sum += histogram[begin + i];
    }
    uint32_t above = block_sum_above<threads>(sum);
    if (above < rank && rank - above <= sum) {
        unsigned digit = begin + own - 1;
        for (; above + histogram[digit] < rank; digit--) {
            above += histogram[digit];
        }
        place.digit = digit;
        place.count = histogram[digit];
        place.above = above;
    }
    __syncthreads();
    place_t result = place;
    __syncthreads();
    return result;
}

/* Collects one thread's counts for a histogram in shared memory. Equal bins in
   a row, which ties produce, are counted here first, and added by a single
   atomic operation. */
typedef struct run {
    uint32_t *histogram;
    unsigned bin;
    uint32_t length;
} run_t;

__device__ inline void run_end(run_t *run)
{
    if (run->length > 0) {
        atomicAdd(&run->histogram[run->bin], run->length);
    }
    run->length = 0;
}

__device__ inline void run_count(run_t *run, unsigned bin)
{
    if (bin != run->bin) {
        run_end(run);
        run->bin = bin;
    }
    run->length++;
}

__device__ inline void histogram_clear(uint32_t *histogram)
{
    for (unsigned i = threadIdx.x; i < DIGITS; i += blockDim.x) {
        histogram[i] = 0;
    }
    __syncthreads();
}

/* Adds a block's histogram to that of all blocks. */
__device__ inline void histogram_join(ranked_t *ranked, const uint32_t *block)
{
    __syncthreads();
    for (unsigned i = threadIdx.x; i < DIGITS; i += blockDim.x) {
        if (block[i] > 0) {
            atomicAdd(&ranked->histogram[i], block[i]);
        }
    }
    __syncthreads();
}

/* Copies the histogram of all blocks to `block`, which is in the last block's
   shared memory, and clears the original. Other blocks have added to the
   original in the second-level cache, so the reads are volatile in order to go
   there, too. */
__device__ inline void histogram_take(ranked_t *ranked, uint32_t *block)
{
    volatile uint32_t *all = ranked->histogram;
    for (unsigned i = threadIdx.x; i < DIGITS; i += blockDim.x) {
        block[i] = all[i];
        all[i] = 0;
    }
    __syncthreads();
}

/* ---- tiles ------------------------------------------------------------- */

/* A thread's part of a tile: ROUNDS loads of 16 bytes. Elements outside of the
   vector are 0, which is never selected. */
template <baton_dtype_t D> struct tile {
    typedef typename element<D>::bits_t bits_t;
    typedef typename element<D>::key_t key_t;
    enum { PER_LOAD = 16 / sizeof(bits_t) };
    uint4 loads[ROUNDS];
    int64_t begin; /* index of the thread's first element in round 0 */
    filter<D> by;

    __device__ int64_t index(unsigned round, unsigned i) const
    {
        return begin + (int64_t)round * (WARP * PER_LOAD) + i;
    }

    __device__ key_t key(unsigned round, unsigned i) const
    {
        const uint4 &load = loads[round];
        const uint32_t words[4] = {load.x, load.y, load.z, load.w};
        if (sizeof(bits_t) == 2) {
            return key_of<D>((bits_t)(words[i / 2] >> (16 * (i % 2))), by);
        }
        if (sizeof(bits_t) == 4) {
            return key_of<D>((bits_t)words[i], by);
        }
        uint64_t low = words[2 * i % 4], high = words[(2 * i + 1) % 4];
        return key_of<D>((bits_t)(high << 16 << 16 | low), by);
    }

    /* Calls visit(key) for each element. */
    template <class function> __device__ void each_key(function visit) const
    {
#pragma unroll
        for (unsigned round = 0; round < ROUNDS; round++) {
#pragma unroll
            for (unsigned i = 0; i < PER_LOAD; i++) {
                visit(key(round, i));
            }
        }
    }
};

/* A load begins at an address that is a multiple of 16 bytes. Returns how many
   elements before the vector's beginning the first load includes. */
template <baton_dtype_t D>
BATON__BOTH unsigned head_of(const typename element<D>::bits_t *values)
{
    return (unsigned)((uintptr_t)values % 16 /
                      sizeof(typename element<D>::bits_t));
}

/* Returns the number of tiles of a vector with at least one element. */
template <baton_dtype_t D> uint32_t tiles_of(const vector<D> &from)
{
    const uint64_t bytes = sizeof(typename element<D>::bits_t);
    const uint64_t end = (head_of<D>(from.values) + from.count) * bytes;
    return (uint32_t)((end + TILE_BYTES - 1) / TILE_BYTES);
}

template <baton_dtype_t D> vector<D> vector_of(const baton_selection_t *from)
{
    vector<D> result;
    result.values = (const typename element<D>::bits_t *)from->values;
    result.count = from->count;
    result.first = from->first;
    result.by = filter_of<D>(from->side);
    return result;
}

template <baton_dtype_t D>
__device__ uint4 load_guarded(const vector<D> &from, int64_t begin)
{
    typedef typename element<D>::bits_t bits_t;
    union {
        bits_t elements[16 / sizeof(bits_t)];
        uint4 load;
    } edge;
    for (int64_t i = 0; i < (int64_t)(16 / sizeof(bits_t)); i++) {
        bool inside = begin + i >= 0 && begin + i < (int64_t)from.count;
        edge.elements[i] = inside ? from.values[begin + i] : (bits_t)0;
    }
    return edge.load;
}

template <baton_dtype_t D>
__device__ tile<D> load_tile(const vector<D> &from, uint32_t number)
{
    const int64_t per_load = tile<D>::PER_LOAD;
    tile<D> result;
    result.by = from.by;
    result.begin =
        ((int64_t)number * (WARP * ROUNDS) + lane_of_thread()) * per_load -
        head_of<D>(from.values);
#pragma unroll
    for (unsigned round = 0; round < ROUNDS; round++) {
        int64_t begin = result.index(round, 0);
        bool whole = begin >= 0 && begin + per_load <= (int64_t)from.count;
        result.loads[round] =
            whole ? *(const uint4 *)(const void *)(from.values + begin)
                  : load_guarded<D>(from, begin);
    }
    return result;
}

/* ---- begin ------------------------------------------------------------- */

typedef struct beginning {
    uint64_t k, most, need;
    const baton_magnitude_t *threshold; /* points to device memory; or NULL */
} beginning_t;

template <baton_dtype_t D>
__global__ void begin(state_t *state, beginning_t with)
{
    for (ranked_t &ranked : state->ranked) {
        for (unsigned i = threadIdx.x; i < DIGITS; i += blockDim.x) {
            ranked.histogram[i] = 0;
        }
        if (threadIdx.x == 0) {
            ranked.prefix = 0;
            ranked.above = 0;
        }
    }
    if (threadIdx.x != 0) {
        return;
    }
    /* No element reaches a threshold above the key of NaNs. */
    const uint64_t beyond = (uint64_t)nan_key<D>() + 1;
    const uint64_t earlier = with.threshold != NULL ? *with.threshold : 0;
    const uint64_t reached = earlier < beyond ? earlier : beyond;
    const uint64_t least = earlier == 0 ? 1 : reached;
    state->k = with.k;
    state->most = with.most;
    state->need = with.need;
    state->least = least;
    state->found = 0;
    state->tickets = 0;
    /* This result is right if a given threshold decides. Otherwise a later
       launch replaces it. */
    state->threshold = least;
    state->ties = ALL_TIES;
    state->done = 0;
    state->largest = 0;
}

/* ---- estimate ---------------------------------------------------------- */

/* One block of WIDE threads finds the key of the element with this rank,
   counted from the largest, in the sample. */
template <baton_dtype_t D>
__global__ void __launch_bounds__(WIDE)
    estimate(vector<D> from, state_t *state, uint32_t size, uint32_t rank)
{
    typedef typename element<D>::key_t key_t;
    const unsigned own = SAMPLE_MOST / WIDE;
    __shared__ uint32_t histogram[DIGITS];
    key_t keys[own];
    if (state->done) {
        return;
    }
#pragma unroll
    for (unsigned i = 0; i < own; i++) {
        uint64_t at = (uint64_t)i * WIDE + threadIdx.x;
        keys[i] =
            at < size
                ? key_of<D>(from.values[position_of(from.count, size, at)],
                            from.by)
                : (key_t)0; /* the smallest key, which stands for no element */
    }
    key_t prefix = 0;
    for (unsigned bits = key_bits<D>(), shift; bits > 0; bits = shift) {
        shift = bits > DIGIT_BITS ? bits - DIGIT_BITS : 0;
        const key_t mask = ((key_t)1 << (bits - shift)) - 1;
        histogram_clear(histogram);
        run_t run = {histogram, 0, 0};
#pragma unroll
        for (unsigned i = 0; i < own; i++) {
            if (keys[i] >> bits == prefix) {
                run_count(&run, (unsigned)(keys[i] >> shift & mask));
            }
        }
        run_end(&run);
        __syncthreads();
        place_t place = place_of<WIDE>(histogram, rank);
        prefix = prefix << (bits - shift) | place.digit;
        rank -= place.above;
    }
    if (threadIdx.x == 0) {
        state->least = prefix > 0 ? prefix : 1;
    }
}

/* ---- filter ------------------------------------------------------------ */

/* Makes the compiler compute keys again. If it kept the keys from one pass over
   the tile to the next, the keys of f16 would take 128 registers. */
template <baton_dtype_t D> __device__ void forget_keys(tile<D> *part)
{
#if defined(__CUDA_ARCH__)
#pragma unroll
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint4 *load = &part->loads[round];
        asm volatile(""
                     : "+r"(load->x), "+r"(load->y), "+r"(load->z),
                       "+r"(load->w));
    }
#else
    (void)part;
#endif
}

template <baton_dtype_t D>
__global__ void __launch_bounds__(THREADS, 3)
    filter_tiles(vector<D> from, workspace<D> work)
{
    typedef typename element<D>::key_t key_t;
    const uint32_t number = warp_of_grid();
    state_t *state = work.state;
    if (number >= work.tiles || state->done) {
        return;
    }
    const key_t least = (key_t)state->least;
    tile<D> part = load_tile<D>(from, number);
    uint32_t own = 0;
    part.each_key([&](key_t key) { own += key >= least; });
    const uint32_t found = warp_sum(own);
    uint32_t base = 0;
    if (lane_of_thread() == 0) {
        base = found > 0 ? atomicAdd(&state->found, found) : 0;
        work.bases[number] = base;
        work.counts[number] = found;
    }
    base = __shfl_sync(EVERY_LANE, base, 0);
    if (found == 0) {
        return;
    }
    forget_keys(&part);
#pragma unroll
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint32_t hits = 0;
#pragma unroll
        for (unsigned i = 0; i < tile<D>::PER_LOAD; i++) {
            hits += part.key(round, i) >= least;
        }
        if (__ballot_sync(EVERY_LANE, hits > 0) == 0) {
            continue;
        }
        uint64_t at = (uint64_t)base + warp_sum_below(hits);
        base += warp_sum(hits);
#pragma unroll
        for (unsigned i = 0; i < tile<D>::PER_LOAD; i++) {
            key_t key = part.key(round, i);
            if (key >= least && at < work.capacity) {
                work.keys[at] = key;
                work.indices[at] = from.first + (uint32_t)part.index(round, i);
            }
            at += key >= least;
        }
    }
}

/* Returns whether the candidates do not determine the result, so that the whole
   vector must be read. */
template <baton_dtype_t D> __device__ bool is_whole(const workspace<D> &work)
{
    const state_t *state = work.state;
    return state->need > 0 &&
           (state->found > work.capacity ||
            (state->found < state->need && state->least > 1));
}

/* Calls visit(key) for each candidate, or for each element of the vector if the
   candidates do not determine the result. Each thread of the grid visits its
   share. */
template <baton_dtype_t D, class function>
__device__ void visit_keys(const vector<D> &from, const workspace<D> &work,
                           function visit)
{
    if (!is_whole(work)) {
        const uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
        uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
        for (; i < work.state->found; i += stride) {
            visit(work.keys[i]);
        }
        return;
    }
    const uint32_t stride = gridDim.x * (blockDim.x / WARP);
    for (uint64_t number = warp_of_grid(); number < work.tiles;
         number += stride) {
        load_tile<D>(from, (uint32_t)number).each_key(visit);
    }
}

/* ---- the exact k-th ---------------------------------------------------- */

/* Finds the next digit of an element from the histogram of all blocks. Called
   by all threads of the last block. In the first pass the histogram has all
   keys, and the element's rank is `wanted`; if there are fewer elements, the
   last one is taken. */
template <baton_dtype_t D>
__device__ void find_digit(state_t *state, ranked_t *ranked,
                           const uint32_t *histogram, unsigned bits,
                           unsigned shift, uint64_t wanted)
{
    if (bits == key_bits<D>()) {
        uint32_t sum = 0;
        for (unsigned i = threadIdx.x; i < DIGITS; i += THREADS) {
            sum += histogram[i];
        }
        uint32_t above = block_sum_above<THREADS>(sum);
        if (threadIdx.x == 0) {
            state->total = above + sum;
            ranked->rank = wanted < above + sum ? wanted : above + sum;
        }
        __syncthreads();
    }
    volatile uint64_t *rank = &ranked->rank;
    if (*rank == 0) {
        return; /* all elements are zeros */
    }
    place_t place = place_of<THREADS>(histogram, (uint32_t)*rank);
    if (threadIdx.x == 0) {
        ranked->prefix = ranked->prefix << (bits - shift) | place.digit;
        ranked->rank -= place.above;
        ranked->above += place.above;
        ranked->equal = place.count;
    }
}

/* Sets the threshold and the ties. Called by one thread after the last digit.
   In a search all elements that equal the k-th are selected, too, unless more
   than `most` elements would then be selected. */
template <baton_dtype_t D> __device__ void finish(state_t *state)
{
    typedef typename element<D>::key_t key_t;
    const ranked_t *kth = &state->ranked[0];
    state->done = 1;
    if (state->total == 0) {
        /* All elements are zeros, so nothing is selected or tied. Tallying the
           zeros, together with the zeros outside of the vector, could
           overflow. */
        state->threshold = (uint64_t)nan_key<D>() + 1;
        state->ties = 0;
        return;
    }
    bool all = kth->above + kth->equal <= state->most;
    state->threshold = kth->prefix;
    state->ties = all ? ALL_TIES : (uint32_t)kth->rank;
    const key_t largest = (key_t)state->largest;
    if (state->most == 0 || state->total < state->k ||
        largest >= infinity_key<D>()) {
        return;
    }
    key_t beyond =
        state->total > state->most ? (key_t)state->ranked[1].prefix : 0;
    key_t found = search<D>(state->mean, magnitude_value<D>(largest),
                            (key_t)kth->prefix, beyond);
    if (found > 0) {
        state->threshold = found;
        state->ties = ALL_TIES;
    }
}

/* Finds one digit, bits [shift, bits), of the elements with the wanted ranks.
   Each block makes the histogram of the digit over the keys that have the upper
   digits found so far; the last block finds the digit. Zeros do not count. */
template <baton_dtype_t D>
__global__ void __launch_bounds__(THREADS, 3)
    radix(vector<D> from, workspace<D> work, unsigned bits, unsigned shift)
{
    typedef typename element<D>::key_t key_t;
    __shared__ uint32_t histogram[DIGITS];
    state_t *state = work.state;
    if (state->done) {
        return;
    }
    const unsigned ranks = state->most > 0 ? 2 : 1;
    const key_t mask = ((key_t)1 << (bits - shift)) - 1;
    for (unsigned i = 0; i < ranks; i++) {
        const key_t prefix = (key_t)state->ranked[i].prefix;
        histogram_clear(histogram);
        run_t run = {histogram, 0, 0};
        visit_keys<D>(from, work, [&](key_t key) {
            if (key > 0 && key >> bits == prefix) {
                run_count(&run, (unsigned)(key >> shift & mask));
            }
        });
        run_end(&run);
        histogram_join(&state->ranked[i], histogram);
    }
    if (!is_last_block(state)) {
        return;
    }
    for (unsigned i = 0; i < ranks; i++) {
        histogram_take(&state->ranked[i], histogram);
        find_digit<D>(state, &state->ranked[i], histogram, bits, shift,
                      i == 0 ? state->k : state->most + 1);
        __syncthreads();
    }
    if (threadIdx.x == 0 && shift == 0) {
        finish<D>(state);
    }
}

/* ---- RedSync ----------------------------------------------------------- */

BATON__BOTH uint64_t measure_tiles(uint64_t count)
{
    return (count + MEASURE_TILE - 1) / MEASURE_TILE;
}

template <baton_dtype_t D>
__device__ double square_of(typename element<D>::key_t key)
{
    if (key >= infinity_key<D>()) {
        return same_bits<double>(key > infinity_key<D>()
                                     ? UINT64_C(0x7ff8000000000000)
                                     : UINT64_C(0x7ff0000000000000));
    }
    const double magnitude = magnitude_value<D>(key);
    return magnitude * magnitude;
}

/* Sums magnitudes or their squares in the order in which the CPU adds them,
   with 16 lanes for each tile of 4096 elements. For a selection it also finds
   the largest magnitude. Does nothing if the selection is done. */
template <baton_dtype_t D, bool SQUARED>
__global__ void __launch_bounds__(THREADS)
    measure(const typename element<D>::bits_t *values, uint64_t count,
            state_t *state, double *sums)
{
    typedef typename element<D>::key_t key_t;
    const filter<D> both = filter_of<D>(BATON_SIDE_BOTH);
    const unsigned lane = threadIdx.x % LANES;
    const uint64_t number =
        (uint64_t)blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES;
    const uint64_t begin = number * MEASURE_TILE;
    const uint64_t end =
        begin + MEASURE_TILE < count ? begin + MEASURE_TILE : count;
    if (state != NULL && state->done) {
        return;
    }
    double sum = 0;
    key_t largest = 0;
#pragma unroll 8
    for (uint64_t i = begin + lane; i < end; i += LANES) {
        const key_t key = key_of<D>(values[i], both);
        largest = key > largest ? key : largest;
        sum += SQUARED ? square_of<D>(key) : magnitude_value<D>(key);
    }
    double all = 0;
    for (unsigned j = 0; j < LANES; j++) {
        all += __shfl_sync(EVERY_LANE, sum, j, LANES);
    }
    if (lane == 0 && begin < count) {
        sums[number] = all;
    }
    if (state == NULL) {
        return;
    }
    for (unsigned step = WARP / 2; step > 0; step /= 2) {
        key_t other = __shfl_xor_sync(EVERY_LANE, largest, step);
        largest = other > largest ? other : largest;
    }
    if (lane_of_thread() == 0 && largest > 0) {
        atomicMax((unsigned long long *)&state->largest,
                  (unsigned long long)largest);
    }
}

/* One block sums the sums of all tiles of `count` elements, in an order that
   depends on `count` alone, and divides the total by `divisor`. Does nothing if
   the selection is done. */
static __global__ void __launch_bounds__(TILE_LANES)
    join(const double *sums, uint64_t count, const state_t *state,
         uint64_t divisor, double *out)
{
    __shared__ double lanes[TILE_LANES];
    const uint64_t tiles = measure_tiles(count);
    if (state != NULL && state->done) {
        return;
    }
    double sum = 0;
#pragma unroll 8
    for (uint64_t i = threadIdx.x; i < tiles; i += TILE_LANES) {
        sum += sums[i];
    }
    lanes[threadIdx.x] = sum;
    for (unsigned half = TILE_LANES / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            lanes[threadIdx.x] += lanes[threadIdx.x + half];
        }
    }
    if (threadIdx.x == 0) {
        *out = lanes[0] / (double)divisor;
    }
}

/* One thread checks whether at most state->most elements reach an earlier
   threshold. If more do, or if there is no earlier threshold, the thread begins
   a search. */
static __global__ void
try_earlier(state_t *state, const baton_magnitude_t *threshold, uint64_t need)
{
    if (*threshold != 0 && state->found <= state->most) {
        state->done = 1;
        return;
    }
    state->need = need;
    state->least = 1;
    state->found = 0;
}

/* ---- indices ----------------------------------------------------------- */

/* Returns whether all candidates of a tile were written to the list, which has
   a limited capacity. */
template <baton_dtype_t D>
__device__ bool is_written(const workspace<D> &work, uint32_t number)
{
    return !is_whole(work) &&
           (uint64_t)work.bases[number] + work.counts[number] <= work.capacity;
}

/* Counts the selected elements of one tile; returns the counts in the form of
   workspace.tally. Called by all threads of the tile's warp. */
template <baton_dtype_t D>
__device__ uint64_t tally_tile(const vector<D> &from, const workspace<D> &work,
                               uint32_t number)
{
    typedef typename element<D>::key_t key_t;
    const uint64_t threshold = work.state->threshold;
    uint32_t above = 0, equal = 0;
    if (is_written(work, number)) {
        const key_t *keys = work.keys + work.bases[number];
        for (uint32_t i = lane_of_thread(); i < work.counts[number];
             i += WARP) {
            above += keys[i] > threshold;
            equal += keys[i] == threshold;
        }
    } else {
        load_tile<D>(from, number).each_key([&](key_t key) {
            above += key > threshold;
            equal += key == threshold;
        });
    }
    return warp_sum((uint64_t)above << 32 | equal);
}

/* Counts the selected elements of each tile, and sums the tiles of a block, so
   that scan has less to do. */
template <baton_dtype_t D>
__global__ void __launch_bounds__(THREADS)
    tally(vector<D> from, workspace<D> work)
{
    __shared__ uint64_t warps[WARPS];
    const uint32_t number = warp_of_grid();
    const unsigned warp = threadIdx.x / WARP;
    const uint64_t own =
        number < work.tiles ? tally_tile<D>(from, work, number) : 0;
    if (lane_of_thread() == 0) {
        warps[warp] = own;
    }
    __syncthreads();
    uint64_t before = 0;
    for (unsigned i = 0; i < warp; i++) {
        before += warps[i];
    }
    if (lane_of_thread() == 0 && number < work.tiles) {
        work.tally[number] = before;
    }
    if (threadIdx.x == THREADS - 1) {
        work.groups[blockIdx.x] = before + own;
    }
}

/* One block of WIDE threads replaces the sum of each group by the sum of the
   groups before it. Publishes the number of selected elements and the
   threshold, unless the threshold was given. Each warp handles a part of the
   groups. */
static __global__ void __launch_bounds__(WIDE)
    scan(const state_t *state, uint64_t *groups, uint32_t count,
         baton_device_selected_t *out)
{
    __shared__ uint64_t warps[WIDE / WARP];
    const unsigned lane = lane_of_thread(), warp = threadIdx.x / WARP;
    const uint32_t part = (count + WIDE - 1) / WIDE * WARP;
    const uint64_t begin = (uint64_t)warp * part;
    uint64_t end = begin + part < count ? begin + part : count;
    uint64_t sum = 0;
    for (uint64_t i = begin + lane; i < end; i += WARP) {
        sum += groups[i];
    }
    sum = warp_sum(sum);
    if (lane == 0) {
        warps[warp] = sum;
    }
    __syncthreads();
    /* A block has as many warps as a warp has lanes. */
    const uint64_t each = warps[lane];
    const uint64_t total = warp_sum(each);
    uint64_t before = __shfl_sync(EVERY_LANE, warp_sum_below(each), warp);
    for (uint64_t row = begin; row < end; row += WARP) {
        uint64_t own = row + lane < end ? groups[row + lane] : 0;
        uint64_t below = warp_sum_below(own);
        if (row + lane < end) {
            groups[row + lane] = before + below;
        }
        before += warp_sum(own);
    }
    if (threadIdx.x == 0) {
        uint64_t equal = total & UINT32_MAX;
        uint64_t selected =
            (total >> 32) + (equal < state->ties ? equal : state->ties);
        out->count = selected;
        if (state->need > 0) {
            out->threshold = selected > 0 ? state->threshold : 0;
        }
    }
}
static_assert(WIDE / WARP == WARP, "a lane for each warp of scan");

/* The destination of selected elements. Of the elements that equal the
   threshold the first `ties` are selected. emit_one gets the number of earlier
   elements as `before`: those above the threshold in the upper half, and those
   equal to it in the lower half. */
typedef struct emission {
    uint64_t threshold;
    uint32_t ties;
    uint64_t capacity;
    uint32_t *indices;
} emission_t;

__device__ inline void emit_one(const emission_t &to, uint64_t key,
                                uint32_t index, uint64_t before)
{
    const uint64_t above = before >> 32, equal = before & UINT32_MAX;
    const bool tie = key == to.threshold && equal < to.ties;
    const uint64_t at = above + (equal < to.ties ? equal : to.ties);
    if ((key > to.threshold || tie) && at < to.capacity) {
        to.indices[at] = index;
    }
}

__device__ inline uint64_t weight_of(const emission_t &to, uint64_t key)
{
    return (uint64_t)(key > to.threshold) << 32 | (key == to.threshold);
}

template <baton_dtype_t D>
__global__ void __launch_bounds__(THREADS)
    emit(vector<D> from, workspace<D> work, uint32_t *indices,
         uint64_t capacity)
{
    const uint32_t number = warp_of_grid();
    const state_t *state = work.state;
    if (number >= work.tiles) {
        return;
    }
    const emission_t to = {state->threshold, state->ties, capacity, indices};
    uint64_t before = work.groups[blockIdx.x] + work.tally[number];
    if ((before >> 32) >= capacity) {
        return;
    }
    if (is_written(work, number)) {
        const uint32_t base = work.bases[number], count = work.counts[number];
        for (uint32_t row = 0; row < count; row += WARP) {
            const uint32_t i = row + lane_of_thread();
            uint64_t key = i < count ? (uint64_t)work.keys[base + i] : 0;
            uint64_t own = i < count ? weight_of(to, key) : 0;
            uint64_t below = warp_sum_below(own);
            if (i < count) {
                emit_one(to, key, work.indices[base + i], before + below);
            }
            before += warp_sum(own);
        }
        return;
    }
    const tile<D> part = load_tile<D>(from, number);
#pragma unroll
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint64_t own = 0;
#pragma unroll
        for (unsigned i = 0; i < tile<D>::PER_LOAD; i++) {
            own += weight_of(to, part.key(round, i));
        }
        if (__ballot_sync(EVERY_LANE, own > 0) == 0) {
            continue;
        }
        uint64_t at = before + warp_sum_below(own);
        before += warp_sum(own);
#pragma unroll
        for (unsigned i = 0; i < tile<D>::PER_LOAD; i++) {
            uint64_t key = part.key(round, i);
            if (weight_of(to, key) != 0) {
                emit_one(to, key, from.first + (uint32_t)part.index(round, i),
                         at);
            }
            at += weight_of(to, key);
        }
    }
}

/* One thread publishes the result of a selection that selects nothing. */
static __global__ void publish_nothing(baton_device_selected_t *out,
                                       bool keep_threshold)
{
    out->count = 0;
    out->threshold = keep_threshold ? out->threshold : 0;
}

} // namespace baton_cuda
