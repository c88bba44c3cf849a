/* What a sparse all-reduce does in device memory. Gradient, residual
   and the vector that a step works in stay there; the entries that were
   selected come to the host, and those that change `work` go back:

       accumulate --> select, take, copy --> [messages, sums of lists]
                            |                        |
                            +--> copy, add <---------+
                                  |
                                 ...
       copy the result's indices, and what was dropped; keep

   `work` begins as gradient plus residual (G). Taking a list out of it and
   adding one to it leave in the list what it needs to be undone, so that at the
   end both vectors are known: what `work` is then (xi in SparDL's paper), and
   G. keep makes `work` the new residual: xi at the indices of the result,
   and G elsewhere. When the step has been completed, it changes places with
   `residual`; so a step that fails has left nothing behind.

   Velocity is computed beside it, in a vector of its own, which changes places
   with the old one likewise.

   With `clip` the gradient's norm comes to the host, before it is accumulated:

       begin --> square_sum, copy --> clip --> accumulate */
#pragma once

#include "coll/sparse/sparse.h"

typedef struct baton__change baton__change_t;

/* Memory of the device, and as much of the host. */
typedef struct baton__mirror {
    char *device, *host;
} baton__mirror_t;

struct baton__sparse_device {
    baton_engine_t *engine;
    const baton_device_port_t *port;
    void *device;

    char *residual, *work;         /* n elements each */
    char *velocity, *new_velocity; /* of momentum; or NULL */
    uint32_t *indices; /* of the selection made last; room for 2k + 1 */
    void *scratch;     /* of selections */
    char *kept;        /* what the residual has at the result's indices */
    baton__mirror_t square_sum; /* of the gradient, for clipping */
    baton__change_t *latest;    /* of the changes of `work` in this step */
    baton_buffer_t dense_work;  /* `work`, of the dense schedule */
};

/* Memory for vectors and selections; and, when it is known how many entries a
   result has, for these. engine, port and device are set. */
void baton__device_allocate(baton_sparse_t *sparse);
void baton__device_allocate_kept(baton_sparse_t *sparse);

/* `host`: memory that is there already, or NULL. */
baton__mirror_t baton__mirror_room(baton_sparse_t *sparse, void *host,
                                   size_t bytes);

/* ---- device calls ------------------------------------------------------ */

/* Puts work into a stream of the device. Behind a failure nothing more is put
   there, and `status` is the error. */
typedef struct baton__enqueue {
    baton_sparse_t *sparse;
    baton_stream_t stream;
    baton_status_t status;
} baton__enqueue_t;

typedef void (*baton__enqueue_fn)(void *arg, baton__enqueue_t *queue);

/* Adds a device call behind a node, and returns it. */
baton_node_t baton__sparse_device_call(baton_sparse_t *sparse,
                                       baton_schedule_t *schedule,
                                       baton_node_t before,
                                       baton__enqueue_fn fn, void *arg);

/* Copies so many bytes, which may be none. */
void baton__enqueue_copy(baton__enqueue_t *queue, void *target,
                         const void *source, size_t bytes);
void baton__enqueue_to_host(baton__enqueue_t *queue,
                            const baton__mirror_t *mirror, size_t bytes);
void baton__enqueue_to_device(baton__enqueue_t *queue,
                              const baton__mirror_t *mirror, size_t bytes);

/* target = source times a factor, or zeros without a source. */
void baton__enqueue_scale(baton__enqueue_t *queue, char *target,
                          const void *source, double factor);

/* GATHER and TAKE copy from `work`, or another dense vector; PUT and ADD write
   to it. The factor is ADD's. */
void baton__enqueue_transfer(baton__enqueue_t *queue,
                             baton_device_direction_t direction,
                             const baton_device_entries_t *list,
                             const uint32_t *indices, char *dense,
                             double factor);

/* ---- building ---------------------------------------------------------- */

/* Adds nodes behind `begin`, a call of baton__sparse_begin; behind the one that
   is returned `work` is residual plus what the gradient contributes. */
baton_node_t baton__sparse_device_add_accumulation(baton_sparse_t *sparse,
                                                   baton_schedule_t *schedule,
                                                   baton_node_t begin);

/* ---- in a step --------------------------------------------------------- */

/* A list by which `work` was changed. */
struct baton__change {
    baton_device_entries_t list;
    baton__change_t *earlier;
};

/* A selection in memory: its head, and its entries behind it. */
static inline size_t baton__selected_bytes(const baton_sparse_t *sparse,
                                           size_t k)
{
    size_t bytes = sizeof(baton_device_selected_t) + k * sparse->entry_bytes;
    return (bytes + 15) / 16 * 16;
}

/* What is selected: the k largest of `count` elements from `first` on; or, with
   `sampled`, up to 2k by a threshold, as the device's SAMPLED does. */
typedef struct baton__selecting {
    size_t first, count;
    size_t k;
    baton_side_t side;
    bool sampled;
    baton_magnitude_t earlier; /* a threshold to be used again, or 0 */
} baton__selecting_t;

/* Takes what is selected out of `work`, into device memory of
   baton__selected_bytes of so many. An earlier threshold is there already, in
   the selection's head. */
void baton__enqueue_take(baton__enqueue_t *queue,
                         const baton__selecting_t *selecting, char *to,
                         baton__change_t *change);

/* The head of a selection that was copied to the host, and its entries. */
static inline baton_device_selected_t *baton__selected_head(char *selection)
{
    return (baton_device_selected_t *)(void *)selection;
}

static inline baton_entries_t baton__selected_entries(const char *selection)
{
    const baton_device_selected_t *head =
        (const baton_device_selected_t *)(const void *)selection;
    return (baton_entries_t){head + 1, (size_t)head->count};
}

/* work[index] += factor * value, for a list in device memory. */
void baton__enqueue_add(baton__enqueue_t *queue, char *entries, size_t count,
                        double factor, baton__change_t *change);

/* `work` becomes the new residual, and velocity zero where the result, whose
   indices are in device memory, has entries. */
void baton__enqueue_keep(baton__enqueue_t *queue, const uint32_t *indices,
                         size_t count);

/* Velocity, if there is any, becomes zero at indices in device memory: `count`
   of them, or, where that is NULL, `capacity`. */
void baton__enqueue_mask(baton__enqueue_t *queue, const uint32_t *indices,
                         size_t capacity, const uint64_t *count);

/* ---- the dense schedule ------------------------------------------------ */

/* Adds nodes that accumulate on the device and copy the sum to `target`, which
   the last one returned does; `residual` will be zeros. Before each step:
   dense_work is bound to `work`. */
baton_node_t baton__sparse_device_add_dense(baton_sparse_t *sparse,
                                            baton_view_t target);
