#include "coll/create/create.h"

#include "base/alloc.h"
#include "base/error.h"
#include "coll/dense/algorithms.h"

#include <string.h>

/* ---- the descriptions of the collectives ------------------------------- */

#define COLLECTIVE(called, KIND, ...)                                          \
    const baton__collective_t baton__##called = {                              \
        .noun = #called,                                                       \
        .kind = BATON_COLLECTIVE_##KIND,                                       \
        .facts = &baton__facts[BATON_COLLECTIVE_##KIND],                       \
        __VA_ARGS__};
#define BY(whose) .sizes = BATON__SIZES_##whose

COLLECTIVE(allreduce, ALLREDUCE, .chosen = true)
COLLECTIVE(reduce, REDUCE, .chosen = true)
COLLECTIVE(scan, SCAN, BY(EQUAL))
COLLECTIVE(exscan, EXSCAN, BY(EQUAL))
COLLECTIVE(reduce_scatter, REDUCE_SCATTER, .chosen = true, BY(EITHER))
COLLECTIVE(broadcast, BROADCAST, .chosen = true)
COLLECTIVE(allgather, ALLGATHER, .chosen = true)
COLLECTIVE(allgatherv, ALLGATHER, .chosen = true, BY(COUNTS))
COLLECTIVE(gather, GATHER, BY(EQUAL))
COLLECTIVE(gatherv, GATHER, BY(ROOT))
COLLECTIVE(scatter, SCATTER, BY(EQUAL))
COLLECTIVE(scatterv, SCATTER, BY(ROOT))
COLLECTIVE(alltoall, ALLTOALL, .chosen = true)
COLLECTIVE(alltoallv, ALLTOALL, .chosen = true, BY(PAIR))
COLLECTIVE(barrier, BARRIER, BY(EQUAL))

/* ---- a call ------------------------------------------------------------- */

/* The operands of one call on this rank. Sizes are in bytes. */
typedef struct call {
    const baton__collective_t *of;
    const char *verb;
    const baton_group_t *group;
    const baton_operands_t *on;
    int rank, size;
    bool is_root;
    bool by_counts; /* the operands of this rank have the sizes of all blocks */

    size_t element;
    /* The size of this rank's block or, in a collective without blocks, of the
       vector. */
    size_t part;
    size_t offset;                 /* the offset of this rank's block */
    size_t all_source, all_target; /* sizes of the source and target vectors */
    /* The size of each rank's block. NULL: the blocks are equal, or the builder
       gets on->counts itself. */
    size_t *blocks;
    /* In an alltoallv, the size of each block of the target; otherwise NULL. */
    size_t *others;

    const void *source;
    void *target;
    bool has_source, has_target; /* this rank has a source, has a target */
    bool in_place;
} call_t;

static baton_status_t create_refuse(const call_t *call, const char *what)
{
    return baton__error(BATON_ERR_INVALID, "baton_%s_%s: %s", call->of->noun,
                        call->verb, what);
}

static bool has_counts(const call_t *call)
{
    switch (call->of->sizes) {
    case BATON__SIZES_EQUAL:
        return false;
    case BATON__SIZES_EITHER:
        return call->on->counts != NULL;
    case BATON__SIZES_ROOT:
        return call->is_root;
    case BATON__SIZES_COUNTS:
    case BATON__SIZES_PAIR:
        break;
    }
    return true;
}

/* Returns a call_t with all fields set except the sizes. */
static call_t create_describe(const baton__collective_t *of, const char *verb,
                              const baton_group_t *group,
                              const baton_operands_t *on)
{
    call_t call = {.of = of,
                   .verb = verb,
                   .group = group,
                   .on = on,
                   .rank = group != NULL ? baton_group_rank(group) : -1,
                   .size = group != NULL ? baton_group_size(group) : 0,
                   .source = on->source,
                   .target = on->target};
    call.is_root = of->facts->rooted && call.rank == on->root;
    call.by_counts = has_counts(&call);
    call.has_source = of->facts->source != BATON_SPAN_NONE &&
                      (call.is_root || !of->facts->source_at_root);
    call.has_target = of->facts->target != BATON_SPAN_NONE &&
                      (call.is_root || !of->facts->target_at_root);
    if (call.has_source && call.has_target) {
        call.in_place = of->facts->source_at_root
                            ? on->target == NULL
                            : on->source == NULL ||
                                  (on->source == on->target &&
                                   of->facts->source == of->facts->target);
    } else if (on->source == NULL && of->facts->reduces) {
        /* In a reduce, ranks other than the root have no target. If such a rank
           passes only a target, that is its source. */
        call.source = on->target;
    }
    return call;
}

