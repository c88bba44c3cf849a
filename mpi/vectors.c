#include "mpi/vectors.h"

#include <stdlib.h>
#include <string.h>

static bool has_source(const baton__mpi_call_t *call, int rank)
{
    const baton_collective_facts_t *facts = baton__mpi_facts_of(call);
    return facts->source != BATON_SPAN_NONE &&
           (!facts->source_at_root || rank == call->root);
}

static bool has_target(const baton__mpi_call_t *call, int rank)
{
    const baton_collective_facts_t *facts = baton__mpi_facts_of(call);
    return facts->target != BATON_SPAN_NONE &&
           (!facts->target_at_root || rank == call->root);
}

static bool is_in_place(const baton__mpi_call_t *call, int rank)
{
    const baton__mpi_side_t *side = baton__mpi_facts_of(call)->source_at_root
                                        ? &call->target
                                        : &call->source;
    return has_source(call, rank) && has_target(call, rank) &&
           side->memory == MPI_IN_PLACE;
}

static int blocks_of(baton_span_t span, int size)
{
    return span == BATON_SPAN_BLOCKS ? size : 1;
}

static int vectors_count_of(const baton__mpi_side_t *side, int block)
{
    return side->counts != NULL ? side->counts[block] : side->count;
}

/* ---- the shape ----------------------------------------------------------- */

static bool is_valid_side(const baton__mpi_side_t *side, int blocks)
{
    if (side->type == MPI_DATATYPE_NULL || side->memory == MPI_IN_PLACE) {
        return false;
    }
    for (int b = 0; side->counts != NULL && b < blocks; b++) {
        if (side->counts[b] < 0) {
            return false;
        }
    }
    return side->counts != NULL || side->count >= 0;
}

bool baton__mpi_is_valid(const baton__mpi_call_t *call, int rank, int size)
{
    const baton_collective_facts_t *facts = baton__mpi_facts_of(call);
    bool in_place = is_in_place(call, rank);
    bool scatters = facts->source_at_root;
    return (!facts->rooted || (call->root >= 0 && call->root < size)) &&
           (!has_source(call, rank) || (in_place && !scatters) ||
            is_valid_side(&call->source, blocks_of(facts->source, size))) &&
           (!has_target(call, rank) || (in_place && scatters) ||
            is_valid_side(&call->target, blocks_of(facts->target, size)));
}

/* Returns the side whose arguments give the sizes of the blocks: the side that
   has all ranks' blocks if this rank has that side, else the other side. */
static const baton__mpi_side_t *ruler(const baton__mpi_call_t *call, int rank)
{
    bool by_source = has_source(call, rank) &&
                     (baton__mpi_facts_of(call)->source == BATON_SPAN_BLOCKS ||
                      !has_target(call, rank)) &&
                     call->source.memory != MPI_IN_PLACE;
    return by_source ? &call->source : &call->target;
}

size_t baton__mpi_block_bytes(const baton__mpi_call_t *call, int rank)
{
    const baton__mpi_side_t *side = ruler(call, rank);
    return side->type == MPI_DATATYPE_NULL || side->count < 0
               ? SIZE_MAX
               : (size_t)side->count * baton__mpi_type_bytes(side->type);
}

static bool times(size_t count, size_t unit, size_t *bytes)
{
    return !__builtin_mul_overflow(count, unit, bytes) && *bytes <= PTRDIFF_MAX;
}

static int fill_counts(const baton__mpi_side_t *side, int size, size_t unit,
                       size_t *counts)
{
    for (int r = 0; r < size; r++) {
        if (!times((size_t)side->counts[r], unit, &counts[r])) {
            return MPI_ERR_COUNT;
        }
    }
    return MPI_SUCCESS;
}

