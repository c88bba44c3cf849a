/* Collectives by one call that waits. The group keeps a schedule for each shape
   of calls, and each call binds its vectors to the schedule of its shape.

   Either all ranks or none must have a schedule for the shape of a call. So a
   shape has only arguments that are the same on all ranks, and if there are too
   many shapes, the least recently used one is dropped. After a recovery all
   shapes are dropped, since ranks may have made different numbers of calls
   before it. The schedules that are made after it have another name.

   Each rank decides for itself whether a call is in place, so that is not part
   of a shape. The first call of a shape decides whether its schedule works in
   place on this rank. Later calls that differ copy their vector. */
#include "base/alloc.h"
#include "base/error.h"
#include "coll/create/create.h"
#include "coll/kit/check.h"

#include <stdio.h>
#include <string.h>

enum { SHAPES = 32, NAME_BYTES = 32 };

typedef struct shape {
    const baton__collective_t *collective; /* NULL: this entry is free */
    size_t count;
    baton_dtype_t dtype;
    const baton_op_t *op;
    int root;
} shape_t;

typedef struct entry {
    shape_t shape;
    baton_schedule_t *schedule;
    const void *source; /* the source to which the schedule is bound now */
    void *target;       /* the target to which the schedule is bound now */
    bool in_place;      /* on this rank the schedule works in place */
    /* Memory for a copy of the source in calls that are in place, if the
       schedule is not in place. NULL until such a call is made. */
    void *copy;
    uint64_t used; /* the last call of this shape, by shapes_t.calls */
} entry_t;

typedef struct shapes {
    uint64_t calls;
    unsigned recoveries;
    entry_t entries[SHAPES];
} shapes_t;

/* The address of this variable is the key of the group's attribute. */
static const char shapes_key;

static void now_drop(entry_t *entry)
{
    if (entry->shape.collective != NULL) {
        (void)!baton_schedule_destroy(entry->schedule);
    }
    baton__free(entry->copy);
    *entry = (entry_t){.used = 0};
}

static void drop_all(void *value)
{
    shapes_t *shapes = value;
    for (int i = 0; i < SHAPES; i++) {
        now_drop(&shapes->entries[i]);
    }
}

static void free_shapes(void *value)
{
    drop_all(value);
    baton__free(value);
}

/* Returns the group's shapes, and drops those from before a recovery. Returns
   NULL if there is no memory. */
static shapes_t *shapes_of(baton_group_t *group)
{
    shapes_t *shapes = baton_group_attribute(group, &shapes_key, NULL, NULL);
    if (shapes == NULL) {
        shapes_t *made = baton__alloc(1, sizeof *made);
        shapes = made == NULL ? NULL
                              : baton_group_attribute(group, &shapes_key, made,
                                                      free_shapes);
        if (shapes != made) {
            baton__free(made);
        }
    }
    if (shapes != NULL && shapes->recoveries != baton_group_recoveries(group)) {
        drop_all(shapes);
        shapes->recoveries = baton_group_recoveries(group);
    }
    return shapes;
}

static bool now_is_same(const shape_t *a, const shape_t *b)
{
    return a->collective == b->collective && a->count == b->count &&
           a->dtype == b->dtype && a->op == b->op && a->root == b->root;
}

/* Returns the entry of the shape. If there is none, returns a free entry, or
   else that of the least recently used shape. */
static entry_t *now_find(shapes_t *shapes, const shape_t *shape)
{
    entry_t *oldest = &shapes->entries[0];
    for (int i = 0; i < SHAPES; i++) {
        entry_t *entry = &shapes->entries[i];
        if (now_is_same(&entry->shape, shape)) {
            return entry;
        }
        oldest = entry->used < oldest->used ? entry : oldest;
    }
    return oldest;
}

/* Writes and returns the name of new schedules. All collectives have the same
   name. So if ranks call different collectives, Baton compares their schedules
   and finds the difference. */
static const char *name_of(const baton_group_t *group, char *name)
{
    (void)snprintf(name, NAME_BYTES, "now.%u", baton_group_recoveries(group));
    return name;
}

static baton_status_t now_make(entry_t *entry, const shape_t *shape,
                               baton_group_t *group, baton_operands_t on)
{
    char name[NAME_BYTES];
    on.name = name_of(group, name);
    baton_status_t status = baton__collective_create(
        shape->collective, "now", group, &on, &entry->schedule);
    if (status == BATON_OK) {
        entry->shape = *shape;
        baton_schedule_in_order(entry->schedule);
    }
    return status;
}

static baton_status_t now_bind(entry_t *entry, const baton_operands_t *on)
{
    if (on->source == entry->source && on->target == entry->target) {
        return BATON_OK;
    }
    const baton_status_t status =
        baton_schedule_rebind(entry->schedule, on->source, on->target);
    entry->source = status == BATON_OK ? on->source : NULL;
    entry->target = status == BATON_OK ? on->target : NULL;
    return status;
}

/* Adapts the source of a call to the schedule of its shape. If the call is in
   place and the schedule is not, copies the vector to entry->copy and uses the
   copy as the source. If the schedule is in place and the call is not, copies
   the source into the target. An all-gather is in place if its source is this
   rank's block of the target. */
