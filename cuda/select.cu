/* Selection in stream order: the sequences of launches. select_kernels.cuh
   describes each kernel. Results are those that <baton/select.h> defines, to
   the last bit: the same elements, in ascending order of indices. Of elements
   with equal magnitudes, those with lower indices are selected first. */
#include "cuda/select_kernels.cuh"

namespace baton_cuda
{

/* ---- scratch ----------------------------------------------------------- */

/* Lays out the scratch memory of a selection of up to k of `count` elements,
   and stores its size. `count` is at least 1. There is one more tile than
   `count` elements fill, for vectors that do not begin at a multiple of 16
   bytes. RedSync's search needs more than 2k candidates. The kernel `measure`
   stores its sums where the tallies are stored later; there are at least as
   many tallies as sums. */
template <baton_dtype_t D>
static workspace<D> workspace_of(void *scratch, size_t count, size_t k,
                                 size_t *bytes_out)
{
    const uintptr_t begin = (uintptr_t)scratch;
    const size_t most = k < count ? k : count;
    uintptr_t end = begin;
    auto place = [&](auto *&array, size_t length) {
        array = (std::remove_reference_t<decltype(array)>)end;
        end += (length * sizeof *array + 255) / 256 * 256;
    };
    workspace<D> work;
    work.tiles =
        (uint32_t)(count * sizeof(typename element<D>::bits_t) / TILE_BYTES +
                   2);
    work.capacity = baton_candidates_room(count, 2 * most + 1);
    place(work.state, 1);
    place(work.tally, work.tiles);
    place(work.groups, work.tiles / WARPS + 1);
    place(work.bases, work.tiles);
    place(work.counts, work.tiles);
    place(work.keys, work.capacity);
    place(work.indices, work.capacity);
    *bytes_out = end - begin;
    return work;
}

/* ---- sequences of launches --------------------------------------------- */

/* Returns the number of blocks for a kernel that sums tiles of MEASURE_TILE
   elements. */
static unsigned measure_blocks(uint64_t count)
{
    const uint64_t groups = THREADS / LANES;
    return (unsigned)((measure_tiles(count) + groups - 1) / groups);
}

/* The launches of a selection. After a launch that has failed, further launches
   are skipped. */
template <baton_dtype_t D> struct row {
    vector<D> from;
    workspace<D> work;
    cudaStream_t stream;
    cudaError_t error;

    unsigned blocks() const
    {
        return (work.tiles + WARPS - 1) / WARPS;
    }

    /* The number of blocks of a kernel with histograms. There are few, since
       each block adds its histogram to the total. */
    unsigned few_blocks() const
    {
        return blocks() < MOST_BLOCKS ? blocks() : (unsigned)MOST_BLOCKS;
    }

    template <class... parameters>
    void put(void (*kernel)(parameters...), unsigned blocks, unsigned threads,
             typename exactly<parameters>::t... arguments)
    {
        if (error == cudaSuccess) {
            error = launch(kernel, blocks, threads, stream, arguments...);
        }
    }

    void put_filter()
    {
        put(filter_tiles<D>, blocks(), THREADS, from, work);
    }

    void put_measure()
    {
        double *sums = (double *)work.tally;
        put(measure<D, false>, measure_blocks(from.count), THREADS, from.values,
            from.count, work.state, sums);
        put(join, 1, TILE_LANES, sums, from.count, work.state, from.count,
            &work.state->mean);
    }

    void put_estimate(uint64_t need)
    {
        const uint32_t rank =
            from.count > SMALL_COUNT ? sample_rank(from.count, need) : 0;
        if (rank > 0) {
            put(estimate<D>, 1, WIDE, from, work.state,
                (uint32_t)sample_of(from.count), rank);
        }
    }

    void put_radix()
    {
        for (unsigned bits = key_bits<D>(), shift; bits > 0; bits = shift) {
            shift = bits > DIGIT_BITS ? bits - DIGIT_BITS : 0;
            put(radix<D>, few_blocks(), THREADS, from, work, bits, shift);
        }
    }
};

/* Selects k elements or, with RedSync's search, up to 2k, even if values are
   tied. With REUSED an earlier threshold is tried first, and the kernel
   `try_earlier` decides whether the later launches have anything to do. */
template <baton_dtype_t D>
static cudaError_t select(cudaStream_t stream,
                          const baton_device_selection_t *s)
{
    const bool reuses = s->method == BATON_DEVICE_REUSED;
    const bool searches = reuses || s->method == BATON_DEVICE_SAMPLED;
    const size_t count = s->from.count;
    baton_magnitude_t *threshold = &s->selected->threshold;
    /* A k above the number of elements means the same as count + 1 in a search,
       and the same as count otherwise. */
    const size_t largest = searches ? count + 1 : count;
    const size_t k = s->k < largest ? s->k : largest;
    const size_t need = searches ? 2 * k + 1 : k;
    const size_t most = searches ? 2 * k : 0;
    const size_t capacity = searches ? most : k;
    if (k == 0 || count == 0) {
        return launch(publish_nothing, 1, 1, stream, s->selected, searches);
    }
    row<D> row = {vector_of<D>(&s->from), {}, stream, cudaSuccess};
    size_t bytes;
    row.work = workspace_of<D>(s->scratch, count, s->k, &bytes);
    row.work.tiles = tiles_of(row.from);
    const beginning_t with = {k, most, reuses ? 0 : need,
                              reuses ? threshold : NULL};
    row.put(begin<D>, 1, THREADS, row.work.state, with);
    if (reuses) {
        row.put_filter();
        row.put(try_earlier, 1, 1, row.work.state, threshold, need);
    }
    if (searches) {
        row.put_measure();
    }
    row.put_estimate(need);
    row.put_filter();
    row.put_radix();
    row.put(tally<D>, row.blocks(), THREADS, row.from, row.work);
    row.put(scan, 1, WIDE, row.work.state, row.work.groups, row.blocks(),
            s->selected);
    row.put(emit<D>, row.blocks(), THREADS, row.from, row.work, s->indices,
            capacity);
    return row.error;
}

} // namespace baton_cuda

