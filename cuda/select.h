/* Selection on a GPU: what <baton/select.h> does, on vectors in the memory of a
   CUDA device and in the order of a stream. Inside libbaton_cuda: select.c
   makes functions of the port of it.

       size_t bytes = baton_cuda_select_bytes(BATON_F32, n, k);
       cudaMalloc(&memory, bytes);                     // once
       ...
       baton_cuda_workspace_t work = {memory, bytes, stream};
       baton_selection_t from = {
           .dtype = BATON_F32, .values = gradient, .count = n};
       baton_cuda_select_topk(&from, k, indices, selected, &work);
       baton_cuda_entries_t list = {
           BATON_F32, entries, k, &selected->count};
       baton_cuda_entries_take(&list, indices, gradient, stream);

   Results have the same bits as those of the functions of the same name in
   select.h: the same elements, ascending; of equal magnitudes the lower index
   first; zeros never; a NaN has the largest magnitude.

   Every function puts kernels into the stream and returns. None allocates,
   synchronises, or asks the device for a result: counts and thresholds are left
   in device memory, where the next kernel reads them. So all of this can be
   captured into a CUDA graph.

   baton_cuda_attach loads the kernels; without it, CUDA does so when each is
   first launched, which may take a while.

   "On the device" means memory that kernels of the calling thread's current
   device can access; the stream is one of that device. Pointers given here are
   on the device, but for `from`, `list` and `workspace` themselves, which are
   read before the function returns. Elements are aligned to their size.

   Errors: BATON_ERR_INVALID, with a message that names the argument: NULL where
   memory is needed, an element type that can't be selected from, more than
   UINT32_MAX elements, a workspace that is too small or an address that is not
   aligned. BATON_ERR_SYSTEM: the driver refused a launch; the message has its
   reason. Nothing has been put into the stream then, or the first kernels of
   several. Threads: any, with a workspace of its own. */
#ifndef BATON__CUDA_SELECT_H
#define BATON__CUDA_SELECT_H

#include <baton/device.h>
#include <baton/select.h>
#include <baton/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- dense to indices -------------------------------------------------- */

/* Memory that selections work in, and their stream. It is in use until the
   stream has done what was put into it; what is in it before and after has no
   meaning. `memory` is on the device, aligned to 256 bytes. */
typedef struct baton_cuda_workspace {
    void *memory;
    size_t bytes;
    baton_stream_t stream;
} baton_cuda_workspace_t;

/* Of this library alone; what users reach is the port. */
#pragma GCC visibility push(hidden)

/* Bytes of a workspace for any selection of up to k (or of a capacity of up to
   k) of up to `count` elements. It grows with count and k. About 16 bytes for
   each 4 KiB of the vector, and 8 (f64: 12) for each of 2k candidates and of
   what a sample may be wrong by. */
size_t baton_cuda_select_bytes(baton_dtype_t dtype, size_t count, size_t k);

/* What a selection leaves on the device. */
typedef baton_device_selected_t baton_cuda_selected_t;

/* As baton_select_topk: the indices of the k largest elements, fewer where
   fewer are not zero; their number, and the magnitude of the smallest of them.
   `indices` has room for k. Reads the vector once
   where a sample's threshold holds; where it does not, or where more elements
   are tied than there is room for, five (f16, bf16), six (f32) or nine times
   (f64). */
BATON_CHECKED baton_status_t
baton_cuda_select_topk(const baton_selection_t *from, size_t k,
                       uint32_t *indices, baton_cuda_selected_t *selected_out,
                       const baton_cuda_workspace_t *workspace);

/* As baton_select_at_least, with a threshold that is read on the device when
   the stream gets there: &selected->threshold, for example. *count_out may be
   more than `capacity`; the indices are then the `capacity` lowest. Reads the
   vector once, and again only in tiles for which there was no room. */
BATON_CHECKED baton_status_t baton_cuda_select_at_least(
    const baton_selection_t *from, const baton_magnitude_t *threshold,
    uint32_t *indices, size_t capacity, uint64_t *count_out,
    const baton_cuda_workspace_t *workspace);