/* ---- sizes -------------------------------------------------------------- */

/* Adds the bytes of `count` elements to *sum. Returns false if there are too
   many bytes. */
static bool add_bytes(size_t count, size_t element, size_t *sum)
{
    size_t bytes = 0;
    return !__builtin_mul_overflow(count, element, &bytes) &&
           bytes <= PTRDIFF_MAX && !__builtin_add_overflow(*sum, bytes, sum);
}

/* Sets *sum to the bytes of the blocks of the first `ranks` ranks. Returns
   false if there are too many bytes. */
static bool add_up(const call_t *call, const size_t *counts, int ranks,
                   size_t *sum)
{
    size_t each = 0;
    *sum = 0;
    if (!call->by_counts) {
        return add_bytes(call->on->count, call->element, &each) &&
               add_bytes(each, (size_t)ranks, sum);
    }
    for (int r = 0; r < ranks; r++) {
        if (!add_bytes(counts[r], call->element, sum)) {
            return false;
        }
    }
    return true;
}

/* Sets the sizes of a call_t, but not the arrays `blocks` and `others`. Returns
   false if a count is too large. */
static bool create_measure(call_t *call)
{
    const baton__collective_t *of = call->of;
    const baton_operands_t *on = call->on;
    const size_t *theirs =
        of->sizes == BATON__SIZES_PAIR ? on->target_counts : on->counts;
    size_t all_source = 0, all_target = 0;
    call->element = of->facts->reduces && on->op != NULL
                        ? baton_op_element_bytes(on->op, on->dtype)
                        : baton_dtype_size(on->dtype);
    if (!add_up(call, on->counts, call->size, &all_source) ||
        !add_up(call, theirs, call->size, &all_target)) {
        return false;
    }
    call->part =
        (call->by_counts ? on->counts[call->rank] : on->count) * call->element;
    (void)add_up(call, on->counts, call->rank, &call->offset);
    call->all_source =
        of->facts->source == BATON_SPAN_BLOCKS ? all_source : call->part;
    call->all_target =
        of->facts->target == BATON_SPAN_BLOCKS ? all_target : call->part;
    return true;
}

/* Sets `blocks` and `others` if the operands have counts. Returns false if
   there is no memory. */
static bool find_blocks(call_t *call)
{
    size_t size = (size_t)call->size;
    if (!call->by_counts || call->of->facts->reduces) {
        /* A builder that reduces gets on->counts, in elements. */
        return true;
    }
    call->blocks = baton__alloc(2 * size, sizeof *call->blocks);
    if (call->blocks == NULL) {
        return false;
    }
    call->others =
        call->of->sizes == BATON__SIZES_PAIR ? call->blocks + size : NULL;
    for (size_t r = 0; r < size; r++) {
        call->blocks[r] = call->on->counts[r] * call->element;
        if (call->others != NULL) {
            call->others[r] = call->on->target_counts[r] * call->element;
        }
    }
    return true;
}

/* ---- checks ------------------------------------------------------------- */