using namespace baton_cuda;

cudaError_t baton__cuda_select_load(void)
{
    cudaError_t error = load(try_earlier, scan, publish_nothing, join);
    return error != cudaSuccess ? error : for_each_type([](auto type) {
        constexpr baton_dtype_t D = type;
        return load(begin<D>, estimate<D>, filter_tiles<D>, radix<D>,
                    measure<D, false>, measure<D, true>, tally<D>, emit<D>);
    });
}

size_t baton__cuda_select_bytes(baton_dtype_t dtype, size_t count, size_t k)
{
    size_t bytes = 0;
    if (count > 0) {
        (void)by_type(dtype, [&](auto type) {
            (void)workspace_of<type>(NULL, count, k, &bytes);
            return cudaSuccess;
        });
    }
    return bytes;
}

cudaError_t baton__cuda_select(cudaStream_t stream,
                               const baton_device_selection_t *selection)
{
    return by_type(selection->from.dtype,
                   [&](auto type) { return select<type>(stream, selection); });
}

/* Sums each tile, and then the tiles' sums, in the same order as the CPU
   does. */
cudaError_t baton__cuda_square_sum(cudaStream_t stream, baton_dtype_t dtype,
                                   const void *values, size_t count,
                                   double *sum_out, void *scratch)
{
    double *sums = (double *)scratch;
    cudaError_t error = cudaSuccess;
    if (count > 0) {
        error = by_type(dtype, [&](auto type) {
            constexpr baton_dtype_t D = type;
            return launch(measure<D, true>, measure_blocks(count), THREADS,
                          stream, (const typename element<D>::bits_t *)values,
                          (uint64_t)count, NULL, sums);
        });
    }
    return error != cudaSuccess ? error
                                : launch(join, 1, TILE_LANES, stream, sums,
                                         (uint64_t)count, NULL, 1, sum_out);
}
