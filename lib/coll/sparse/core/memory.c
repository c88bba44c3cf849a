/* Memory that belongs to a sparse all-reduce, either until it is destroyed or
   until its schedules are rebuilt. */
#include "coll/sparse/core/core.h"

#include "base/alloc.h"

#include <assert.h>

struct baton__sparse_memory {
    baton__sparse_memory_t *next;
    void *memory;
    bool of_device; /* baton_device_alloc has allocated the memory */
    bool lasts;     /* the memory outlives the schedules */
    baton_memory_t kind;
};

static void free_piece(const baton_sparse_t *sparse,
                       const baton__sparse_memory_t *piece)
{
    if (piece->of_device) {
        baton_device_free(baton_group_engine(sparse->group), piece->kind,
                          piece->memory);
    } else {
        baton__free(piece->memory);
    }
}

static void *sparse_memory_keep(baton_sparse_t *sparse,
                                baton__sparse_memory_t piece)
{
    baton__sparse_memory_t *record =
        piece.memory != NULL ? baton__alloc(1, sizeof *record) : NULL;
    if (record == NULL) {
        free_piece(sparse, &piece);
        sparse->out_of_memory = true;
        return NULL;
    }
    piece.next = sparse->memory;
    *record = piece;
    sparse->memory = record;
    return piece.memory;
}

void *baton__sparse_alloc(baton_sparse_t *sparse, size_t count, size_t bytes)
{
    return sparse_memory_keep(
        sparse, (baton__sparse_memory_t){.memory = baton__alloc(count, bytes)});
}

void *baton__sparse_alloc_data(baton_sparse_t *sparse, size_t count,
                               size_t bytes)
{
    return sparse->payload ? baton__sparse_alloc(sparse, count, bytes) : NULL;
}

void *baton__sparse_alloc_device(baton_sparse_t *sparse, baton_memory_t kind,
                                 size_t bytes)
{
    baton__sparse_memory_t piece = {.of_device = true, .kind = kind};
    (void)!baton_device_alloc(baton_group_engine(sparse->group), kind,
                              bytes > 0 ? bytes : 1, &piece.memory);
    return sparse_memory_keep(sparse, piece);
}

void *baton__sparse_alloc_pinned(baton_sparse_t *sparse, size_t count,
                                 size_t bytes)
{
    return sparse->options.memory == BATON_MEMORY_DEVICE
               ? baton__sparse_alloc_device(sparse, BATON_MEMORY_HOST,
                                            count * bytes)
               : baton__sparse_alloc_data(sparse, count, bytes);
}

void *baton__sparse_keep_memory(const baton_sparse_t *sparse, void *memory)
{
    if (memory != NULL) {
        assert(sparse->memory->memory == memory);
        sparse->memory->lasts = true;
    }
    return memory;
}

void baton__sparse_free_memory(baton_sparse_t *sparse, bool all)
{
    baton__sparse_memory_t **link = &sparse->memory;
    while (*link != NULL) {
        baton__sparse_memory_t *piece = *link;
        if (piece->lasts && !all) {
            link = &piece->next;
            continue;
        }
        *link = piece->next;
        free_piece(sparse, piece);
        baton__free(piece);
    }
}

/* The number of teams becomes that at creation, or 1 if the number at creation
   does not divide the number of ranks. So the number of teams depends on this
   group alone, and not on the groups that the sparse all-reduce has had since
   its creation. */
void baton__sparse_enter(baton_sparse_t *sparse, int rank, int size)
{
    baton__sparse_free_memory(sparse, false);
    sparse->rank = rank;
    sparse->size = size;
    baton_sparse_options_t *o = &sparse->options;
    o->teams = sparse->size % sparse->teams == 0 ? sparse->teams : 1;
    sparse->completion.add_missing_shares = NULL;
    sparse->handover.flags = NULL;
    sparse->out_of_memory = false;
}
