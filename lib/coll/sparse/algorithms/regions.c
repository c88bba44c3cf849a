/* Split and reduce; see regions.h. */
#include "coll/sparse/algorithms/regions.h"

void baton__regions_init(baton__regions_t *regions, baton_sparse_t *sparse,
                         size_t capacity, bool fixed)
{
    size_t size = (size_t)sparse->size;
    *regions = (baton__regions_t){
        .sparse = sparse,
        .capacity = capacity,
        .fixed = fixed,
        .bounds =
            baton__sparse_alloc(sparse, size + 1, sizeof *regions->bounds),
        .sends = baton__sparse_alloc(sparse, size - 1, sizeof *regions->sends),
        .recvs = baton__sparse_alloc(sparse, size - 1, sizeof *regions->recvs),
        .lists = baton__sparse_alloc(sparse, size, sizeof *regions->lists),
        .indices = baton__sparse_alloc_data(sparse, capacity,
                                            sizeof *regions->indices),
        .own = baton__sparse_alloc_data(sparse, capacity, sparse->entry_bytes),
    };
    if (regions->bounds != NULL) {
        regions->bounds[size] = sparse->count;
    }
    if (regions->bounds != NULL && !sparse->options.partial) {
        sparse->extra = regions->bounds;
        sparse->extra_count = size + 1;
    }
}

/* Returns the most bytes that a rank may have to send to the owner of a
   region. */
static size_t message_capacity(const baton__regions_t *regions, int owner)
{
    size_t count = baton__regions_block(regions, owner).count;
    size_t entries =
        regions->fixed && count < regions->capacity ? count : regions->capacity;
    return entries * regions->sparse->entry_bytes;
}

void baton__regions_build(baton__regions_t *regions, baton_node_t ready,
                          baton_node_t sum)
{
    baton_sparse_t *sparse = regions->sparse;
    baton_schedule_t *s = sparse->schedule;
    for (int i = 0; i < sparse->size - 1; i++) {
        int to = baton__rank_shift(sparse->rank, i + 1, sparse->size);
        int from = baton__rank_shift(sparse->rank, -i - 1, sparse->size);
        baton__message_send(&regions->sends[i], sparse, to,
                            message_capacity(regions, to));
        baton__message_recv(&regions->recvs[i], sparse, from,
                            message_capacity(regions, sparse->rank));
        baton_before(s, ready, regions->sends[i].node);
        baton_before(s, regions->recvs[i].node, sum);
    }
    sparse->rounds += (uint32_t)sparse->size - 1;
}

baton_entries_t baton__regions_entries(const baton__regions_t *regions,
                                       int owner)
{
    const baton_sparse_t *sparse = regions->sparse;
    if (!sparse->payload) {
        size_t count =
            baton__block_of(sparse->k, (size_t)sparse->size, (size_t)owner)
                .count;
        return (baton_entries_t){NULL, count};
    }
    size_t begin = baton__count_below(regions->indices, regions->count,
                                      regions->bounds[owner]);
    size_t end = baton__count_below(regions->indices, regions->count,
                                    regions->bounds[owner + 1]);
    return (baton_entries_t){regions->own + begin * sparse->entry_bytes,
                             end - begin};
}

baton_status_t baton__regions_send(baton__regions_t *regions,
                                   baton_call_t *call)
{
    const baton_sparse_t *sparse = regions->sparse;
    baton_status_t status = BATON_OK;
    for (int i = 0; i < sparse->size - 1 && status == BATON_OK; i++) {
        int owner = baton__rank_shift(sparse->rank, i + 1, sparse->size);
        status = baton__message_put(&regions->sends[i], call,
                                    baton__regions_entries(regions, owner));
    }
    return status;
}

void baton__regions_take(baton__regions_t *regions, baton_call_t *call)
{
    const baton_sparse_t *sparse = regions->sparse;
    regions->lists[0] = baton__regions_entries(regions, sparse->rank);
    for (int i = 0; i < sparse->size - 1; i++) {
        baton__message_t *recv = &regions->recvs[i];
        baton__message_take(recv, call);
        regions->lists[i + 1] =
            (baton_entries_t){recv->data, baton__message_entries(recv)};
    }
}
