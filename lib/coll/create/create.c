#include "coll/create/create.h"

#include "base/alloc.h"
#include "base/error.h"

#include <string.h>

/* ---- what each collective has ------------------------------------------ */

#define COLLECTIVE(called, KIND, ...)                                          \
    const baton__collective_t baton__##called = {                              \
        .noun = #called, .kind = BATON_COLLECTIVE_##KIND, __VA_ARGS__};        \
    baton_status_t baton_##called##_create(baton_group_t *group,               \
                                           const baton_operands_t *operands,   \
                                           baton_schedule_t **out)             \
    {                                                                          \
        return create(&baton__##called, group, operands, out);                 \
    }
#define FROM(span) .source = BATON__SPAN_##span
#define TO(span)   .target = BATON__SPAN_##span
#define BY(whose)  .sizes = BATON__SIZES_##whose

static baton_status_t create(const baton__collective_t *collective,
                             baton_group_t *group,
                             const baton_operands_t *operands,
                             baton_schedule_t **out);

COLLECTIVE(allreduce, ALLREDUCE, FROM(PART), TO(PART), .reduces = true,
           .chosen = true)
COLLECTIVE(reduce, REDUCE, FROM(PART), TO(PART), .reduces = true,
           .rooted = true, .target_at_root = true, .chosen = true)
COLLECTIVE(scan, SCAN, FROM(PART), TO(PART), .reduces = true)
COLLECTIVE(exscan, EXSCAN, FROM(PART), TO(PART), .reduces = true)
COLLECTIVE(reduce_scatter, REDUCE_SCATTER, FROM(BLOCKS), TO(PART),
           .reduces = true, .chosen = true, BY(EITHER))
COLLECTIVE(broadcast, BROADCAST, TO(PART), .rooted = true, .chosen = true)
COLLECTIVE(allgather, ALLGATHER, FROM(PART), TO(BLOCKS), .chosen = true)
COLLECTIVE(allgatherv, ALLGATHER, FROM(PART), TO(BLOCKS), .chosen = true,
           BY(COUNTS))
COLLECTIVE(gather, GATHER, FROM(PART), TO(BLOCKS), .rooted = true,
           .target_at_root = true)
COLLECTIVE(gatherv, GATHER, FROM(PART), TO(BLOCKS), .rooted = true,
           .target_at_root = true, BY(ROOT))
COLLECTIVE(scatter, SCATTER, FROM(BLOCKS), TO(PART), .rooted = true,
           .source_at_root = true)
COLLECTIVE(scatterv, SCATTER, FROM(BLOCKS), TO(PART), .rooted = true,
           .source_at_root = true, BY(ROOT))
COLLECTIVE(alltoall, ALLTOALL, FROM(BLOCKS), TO(BLOCKS), .chosen = true)
COLLECTIVE(alltoallv, ALLTOALL, FROM(BLOCKS), TO(BLOCKS), .chosen = true,
           BY(PAIR))
COLLECTIVE(barrier, BARRIER, BY(EQUAL))

/* ---- sizes -------------------------------------------------------------- */

/* In bytes. */
typedef struct extent {
    size_t element;
    size_t part;           /* of this rank's block, or of the vector */
    size_t offset;         /* of this rank's block */
    size_t source, target; /* of the vectors */
    size_t *blocks;        /* of each rank's block; NULL: all are equal */
    size_t *others;        /* of alltoallv: of target's */
} extent_t;

static baton_status_t refuse(const baton__collective_t *collective,
                             const char *verb, const char *what)
{
    return baton__error(BATON_ERR_INVALID, "baton_%s_%s: %s", collective->noun,
                        verb, what);
}

static bool is_root(const baton__collective_t *collective,
                    const baton_group_t *group, const baton_operands_t *on)
{
    return collective->rooted && baton_group_rank(group) == on->root;
}

static size_t element_of(const baton__collective_t *collective,
                         const baton_operands_t *on)
{
    return collective->reduces && on->op != NULL
               ? baton_op_element_bytes(on->op, on->dtype)
               : baton_dtype_size(on->dtype);
}

/* Bytes of so many elements, added to *sum; false: more than there can be. */
static bool add_bytes(size_t count, size_t element, size_t *sum)
{
    size_t bytes = 0;
    return !__builtin_mul_overflow(count, element, &bytes) &&
           bytes <= PTRDIFF_MAX && !__builtin_add_overflow(*sum, bytes, sum);
}

/* Whether this rank gives the sizes of all blocks. */
static bool by_counts(const baton__collective_t *collective,
                      const baton_group_t *group, const baton_operands_t *on)
{
    switch (collective->sizes) {
    case BATON__SIZES_EQUAL:
        return false;
    case BATON__SIZES_EITHER:
        return on->counts != NULL;
    case BATON__SIZES_ROOT:
        return is_root(collective, group, on);
    case BATON__SIZES_COUNTS:
    case BATON__SIZES_PAIR:
        break;
    }
    return true;
}

/* Of counts that are given: their sum; false: it overflows. */
static bool add_up(const size_t *counts, int size, size_t element, size_t *sum)
{
    *sum = 0;
    for (int r = 0; r < size; r++) {
        if (!add_bytes(counts[r], element, sum)) {
            return false;
        }
    }
    return true;
}

/* All but the arrays. False: a count is too large. */
static bool measure(const baton__collective_t *collective,
                    const baton_group_t *group, const baton_operands_t *on,
                    extent_t *out)
{
    int size = baton_group_size(group);
    int rank = baton_group_rank(group);
    size_t element = element_of(collective, on);
    size_t all = 0;
    size_t theirs = 0;
    *out = (extent_t){.element = element};
    if (by_counts(collective, group, on)) {
        bool fits = add_up(on->counts, size, element, &all) &&
                    (collective->sizes != BATON__SIZES_PAIR ||
                     add_up(on->target_counts, size, element, &theirs));
        if (!fits) {
            return false;
        }
        out->part = on->counts[rank] * element;
        (void)add_up(on->counts, rank, element, &out->offset);
    } else {
        if (!add_bytes(on->count, element, &out->part) ||
            !add_bytes(out->part, (size_t)size, &all)) {
            return false;
        }
        out->offset = out->part * (size_t)rank;
    }
    if (collective->sizes != BATON__SIZES_PAIR) {
        theirs = all;
    }
    out->source = collective->source == BATON__SPAN_BLOCKS ? all : out->part;
    out->target = collective->target == BATON__SPAN_BLOCKS ? theirs : out->part;
    return true;
}

/* ---- checks ------------------------------------------------------------- */

typedef struct vectors {
    const void *source;
    void *target;
    bool has_source, has_target; /* as operands, on this rank */
    bool in_place;
} vectors_t;

static vectors_t vectors_of(const baton__collective_t *collective,
                            const baton_group_t *group,
                            const baton_operands_t *on)
{
    bool root = is_root(collective, group, on);
    vectors_t v = {
        .source = on->source,
        .target = on->target,
        .has_source = collective->source != BATON__SPAN_NONE &&
                      (root || !collective->source_at_root),
        .has_target = collective->target != BATON__SPAN_NONE &&
                      (root || !collective->target_at_root),
    };
    if (v.has_source && v.has_target) {
        v.in_place = collective->source_at_root
                         ? v.target == NULL
                         : v.source == NULL ||
                               (v.source == v.target &&
                                collective->source == collective->target);
    } else if (v.source == NULL && collective->reduces) {
        v.source = v.target; /* a reduce's, not at the root */
    }
    return v;
}

static const char *wrong_field(const baton__collective_t *collective,
                               const baton_group_t *group,
                               const baton_operands_t *on)
{
    for (size_t i = 0; i < sizeof on->reserved / sizeof *on->reserved; i++) {
        if (on->reserved[i] != NULL) {
            return "reserved must be NULL";
        }
    }
    bool counts = by_counts(collective, group, on);
    if (counts && on->counts == NULL) {
        return "counts is NULL; it gives the elements of each rank's block";
    }
    if (!counts && on->counts != NULL) {
        return collective->sizes == BATON__SIZES_ROOT
                   ? "counts must be NULL on all ranks but the root: set count"
                   : "counts must be NULL here: set count";
    }
    if ((collective->sizes == BATON__SIZES_PAIR) !=
        (on->target_counts != NULL)) {
        return on->target_counts != NULL
                   ? "target_counts must be NULL: only alltoallv has them"
                   : "target_counts is NULL; it gives the elements of each "
                     "block that comes";
    }
    if (!collective->rooted && on->root != 0) {
        return "root must be 0: this collective has none";
    }
    if (!collective->reduces && on->op != NULL) {
        return "op must be NULL: this collective does not reduce";
    }
    if (collective->source == BATON__SPAN_NONE && on->source != NULL) {
        return "source must be NULL: the data is in target";
    }
    if (on->algorithm != NULL && collective->sizes == BATON__SIZES_ROOT) {
        return "algorithm must be NULL: there is only one";
    }
    return NULL;
}

static const char *wrong_vector(const baton__collective_t *collective,
                                const baton_group_t *group,
                                const baton_operands_t *on,
                                const extent_t *extent)
{
    const vectors_t v = vectors_of(collective, group, on);
    if (!baton_group_has_payload(group)) {
        return NULL;
    }
    bool from_source = v.in_place && collective->source_at_root;
    if (v.has_source && extent->source > 0 && v.source == NULL &&
        (!v.in_place || from_source)) {
        return collective->target_at_root
                   ? "source is NULL: only the root may work in place"
                   : "source is NULL; it must point to the data";
    }
    if (v.has_target && extent->target > 0 && v.target == NULL &&
        !from_source) {
        return "target is NULL; it must have room for the result";
    }
    return NULL;
}

baton_status_t baton__operands_check(const baton__collective_t *collective,
                                     const char *verb,
                                     const baton_group_t *group,
                                     const baton_operands_t *on)
{
    if (group == NULL) {
        return refuse(collective, verb, "group is NULL");
    }
    const char *wrong = wrong_field(collective, group, on);
    if (wrong != NULL) {
        return refuse(collective, verb, wrong);
    }
    if (collective->target == BATON__SPAN_NONE) {
        return BATON_OK;
    }
    baton_status_t status = BATON_OK;
    if (collective->reduces) {
        status = baton_op_check(on->op, on->dtype);
    } else if (baton_dtype_size(on->dtype) == 0) {
        status = baton_error_set(BATON_ERR_INVALID, BATON__WRONG_DTYPE,
                                 (int)on->dtype);
    }
    if (status != BATON_OK) {
        return refuse(collective, verb, baton_error_message());
    }
    extent_t extent;
    if (!measure(collective, group, on, &extent)) {
        return refuse(collective, verb,
                      on->counts != NULL
                          ? "counts are too large: their bytes overflow"
                          : "count is too large: its bytes overflow");
    }
    wrong = wrong_vector(collective, group, on, &extent);
    return wrong != NULL ? refuse(collective, verb, wrong) : BATON_OK;
}

/* ---- building ----------------------------------------------------------- */

static baton_view_t bind(baton_schedule_t *schedule, const void *memory,
                         size_t bytes, bool is_input, baton_memory_t where)
{
    baton_buffer_t buffer =
        is_input ? baton_buffer_bind_input(schedule, memory, bytes)
                 : baton_buffer_bind(schedule, (void *)memory, bytes);
    if (where != BATON_MEMORY_HOST) {
        baton_buffer_set_memory(schedule, buffer, where);
    }
    return baton_view(buffer, 0, bytes);
}

/* The views that the builder gets: of one buffer in place, else of two. */
typedef struct views {
    baton_view_t source, target;
} views_t;

static views_t bind_all(const baton__collective_t *collective,
                        const baton_operands_t *on, const vectors_t *v,
                        const extent_t *extent, baton_schedule_t *s)
{
    views_t views = {.source = {.bytes = 0}};
    if (v->in_place) {
        bool from = collective->source == BATON__SPAN_BLOCKS;
        size_t bytes = from ? extent->source : extent->target;
        bool input = collective->source_at_root;
        views.source = views.target =
            bind(s, input ? v->source : v->target, bytes, input, on->memory);
        if (collective->source != collective->target) {
            *(from ? &views.target : &views.source) =
                baton_view(views.target.buffer, extent->offset, extent->part);
        }
        return views;
    }
    if (v->has_source) {
        views.source = bind(s, v->source, extent->source, true, on->memory);
    }
    if (v->has_target) {
        views.target = bind(s, v->target, extent->target, false, on->memory);
    }
    return views;
}

/* The root exchanges a message with each other rank, whose block nobody else
   needs to know. */
static void add_flat(baton_schedule_t *s, const baton__collective_t *collective,
                     const baton_operands_t *on, const extent_t *extent,
                     const views_t *views)
{
    bool gathers = collective->kind == BATON_COLLECTIVE_GATHER;
    baton_view_t own = gathers ? views->source : views->target;
    int rank = baton_schedule_rank(s);
    int size = baton_schedule_size(s);
    baton_schedule_agree(s, "baton_%s_create, root %d, %s", collective->noun,
                         on->root, baton_dtype_name(on->dtype));
    if (on->root < 0 || on->root >= size) {
        baton_schedule_fail(s, BATON_ERR_INVALID,
                            "root is %d, must be a rank of the group, 0 to %d",
                            on->root, size - 1);
    } else if (rank != on->root && own.bytes > 0) {
        (void)(gathers ? baton_add_send(s, on->root, own)
                       : baton_add_recv(s, on->root, own));
    } else if (rank == on->root) {
        baton_view_t block = gathers ? views->target : views->source;
        for (int r = 0; r < size; r++) {
            block.bytes = extent->blocks[r];
            bool there = block.buffer.index == own.buffer.index;
            if (r != rank && block.bytes > 0) {
                (void)(gathers ? baton_add_recv(s, r, block)
                               : baton_add_send(s, r, block));
            } else if (r == rank && block.bytes > 0 && !there) {
                (void)(gathers ? baton_add_copy(s, block, own)
                               : baton_add_copy(s, own, block));
            }
            block.offset += block.bytes;
        }
    }
}

/* Calls an adder with both views, and what else its arguments have. */
#define ADD(adder, args_t, ...)                                                \
    adder(s, &(args_t){.size = sizeof(args_t),                                 \
                       .source = views->source,                                \
                       .target = views->target,                                \
                       __VA_ARGS__})
#define REDUCTION .dtype = on->dtype, .op = on->op
#define ALGORITHM .algorithm = on->algorithm

static void add_nodes(baton_schedule_t *s,
                      const baton__collective_t *collective,
                      const baton_operands_t *on, const extent_t *extent,
                      const views_t *views)
{
    if (collective->sizes == BATON__SIZES_ROOT) {
        add_flat(s, collective, on, extent, views);
        return;
    }
    switch (collective->kind) {
    case BATON_COLLECTIVE_BARRIER:
        baton_add_barrier(s);
        break;
    case BATON_COLLECTIVE_BROADCAST: {
        const baton_broadcast_args_t args = {.size = sizeof args,
                                             .root = on->root,
                                             .data = views->target,
                                             ALGORITHM};
        baton_add_broadcast(s, &args);
        break;
    }
    case BATON_COLLECTIVE_REDUCE:
        ADD(baton_add_reduce, baton_reduce_args_t, .root = on->root, REDUCTION,
            ALGORITHM);
        break;
    case BATON_COLLECTIVE_ALLREDUCE:
        ADD(baton_add_allreduce, baton_allreduce_args_t, REDUCTION, ALGORITHM);
        break;
    case BATON_COLLECTIVE_REDUCE_SCATTER:
        ADD(baton_add_reduce_scatter, baton_reduce_scatter_args_t,
            .counts = on->counts, REDUCTION, ALGORITHM);
        break;
    case BATON_COLLECTIVE_ALLGATHER:
        ADD(baton_add_allgather, baton_allgather_args_t,
            .block_bytes = extent->blocks, ALGORITHM);
        break;
    case BATON_COLLECTIVE_ALLTOALL:
        ADD(baton_add_alltoall, baton_alltoall_args_t,
            .send_bytes = extent->blocks, .recv_bytes = extent->others,
            ALGORITHM);
        break;
    case BATON_COLLECTIVE_GATHER:
        ADD(baton_add_gather, baton_rooted_args_t, .root = on->root);
        break;
    case BATON_COLLECTIVE_SCATTER:
        ADD(baton_add_scatter, baton_rooted_args_t, .root = on->root);
        break;
    case BATON_COLLECTIVE_SCAN:
        ADD(baton_add_scan, baton_scan_args_t, REDUCTION);
        break;
    case BATON_COLLECTIVE_EXSCAN:
        ADD(baton_add_exscan, baton_scan_args_t, REDUCTION);
        break;
    case BATON_COLLECTIVE_COUNT:
        break;
    }
}

/* A reduce-scatter in place leaves this rank's block at the beginning, as MPI
   defines it, and the builder where it is; uneven blocks may overlap. */
static void add_and_move(baton_schedule_t *s,
                         const baton__collective_t *collective,
                         const baton_operands_t *on, const extent_t *extent,
                         const views_t *views)
{
    baton_view_t front = baton_view(views->target.buffer, 0, extent->part);
    baton_node_t begin = baton_add_nop(s);
    baton_node_t moved;
    if (extent->offset < extent->part) {
        baton_view_t aside =
            baton_view(baton_buffer_scratch(s, extent->part), 0, extent->part);
        baton_node_t last = baton_add_copy(s, front, aside);
        moved = baton_add_copy(s, aside, views->target);
        baton_before(s, moved, last);
    } else {
        moved = baton_add_copy(s, front, views->target);
    }
    baton_enclosure_t enclosure = baton_enclose_begin(s);
    add_nodes(s, collective, on, extent, views);
    baton_enclose_end(s, enclosure, begin, moved);
}

/* Bytes of blocks, where they are given by counts. */
static bool find_blocks(const baton__collective_t *collective,
                        const baton_group_t *group, const baton_operands_t *on,
                        extent_t *extent)
{
    size_t size = (size_t)baton_group_size(group);
    if (!by_counts(collective, group, on) || collective->reduces) {
        return true; /* a reduction's builder takes counts */
    }
    extent->blocks = baton__alloc(2 * size, sizeof *extent->blocks);
    if (extent->blocks == NULL) {
        return false;
    }
    for (size_t r = 0; r < size; r++) {
        extent->blocks[r] = on->counts[r] * extent->element;
    }
    if (collective->sizes == BATON__SIZES_PAIR) {
        extent->others = extent->blocks + size;
        for (size_t r = 0; r < size; r++) {
            extent->others[r] = on->target_counts[r] * extent->element;
        }
    }
    return true;
}

baton_status_t baton__collective_create(const baton__collective_t *collective,
                                        const char *verb, baton_group_t *group,
                                        const baton_operands_t *on,
                                        baton_schedule_t **out)
{
    baton_schedule_t *s = NULL;
    const char *name = on->name != NULL ? on->name : collective->noun;
    baton_status_t status = BATON_OK;
    if (on->algorithm != NULL && !collective->chosen) {
        baton_algorithm_t found;
        status = baton_algorithm_find(collective->kind, on->algorithm, &found);
    }
    if (status == BATON_OK) {
        status = baton_schedule_create(group, name, &s);
    }
    if (status != BATON_OK) {
        return status;
    }
    extent_t extent = {.part = 0};
    (void)measure(collective, group, on, &extent);
    if (!find_blocks(collective, group, on, &extent)) {
        (void)!baton_schedule_destroy(s);
        return baton__error(BATON_ERR_NO_MEMORY,
                            "baton_%s_%s: no memory for the blocks' sizes",
                            collective->noun, verb);
    }
    if (on->depth > 0) {
        baton_schedule_set_depth(
            s, on->depth > UINT32_MAX ? UINT32_MAX : (uint32_t)on->depth);
    }
    const vectors_t v = vectors_of(collective, group, on);
    const views_t views = bind_all(collective, on, &v, &extent, s);
    bool moves = v.in_place && extent.offset > 0 && extent.part > 0 &&
                 collective->kind == BATON_COLLECTIVE_REDUCE_SCATTER;
    (moves ? add_and_move : add_nodes)(s, collective, on, &extent, &views);
    baton__free(extent.blocks);
    status = baton_schedule_commit(s);
    if (status == BATON_OK) {
        *out = s;
    } else {
        (void)!baton_schedule_destroy(s);
    }
    return status;
}

static baton_status_t create(const baton__collective_t *collective,
                             baton_group_t *group,
                             const baton_operands_t *operands,
                             baton_schedule_t **out)
{
    static const baton_operands_t nothing = {.count = 0};
    if (operands == NULL && collective->target == BATON__SPAN_NONE) {
        operands = &nothing;
    }
    if (out == NULL || operands == NULL) {
        return refuse(collective, "create",
                      out == NULL ? "out is NULL" : "operands is NULL");
    }
    baton_status_t status =
        baton__operands_check(collective, "create", group, operands);
    return status == BATON_OK ? baton__collective_create(collective, "create",
                                                         group, operands, out)
                              : status;
}
