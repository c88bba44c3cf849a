#include "mpi/vectors.h"

#include <stdlib.h>
#include <string.h>

#define TRAITS(KIND, name, create, source, target, traits)                     \
    {#name, BATON__MPI_##source, BATON__MPI_##target, traits},
#define REDUCES BATON__MPI_REDUCES
#define ROOTED  BATON__MPI_ROOTED
#define SOURCE  BATON__MPI_SOURCE
#define TARGET  BATON__MPI_TARGET
#define LOCAL   BATON__MPI_LOCAL
#define PRIVATE BATON__MPI_PRIVATE
const baton__mpi_traits_t baton__mpi_traits[BATON__MPI_KINDS] = {
    BATON__MPI_LIST(TRAITS)};

static bool has_source(const baton__mpi_call_t *call, int rank)
{
    return baton__mpi_traits[call->kind].source != BATON__MPI_NONE &&
           (!baton__mpi_has(call, SOURCE) || rank == call->root);
}

static bool has_target(const baton__mpi_call_t *call, int rank)
{
    return baton__mpi_traits[call->kind].target != BATON__MPI_NONE &&
           (!baton__mpi_has(call, TARGET) || rank == call->root);
}

static bool is_in_place(const baton__mpi_call_t *call, int rank)
{
    const baton__mpi_side_t *side =
        baton__mpi_has(call, SOURCE) ? &call->target : &call->source;
    return has_source(call, rank) && has_target(call, rank) &&
           side->memory == MPI_IN_PLACE;
}

static int blocks_of(baton__mpi_span_t span, int size)
{
    return span == BATON__MPI_BLOCKS ? size : 1;
}

static int count_of(const baton__mpi_side_t *side, int block)
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
    const baton__mpi_traits_t *traits = &baton__mpi_traits[call->kind];
    bool in_place = is_in_place(call, rank);
    bool scatters = baton__mpi_has(call, SOURCE);
    return (!baton__mpi_has(call, ROOTED) ||
            (call->root >= 0 && call->root < size)) &&
           (!has_source(call, rank) || (in_place && !scatters) ||
            is_valid_side(&call->source, blocks_of(traits->source, size))) &&
           (!has_target(call, rank) || (in_place && scatters) ||
            is_valid_side(&call->target, blocks_of(traits->target, size)));
}

/* The side that says how long the blocks are: the one that has them all, on the
   ranks where there is one. */