int baton__mpi_shape(const baton__mpi_call_t *call, int rank, int size,
                     baton__mpi_shape_t *shape)
{
    *shape =
        (baton__mpi_shape_t){.kind = call->kind,
                             .in_place = is_in_place(call, rank) &&
                                         !baton__mpi_traits_of(call)->local,
                             .dtype = BATON_U8,
                             .root = call->root,
                             .size = size};
    if (call->kind == BATON__MPI_BARRIER) {
        shape->dtype = BATON_DTYPE_NONE;
        return MPI_SUCCESS;
    }
    const baton__mpi_side_t *side = ruler(call, rank);
    const baton_collective_facts_t *facts = baton__mpi_facts_of(call);
    size_t unit = 1;
    if (!facts->reduces) {
        unit = baton__mpi_type_bytes(side->type);
    } else if (!baton__mpi_reduction(side->type, call->op, &shape->dtype,
                                     &shape->op)) {
        shape->function = baton__mpi_function_of(call->op, side->type);
        if (shape->function == NULL || (facts->source == BATON_SPAN_BLOCKS &&
                                        !shape->function->op.commutative)) {
            return MPI_ERR_OP;
        }
        shape->op = &shape->function->op;
    }
    if (side->counts == NULL) {
        return times((size_t)side->count, unit, &shape->count) ? MPI_SUCCESS
                                                               : MPI_ERR_COUNT;
    }
    bool both = call->kind == BATON__MPI_ALLTOALLV;
    shape->counts =
        calloc(both ? 2 * (size_t)size : (size_t)size, sizeof *shape->counts);
    if (shape->counts == NULL) {
        return MPI_ERR_NO_MEM;
    }
    int code = fill_counts(side, size, unit, shape->counts);
    if (code == MPI_SUCCESS && both) {
        code = fill_counts(&call->target, size,
                           baton__mpi_type_bytes(call->target.type),
                           shape->counts + size);
    }
    return code;
}

void baton__mpi_shape_fini(baton__mpi_shape_t *shape)
{
    baton__mpi_function_free(shape->function);
    free(shape->counts);
}

bool baton__mpi_shape_equals(const baton__mpi_shape_t *a,
                             const baton__mpi_shape_t *b)
{
    return a->kind == b->kind && a->in_place == b->in_place &&
           a->dtype == b->dtype && a->op == b->op && a->root == b->root &&
           a->count == b->count && (a->counts == NULL) == (b->counts == NULL) &&
           (a->counts == NULL ||
            memcmp(a->counts, b->counts, (size_t)a->size * sizeof *a->counts) ==
                0);
}

size_t baton__mpi_shape_bytes(const baton__mpi_shape_t *shape)
{
    const baton_collective_facts_t *facts = &baton__mpi_facts[shape->kind];
    bool blocks = facts->source == BATON_SPAN_BLOCKS ||
                  facts->target == BATON_SPAN_BLOCKS;
    size_t sum = shape->count * (blocks ? (size_t)shape->size : 1);
    for (int r = 0; shape->counts != NULL && r < shape->size; r++) {
        sum += shape->counts[r];
    }
    return sum * baton_op_element_bytes(shape->op, shape->dtype);
}

/* ---- vectors ------------------------------------------------------------- */

/* Addresses that stand for sides without memory. NULL can't stand for them,
   since it tells Baton that the call works in place. */
static char nothing[2];

static size_t vectors_bytes_of(const baton__mpi_side_t *side, int blocks)
{
    size_t unit = baton__mpi_type_bytes(side->type);
    size_t sum = 0;
    for (int b = 0; b < blocks; b++) {
        sum += (size_t)vectors_count_of(side, b) * unit;
    }
    return sum;
}

static char *vectors_place_of(const baton__mpi_side_t *side, int block)
{
    MPI_Aint low;
    MPI_Aint extent;
    (void)PMPI_Type_get_extent(side->type, &low, &extent);
    MPI_Aint at = side->displs != NULL ? (MPI_Aint)side->displs[block]
                                       : (MPI_Aint)block * side->count;
    return (char *)((MPI_Aint)side->memory + at * extent);
}

