/* The work of a sparse all-reduce in device memory. Gradient, residual and
   `work` stay there. The selected entries are copied to main memory, and
   entries that change `work` are copied back:

       accumulate --> select, take, copy --> [messages, sums of lists]
                            |                        |
                            +--> copy, add <---------+
                                  |
                                 ...
       copy the result's indices, and the dropped entries; keep

   `work` begins as gradient plus residual (G). A list that is taken out of it,
   or added to it, keeps the values that are needed to undo this. So at the end
   two vectors are known: `work` as it is then (xi in SparDL's paper), and G.
   baton__enqueue_keep turns `work` into the new residual: xi at the indices of
   the result, and G elsewhere. When the step has been completed, `work` and
   `residual` are swapped. So a failed step leaves the residual as it was.

   The new velocity is computed in a vector of its own, and swapped with the old
   one likewise.

   With `clip` the gradient's norm is copied to main memory before the gradient
   is accumulated:

       begin --> square_sum, copy --> clip --> accumulate */
#pragma once

#include "coll/sparse/core/core.h"

typedef struct baton__change baton__change_t;

/* Memory on the device, and pinned main memory of the same size. Data is copied
   between the two. */
typedef struct baton__mirror {
    char *device, *host;
} baton__mirror_t;

struct baton__sparse_device {
    baton_engine_t *engine;
    const baton_device_port_t *port;
    void *device;

    char *residual, *work; /* vectors of n elements, on the device */
    /* The velocity before the step and after it, on the device; NULL without
       momentum. */
    char *velocity, *new_velocity;
    /* The indices of the last selection. There is memory for 2k + 1 of them. */
    uint32_t *indices;
    void *scratch; /* device memory that a selection uses while it runs */
    /* Device memory for values of `work` at the result's indices or, if
       momentum masking clears the velocity at selected indices, at those
       indices. */
    char *saved;
    /* With clipping: the sum of the squares of the gradient's elements. */
    baton__mirror_t square_sum;
    baton__change_t *latest; /* the latest change of `work` in this step */
};

/* Allocates the vectors, and memory for selections, but not `saved`. The caller
   has set `port` and `device` before. */
void baton__device_allocate(baton_sparse_t *sparse);

/* Allocates a mirror. If `host` is not NULL, it becomes the mirror's pinned
   memory. Otherwise that memory is allocated, too. */
baton__mirror_t baton__mirror_alloc(baton_sparse_t *sparse, void *host,
                                    size_t bytes);

/* ---- device calls ------------------------------------------------------ */

/* A sequence of work that is put into a stream of the device. After a failure,
   `status` is the error, and no further work is put into the stream. */
typedef struct baton__enqueue {
    baton_sparse_t *sparse;
    baton_stream_t stream;
    baton_status_t status;
} baton__enqueue_t;

typedef void (*baton__enqueue_fn)(void *arg, baton__enqueue_t *queue);

/* Adds a device call after the node `before`. Returns the device call. */
baton_node_t baton__sparse_device_call(baton_sparse_t *sparse,
                                       baton_schedule_t *schedule,
                                       baton_node_t before,
                                       baton__enqueue_fn fn, void *arg);

/* Puts a copy of `bytes` bytes, which may be 0, into the stream. */
void baton__enqueue_copy(baton__enqueue_t *queue, void *target,
                         const void *source, size_t bytes);
void baton__enqueue_to_host(baton__enqueue_t *queue,
                            const baton__mirror_t *mirror, size_t bytes);
void baton__enqueue_to_device(baton__enqueue_t *queue,
                              const baton__mirror_t *mirror, size_t bytes);

/* Sets `target` to factor * source. If `source` is NULL, sets `target` to
   zeros. */
void baton__enqueue_scale(baton__enqueue_t *queue, char *target,
                          const void *source, double factor);

/* Transfers entries between a list and `dense`, which is `work` or another
   dense vector. GATHER and TAKE copy to the list. PUT and ADD write to the
   vector. Only ADD uses the factor. */
void baton__enqueue_transfer(baton__enqueue_t *queue,
                             baton_device_direction_t direction,
                             const baton_device_entries_t *list,
                             const uint32_t *indices, char *dense,
                             double factor);

/* ---- building ---------------------------------------------------------- */

/* Adds the nodes of the accumulation after `begin`, which must be a call of
   baton__sparse_begin. Returns the node after which `work` is the residual plus
   the gradient's contribution. */
baton_node_t baton__sparse_device_add_accumulation(baton_sparse_t *sparse,
                                                   baton_schedule_t *schedule,
                                                   baton_node_t begin);

/* ---- in a step --------------------------------------------------------- */

/* A list of entries by which this step has changed `work`. `earlier` is the
   change before this one, or NULL. */
struct baton__change {
    baton_device_entries_t list;
    baton__change_t *earlier;
};

/* Returns the bytes of a selection of k entries: of its head and of the
   entries, which follow the head. */
static inline size_t baton__selected_bytes(const baton_sparse_t *sparse,
                                           size_t k)
{
    size_t bytes = sizeof(baton_device_selected_t) + k * sparse->entry_bytes;
    return (bytes + 15) / 16 * 16;
}

/* The parameters of a selection from the `count` elements from `first` on. It
   takes the k largest. But if `sampled` is set it takes up to 2k elements that
   reach a threshold, by the device's method SAMPLED. */
typedef struct baton__selecting {
    size_t first, count;
    size_t k;
    baton_side_t side;
    bool sampled;
    /* The threshold of an earlier step that this selection uses again, or 0. */
    baton_magnitude_t earlier;
} baton__selecting_t;

/* Takes the selected entries out of `work`. Writes them to `to`, which is
   device memory of baton__selected_bytes bytes. If an earlier threshold is
   used, it must be in the head of the selection already. */
void baton__enqueue_take(baton__enqueue_t *queue,
                         const baton__selecting_t *selecting, char *to,
                         baton__change_t *change);

/* Returns the head of a selection that was copied to main memory. */
static inline baton_device_selected_t *baton__selected_head(char *selection)
{
    return (baton_device_selected_t *)(void *)selection;
}

/* Returns the entries of a selection that was copied to main memory. */
static inline baton_entries_t baton__selected_entries(const char *selection)
{
    const baton_device_selected_t *head =
        (const baton_device_selected_t *)(const void *)selection;
    return (baton_entries_t){head + 1, (size_t)head->count};
}

/* For each entry of a list in device memory: work[index] += factor * value. */
void baton__enqueue_add(baton__enqueue_t *queue, char *entries, size_t count,
                        double factor, baton__change_t *change);

/* Turns `work` into the new residual, and clears the velocity at the result's
   indices. `indices`, which is in device memory, has these indices. */
void baton__enqueue_keep(baton__enqueue_t *queue, const uint32_t *indices,
                         size_t count);

/* If there is a velocity, clears it at the indices in `indices`, which is in
   device memory. The number of indices is *count or, if `count` is NULL,
   `capacity`. */
void baton__enqueue_mask(baton__enqueue_t *queue, const uint32_t *indices,
                         size_t capacity, const uint64_t *count);
