/* Schedules, by their shapes. */
#include "mpi/requests.h"
#include "mpi/runtime.h"

#include <baton/build.h>
#include <stdio.h>
#include <stdlib.h>

/* Limits of a communicator's kept entries: KEPT in any case, and more while
   their vectors, each plus ENTRY_BYTES, fit into KEPT_BYTES. */
enum { KEPT = 64, KEPT_BYTES = 8 << 20, ENTRY_BYTES = 8 << 10 };

/* ---- schedules ----------------------------------------------------------- */

typedef baton_status_t (*create_fn)(baton_group_t *group,
                                    const baton_operands_t *operands,
                                    baton_schedule_t **out);

#define CREATE(KIND, name, create, ...) baton_##create##_create,
static const create_fn creates[BATON__MPI_KINDS] = {BATON__MPI_LIST(CREATE)};

static baton_status_t entries_create(baton__mpi_entry_t *entry,
                                     const baton__mpi_op_t *op)
{
    const baton__mpi_shape_t *shape = &entry->shape;
    const baton__mpi_vectors_t *v = &op->vectors;
    char name[64];
    (void)snprintf(name, sizeof name, "%s%s",
                   op->persistent ? "persistent " : "",
                   baton__mpi_traits[shape->kind].name);
    entry->source = v->source.memory;
    entry->target = v->target.memory;
    baton_operands_t on = {.source = entry->source,
                           .target = entry->target,
                           .count = shape->count,
                           .dtype = shape->dtype,
                           .op = shape->op,
                           .root = shape->root,
                           .counts = shape->counts,
                           .name = name,
                           .depth = 2};
    if (shape->kind == BATON__MPI_ALLTOALLV) {
        on.target_counts = shape->counts + shape->size;
    }
    if (shape->kind == BATON__MPI_BARRIER) {
        on.dtype = BATON_DTYPE_NONE;
    }
    return creates[shape->kind](op->comm->group, &on, &entry->schedule);
}

static void free_entry(baton__mpi_entry_t *entry)
{
    if (entry->schedule != NULL) {
        (void)!baton_schedule_destroy(entry->schedule);
    }
    if (entry->own != NULL) {
        baton__mpi_op_free(entry->own);
    }
    baton__mpi_shape_fini(&entry->shape);
    free(entry);
}

static baton_status_t entries_make(baton__mpi_op_t *op,
                                   baton__mpi_shape_t *shape)
{
    baton__mpi_entry_t *entry = calloc(1, sizeof *entry);
    if (entry == NULL) {
        return BATON_ERR_NO_MEMORY;
    }
    entry->shape = *shape;
    shape->counts = NULL;
    shape->function = NULL;
    entry->last = &entry->first;
    atomic_flag_clear(&entry->lock);
    baton_status_t status = entries_create(entry, op);
    if (status != BATON_OK) {
        entry->schedule = NULL;
        free_entry(entry);
        return status;
    }
    baton_schedule_on_end(entry->schedule, baton__mpi_on_end, entry);
    entry->next = op->comm->entries;
    op->comm->entries = entry;
    op->entry = entry;
    return BATON_OK;
}

void baton__mpi_entries_reap(baton__mpi_comm_t *comm, bool all)
{
    baton__mpi_entry_t **at = &comm->entries;
    while (*at != NULL) {
        baton__mpi_entry_t *entry = *at;
        if (all ||
            (!atomic_load_explicit(&entry->kept, memory_order_acquire) &&
             atomic_load_explicit(&entry->users, memory_order_acquire) == 0)) {
            *at = entry->next;
            free_entry(entry);
        } else {
            at = &entry->next;
        }
    }
}

/* Finds the shape's entry and moves it to the front. If there is none, the
   least recently used entries above the limits are no longer kept: the same
   ones on all ranks, as all ranks make the same calls. */
static baton__mpi_entry_t *entries_find(baton__mpi_comm_t *comm,
                                        const baton__mpi_shape_t *shape)
{
    size_t bytes = 0;
    int kept = 1; /* the new one */
    baton__mpi_entry_t **at = &comm->entries;
    for (; *at != NULL; at = &(*at)->next) {
        baton__mpi_entry_t *entry = *at;
        if (!entry->kept || entry->own != NULL) {
            continue;
        }
        if (baton__mpi_shape_equals(&entry->shape, shape)) {
            *at = entry->next;
            entry->next = comm->entries;
            comm->entries = entry;
            return entry;
        }
        bytes += ENTRY_BYTES + baton__mpi_shape_bytes(&entry->shape);
        entry->kept = ++kept <= KEPT || bytes <= KEPT_BYTES;
    }
    return NULL;
}

/* Shapes with a function of the program are not kept: the next function or type
   with the same handle may be another. */
baton_status_t baton__mpi_entry_for(baton__mpi_op_t *op,
                                    baton__mpi_shape_t *shape)
{
    bool keeps =
        (baton__mpi_traits[shape->kind].traits & BATON__MPI_PRIVATE) == 0 &&
        shape->function == NULL && !op->persistent;
    op->entry = keeps ? entries_find(op->comm, shape) : NULL;
    if (op->entry != NULL) {
        return BATON_OK;
    }
    baton__mpi_entries_reap(op->comm, false);
    baton_status_t status = entries_make(op, shape);
    if (status == BATON_OK) {
        op->entry->kept = keeps;
    }
    return status;
}
