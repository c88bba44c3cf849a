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
   keep turns `work` into the new residual: xi at the indices of the result, and
   G elsewhere. When the step has been completed, `work` and `residual` are
   swapped. So a failed step leaves the residual as it was.

   The new velocity is computed in a vector of its own, and swapped with the old
   one likewise.

   With `clip` the gradient's norm is copied to main memory before the gradient
   is accumulated:

       begin --> square_sum, copy --> clip --> accumulate */
#pragma once

#include "coll/sparse/core/core.h"

typedef struct baton__change baton__change_t;

/* Memory of the device, and as much pinned main memory. */
typedef struct baton__mirror {
    char *device, *host;
} baton__mirror_t;

struct baton__sparse_device {
    baton_engine_t *engine;
    const baton_device_port_t *port;
    void *device;

    char *residual, *work;         /* n elements each */
    char *velocity, *new_velocity; /* before and after the step; or NULL */
    uint32_t *indices;             /* of the last selection; room for 2k + 1 */
    void *scratch;                 /* for selections */
    char *kept; /* the new residual's entries at the result's indices */
    baton__mirror_t square_sum; /* of the gradient, for clipping */
    baton__change_t *latest;    /* the last change of `work` in this step */
    baton_buffer_t dense_work;  /* `work` in the dense schedule */
};

/* Allocates vectors and memory for selections. port and device are set. */
void baton__device_allocate(baton_sparse_t *sparse);
/* Allocates `kept`, once the capacity of results is known. */
void baton__device_allocate_kept(baton_sparse_t *sparse);

/* Allocates a mirror. `host` is existing pinned memory, or NULL. */
baton__mirror_t baton__mirror_room(baton_sparse_t *sparse, void *host,
                                   size_t bytes);

/* ---- device calls ------------------------------------------------------ */

/* Enqueues work into a stream of the device. After a failure, `status` is the
   error, and nothing more is enqueued. */
typedef struct baton__enqueue {
    baton_sparse_t *sparse;
    baton_stream_t stream;
    baton_status_t status;
} baton__enqueue_t;

typedef void (*baton__enqueue_fn)(void *arg, baton__enqueue_t *queue);

/* Adds a device call after the node `before`, and returns it. */
baton_node_t baton__sparse_device_call(baton_sparse_t *sparse,
                                       baton_schedule_t *schedule,
                                       baton_node_t before,
                                       baton__enqueue_fn fn, void *arg);

/* Copies `bytes` bytes, which may be 0. */
void baton__enqueue_copy(baton__enqueue_t *queue, void *target,
                         const void *source, size_t bytes);
void baton__enqueue_to_host(baton__enqueue_t *queue,
                            const baton__mirror_t *mirror, size_t bytes);
void baton__enqueue_to_device(baton__enqueue_t *queue,
                              const baton__mirror_t *mirror, size_t bytes);

/* target = factor * source, or zeros if source is NULL. */
void baton__enqueue_scale(baton__enqueue_t *queue, char *target,
                          const void *source, double factor);

/* Transfers entries between a list and `work`, or another dense vector. GATHER
   and TAKE copy to the list, PUT and ADD write to the vector. Only ADD uses the
   factor. */
void baton__enqueue_transfer(baton__enqueue_t *queue,
                             baton_device_direction_t direction,
                             const baton_device_entries_t *list,
                             const uint32_t *indices, char *dense,
                             double factor);

/* ---- building ---------------------------------------------------------- */

/* Adds nodes after `begin`, a call of baton__sparse_begin. After the node that
   is returned, `work` is the residual plus the gradient's contribution. */
baton_node_t baton__sparse_device_add_accumulation(baton_sparse_t *sparse,
                                                   baton_schedule_t *schedule,
                                                   baton_node_t begin);

/* ---- in a step --------------------------------------------------------- */

/* A list by which `work` was changed. */
struct baton__change {
    baton_device_entries_t list;
    baton__change_t *earlier;
};

/* Returns the bytes of a selection of k entries: its head, and the entries
   after it. */
static inline size_t baton__selected_bytes(const baton_sparse_t *sparse,
                                           size_t k)
{
    size_t bytes = sizeof(baton_device_selected_t) + k * sparse->entry_bytes;
    return (bytes + 15) / 16 * 16;
}

/* A selection: the k largest of `count` elements from `first` on. With
   `sampled`: up to 2k elements by a threshold, as the device's SAMPLED does. */
typedef struct baton__selecting {
    size_t first, count;
    size_t k;
    baton_side_t side;
    bool sampled;
    baton_magnitude_t earlier; /* a threshold to use again, or 0 */
} baton__selecting_t;

/* Takes the selection out of `work`, into `to`, which is device memory of
   baton__selected_bytes bytes. An earlier threshold must be in the selection's
   head already. */
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

/* work[index] += factor * value, for a list in device memory. */
void baton__enqueue_add(baton__enqueue_t *queue, char *entries, size_t count,
                        double factor, baton__change_t *change);

/* Turns `work` into the new residual, and clears the velocity at the result's
   indices, which are in device memory. */
void baton__enqueue_keep(baton__enqueue_t *queue, const uint32_t *indices,
                         size_t count);

/* Clears the velocity, if there is any, at indices in device memory: *count of
   them or, if `count` is NULL, `capacity`. */
void baton__enqueue_mask(baton__enqueue_t *queue, const uint32_t *indices,
                         size_t capacity, const uint64_t *count);

/* ---- the dense schedule ------------------------------------------------ */

/* Adds nodes that accumulate on the device, copy the sum to `target`, and clear
   `work`; returns the copy. Before each step dense_work must be bound to
   `work`. */
baton_node_t baton__sparse_device_add_dense(baton_sparse_t *sparse,
                                            baton_view_t target);