static const char *wrong_field(const call_t *call)
{
    const baton__collective_t *of = call->of;
    const baton_operands_t *on = call->on;
    for (size_t i = 0; i < sizeof on->reserved / sizeof *on->reserved; i++) {
        if (on->reserved[i] != NULL) {
            return "reserved must be NULL";
        }
    }
    if (call->by_counts && on->counts == NULL) {
        return "counts is NULL; it gives the elements of each rank's block";
    }
    if (!call->by_counts && on->counts != NULL) {
        return of->sizes == BATON__SIZES_ROOT
                   ? "counts must be NULL on all ranks but the root: set count"
                   : "counts must be NULL here: set count";
    }
    if ((of->sizes == BATON__SIZES_PAIR) != (on->target_counts != NULL)) {
        return on->target_counts != NULL
                   ? "target_counts must be NULL: only alltoallv has them"
                   : "target_counts is NULL; it gives the elements of each "
                     "block that is received";
    }
    if (!of->facts->rooted && on->root != 0) {
        return "root must be 0: this collective has none";
    }
    if (!of->facts->reduces && on->op != NULL) {
        return "op must be NULL: this collective does not reduce";
    }
    if (of->facts->source == BATON_SPAN_NONE && on->source != NULL) {
        return "source must be NULL: the data is in target";
    }
    if (on->algorithm != NULL && of->sizes == BATON__SIZES_ROOT) {
        return "algorithm must be NULL: there is only one";
    }
    return NULL;
}

static const char *wrong_vector(const call_t *call)
{
    if (!baton_group_has_payload(call->group)) {
        return NULL;
    }
    bool from_source = call->in_place && call->of->facts->source_at_root;
    if (call->has_source && call->all_source > 0 && call->source == NULL &&
        (!call->in_place || from_source)) {
        return call->of->facts->target_at_root
                   ? "source is NULL: only the root may work in place"
                   : "source is NULL; it must point to the data";
    }
    if (call->has_target && call->all_target > 0 && call->target == NULL &&
        !from_source) {
        return "target is NULL; it must have room for the result";
    }
    uintptr_t from = (uintptr_t)call->source;
    uintptr_t to = (uintptr_t)call->target;
    /* A root may have its own block at that block's place in the other vector.
       Collectives without a root must refuse this: if all ranks pass the same
       address as source and target, only the block of rank 0 is at its place.
       Rank 0 would then wait for the other ranks, which refuse the operands. */
    bool own_block = call->of->facts->rooted &&
                     call->of->facts->source != call->of->facts->target &&
                     (from == to + call->offset || to == from + call->offset);
    bool overlap = call->has_source && call->has_target && from != 0 &&
                   to != 0 && !own_block &&
                   (from <= to ? to - from < call->all_source
                               : from - to < call->all_target);
    return overlap && call->all_source > 0 && call->all_target > 0
               ? "source and target overlap: they must be apart, or source "
                 "NULL to work in place (are counts in bytes, not elements?)"
               : NULL;
}

static baton_status_t create_check(call_t *call)
{
    const baton_operands_t *on = call->on;
    if (call->group == NULL) {
        return create_refuse(call, "group is NULL");
    }
    if (call->size < 0) {
        return create_refuse(call, "group was destroyed");
    }
    const char *wrong = wrong_field(call);
    if (wrong != NULL) {
        return create_refuse(call, wrong);
    }
    if (call->of->facts->target == BATON_SPAN_NONE) {
        return BATON_OK;
    }
    baton_status_t status = BATON_OK;
    if (call->of->facts->reduces) {
        status = baton_op_check(on->op, on->dtype);
    } else if (baton_dtype_size(on->dtype) == 0) {
        status = baton_error_set(BATON_ERR_INVALID, BATON__WRONG_DTYPE,
                                 (int)on->dtype);
    }
    if (status != BATON_OK) {
        return create_refuse(call, baton_error_message());
    }
    if (!create_measure(call)) {
        return create_refuse(call,
                             on->counts != NULL
                                 ? "counts are too large: their bytes overflow"
                                 : "count is too large: its bytes overflow");
    }
    wrong = wrong_vector(call);
    return wrong != NULL ? create_refuse(call, wrong) : BATON_OK;
}

baton_status_t baton__operands_check(const baton__collective_t *collective,
                                     const char *verb,
                                     const baton_group_t *group,
                                     const baton_operands_t *on)
{
    call_t call = create_describe(collective, verb, group, on);
    return baton__process_is_own(collective->noun) ? create_check(&call)
                                                   : baton__error_status();
}

/* ---- building ----------------------------------------------------------- */