static baton_status_t match_places(entry_t *entry, bool is_new,
                                   const baton__collective_t *collective,
                                   const baton_group_t *group,
                                   baton_operands_t *on)
{
    size_t bytes = on->count * baton_dtype_size(on->dtype);
    char *place = on->target;
    if (collective->facts->target == BATON_SPAN_BLOCKS && place != NULL) {
        place += (size_t)baton_group_rank(group) * bytes;
    }
    bool in_place = on->source == NULL || on->source == place;
    if (collective->facts->source == BATON_SPAN_NONE) {
        return BATON_OK;
    }
    if (collective->facts->rooted && baton_group_rank(group) != on->root) {
        on->source = in_place ? place : on->source;
        return BATON_OK;
    }
    /* The target of a reduce-scatter may have room for one block only, so the
       schedule does not work in place. */
    if (is_new) {
        entry->in_place =
            in_place && collective->facts->source == BATON_SPAN_PART;
    }
    if (entry->in_place) {
        if (!in_place && bytes > 0) {
            memcpy(place, on->source, bytes);
        }
        on->source = NULL;
        return BATON_OK;
    }
    if (!in_place) {
        return BATON_OK;
    }
    if (collective->facts->source == BATON_SPAN_BLOCKS) {
        bytes *= (size_t)baton_group_size(group);
    }
    if (entry->copy == NULL) {
        entry->copy = baton__alloc(bytes + 1, 1);
    }
    if (entry->copy == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY,
                            "baton_%s_now: no memory for %zu bytes in place",
                            collective->noun, bytes);
    }
    on->source = bytes > 0 ? memcpy(entry->copy, place, bytes) : entry->copy;
    return BATON_OK;
}

static baton_status_t start_and_wait(baton_schedule_t *schedule)
{
    baton_status_t status = baton__start_to_wait(schedule);
    return status == BATON_OK ? baton__wait_out(schedule, -1) : status;
}

static baton_status_t now_run(const baton__collective_t *collective,
                              baton_group_t *group, baton_operands_t on)
{
    baton_status_t status =
        baton__operands_check(collective, "now", group, &on);
    if (status != BATON_OK) {
        return status;
    }
    if (baton_group_is_simulated(group)) {
        return baton__error(BATON_ERR_UNSUPPORTED,
                            "baton_%s_now: the ranks are simulated, and a "
                            "simulated rank can't wait: create a schedule",
                            collective->noun);
    }
    shapes_t *shapes = shapes_of(group);
    if (shapes == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY,
                            "baton_%s_now: no memory to keep the schedule",
                            collective->noun);
    }
    const shape_t shape = {.collective = collective,
                           .count = on.count,
                           .dtype = on.dtype,
                           .op = on.op,
                           .root = on.root};
    entry_t *entry = now_find(shapes, &shape);
    bool is_new = entry->used == 0 || !now_is_same(&entry->shape, &shape);
    if (is_new) {
        now_drop(entry);
    }
    status = match_places(entry, is_new, collective, group, &on);
    if (status == BATON_OK && is_new) {
        status = now_make(entry, &shape, group, on);
        entry->source = on.source;
        entry->target = on.target;
    } else if (status == BATON_OK) {
        status = now_bind(entry, &on);
    }
    if (status == BATON_OK) {
        entry->used = ++shapes->calls;
        status = start_and_wait(entry->schedule);
    }
    return status;
}

/* ---- the calls ---------------------------------------------------------- */

#define RUN(noun, ...)                                                         \
    return now_run(                                                            \
        &baton__##noun, group,                                                 \
        (baton_operands_t){                                                    \
            .target = target, .count = count, .dtype = dtype, __VA_ARGS__})

baton_status_t baton_allreduce_now(baton_group_t *group, const void *source,
                                   void *target, size_t count,
                                   baton_dtype_t dtype, const baton_op_t *op)
{
    RUN(allreduce, .source = source, .op = op);
}

baton_status_t baton_reduce_now(baton_group_t *group, const void *source,
                                void *target, size_t count, baton_dtype_t dtype,
                                const baton_op_t *op, int root)
{
    RUN(reduce, .source = source, .op = op, .root = root);
}

baton_status_t baton_reduce_scatter_now(baton_group_t *group,
                                        const void *source, void *target,
                                        size_t count, baton_dtype_t dtype,
                                        const baton_op_t *op)
{
    RUN(reduce_scatter, .source = source, .op = op);
}

baton_status_t baton_broadcast_now(baton_group_t *group, void *target,
                                   size_t count, baton_dtype_t dtype, int root)
{
    RUN(broadcast, .root = root);
}

baton_status_t baton_allgather_now(baton_group_t *group, const void *source,
                                   void *target, size_t count,
                                   baton_dtype_t dtype)
{
    RUN(allgather, .source = source);
}

baton_status_t baton_barrier_now(baton_group_t *group)
{
    return now_run(&baton__barrier, group, (baton_operands_t){.count = 0});
}

baton_status_t baton_now(baton_group_t *group, baton_create_fn *create,
                         const baton_operands_t *operands)
{
    char name[NAME_BYTES];
    baton_operands_t named;
    baton_schedule_t *s = NULL;
    if (!baton__is_given((const void *)(uintptr_t)create, true, __func__,
                         "create")) {
        return BATON_ERR_INVALID;
    }
    if (group != NULL && operands != NULL && operands->name == NULL) {
        named = *operands;
        named.name = name_of(group, name);
        operands = &named;
    }
    baton_status_t status = create(group, operands, &s);
    if (status != BATON_OK) {
        return status;
    }
    baton_schedule_in_order(s);
    status = start_and_wait(s);
    baton_status_t ended = baton_schedule_destroy(s);
    return status != BATON_OK ? status : ended;
}
