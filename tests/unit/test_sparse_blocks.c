/* SparDL on blocks that are long enough to be sampled, compared with its
   definition in dense arithmetic: every rank has a vector, takes entries out of
   it, and adds the received entries to it. Results and residuals are equal to
   the last bit, even if there are too many candidates, or sums cancel. */
#include "support/select_cases.h"
#include "support/sparse.h"

#include <math.h>

enum { STEPS = 2, BLOCK = 5000 };

/* ---- gradients --------------------------------------------------------- */

enum {
    /* Gradients are almost those of rank 0, with the opposite sign on odd
       ranks. So sums nearly cancel. */
    CANCELS = SELECT_KINDS,
    /* Some elements are NaN, or infinite with one sign, so that the bits of
       sums do not depend on the order of the operands. */
    WILD
};

static void fill(support_sparse_t *group, int kind, support_random_t *random)
{
    const baton_sparse_options_t *o = &group->options;
    for (int rank = 0; rank < group->size; rank++) {
        void *gradient = support_sparse_gradient(group, rank);
        select_fill(kind < SELECT_KINDS ? (select_kind_t)kind : SELECT_NORMAL,
                    o->dtype, gradient, o->count, NULL, random);
        if (kind == CANCELS && rank > 0) {
            double factor = rank % 2 == 0 ? 1 + 1e-3 * rank : 1e-3 * rank - 1;
            memcpy(gradient, support_sparse_gradient(group, 0),
                   o->count * group->element);
            baton_elements_scale(o->dtype, gradient, o->count, factor);
        }
        for (size_t i = 0; kind == WILD && i < o->count; i++) {
            uint64_t special = support_random_below(random, 3000);
            if (special < 2) {
                select_store(o->dtype, gradient, i,
                             special == 0 ? (double)NAN : (double)INFINITY);
            }
        }
    }
}

/* ---- the definition ---------------------------------------------------- */

typedef struct list {
    char *entries;
    size_t count;
} list_t;

typedef struct definition {
    support_sparse_t *group;
    size_t bytes, entry;
    /* By rank: `sums` is gradient plus residual, `work` is the paper's xi. */
    char **sums, **work;
    list_t *bags; /* the bag that each rank sends in an exchange */
    uint32_t *indices;
    void *scratch;
    char *result;
} definition_t;

static size_t share(size_t all, int parts, int part)
{
    return all / (size_t)parts + ((size_t)part < all % (size_t)parts ? 1 : 0);
}

/* Takes the largest elements out of a block, and appends them to a list. */
static void take(definition_t *d, int rank, int block, list_t *to)
{
    const baton_sparse_options_t *o = &d->group->options;
    size_t first = 0, quota = share(o->k, d->group->size, block);
    for (int i = 0; i < block; i++) {
        first += share(o->count, d->group->size, i);
    }
    const baton_selection_t from = {.dtype = o->dtype,
                                    .values = d->work[rank] + first * d->bytes,
                                    .count =
                                        share(o->count, d->group->size, block),
                                    .first = (uint32_t)first};
    size_t count = baton_select_topk(&from, quota > 0 ? quota : 1, d->indices,
                                     d->scratch, NULL);
    baton_entries_take(o->dtype, to->entries + to->count * d->entry, d->indices,
                       count, d->work[rank]);
    to->count += count;
}

/* Each rank sends a bag, and adds the one that it receives. */
static void exchange(definition_t *d, int gap, int blocks)
{
    int size = d->group->size;
    for (int rank = 0; rank < size; rank++) {
        d->bags[rank].count = 0;
        for (int j = 0; j < blocks; j++) {
            take(d, rank, (rank + gap + j) % size, &d->bags[rank]);
        }
    }
    for (int rank = 0; rank < size; rank++) {
        int to = (rank + gap) % size;
        baton_entries_add(d->group->options.dtype, d->bags[rank].entries,
                          d->bags[rank].count, 1, d->work[to]);
    }
}

/* The residual is xi at the indices of the result, and gradient plus old
   residual elsewhere. */
static void keep_residuals(definition_t *d, const list_t *result)
{
    const baton_sparse_options_t *o = &d->group->options;
    for (int rank = 0; rank < d->group->size; rank++) {
        for (size_t i = 0; i < result->count; i++) {
            size_t at =
                baton_entry_index(o->dtype, result->entries, i) * d->bytes;
            memcpy(d->sums[rank] + at, d->work[rank] + at, d->bytes);
        }
    }
}

/* Does a step. `sums` has the old residuals before it, and the new ones
   afterwards. */