static const baton__mpi_side_t *ruler(const baton__mpi_call_t *call, int rank)
{
    bool by_source =
        has_source(call, rank) &&
        (baton__mpi_traits[call->kind].source == BATON__MPI_BLOCKS ||
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
    *shape = (baton__mpi_shape_t){.kind = call->kind,
                                  .in_place = is_in_place(call, rank) &&
                                              !baton__mpi_has(call, LOCAL),
                                  .dtype = BATON_U8,
                                  .root = call->root,
                                  .size = size};
    if (call->kind == BATON__MPI_BARRIER) {
        return MPI_SUCCESS;
    }
    const baton__mpi_side_t *side = ruler(call, rank);
    const baton__mpi_traits_t *traits = &baton__mpi_traits[call->kind];
    size_t unit = 1;
    if (!baton__mpi_has(call, REDUCES)) {
        unit = baton__mpi_type_bytes(side->type);
    } else if (!baton__mpi_reduction(side->type, call->op, &shape->dtype,
                                     &shape->op)) {
        shape->function = baton__mpi_function_of(call->op, side->type);
        if (shape->function == NULL || (traits->source == BATON__MPI_BLOCKS &&
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
    const baton__mpi_traits_t *traits = &baton__mpi_traits[shape->kind];
    bool blocks = traits->source == BATON__MPI_BLOCKS ||
                  traits->target == BATON__MPI_BLOCKS;
    size_t sum = shape->count * (blocks ? (size_t)shape->size : 1);
    for (int r = 0; shape->counts != NULL && r < shape->size; r++) {
        sum += shape->counts[r];
    }
    size_t unit = shape->op != NULL
                      ? baton_op_element_bytes(shape->op, shape->dtype)
                      : baton_dtype_size(shape->dtype);
    return sum * unit;
}

/* ---- vectors ------------------------------------------------------------- */

/* Stands for memory of no bytes: NULL would mean in place. */
static char nothing[2];

static size_t bytes_of(const baton__mpi_side_t *side, int blocks)
{
    size_t unit = baton__mpi_type_bytes(side->type);
    size_t sum = 0;
    for (int b = 0; b < blocks; b++) {
        sum += (size_t)count_of(side, b) * unit;
    }
    return sum;
}

static char *place_of(const baton__mpi_side_t *side, int block)
{
    MPI_Aint low;
    MPI_Aint extent;
    (void)PMPI_Type_get_extent(side->type, &low, &extent);
    MPI_Aint at = side->displs != NULL ? (MPI_Aint)side->displs[block]
                                       : (MPI_Aint)block * side->count;
    return (char *)((MPI_Aint)side->memory + at * extent);
}

/* Whether its bytes are one piece, in rank order. */
static bool is_one_piece(const baton__mpi_side_t *side, int blocks)
{
    if (!baton__mpi_is_plain(side->type)) {
        return false;
    }
    long long at = 0;
    for (int b = 0; side->displs != NULL && b < blocks; b++) {
        int count = count_of(side, b);
        if (count > 0 && side->displs[b] != at) {
            return false;
        }
        at += count;
    }
    return true;
}

static int pack_side(const baton__mpi_side_t *side, int blocks, char *bytes,
                     bool back)
{
    size_t unit = baton__mpi_type_bytes(side->type);
    int code = MPI_SUCCESS;
    for (int b = 0; b < blocks && code == MPI_SUCCESS; b++) {
        int count = count_of(side, b);
        code =
            baton__mpi_pack(place_of(side, b), count, side->type, bytes, back);
        bytes += (size_t)count * unit;
    }
    return code;
}

/* One block of a side, as a side of its own. */
static baton__mpi_side_t block_of(const baton__mpi_side_t *side, int block)
{
    return (baton__mpi_side_t){.memory = place_of(side, block),
                               .count = count_of(side, block),
                               .type = side->type};
}

static void *or_nothing(void *memory, int which)
{
    return memory != NULL ? memory : &nothing[which];
}

static int copy_for(const baton__mpi_side_t *side, int blocks, char **copy)
{
    *copy = malloc(bytes_of(side, blocks) + 1);
    return *copy != NULL ? MPI_SUCCESS : MPI_ERR_NO_MEM;
}

/* In place on this rank alone: what the schedule has apart is a copy. */
static int init_apart(const baton__mpi_call_t *call, int rank,
                      baton__mpi_vectors_t *v)
{
    if (baton__mpi_has(call, REDUCES)) {
        v->from = call->target;
        v->source = or_nothing(v->from.memory, 0); /* which split() copies */
        return MPI_SUCCESS;
    }
    bool scatters = baton__mpi_has(call, SOURCE);
    const baton__mpi_side_t *whole = scatters ? &call->source : &call->target;
    baton__mpi_side_t part = block_of(whole, rank);
    int code = copy_for(&part, 1, scatters ? &v->target_copy : &v->source_copy);
    v->from = part;
    v->source = v->source_copy;
    v->target = v->target_copy;
    return code;
}

static int init_source(const baton__mpi_call_t *call, int size,
                       baton__mpi_vectors_t *v)
{
    int blocks = blocks_of(baton__mpi_traits[call->kind].source, size);
    v->from = call->source;
    v->from_blocks = blocks;
    if (baton__mpi_has(call, REDUCES) || is_one_piece(&v->from, blocks)) {
        v->source = or_nothing(v->from.memory, 0);
        return MPI_SUCCESS;
    }
    int code = copy_for(&v->from, blocks, &v->source_copy);
    v->source = v->source_copy;
    return code;
}

/* A contiguous type of one element is a copy for which MPI calls none of the
   program's attribute callbacks. mpi4py frees the arrays. */
static int hold(baton__mpi_side_t *side, int blocks, baton__mpi_held_t *held)
{
    size_t bytes = (size_t)blocks * sizeof(int);
    if (side->displs != NULL) {
        held->arrays = malloc(2 * bytes);
        if (held->arrays == NULL) {
            return MPI_ERR_NO_MEM;
        }
        side->displs = memcpy(held->arrays, side->displs, bytes);
        side->counts = memcpy(held->arrays + blocks, side->counts, bytes);
    }
    int code = PMPI_Type_contiguous(1, side->type, &held->type);
    if (code == MPI_SUCCESS) {
        code = PMPI_Type_commit(&held->type);
        side->type = held->type;
    }
    return code;
}

static void let_go(baton__mpi_held_t *held)
{
    free(held->arrays);
    if (held->type != MPI_DATATYPE_NULL) {
        (void)PMPI_Type_free(&held->type);
    }
}

/* packs: its data goes out. */
static int init_target(const baton__mpi_call_t *call, int size, bool packs,
                       bool unpacks, baton__mpi_vectors_t *v)
{
    int blocks = blocks_of(baton__mpi_traits[call->kind].target, size);
    v->to = call->target;
    v->to_blocks = blocks;
    if (baton__mpi_has(call, REDUCES) || is_one_piece(&v->to, blocks)) {
        v->target = or_nothing(v->to.memory, 1);
        return MPI_SUCCESS;
    }
    int code = copy_for(&v->to, blocks, &v->target_copy);
    v->target = v->target_copy;
    v->packs_target = packs;
    v->unpacks = unpacks;
    return code;
}

/* Open MPI lets the two overlap, and so may programs. */
static int split(const baton__mpi_call_t *call, const baton__mpi_shape_t *shape,
                 baton__mpi_vectors_t *v)
{
    size_t all = baton__mpi_shape_bytes(shape);
    bool sums = baton__mpi_has(call, REDUCES);
    size_t bytes = sums ? all : bytes_of(&v->from, v->from_blocks);
    size_t room = sums ? all : bytes_of(&v->to, v->to_blocks);
    if ((uintptr_t)v->source >= (uintptr_t)v->target + room ||
        (uintptr_t)v->target >= (uintptr_t)v->source + bytes) {
        return MPI_SUCCESS;
    }
    v->from.memory = (void *)v->source;
    v->raw_bytes = bytes;
    v->source = v->source_copy = malloc(bytes + 1);
    return v->source != NULL ? MPI_SUCCESS : MPI_ERR_NO_MEM;
}

int baton__mpi_vectors_init(const baton__mpi_call_t *call,
                            const baton__mpi_shape_t *shape, int rank,
                            baton__mpi_vectors_t *v)
{
    *v = (baton__mpi_vectors_t){.from_blocks = 1,
                                .to_blocks = 1,
                                .from_held = {.type = MPI_DATATYPE_NULL},
                                .to_held = {.type = MPI_DATATYPE_NULL}};
    /* A persistent call packs at each start. */
    bool packs_again = call->way == BATON__MPI_PERSISTENT;
    bool apart = is_in_place(call, rank) && !shape->in_place;
    bool scatters = baton__mpi_has(call, SOURCE);
    int code = apart ? init_apart(call, rank, v) : MPI_SUCCESS;
    if (code == MPI_SUCCESS && has_source(call, rank) && !shape->in_place &&
        (!apart || scatters)) {
        code = init_source(call, shape->size, v);
    }
    if (code == MPI_SUCCESS && has_target(call, rank) && !(apart && scatters)) {
        bool bcast = call->kind == BATON__MPI_BCAST;
        bool sends = shape->in_place || (bcast && rank == call->root);
        code = init_target(call, shape->size, sends,
                           !bcast || rank != call->root, v);
    }
    if (code == MPI_SUCCESS && packs_again && v->source_copy != NULL) {
        code = hold(&v->from, v->from_blocks, &v->from_held);
    }
    if (code == MPI_SUCCESS &&
        (v->unpacks || (packs_again && v->packs_target))) {
        code = hold(&v->to, v->to_blocks, &v->to_held);
    }
    bool raw = v->source != NULL && v->source_copy == NULL &&
               v->target != NULL && v->target_copy == NULL;
    return raw && code == MPI_SUCCESS ? split(call, shape, v) : code;
}

int baton__mpi_vectors_pack(const baton__mpi_vectors_t *v)
{
    int code = MPI_SUCCESS;
    if (v->raw_bytes > 0) {
        memcpy(v->source_copy, v->from.memory, v->raw_bytes);
    } else if (v->source_copy != NULL) {
        code = pack_side(&v->from, v->from_blocks, v->source_copy, false);
    }
    if (v->packs_target && code == MPI_SUCCESS) {
        code = pack_side(&v->to, v->to_blocks, v->target_copy, false);
    }
    return code;
}

int baton__mpi_vectors_unpack(const baton__mpi_vectors_t *v)
{
    return v->unpacks ? pack_side(&v->to, v->to_blocks, v->target_copy, true)
                      : MPI_SUCCESS;
}

void baton__mpi_vectors_fini(baton__mpi_vectors_t *v)
{
    free(v->source_copy);
    free(v->target_copy);
    let_go(&v->from_held);
    let_go(&v->to_held);
}