/* Returns true if the side's bytes are one piece, in rank order. */
static bool is_one_piece(const baton__mpi_side_t *side, int blocks)
{
    if (!baton__mpi_is_plain(side->type)) {
        return false;
    }
    long long at = 0;
    for (int b = 0; side->displs != NULL && b < blocks; b++) {
        int count = vectors_count_of(side, b);
        if (count > 0 && side->displs[b] != at) {
            return false;
        }
        at += count;
    }
    return true;
}

/* Packs the side's data into the copy if `packs` is set. With `back`, unpacks
   the copy into the side's memory if `unpacks` is set. */
static int vector_pack(const baton__mpi_vector_t *v, bool back)
{
    const baton__mpi_side_t *side = &v->side;
    char *bytes = v->copy;
    int code = MPI_SUCCESS;
    if (v->copy == NULL || !(back ? v->unpacks : v->packs)) {
        return MPI_SUCCESS;
    }
    if (v->raw_bytes > 0) {
        memcpy(v->copy, side->memory, v->raw_bytes);
        return MPI_SUCCESS;
    }
    size_t unit = baton__mpi_type_bytes(side->type);
    for (int b = 0; b < v->blocks && code == MPI_SUCCESS; b++) {
        int count = vectors_count_of(side, b);
        code = baton__mpi_pack(vectors_place_of(side, b), count, side->type,
                               bytes, back);
        bytes += (size_t)count * unit;
    }
    return code;
}

static int vector_copy(baton__mpi_vector_t *v, size_t bytes)
{
    v->memory = v->copy = malloc(bytes + 1);
    return v->copy != NULL ? MPI_SUCCESS : MPI_ERR_NO_MEM;
}

/* Sets up a vector: the side's own memory if that is in one piece, or if the
   collective reduces, since Baton then knows the layout of the type; else a
   copy. If the side's memory is NULL, the vector is at `empty` instead, since
   NULL would mean in place. */
static int vector_init(const baton__mpi_call_t *call,
                       const baton__mpi_side_t *side, int blocks, char *empty,
                       baton__mpi_vector_t *v)
{
    v->side = *side;
    v->blocks = blocks;
    if (baton__mpi_facts_of(call)->reduces || is_one_piece(side, blocks)) {
        v->memory = side->memory != NULL ? side->memory : empty;
        return MPI_SUCCESS;
    }
    return vector_copy(v, vectors_bytes_of(side, blocks));
}

/* Sets up the side that the program gave as MPI_IN_PLACE, in a collective where
   each rank decides for itself whether it works in place. The schedule needs
   separate memory for both sides, so this side becomes a copy of the other one.
   In a reduction, vectors_split makes the copy. */
static int init_apart(const baton__mpi_call_t *call, int rank,
                      baton__mpi_vectors_t *v)
{
    if (baton__mpi_facts_of(call)->reduces) {
        return vector_init(call, &call->target, 1, &nothing[0], &v->source);
    }
    bool scatters = baton__mpi_facts_of(call)->source_at_root;
    const baton__mpi_side_t *whole = scatters ? &call->source : &call->target;
    baton__mpi_vector_t *part = scatters ? &v->target : &v->source;
    part->side = (baton__mpi_side_t){.memory = vectors_place_of(whole, rank),
                                     .count = vectors_count_of(whole, rank),
                                     .type = whole->type};
    part->blocks = 1;
    return vector_copy(part, vectors_bytes_of(&part->side, 1));
}

/* Copies the type and the arrays of a side if they are used after the call has
   returned: for unpacking, or for packing at each start of a persistent call.
   By then the program may have freed the originals, as mpi4py does with arrays.
   The type's copy is a contiguous type of one element, because MPI makes such a
   type without calling the program's attribute callbacks. */
static int vector_hold(baton__mpi_vector_t *v, bool persistent)
{
    baton__mpi_side_t *side = &v->side;
    size_t bytes = (size_t)v->blocks * sizeof(int);
    if (v->copy == NULL || !(v->unpacks || (persistent && v->packs))) {
        return MPI_SUCCESS;
    }
    if (side->displs != NULL) {
        v->arrays = malloc(2 * bytes);
        if (v->arrays == NULL) {
            return MPI_ERR_NO_MEM;
        }
        side->displs = memcpy(v->arrays, side->displs, bytes);
        side->counts = memcpy(v->arrays + v->blocks, side->counts, bytes);
    }
    int code = PMPI_Type_contiguous(1, side->type, &v->type);
    if (code == MPI_SUCCESS) {
        code = PMPI_Type_commit(&v->type);
        side->type = v->type;
    }
    return code;
}