/* As baton_select_count. Needs no workspace. */
BATON_CHECKED baton_status_t baton_cuda_select_count(
    const baton_selection_t *from, const baton_magnitude_t *threshold,
    uint64_t *count_out, baton_stream_t stream);

/* As baton_select_trimmed, RedSync's algorithm 2; *selected_out has the
   threshold of the result, too. Reads the vector three times. */
BATON_CHECKED baton_status_t baton_cuda_select_trimmed(
    const baton_selection_t *from, size_t k, uint32_t *indices,
    baton_cuda_selected_t *selected_out,
    const baton_cuda_workspace_t *workspace);

/* As baton_select_search, RedSync's algorithm 3, k at least 1: the same
   threshold to the last bit. Reads the vector twice: once for mean and maximum,
   once for the candidates among which the search goes on. */
BATON_CHECKED baton_status_t baton_cuda_select_search(
    const baton_selection_t *from, size_t k, baton_magnitude_t *threshold_out,
    const baton_cuda_workspace_t *workspace);

/* RedSync's sampled threshold search, k at least 1. With `reuse`, the elements
   that reach selected->threshold, the threshold of an earlier step, are
   selected; where these are more than 2k, or the threshold is 0, and without
   `reuse`, a threshold is searched first. Where the search finds none that
   leaves at most 2k, the k largest are selected. selected->threshold becomes
   the threshold that was used. `indices` has room for 2k. Reads the vector once
   where the earlier threshold holds; two or three times where it is searched.
   Set selected->threshold to 0, or reuse to false, in the first step. */
BATON_CHECKED baton_status_t baton_cuda_select_sampled(
    const baton_selection_t *from, size_t k, bool reuse, uint32_t *indices,
    baton_cuda_selected_t *selected, const baton_cuda_workspace_t *workspace);

/* ---- lists of entries -------------------------------------------------- */

/* A list of entries on the device. */
typedef baton_device_entries_t baton_cuda_entries_t;

/* As baton_entries_gather and baton_entries_take, which also clears the dense
   elements. `indices` has list->capacity of them; the number is list->count, of
   a selection's result for example, and stays that of the list. */
BATON_CHECKED baton_status_t baton_cuda_entries_gather(
    const baton_cuda_entries_t *list, const uint32_t *indices,
    const void *dense, baton_stream_t stream);
BATON_CHECKED baton_status_t baton_cuda_entries_take(
    const baton_cuda_entries_t *list, const uint32_t *indices, void *dense,
    baton_stream_t stream);

/* As baton_entries_put: dense[index] = value. */
BATON_CHECKED baton_status_t baton_cuda_entries_put(
    const baton_cuda_entries_t *list, void *dense, baton_stream_t stream);

/* As baton_entries_add: dense[index] += factor * value, and the entries then
   have what dense had before. A list has no index twice, so this needs no
   atomic operation, and the result does not depend on an order. Lists are added
   in the order of their calls. The sum of two NaNs is a NaN with the payload of
   either, as on the host. */
BATON_CHECKED baton_status_t
baton_cuda_entries_add(const baton_cuda_entries_t *list, double factor,
                       void *dense, baton_stream_t stream);

/* target[i] = factor * source[i], as baton_elements_scale rounds. `target` may
   be `source`, and overlaps it in no other way. */
BATON_CHECKED baton_status_t
baton_cuda_elements_scale(baton_dtype_t dtype, void *target, const void *source,
                          size_t count, double factor, baton_stream_t stream);

/* The square_sum of baton_elements_measure, with the same bits unless it is a
   NaN. The workspace is that of a selection of k = 1. Reads the vector once. */
BATON_CHECKED baton_status_t baton_cuda_elements_square_sum(
    baton_dtype_t dtype, const void *values, size_t count, double *sum_out,
    const baton_cuda_workspace_t *workspace);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
