/* Lists of entries, and loops over dense vectors, for the sparse
   collectives. */
#include "ops/select.h"

#include "base/error.h"
#include "base/half.h"
#include "ops/bits.h"

enum {
    INDEX_BYTES = sizeof(uint32_t),
    /* A loop prefetches the element of the entry AHEAD entries further on. */
    AHEAD = 24
};

size_t baton_entry_bytes(baton_dtype_t dtype)
{
    return INDEX_BYTES + baton_dtype_size(dtype);
}

static uint32_t index_at(const char *entry)
{
    uint32_t index;
    memcpy(&index, entry, sizeof index);
    return index;
}

uint32_t baton_entry_index(baton_dtype_t dtype, const void *entries, size_t i)
{
    return baton__is_given(entries, true, __func__, "entries")
               ? index_at((const char *)entries + i * baton_entry_bytes(dtype))
               : 0;
}

/* ---- arithmetic of one element ----------------------------------------- */

/* f16 and bf16 elements are added in f32, and the sum is rounded once. Factors
   are multiplied in double. */
#define ELEMENT(NAME, name, bytes, type, digits)                               \
    static inline type add_##name(type a, type b)                              \
    {                                                                          \
        return baton__write_##name(baton__read_##name(a) +                     \
                                   baton__read_##name(b));                     \
    }                                                                          \
    static inline type scale_##name(type a, double factor)                     \
    {                                                                          \
        return baton__write_##name(                                            \
            (baton__wide_##name)((double)baton__read_##name(a) * factor));     \
    }

BATON_FLOAT_LIST(ELEMENT)

/* ---- loops by type ----------------------------------------------------- */

/* The arguments of a loop over a list of entries. LOOP defines such a loop.
   `at` walks over the entries; the index of an entry is the position of its
   element in `dense`. These elements lie far apart, and processors overlap few
   stores that miss the caches. So the loop prefetches elements: `next` is the
   index of the entry that is AHEAD entries further on. */
typedef struct work {
    char *entries;
    size_t count;
    const uint32_t *indices;
    char *dense;
    double factor;
} work_t;

#define LOOP(name, type, next, body)                                           \
    static void name(const work_t *w)                                          \
    {                                                                          \
        char *at = w->entries;                                                 \
        for (size_t i = 0; i < w->count;                                       \
             i++, at += INDEX_BYTES + sizeof(type)) {                          \
            if (w->count - i > AHEAD) {                                        \
                __builtin_prefetch(w->dense + (size_t)(next) * sizeof(type),   \
                                   1);                                         \
            }                                                                  \
            body                                                               \
        }                                                                      \
    }

#define NEXT_INDEX       w->indices[i + AHEAD]
#define NEXT_ENTRY(type) index_at(at + AHEAD * (INDEX_BYTES + sizeof(type)))

#define LOAD(target, address)  memcpy(&(target), (address), sizeof(target))
#define STORE(address, source) memcpy((address), &(source), sizeof(source))

#define GATHER(type, clear)                                                    \
    uint32_t index = w->indices[i];                                            \
    type value, zero = 0;                                                      \
    char *element = w->dense + (size_t)index * sizeof(type);                   \
    LOAD(value, element);                                                      \
    STORE(at, index);                                                          \
    STORE(at + INDEX_BYTES, value);                                            \
    if (clear) {                                                               \
        STORE(element, zero);                                                  \
    }

#define PUT(type)                                                              \
    type value;                                                                \
    LOAD(value, at + INDEX_BYTES);                                             \
    STORE(w->dense + (size_t)index_at(at) * sizeof(type), value);

#define ADD(name, type)                                                        \
    type value, before, after;                                                 \
    char *element = w->dense + (size_t)index_at(at) * sizeof(type);            \
    LOAD(value, at + INDEX_BYTES);                                             \
    LOAD(before, element);                                                     \
    if (w->factor != 1) {                                                      \
        value = scale_##name(value, w->factor);                                \
    }                                                                          \
    after = add_##name(before, value);                                         \
    STORE(element, after);                                                     \
    STORE(at + INDEX_BYTES, before);

#define LOOPS(NAME, name, bytes, type, digits)                                 \
    LOOP(gather_##name, type, NEXT_INDEX, GATHER(type, 0))                     \
    LOOP(take_##name, type, NEXT_INDEX, GATHER(type, 1))                       \
    LOOP(put_##name, type, NEXT_ENTRY(type), PUT(type))                        \
    LOOP(add_to_##name, type, NEXT_ENTRY(type), ADD(name, type))

BATON_FLOAT_LIST(LOOPS)

enum { GATHERS, TAKES, PUTS, ADDS, WORKS };
typedef void (*loop_fn)(const work_t *w);
#define LOOPS_OF(NAME, name, ...)                                              \
    [BATON_##NAME] = {gather_##name, take_##name, put_##name, add_to_##name},
static const loop_fn loops[BATON_DTYPE_COUNT][WORKS] = {
    BATON_FLOAT_LIST(LOOPS_OF)};

static void entries_run(int op, baton_dtype_t dtype, bool indices,
                        const char *function, const work_t *work)
{
    bool any = work->count > 0;
    if (baton__is_selectable(dtype, function) &&
        baton__is_given(work->entries, any, function, "entries") &&
        baton__is_given(work->indices, any && indices, function, "indices") &&
        baton__is_given(work->dense, any, function, "dense")) {
        loops[dtype][op](work);
    }
}

void baton_entries_gather(baton_dtype_t dtype, void *entries,
                          const uint32_t *indices, size_t count,
                          const void *dense)
{
    /* The cast is safe: this loop only reads the vector. */
    const work_t work = {.entries = entries,
                         .count = count,
                         .indices = indices,
                         .dense = (void *)(uintptr_t)dense};
    entries_run(GATHERS, dtype, true, __func__, &work);
}

void baton_entries_take(baton_dtype_t dtype, void *entries,
                        const uint32_t *indices, size_t count, void *dense)
{
    const work_t work = {
        .entries = entries, .count = count, .indices = indices, .dense = dense};
    entries_run(TAKES, dtype, true, __func__, &work);
}

void baton_entries_put(baton_dtype_t dtype, const void *entries, size_t count,
                       void *dense)
{
    /* The cast is safe: this loop only reads the list. */
    const work_t work = {
        .entries = (void *)(uintptr_t)entries, .count = count, .dense = dense};
    entries_run(PUTS, dtype, false, __func__, &work);
}

void baton_entries_add(baton_dtype_t dtype, void *entries, size_t count,
                       double factor, void *dense)
{
    const work_t work = {
        .entries = entries, .count = count, .dense = dense, .factor = factor};
    entries_run(ADDS, dtype, false, __func__, &work);
}

void baton_entries_split(baton_dtype_t dtype, const void *entries, size_t count,
                         uint32_t *indices, void *values)
{
    size_t size = baton_dtype_size(dtype);
    const char *at = entries;
    if (!baton__is_selectable(dtype, __func__) ||
        !baton__is_given(entries, count > 0, __func__, "entries")) {
        return;
    }
    for (size_t i = 0; i < count; i++, at += INDEX_BYTES + size) {
        if (indices != NULL) {
            indices[i] = index_at(at);
        }
        if (values != NULL) {
            memcpy((char *)values + i * size, at + INDEX_BYTES, size);
        }
    }
}

/* ---- the sum of lists -------------------------------------------------- */

/* Lists are summed in tiles: a tile is a range of TILE indices. Each list adds
   its entries with these indices to a small dense vector, and a bit for each
   index says whether any list has it. So additions are in the order of the
   lists, and the cost is proportional to the number of entries. */
enum { TILE = 2048, TILE_WORDS = TILE / 64 };

typedef struct tile {
    uint64_t first; /* the first index of the tile */
    uint64_t present[TILE_WORDS];
    union {
#define SUMS(NAME, name, bytes, type, digits) type name[TILE];
        BATON_FLOAT_LIST(SUMS)
    } sum;
} tile_t;

#define TILE_LOOPS(NAME, name, bytes, type, digits)                            \
    static inline __attribute__((always_inline)) void tile_put_##name(         \
        tile_t *tile, baton_entries_t *list, const char *dense)                \
    {                                                                          \
        const char *at = list->data;                                           \
        while (list->count > 0 && index_at(at) < tile->first + TILE) {         \
            size_t index = index_at(at), i = index - (size_t)tile->first;      \
            uint64_t bit = UINT64_C(1) << (i % 64);                            \
            bool present = (tile->present[i / 64] & bit) != 0;                 \
            type value, before;                                                \
            if (dense != NULL && list->count > AHEAD) {                        \
                PREFETCH(dense + (size_t)NEXT_ENTRY(type) * sizeof(type));     \
            }                                                                  \
            LOAD(value, at + INDEX_BYTES);                                     \
            if (dense != NULL) {                                               \
                LOAD(before, dense + index * sizeof(type));                    \
                before = present ? tile->sum.name[i] : before;                 \
                tile->sum.name[i] = add_##name(before, value);                 \
            } else {                                                           \
                tile->sum.name[i] =                                            \
                    present ? add_##name(tile->sum.name[i], value) : value;    \
            }                                                                  \
            tile->present[i / 64] |= bit;                                      \
            at += INDEX_BYTES + sizeof(type);                                  \
            list->count--;                                                     \
        }                                                                      \
        list->data = at;                                                       \
    }                                                                          \
    static void tile_add_##name(tile_t *tile, baton_entries_t *list,           \
                                const char *dense)                             \
    {                                                                          \
        tile_put_##name(tile, list, NULL);                                     \
    }                                                                          \
    static void tile_add_onto_##name(tile_t *tile, baton_entries_t *list,      \
                                     const char *dense)                        \
    {                                                                          \
        tile_put_##name(tile, list, dense);                                    \
    }                                                                          \
    static size_t tile_emit_##name(const tile_t *tile, char *out)              \
    {                                                                          \
        char *at = out;                                                        \
        for (size_t word = 0; word < TILE_WORDS; word++) {                     \
            for (uint64_t bits = tile->present[word]; bits != 0;               \
                 bits &= bits - 1) {                                           \
                size_t i = word * 64 + baton__lowest_bit(bits);                \
                uint32_t index = (uint32_t)(tile->first + i);                  \
                STORE(at, index);                                              \
                STORE(at + INDEX_BYTES, tile->sum.name[i]);                    \
                at += INDEX_BYTES + sizeof(type);                              \
            }                                                                  \
        }                                                                      \
        return (size_t)(at - out) / (INDEX_BYTES + sizeof(type));              \
    }

BATON_FLOAT_LIST(TILE_LOOPS)

#define TILES_OF(NAME, name, ...)                                              \
    [BATON_##NAME] = {tile_add_##name, tile_add_onto_##name, tile_emit_##name},
static const struct {
    void (*add)(tile_t *tile, baton_entries_t *list, const char *dense);
    void (*add_onto)(tile_t *tile, baton_entries_t *list, const char *dense);
    size_t (*emit)(const tile_t *tile, char *out);
} tiles[BATON_DTYPE_COUNT] = {BATON_FLOAT_LIST(TILES_OF)};

/* Returns the lowest first index of the lists; UINT64_MAX if all lists are
   empty. */
static uint64_t lowest_index(const baton_entries_t *lists, size_t list_count)
{
    uint64_t lowest = UINT64_MAX;
    for (size_t i = 0; i < list_count; i++) {
        if (lists[i].count > 0 && index_at(lists[i].data) < lowest) {
            lowest = index_at(lists[i].data);
        }
    }
    return lowest;
}

static bool are_lists_valid(baton_dtype_t dtype, const baton_entries_t *lists,
                            size_t list_count, const void *out,
                            const char *function)
{
    bool right = baton__is_selectable(dtype, function) &&
                 baton__is_given(lists, list_count > 0, function, "lists");
    for (size_t i = 0; right && i < list_count; i++) {
        bool any = lists[i].count > 0;
        right = baton__is_given(lists[i].data, any, function, "lists->data") &&
                baton__is_given(out, any, function, "out");
    }
    return right;
}

/* Sums the lists into one list, which is written to `out`. With `dense`, the
   entries of the first list already hold sums: an entry of another list is
   added to the first list's entry of the same index, or, if there is none, to
   the element of `dense`. */
static size_t entries_sum_lists(baton_dtype_t dtype, const char *dense,
                                baton_entries_t *lists, size_t list_count,
                                char *out)
{
    tile_t tile;
    size_t written = 0;
    uint64_t lowest;
    while ((lowest = lowest_index(lists, list_count)) != UINT64_MAX) {
        tile.first = lowest;
        memset(tile.present, 0, sizeof tile.present);
        for (size_t i = 0; i < list_count; i++) {
            (dense != NULL && i > 0 ? tiles[dtype].add_onto : tiles[dtype].add)(
                &tile, &lists[i], dense);
        }
        written +=
            tiles[dtype].emit(&tile, out + written * baton_entry_bytes(dtype));
    }
    return written;
}

size_t baton_entries_sum(baton_dtype_t dtype, baton_entries_t *lists,
                         size_t list_count, void *out)
{
    return are_lists_valid(dtype, lists, list_count, out, __func__)
               ? entries_sum_lists(dtype, NULL, lists, list_count, out)
               : 0;
}

size_t baton_entries_sum_onto(baton_dtype_t dtype, const void *dense,
                              baton_entries_t *lists, size_t list_count,
                              void *out)
{
    return baton__is_given(dense, true, __func__, "dense") &&
                   are_lists_valid(dtype, lists, list_count, out, __func__)
               ? entries_sum_lists(dtype, dense, lists, list_count, out)
               : 0;
}

/* ---- common entries ---------------------------------------------------- */

/* Copies the entries whose index is among `indices`. Works in tiles of indices:
   sets a bit for each of `indices` in the tile, and then goes over the list's
   entries in the tile. It writes every entry, but advances in the output only
   if the entry's bit is set; otherwise the next entry overwrites this one. This
   needs no branch, which would be mispredicted, and no merge of the two lists,
   which would wait for each comparison. */
#define COMMON(NAME, name, bytes, type, digits)                                \
    static size_t common_##name(const char *at, size_t count,                  \
                                const uint32_t *indices, size_t index_count,   \
                                bool clear, char *out)                         \
    {                                                                          \
        const size_t step = INDEX_BYTES + sizeof(type);                        \
        const type zero = 0;                                                   \
        char *to = out;                                                        \
        for (size_t j = 0; count > 0 && j < index_count;) {                    \
            uint64_t bits[TILE_WORDS] = {0};                                   \
            const uint64_t first = indices[j];                                 \
            for (; j < index_count && indices[j] < first + TILE; j++) {        \
                uint64_t i = indices[j] - first;                               \
                bits[i / 64] |= UINT64_C(1) << (i % 64);                       \
            }                                                                  \
            for (; count > 0 && index_at(at) < first; count--) {               \
                at += step;                                                    \
            }                                                                  \
            for (; count > 0 && index_at(at) < first + TILE; count--) {        \
                uint32_t index = index_at(at);                                 \
                uint64_t i = index - first;                                    \
                type value;                                                    \
                LOAD(value, at + INDEX_BYTES);                                 \
                value = clear ? zero : value;                                  \
                STORE(to, index);                                              \
                STORE(to + INDEX_BYTES, value);                                \
                to += (bits[i / 64] >> (i % 64) & 1) != 0 ? step : 0;          \
                at += step;                                                    \
            }                                                                  \
        }                                                                      \
        return (size_t)(to - out) / step;                                      \
    }

BATON_FLOAT_LIST(COMMON)

size_t baton_entries_common(baton_dtype_t dtype, const void *entries,
                            size_t count, const uint32_t *indices,
                            size_t index_count, bool clear, void *out)
{
#define COMMON_OF(NAME, name, ...) [BATON_##NAME] = common_##name,
    static size_t (*const commons[BATON_DTYPE_COUNT])(
        const char *, size_t, const uint32_t *, size_t, bool,
        char *) = {BATON_FLOAT_LIST(COMMON_OF)};
    bool any = count > 0 && index_count > 0;
    if (!baton__is_selectable(dtype, __func__) ||
        !baton__is_given(entries, any, __func__, "entries") ||
        !baton__is_given(indices, any, __func__, "indices") ||
        !baton__is_given(out, any, __func__, "out")) {
        return 0;
    }
    return commons[dtype](entries, count, indices, index_count, clear, out);
}

/* ---- dense vectors ----------------------------------------------------- */

void baton_elements_scale(baton_dtype_t dtype, void *values, size_t count,
                          double factor)
{
    if (!baton__is_selectable(dtype, __func__) ||
        !baton__is_given(values, count > 0, __func__, "values")) {
        return;
    }
    baton__select_kernels()->of[dtype].scale(values, count, factor);
}

baton_magnitudes_t baton_elements_measure(baton_dtype_t dtype,
                                          const void *values, size_t count)
{
    baton_magnitudes_t result = {.sum = 0};
    if (!baton__is_selectable(dtype, __func__) ||
        !baton__is_given(values, count > 0, __func__, "values")) {
        return result;
    }
    baton__select_kernels()->of[dtype].measure(values, count, &result);
    uint64_t nan = baton__filter_of(dtype, BATON_SIDE_BOTH).nan;
    result.largest = result.largest < nan ? result.largest : nan;
    return result;
}