static void step(definition_t *d)
{
    const baton_sparse_options_t *o = &d->group->options;
    int size = d->group->size, gap = 1;
    size_t all = o->count * d->bytes;
    list_t result = {malloc(2 * o->k * d->entry + 64 * d->entry), 0};
    for (int rank = 0; rank < size; rank++) {
        BATON_SUM->reduce(BATON_SUM->arg, d->sums[rank], d->sums[rank],
                          support_sparse_gradient(d->group, rank), o->count,
                          o->dtype);
        memcpy(d->work[rank], d->sums[rank], all);
    }
    while (2 * gap < size) {
        gap *= 2;
    }
    for (int blocks = size - gap; gap > 0 && size > 1; blocks = gap) {
        exchange(d, gap, blocks);
        gap /= 2;
    }
    for (int rank = 0; rank < size; rank++) {
        take(d, rank, rank, &result);
    }
    keep_residuals(d, &result);
    memset(d->result, 0, all);
    baton_entries_put(o->dtype, result.entries, result.count, d->result);
    free(result.entries);
}

static void *memory(size_t count, size_t bytes)
{
    void *zeros = support_alloc(count, bytes);
    return zeros;
}

static definition_t define(support_sparse_t *group)
{
    const baton_sparse_options_t *o = &group->options;
    size_t size = (size_t)group->size;
    definition_t d = {.group = group,
                      .bytes = baton_dtype_size(o->dtype),
                      .entry = baton_entry_bytes(o->dtype)};
    d.sums = memory(size, sizeof *d.sums);
    d.work = memory(size, sizeof *d.work);
    d.bags = memory(size, sizeof *d.bags);
    d.indices = memory(o->k + 1, sizeof *d.indices);
    d.scratch = memory(1, baton_select_scratch_bytes(o->count, o->k));
    d.result = memory(o->count, d.bytes);
    for (size_t rank = 0; rank < size; rank++) {
        d.sums[rank] = memory(o->count, d.bytes);
        d.work[rank] = memory(o->count, d.bytes);
        d.bags[rank].entries = memory(o->k + size, d.entry);
    }
    return d;
}

static void forget(definition_t *d)
{
    for (int rank = 0; rank < d->group->size; rank++) {
        free(d->sums[rank]);
        free(d->work[rank]);
        free(d->bags[rank].entries);
    }
    free(d->sums);
    free(d->work);
    free(d->bags);
    free(d->indices);
    free(d->scratch);
    free(d->result);
}

/* ---- tests ------------------------------------------------------------- */

static void expect(int size, baton_dtype_t dtype, int kind, size_t count,
                   support_random_t *random)
{
    baton_sparse_options_t options = BATON_SPARSE_OPTIONS;
    options.algorithm = BATON_SPARSE_SPARDL;
    options.count = count;
    options.dtype = dtype;
    options.k = count / 60;
    support_sparse_t *group = support_sparse_open(size, &options);
    definition_t d = define(group);
    for (int i = 0; i < STEPS; i++) {
        fill(group, kind, random);
        step(&d);
        support_sparse_step(group);
        if (memcmp(group->dense, d.result, count * d.bytes) != 0) {
            fail_msg("%d ranks, %s, kind %d: the result of step %d differs",
                     size, baton_dtype_name(dtype), kind, i);
        }
        for (int rank = 0; rank < size; rank++) {
            assert_memory_equal(support_sparse_residual(group, rank),
                                d.sums[rank], count * d.bytes);
        }
    }
    forget(&d);
    support_sparse_close(group);
}

TEST(test_long_blocks_are_summed_as_vectors_are)
{
    static const int sizes[] = {1, 2, 3, 5, 6, 8};
    static const baton_dtype_t types[] = {BATON_F32, BATON_F64, BATON_F16};
    static const int kinds[] = {SELECT_NORMAL, SELECT_STAIRS, CANCELS,
                                SELECT_MOSTLY_ZERO, WILD};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (size_t kind = 0; kind < sizeof kinds / sizeof kinds[0]; kind++) {
            support_random_t random =
                support_random(support_seed(), i * SELECT_KINDS + kind);
            expect(sizes[i], types[(i + kind) % 3], kinds[kind],
                   (size_t)sizes[i] * BLOCK + 3, &random);
        }
    }
}

/* Vectors of 8 MiB, which are written past the caches. */
TEST(test_vectors_beyond_caches_are_summed_alike)
{
    support_random_t random = support_random(support_seed(), 99);
    expect(3, BATON_F32, SELECT_NORMAL, (2 << 20) + 77, &random);
}
