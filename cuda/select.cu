/* Selection in stream order (select.h): the rows of launches.
   select_kernels.cuh says what each of them does. */
#include "cuda/select_kernels.cuh"

#include "cuda/select_host.h"

namespace baton_cuda
{

/* ---- workspaces -------------------------------------------------------- */

/* Offsets in a workspace. The sums of measure lie where the tallies will:
   there are never more of them. */
typedef struct layout {
    size_t tally, groups, bases, counts, keys, indices, bytes;
    size_t tiles, capacity;
} layout_t;

static size_t aligned(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* `count` is at least 1; there is one tile more than it fills, for vectors that
   begin within 16 bytes. A search needs more than 2k candidates. */
static layout_t layout_of(baton_dtype_t dtype, size_t count, size_t k)
{
    layout_t at;
    const size_t size = baton_dtype_size(dtype);
    const size_t most = k < count ? k : count;
    at.tiles = count * size / TILE_BYTES + 2;
    at.capacity = candidates_of(count, 2 * most + 1);
    at.tally = aligned(sizeof(state_t));
    at.groups = at.tally + aligned(at.tiles * sizeof(uint64_t));
    at.bases = at.groups + aligned((at.tiles / WARPS + 1) * sizeof(uint64_t));
    at.counts = at.bases + aligned(at.tiles * sizeof(uint32_t));
    at.keys = at.counts + aligned(at.tiles * sizeof(uint32_t));
    at.indices = at.keys + aligned(at.capacity * (size == 8 ? 8 : 4));
    at.bytes = at.indices + aligned(at.capacity * sizeof(uint32_t));
    return at;
}

template <baton_dtype_t D>
static workspace<D> workspace_of(const baton_cuda_workspace_t *given,
                                 const vector<D> &from, size_t k)
{
    char *memory = (char *)given->memory;
    const layout_t at = layout_of(D, from.count, k);
    workspace<D> work;
    work.state = (state_t *)memory;
    work.tally = (uint64_t *)(memory + at.tally);
    work.groups = (uint64_t *)(memory + at.groups);
    work.bases = (uint32_t *)(memory + at.bases);
    work.counts = (uint32_t *)(memory + at.counts);
    work.keys = (typename element<D>::key_t *)(memory + at.keys);
    work.indices = (uint32_t *)(memory + at.indices);
    work.capacity = at.capacity;
    work.tiles = tiles_of(from);
    return work;
}

/* ---- arguments --------------------------------------------------------- */

static baton_status_t check_from(const baton_selection_t *from,
                                 const char *function)
{
    if (from == NULL) {
        return baton_error_set(BATON_ERR_INVALID, "%s: from is NULL", function);
    }
    if (!baton_select_supports(from->dtype)) {
        return unsupported(from->dtype, function);
    }
    if (from->side != BATON_SIDE_BOTH && from->side != BATON_SIDE_POSITIVE &&
        from->side != BATON_SIDE_NEGATIVE) {
        return baton_error_set(BATON_ERR_INVALID,
                               "%s: from->side is %d, which is no side",
                               function, (int)from->side);
    }
    if (from->count > UINT32_MAX || from->first > UINT32_MAX - from->count) {
        return baton_error_set(
            BATON_ERR_INVALID,
            "%s: from has %zu elements from index %u on; indices go up to %u",
            function, from->count, from->first, UINT32_MAX);
    }
    const size_t size = baton_dtype_size(from->dtype);
    return from->count == 0
               ? BATON_OK
               : check_pointer(from->values, size, function, "from->values");
}

static baton_status_t check_workspace(const baton_selection_t *from, size_t k,
                                      const baton_cuda_workspace_t *workspace,
                                      const char *function)
{
    if (workspace == NULL) {
        return baton_error_set(BATON_ERR_INVALID, "%s: workspace is NULL",
                               function);
    }
    const size_t bytes = baton_cuda_select_bytes(from->dtype, from->count, k);
    if (workspace->bytes < bytes) {
        return baton_error_set(
            BATON_ERR_INVALID,
            "%s: the workspace has %zu bytes; %zu are needed for %zu of %zu "
            "elements of type %s",
            function, workspace->bytes, bytes, k, from->count,
            baton_dtype_name(from->dtype));
    }
    return bytes == 0 ? BATON_OK
                      : check_pointer(workspace->memory, 256, function,
                                      "workspace->memory");
}

/* All of these; `indices` has room for `capacity`. */
static baton_status_t check(const baton_selection_t *from, size_t k,
                            const uint32_t *indices, size_t capacity,
                            const baton_cuda_workspace_t *workspace,
                            const char *function)
{
    baton_status_t status = check_from(from, function);
    if (status == BATON_OK) {
        status = check_workspace(from, k, workspace, function);
    }
    if (status == BATON_OK && capacity > 0 && from->count > 0) {
        status = check_pointer(indices, sizeof *indices, function, "indices");
    }
    return status;
}

/* ---- rows of launches -------------------------------------------------- */

/* A selection on its way: launches after one that failed are left out. */
template <baton_dtype_t D> struct row {
    vector<D> from;
    workspace<D> work;
    cudaStream_t stream;
    cudaError_t error;

    unsigned blocks() const
    {
        return (work.tiles + WARPS - 1) / WARPS;
    }

    /* Of kernels with a histogram: each block has one to add. */
    unsigned few_blocks() const
    {
        return blocks() < MOST_BLOCKS ? blocks() : (unsigned)MOST_BLOCKS;
    }

    double *sums() const
    {
        return (double *)work.tally;
    }

    template <class... parameters>
    void put(void (*kernel)(parameters...), unsigned blocks, unsigned threads,
             typename exactly<parameters>::t... arguments)
    {
        if (error == cudaSuccess) {
            error = launch(kernel, blocks, threads, stream, arguments...);
        }
    }
};

template <baton_dtype_t D>
static row<D> row_of(const baton_selection_t *from, size_t k,
                     const baton_cuda_workspace_t *workspace)
{
    row<D> result;
    result.from = vector_of<D>(from);
    result.work = workspace_of<D>(workspace, result.from, k);
    result.stream = (cudaStream_t)workspace->stream;
    result.error = cudaSuccess;
    return result;
}

template <baton_dtype_t D> static void put_estimate(row<D> &row, uint64_t need)
{
    const uint64_t count = row.from.count;
    const uint32_t rank = count > SMALL_COUNT ? sample_rank(count, need) : 0;
    if (rank > 0) {
        row.put(estimate<D>, 1, WIDE, row.from, row.work.state,
                (uint32_t)sample_of(count), rank);
    }
}

template <baton_dtype_t D> static void put_measure(row<D> &row)
{
    const uint64_t groups = THREADS / LANES;
    const uint64_t tiles = (row.from.count + MEASURE_TILE - 1) / MEASURE_TILE;
    row.put(measure<D>, (unsigned)((tiles + groups - 1) / groups), THREADS,
            row.from, row.work, row.sums());
    row.put(join<D>, 1, WARP, row.work.state, row.sums(), row.from.count);
}

template <baton_dtype_t D> static void put_filter(row<D> &row, bool always)
{
    row.put(filter_tiles<D>, row.blocks(), THREADS, row.from, row.work, always);
}

template <baton_dtype_t D> static void put_radix(row<D> &row, uint64_t most)
{
    for (unsigned bits = key_bits<D>(), shift; bits > 0; bits = shift) {
        shift = bits > DIGIT_BITS ? bits - DIGIT_BITS : 0;
        row.put(radix<D>, row.few_blocks(), THREADS, row.from, row.work, bits,
                shift, most);
    }
}

template <baton_dtype_t D> static void put_narrow(row<D> &row)
{
    for (unsigned steps = 0; steps < SEARCH_STEPS; steps += STEPS_OF_A_PASS) {
        row.put(narrow<D>, row.few_blocks(), THREADS, row.from, row.work);
    }
}

template <baton_dtype_t D>
static void put_emit(row<D> &row, uint32_t *indices, uint64_t capacity,
                     uint64_t *count_out, baton_magnitude_t *threshold_out)
{
    row.put(tally<D>, row.blocks(), THREADS, row.from, row.work);
    row.put(scan, 1, WIDE, row.work.state, row.work.groups, row.blocks(),
            count_out, threshold_out);
    if (capacity > 0) {
        row.put(emit<D>, row.blocks(), THREADS, row.from, row.work, indices,
                capacity);
    }
}

/* What is left of a search behind its `begin`. */
template <baton_dtype_t D>
static void put_search(row<D> &row, uint64_t k, uint64_t most)
{
    put_measure(row);
    put_estimate(row, 2 * k + 1);
    put_filter(row, false);
    put_narrow(row);
    put_radix(row, most);
}

/* A k that is more than the number of elements, but as good as any such. */
static size_t limited(size_t k, size_t count)
{
    return k <= count ? k : count + 1;
}

/* ---- the functions ----------------------------------------------------- */

template <baton_dtype_t D> struct selecting {
    static cudaError_t load_kernels(cudaError_t error)
    {
        error = load(error, begin<D>);
        error = load(error, estimate<D>);
        error = load(error, filter_tiles<D>);
        error = load(error, radix<D>);
        error = load(error, measure<D>);
        error = load(error, join<D>);
        error = load(error, narrow<D>);
        error = load(error, trim<D>);
        error = load(error, tally<D>);
        error = load(error, emit<D>);
        error = load(error, squares<D>);
        return load(error, count_reaching<D>);
    }

    static cudaError_t topk(const baton_selection_t *from, size_t k,
                            bool trimmed, uint32_t *indices,
                            baton_cuda_selected_t *out,
                            const baton_cuda_workspace_t *workspace)
    {
        row<D> row = row_of<D>(from, k, workspace);
        const beginning_t with = {k, k, false, NULL};
        row.put(begin<D>, 1, THREADS, row.work.state, with);
        if (trimmed) {
            put_measure(row);
        }
        put_estimate(row, k);
        if (trimmed) {
            row.put(trim<D>, row.few_blocks(), THREADS, row.from, row.work);
        }
        put_filter(row, false);
        put_radix(row, 0);
        put_emit(row, indices, k, &out->count, &out->threshold);
        return row.error;
    }

    static cudaError_t at_least(const baton_selection_t *from,
                                const baton_magnitude_t *threshold,
                                uint32_t *indices, size_t capacity,
                                uint64_t *count_out,
                                const baton_cuda_workspace_t *workspace)
    {
        row<D> row = row_of<D>(from, capacity, workspace);
        const beginning_t with = {capacity, 0, false, threshold};
        row.put(begin<D>, 1, THREADS, row.work.state, with);
        put_filter(row, true);
        put_emit(row, indices, capacity, count_out, (baton_magnitude_t *)NULL);
        return row.error;
    }

    static cudaError_t count(const baton_selection_t *from,
                             const baton_magnitude_t *threshold,
                             uint64_t *count_out, cudaStream_t stream)
    {
        const vector<D> all = vector_of<D>(from);
        const uint32_t tiles = tiles_of(all);
        unsigned blocks = (tiles + WARPS - 1) / WARPS;
        blocks = blocks < 2 * MOST_BLOCKS ? blocks : 2 * MOST_BLOCKS;
        cudaError_t error = launch(publish_nothing, 1, 1, stream, count_out,
                                   (baton_magnitude_t *)NULL);
        return error != cudaSuccess
                   ? error
                   : launch(count_reaching<D>, blocks, THREADS, stream, all,
                            tiles, threshold, count_out);
    }

    static cudaError_t square_sum(const void *values, size_t count,
                                  double *sum_out,
                                  const baton_cuda_workspace_t *workspace)
    {
        const uint64_t groups = THREADS / LANES;
        const uint64_t tiles = (count + MEASURE_TILE - 1) / MEASURE_TILE;
        double *sums = (double *)workspace->memory;
        cudaStream_t stream = (cudaStream_t)workspace->stream;
        cudaError_t error =
            launch(squares<D>, (unsigned)((tiles + groups - 1) / groups),
                   THREADS, stream, (const typename element<D>::bits_t *)values,
                   (uint64_t)count, sums);
        return error != cudaSuccess ? error
                                    : launch(join_squares, 1, WARP, stream,
                                             sums, (uint64_t)count, sum_out);
    }

    static cudaError_t search(const baton_selection_t *from, size_t k,
                              baton_magnitude_t *threshold_out,
                              const baton_cuda_workspace_t *workspace)
    {
        row<D> row = row_of<D>(from, k, workspace);
        const beginning_t with = {k, 2 * k + 1, true, NULL};
        row.put(begin<D>, 1, THREADS, row.work.state, with);
        put_search(row, k, 0);
        row.put(publish, 1, 1, row.work.state, threshold_out);
        return row.error;
    }

    static cudaError_t sampled(const baton_selection_t *from, size_t k,
                               bool reuse, uint32_t *indices,
                               baton_cuda_selected_t *selected,
                               const baton_cuda_workspace_t *workspace)
    {
        row<D> row = row_of<D>(from, k, workspace);
        k = limited(k, from->count);
        const uint64_t need = 2 * k + 1;
        baton_magnitude_t *threshold = &selected->threshold;
        const beginning_t with = {k, reuse ? 0 : need, true,
                                  reuse ? threshold : NULL};
        row.put(begin<D>, 1, THREADS, row.work.state, with);
        if (reuse) {
            put_filter(row, true);
            row.put(judge, 1, 1, row.work.state, threshold, 2 * k, need);
        }
        put_search(row, k, 2 * k);
        put_emit(row, indices, 2 * k, &selected->count, threshold);
        return row.error;
    }
};

/* Results of a selection that has nothing to read. */
static cudaError_t select_nothing(uint64_t *count_out,
                                  baton_magnitude_t *threshold_out,
                                  baton_stream_t stream)
{
    return launch(publish_nothing, 1, 1, (cudaStream_t)stream, count_out,
                  threshold_out);
}

/* The function for an element type that was checked. */
#define BY_TYPE(dtype, function, ...)                                          \
    ((dtype) == BATON_F16    ? selecting<BATON_F16>::function(__VA_ARGS__)     \
     : (dtype) == BATON_BF16 ? selecting<BATON_BF16>::function(__VA_ARGS__)    \
     : (dtype) == BATON_F32  ? selecting<BATON_F32>::function(__VA_ARGS__)     \
                             : selecting<BATON_F64>::function(__VA_ARGS__))

static baton_status_t select_topk(const baton_selection_t *from, size_t k,
                                  bool trimmed, uint32_t *indices,
                                  baton_cuda_selected_t *out,
                                  const baton_cuda_workspace_t *workspace,
                                  const char *function)
{
    baton_status_t status = check(from, k, indices, k, workspace, function);
    if (status == BATON_OK) {
        status = check_pointer(out, sizeof(uint64_t), function, "selected_out");
    }
    if (status != BATON_OK) {
        return status;
    }
    k = k < from->count ? k : from->count;
    return status_of(
        k == 0 ? select_nothing(&out->count, &out->threshold, workspace->stream)
               : BY_TYPE(from->dtype, topk, from, k, trimmed, indices, out,
                         workspace),
        function);
}

} // namespace baton_cuda

using namespace baton_cuda;

cudaError_t baton__cuda_select_load(void)
{
    cudaError_t error = load(cudaSuccess, judge);
    error = load(error, scan);
    error = load(error, publish);
    error = load(error, publish_nothing);
    error = load(error, join_squares);
    error = selecting<BATON_F16>::load_kernels(error);
    error = selecting<BATON_BF16>::load_kernels(error);
    error = selecting<BATON_F32>::load_kernels(error);
    return selecting<BATON_F64>::load_kernels(error);
}

size_t baton_cuda_select_bytes(baton_dtype_t dtype, size_t count, size_t k)
{
    return !baton_select_supports(dtype) || count == 0
               ? 0
               : layout_of(dtype, count, k).bytes;
}

baton_status_t baton_cuda_select_topk(const baton_selection_t *from, size_t k,
                                      uint32_t *indices,
                                      baton_cuda_selected_t *selected_out,
                                      const baton_cuda_workspace_t *workspace)
{
    return select_topk(from, k, false, indices, selected_out, workspace,
                       __func__);
}

baton_status_t
baton_cuda_select_trimmed(const baton_selection_t *from, size_t k,
                          uint32_t *indices,
                          baton_cuda_selected_t *selected_out,
                          const baton_cuda_workspace_t *workspace)
{
    return select_topk(from, k, true, indices, selected_out, workspace,
                       __func__);
}

baton_status_t baton_cuda_select_at_least(
    const baton_selection_t *from, const baton_magnitude_t *threshold,
    uint32_t *indices, size_t capacity, uint64_t *count_out,
    const baton_cuda_workspace_t *workspace)
{
    baton_status_t status =
        check(from, capacity, indices, capacity, workspace, __func__);
    if (status == BATON_OK) {
        status = check_pointer(threshold, 8, __func__, "threshold");
    }
    if (status == BATON_OK) {
        status = check_pointer(count_out, 8, __func__, "count_out");
    }
    if (status != BATON_OK) {
        return status;
    }
    return status_of(from->count == 0
                         ? select_nothing(count_out, NULL, workspace->stream)
                         : BY_TYPE(from->dtype, at_least, from, threshold,
                                   indices, capacity, count_out, workspace),
                     __func__);
}

baton_status_t baton_cuda_select_count(const baton_selection_t *from,
                                       const baton_magnitude_t *threshold,
                                       uint64_t *count_out,
                                       baton_stream_t stream)
{
    baton_status_t status = check_from(from, __func__);
    if (status == BATON_OK) {
        status = check_pointer(threshold, 8, __func__, "threshold");
    }
    if (status == BATON_OK) {
        status = check_pointer(count_out, 8, __func__, "count_out");
    }
    if (status != BATON_OK) {
        return status;
    }
    return status_of(from->count == 0
                         ? select_nothing(count_out, NULL, stream)
                         : BY_TYPE(from->dtype, count, from, threshold,
                                   count_out, (cudaStream_t)stream),
                     __func__);
}

baton_status_t
baton_cuda_elements_square_sum(baton_dtype_t dtype, const void *values,
                               size_t count, double *sum_out,
                               const baton_cuda_workspace_t *workspace)
{
    const baton_selection_t from = {dtype, BATON_SIDE_BOTH, values, count, 0};
    baton_status_t status = check(&from, 1, NULL, 0, workspace, __func__);
    if (status == BATON_OK) {
        status = check_pointer(sum_out, sizeof *sum_out, __func__, "sum_out");
    }
    if (status != BATON_OK) {
        return status;
    }
    return status_of(
        count == 0
            ? launch(join_squares, 1, WARP, (cudaStream_t)workspace->stream,
                     (const double *)NULL, (uint64_t)0, sum_out)
            : BY_TYPE(dtype, square_sum, values, count, sum_out, workspace),
        __func__);
}

static baton_status_t check_k(size_t k, const char *function)
{
    return k > 0 ? BATON_OK
                 : baton_error_set(BATON_ERR_INVALID,
                                   "%s: k is 0; it is at least 1", function);
}

baton_status_t baton_cuda_select_search(const baton_selection_t *from, size_t k,
                                        baton_magnitude_t *threshold_out,
                                        const baton_cuda_workspace_t *workspace)
{
    baton_status_t status = check(from, k, NULL, 0, workspace, __func__);
    if (status == BATON_OK) {
        status = check_k(k, __func__);
    }
    if (status == BATON_OK) {
        status = check_pointer(threshold_out, 8, __func__, "threshold_out");
    }
    if (status != BATON_OK) {
        return status;
    }
    return status_of(
        from->count < k
            ? select_nothing(NULL, threshold_out, workspace->stream)
            : BY_TYPE(from->dtype, search, from, k, threshold_out, workspace),
        __func__);
}

baton_status_t
baton_cuda_select_sampled(const baton_selection_t *from, size_t k, bool reuse,
                          uint32_t *indices, baton_cuda_selected_t *selected,
                          const baton_cuda_workspace_t *workspace)
{
    baton_status_t status = check(from, k, indices, k, workspace, __func__);
    if (status == BATON_OK) {
        status = check_k(k, __func__);
    }
    if (status == BATON_OK) {
        status = check_pointer(selected, 8, __func__, "selected");
    }
    if (status != BATON_OK) {
        return status;
    }
    return status_of(
        from->count == 0
            ? select_nothing(&selected->count, NULL, workspace->stream)
            : BY_TYPE(from->dtype, sampled, from, k, reuse, indices, selected,
                      workspace),
        __func__);
}