static baton_view_t create_bind(const call_t *call, baton_schedule_t *schedule,
                                const void *memory, size_t bytes, bool is_input)
{
    baton_buffer_t buffer =
        is_input ? baton_buffer_bind_input(schedule, memory, bytes)
                 : baton_buffer_bind(schedule, (void *)memory, bytes);
    if (call->on->memory != BATON_MEMORY_HOST) {
        baton_buffer_set_memory(schedule, buffer, call->on->memory);
    }
    return baton_view(buffer, 0, bytes);
}

/* The views for the builder. In place, both are views of the same buffer. */
typedef struct views {
    baton_view_t source, target;
} views_t;

static views_t bind_all(const call_t *call, baton_schedule_t *s)
{
    views_t views = {.source = {.bytes = 0}};
    if (call->in_place) {
        bool from = call->of->facts->source == BATON_SPAN_BLOCKS;
        bool input = call->of->facts->source_at_root;
        views.source = views.target =
            create_bind(call, s, input ? call->source : call->target,
                        from ? call->all_source : call->all_target, input);
        if (call->of->facts->source != call->of->facts->target) {
            *(from ? &views.target : &views.source) =
                baton_view(views.target.buffer, call->offset, call->part);
        }
        return views;
    }
    if (call->has_source) {
        views.source =
            create_bind(call, s, call->source, call->all_source, true);
    }
    if (call->has_target) {
        views.target =
            create_bind(call, s, call->target, call->all_target, false);
    }
    return views;
}

/* States (baton_schedule_agree) the type and the count, which must be the same
   on all ranks. The builder of a collective that only moves data gets sizes in
   bytes, and so can't state the type and the count. The choice of the algorithm
   depends on both, so they are stated before the builder is called. */
static void state_type(baton_schedule_t *s, const call_t *call)
{
    const char *dtype = baton_dtype_name(call->on->dtype);
    if (call->by_counts || call->of->sizes == BATON__SIZES_ROOT) {
        baton_schedule_agree(s, "%s", dtype);
    } else {
        baton_schedule_agree(s, "count %zu of %s", call->on->count, dtype);
    }
}

/* Adds gatherv or scatterv: the root exchanges one message with each other
   rank. Ranks other than the root need to know the length of their own block
   only. */
static void add_flat(baton_schedule_t *s, const call_t *call,
                     const views_t *views)
{
    bool gathers = call->of->kind == BATON_COLLECTIVE_GATHER;
    int root = call->on->root;
    baton_view_t own = gathers ? views->source : views->target;
    baton_view_t block = gathers ? views->target : views->source;
    baton_schedule_agree(s, "baton_%s_create, root %d", call->of->noun, root);
    if (root < 0 || root >= call->size) {
        baton_schedule_fail(s, BATON_ERR_INVALID,
                            "root is %d, must be a rank of the group, 0 to %d",
                            root, call->size - 1);
    } else if (!call->is_root && own.bytes > 0) {
        (void)(gathers ? baton_add_send : baton_add_recv)(s, root, own);
    }
    for (int r = 0; call->is_root && r < call->size; r++) {
        block.bytes = call->blocks[r];
        bool there = block.buffer.index == own.buffer.index;
        if (r != root && block.bytes > 0) {
            (void)(gathers ? baton_add_recv : baton_add_send)(s, r, block);
        } else if (block.bytes > 0 && !there) {
            (void)baton_add_copy(s, gathers ? block : own,
                                 gathers ? own : block);
        }
        block.offset += block.bytes;
    }
}

/* Calls the function `adder` of coll.h with both views and the given
   arguments. */
#define ADD(adder, args_t, ...)                                                \
    adder(s, &(args_t){.size = sizeof(args_t),                                 \
                       .source = views->source,                                \
                       .target = views->target,                                \
                       __VA_ARGS__})
#define REDUCTION .dtype = on->dtype, .op = on->op
#define ALGORITHM .algorithm = on->algorithm
/* Builders get longer segments for device memory than for main memory: a
   message of device memory costs tens of microseconds, and no segment is in a
   cache. On an H200 the collectives took up to 15 times as long with the
   segments for main memory. */
#define SEGMENTS                                                               \
    ALGORITHM,                                                                 \
        .chunk_bytes = on->memory == BATON_MEMORY_DEVICE ? (size_t)4 << 20 : 0