/* Replaces the source by a copy if it overlaps the target. Programs may let
   them overlap, because Open MPI allows that, but Baton does not. */
static int vectors_split(const baton__mpi_call_t *call,
                         const baton__mpi_shape_t *shape,
                         baton__mpi_vector_t *source,
                         const baton__mpi_vector_t *target)
{
    size_t all = baton__mpi_shape_bytes(shape);
    bool sums = baton__mpi_facts_of(call)->reduces;
    size_t bytes = sums ? all : vectors_bytes_of(&source->side, source->blocks);
    size_t target_bytes =
        sums ? all : vectors_bytes_of(&target->side, target->blocks);
    if ((uintptr_t)source->memory >= (uintptr_t)target->memory + target_bytes ||
        (uintptr_t)target->memory >= (uintptr_t)source->memory + bytes) {
        return MPI_SUCCESS;
    }
    source->side.memory = source->memory;
    source->raw_bytes = bytes;
    return vector_copy(source, bytes);
}

int baton__mpi_vectors_init(const baton__mpi_call_t *call,
                            const baton__mpi_shape_t *shape, int rank,
                            baton__mpi_vectors_t *v)
{
    const baton_collective_facts_t *facts = baton__mpi_facts_of(call);
    baton__mpi_vector_t *source = &v->source;
    baton__mpi_vector_t *target = &v->target;
    bool persistent = call->way == BATON__MPI_PERSISTENT;
    bool apart = is_in_place(call, rank) && !shape->in_place;
    bool scatters = facts->source_at_root;
    *v = (baton__mpi_vectors_t){{.packs = true, .type = MPI_DATATYPE_NULL},
                                {.type = MPI_DATATYPE_NULL}};
    int code = apart ? init_apart(call, rank, v) : MPI_SUCCESS;
    if (code == MPI_SUCCESS && has_source(call, rank) && !shape->in_place &&
        (!apart || scatters)) {
        code = vector_init(call, &call->source,
                           blocks_of(facts->source, shape->size), &nothing[0],
                           source);
    }
    if (code == MPI_SUCCESS && has_target(call, rank) && !(apart && scatters)) {
        bool bcast = call->kind == BATON__MPI_BCAST;
        target->packs = shape->in_place || (bcast && rank == call->root);
        target->unpacks = !bcast || rank != call->root;
        code = vector_init(call, &call->target,
                           blocks_of(facts->target, shape->size), &nothing[1],
                           target);
    }
    code = code == MPI_SUCCESS ? vector_hold(source, persistent) : code;
    code = code == MPI_SUCCESS ? vector_hold(target, persistent) : code;
    bool raw = source->memory != NULL && source->copy == NULL &&
               target->memory != NULL && target->copy == NULL;
    return raw && code == MPI_SUCCESS
               ? vectors_split(call, shape, source, target)
               : code;
}

int baton__mpi_vectors_pack(const baton__mpi_vectors_t *v)
{
    int code = vector_pack(&v->source, false);
    return code == MPI_SUCCESS ? vector_pack(&v->target, false) : code;
}

int baton__mpi_vectors_unpack(const baton__mpi_vectors_t *v)
{
    return vector_pack(&v->target, true);
}

static void vector_fini(baton__mpi_vector_t *v)
{
    free(v->copy);
    free(v->arrays);
    if (v->type != MPI_DATATYPE_NULL) {
        (void)PMPI_Type_free(&v->type);
    }
}

void baton__mpi_vectors_fini(baton__mpi_vectors_t *v)
{
    vector_fini(&v->source);
    vector_fini(&v->target);
}