static void add_nodes(baton_schedule_t *s, const call_t *call,
                      const views_t *views)
{
    const baton_operands_t *on = call->on;
    if (call->of->sizes == BATON__SIZES_ROOT) {
        add_flat(s, call, views);
        return;
    }
    switch (call->of->kind) {
    case BATON_COLLECTIVE_BARRIER:
        baton_add_barrier(s);
        break;
    case BATON_COLLECTIVE_BROADCAST: {
        const baton_broadcast_args_t args = {.size = sizeof args,
                                             .root = on->root,
                                             .data = views->target,
                                             SEGMENTS};
        baton_add_broadcast(s, &args);
        break;
    }
    case BATON_COLLECTIVE_REDUCE:
        ADD(baton_add_reduce, baton_reduce_args_t, .root = on->root, REDUCTION,
            SEGMENTS);
        break;
    case BATON_COLLECTIVE_ALLREDUCE:
        ADD(baton_add_allreduce, baton_allreduce_args_t, REDUCTION, SEGMENTS);
        break;
    case BATON_COLLECTIVE_REDUCE_SCATTER:
        ADD(baton_add_reduce_scatter, baton_reduce_scatter_args_t,
            .counts = on->counts, REDUCTION, SEGMENTS);
        break;
    case BATON_COLLECTIVE_ALLGATHER:
        ADD(baton_add_allgather, baton_allgather_args_t,
            .block_bytes = call->blocks, SEGMENTS);
        break;
    case BATON_COLLECTIVE_ALLTOALL:
        ADD(baton_add_alltoall, baton_alltoall_args_t,
            .send_bytes = call->blocks, .recv_bytes = call->others, ALGORITHM);
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

/* Adds an in-place reduce-scatter. The builder leaves this rank's block at the
   block's place in the vector, but by MPI's rule the block must be at the
   beginning of the vector. So the block is copied there afterwards. If the two
   places overlap, the copy goes through scratch. */
static void add_and_move(baton_schedule_t *s, const call_t *call,
                         const views_t *views)
{
    baton_view_t front = baton_view(views->target.buffer, 0, call->part);
    baton_node_t begin = baton_add_nop(s);
    baton_node_t moved;
    if (call->offset < call->part) {
        baton_view_t aside =
            baton_view(baton_buffer_scratch(s, call->part), 0, call->part);
        baton_node_t last = baton_add_copy(s, front, aside);
        moved = baton_add_copy(s, aside, views->target);
        baton_before(s, moved, last);
    } else {
        moved = baton_add_copy(s, front, views->target);
    }
    baton_enclosure_t enclosure = baton_enclose_begin(s);
    add_nodes(s, call, views);
    baton_enclose_end(s, enclosure, begin, moved);
}

baton_status_t baton__collective_create(const baton__collective_t *collective,
                                        const char *verb, baton_group_t *group,
                                        const baton_operands_t *on,
                                        baton_schedule_t **out)
{
    call_t call = create_describe(collective, verb, group, on);
    baton_schedule_t *s = NULL;
    baton_status_t status = create_check(&call);
    if (status == BATON_OK && on->algorithm != NULL && !collective->chosen) {
        baton_algorithm_t found;
        status = baton_algorithm_find(collective->kind, on->algorithm, &found);
    }
    if (status == BATON_OK) {
        status = baton_schedule_create(
            group, on->name != NULL ? on->name : collective->noun, &s);
    }
    if (status != BATON_OK) {
        return status;
    }
    if (!find_blocks(&call)) {
        (void)!baton_schedule_destroy(s);
        return baton__error(BATON_ERR_NO_MEMORY,
                            "baton_%s_%s: no memory for the blocks' sizes",
                            collective->noun, verb);
    }
    if (on->depth > 0) {
        baton_schedule_set_depth(
            s, on->depth > UINT32_MAX ? UINT32_MAX : (uint32_t)on->depth);
    }
    const views_t views = bind_all(&call, s);
    if (collective->facts->target != BATON_SPAN_NONE) {
        state_type(s, &call);
    }
    bool moves = call.in_place && call.offset > 0 && call.part > 0 &&
                 collective->kind == BATON_COLLECTIVE_REDUCE_SCATTER;
    (moves ? add_and_move : add_nodes)(s, &call, &views);
    baton__free(call.blocks);
    status = baton_schedule_commit(s);
    if (status == BATON_OK) {
        *out = s;
    } else {
        (void)!baton_schedule_destroy(s);
    }
    return status;
}

static baton_status_t create_collective(const baton__collective_t *collective,
                                        baton_group_t *group,
                                        const baton_operands_t *operands,
                                        baton_schedule_t **out)
{
    static const baton_operands_t nothing = {.count = 0};
    if (operands == NULL && collective->facts->target == BATON_SPAN_NONE) {
        operands = &nothing;
    }
    if (out == NULL || operands == NULL) {
        const call_t call = {.of = collective, .verb = "create"};
        return create_refuse(&call,
                             out == NULL ? "out is NULL" : "operands is NULL");
    }
    return baton__collective_create(collective, "create", group, operands, out);
}

/* ---- the calls ----------------------------------------------------------- */

baton_status_t baton_allreduce_create(baton_group_t *group,
                                      const baton_operands_t *operands,
                                      baton_schedule_t **out)
{
    return create_collective(&baton__allreduce, group, operands, out);
}

baton_status_t baton_reduce_create(baton_group_t *group,
                                   const baton_operands_t *operands,
                                   baton_schedule_t **out)
{
    return create_collective(&baton__reduce, group, operands, out);
}

baton_status_t baton_scan_create(baton_group_t *group,
                                 const baton_operands_t *operands,
                                 baton_schedule_t **out)
{
    return create_collective(&baton__scan, group, operands, out);
}

baton_status_t baton_exscan_create(baton_group_t *group,
                                   const baton_operands_t *operands,
                                   baton_schedule_t **out)
{
    return create_collective(&baton__exscan, group, operands, out);
}

baton_status_t baton_reduce_scatter_create(baton_group_t *group,
                                           const baton_operands_t *operands,
                                           baton_schedule_t **out)
{
    return create_collective(&baton__reduce_scatter, group, operands, out);
}

baton_status_t baton_broadcast_create(baton_group_t *group,
                                      const baton_operands_t *operands,
                                      baton_schedule_t **out)
{
    return create_collective(&baton__broadcast, group, operands, out);
}

baton_status_t baton_allgather_create(baton_group_t *group,
                                      const baton_operands_t *operands,
                                      baton_schedule_t **out)
{
    return create_collective(&baton__allgather, group, operands, out);
}

baton_status_t baton_allgatherv_create(baton_group_t *group,
                                       const baton_operands_t *operands,
                                       baton_schedule_t **out)
{
    return create_collective(&baton__allgatherv, group, operands, out);
}

baton_status_t baton_gather_create(baton_group_t *group,
                                   const baton_operands_t *operands,
                                   baton_schedule_t **out)
{
    return create_collective(&baton__gather, group, operands, out);
}

baton_status_t baton_gatherv_create(baton_group_t *group,
                                    const baton_operands_t *operands,
                                    baton_schedule_t **out)
{
    return create_collective(&baton__gatherv, group, operands, out);
}

baton_status_t baton_scatter_create(baton_group_t *group,
                                    const baton_operands_t *operands,
                                    baton_schedule_t **out)
{
    return create_collective(&baton__scatter, group, operands, out);
}

baton_status_t baton_scatterv_create(baton_group_t *group,
                                     const baton_operands_t *operands,
                                     baton_schedule_t **out)
{
    return create_collective(&baton__scatterv, group, operands, out);
}

baton_status_t baton_alltoall_create(baton_group_t *group,
                                     const baton_operands_t *operands,
                                     baton_schedule_t **out)
{
    return create_collective(&baton__alltoall, group, operands, out);
}

baton_status_t baton_alltoallv_create(baton_group_t *group,
                                      const baton_operands_t *operands,
                                      baton_schedule_t **out)
{
    return create_collective(&baton__alltoallv, group, operands, out);
}

baton_status_t baton_barrier_create(baton_group_t *group,
                                    const baton_operands_t *operands,
                                    baton_schedule_t **out)
{
    return create_collective(&baton__barrier, group, operands, out);
}
