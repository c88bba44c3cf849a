/* Aliasing: buffers that are bound to the same memory.

   Nodes name buffers, but hazards are about memory. So commit compares the
   addresses of bound buffers: the memory of overlapping buffers is one space,
   and accesses are compared within a space. Builders, too, decide by address,
   for example whether an all-reduce is in place. So overlaps must not change
   after the commit: if a node writes one of two buffers, these must overlap
   after a rebind exactly as at commit. */
#include "base/alloc.h"
#include "base/error.h"
#include "sched/offload.h"

#include <stdlib.h>

/* If more buffers than this are rebound, all buffers are sorted; otherwise each
   rebound buffer is compared with all other buffers. */
enum { COMPARED_ONE_BY_ONE = 8 };

/* The first address of a buffer, and its number. Buffers are sorted by address
   in an array of these. */
typedef struct baton__range {
    uintptr_t begin;
    uint32_t buffer;
} range_t;

static int compare_ranges(const void *left, const void *right)
{
    const range_t *a = left;
    const range_t *b = right;
    if (a->begin != b->begin) {
        return a->begin < b->begin ? -1 : 1;
    }
    return a->buffer < b->buffer ? -1 : a->buffer > b->buffer;
}

static bool has_memory(const baton__buffer_t *buffer)
{
    return buffer->memory != NULL && buffer->bytes > 0;
}

/* Sorts the buffers that users have bound, and returns their number. */
static uint32_t sort_buffers(const baton_schedule_t *schedule)
{
    range_t *ranges = schedule->ranges;
    uint32_t count = 0;
    for (uint32_t i = 0; i < schedule->buffer_count; i++) {
        const baton__buffer_t *buffer = &schedule->buffers[i];
        if (has_memory(buffer) && !buffer->scratch) {
            ranges[count++] = (range_t){(uintptr_t)buffer->memory, i};
        }
    }
    qsort(ranges, count, sizeof *ranges, compare_ranges);
    return count;
}

/* Puts buffers into one space if they overlap, directly or by way of other
   buffers. `ranges` is sorted by address. */
static void find_spaces(baton_schedule_t *schedule, const range_t *ranges,
                        uint32_t count)
{
    uint32_t first = 0; /* the first range of the current space */
    uintptr_t end = 0;
    for (uint32_t i = 0; i < count; i++) {
        baton__buffer_t *buffer = &schedule->buffers[ranges[i].buffer];
        if (i > 0 && ranges[i].begin >= end) {
            first = i;
        }
        uintptr_t own_end = ranges[i].begin + buffer->bytes;
        end = i == first || own_end > end ? own_end : end;
        buffer->space = ranges[first].buffer;
        buffer->base = ranges[i].begin - ranges[first].begin;
    }
}

/* Returns an error if an operand that the node writes overlaps an operand that
   it reads, unless the two operands are exactly the same bytes. */
static baton_status_t alias_check_node(const baton_schedule_t *schedule,
                                       uint32_t node)
{
    const baton__op_t *op = &schedule->ops[node];
    const baton__kind_info_t *kind = &baton__kinds[op->kind];
    if (kind->writes == 0 || kind->reads == 0) {
        return BATON_OK;
    }
    const baton__buffer_t *target =
        &schedule->buffers[op->buffer[BATON__TARGET]];
    size_t to = target->base + op->offset[BATON__TARGET];
    for (int i = BATON__LEFT; i < BATON__OPERANDS; i++) {
        const baton__buffer_t *source = &schedule->buffers[op->buffer[i]];
        if ((kind->reads >> i & 1) == 0 || source->space != target->space) {
            continue;
        }
        size_t from = source->base + op->offset[i];
        size_t distance = from < to ? to - from : from - to;
        if (distance != 0 && distance < op->bytes) {
            return BATON__COMMIT_ERROR(
                BATON_ERR_INVALID, schedule,
                "%s writes %zu bytes at %zu of buffer %u and reads %zu at %zu "
                "of buffer %u; these overlap in part, and must be the same or "
                "apart (%s, and %s)",
                baton__node_name(schedule, node), op->bytes,
                op->offset[BATON__TARGET], op->buffer[BATON__TARGET], op->bytes,
                op->offset[i], op->buffer[i],
                baton__buffer_place(schedule, op->buffer[BATON__TARGET]),
                baton__buffer_place(schedule, op->buffer[i]));
        }
    }
    return BATON_OK;
}

static bool overlap(uintptr_t a, size_t a_bytes, uintptr_t b, size_t b_bytes)
{
    return a < b ? b - a < a_bytes : a - b < b_bytes;
}

/* Returns true if the two buffers overlap by the same bytes as at commit, or if
   they overlap neither now nor at commit. */
static bool lie_as_before(const baton__buffer_t *a, const baton__buffer_t *b)
{
    uintptr_t a_now = (uintptr_t)a->memory;
    uintptr_t b_now = (uintptr_t)b->memory;
    bool now = has_memory(a) && has_memory(b) &&
               overlap(a_now, a->bytes, b_now, b->bytes);
    bool before =
        a->space == b->space && overlap(a->base, a->bytes, b->base, b->bytes);
    return now == before && (!now || a_now - b_now == a->base - b->base);
}

/* Counts the pairs of overlapping buffers of which at least one is written.
   Returns false if one of these pairs did not overlap in the same way at
   commit. */
static bool count_overlaps(const baton_schedule_t *schedule, uint32_t count,
                           uint64_t *overlaps_out)
{
    const range_t *ranges = schedule->ranges;
    *overlaps_out = 0;
    for (uint32_t i = 0; i < count; i++) {
        const baton__buffer_t *a = &schedule->buffers[ranges[i].buffer];
        for (uint32_t j = i + 1;
             j < count && ranges[j].begin - ranges[i].begin < a->bytes; j++) {
            const baton__buffer_t *b = &schedule->buffers[ranges[j].buffer];
            if (!a->written && !b->written) {
                continue;
            }
            if (!lie_as_before(a, b)) {
                return false;
            }
            ++*overlaps_out;
        }
    }
    return true;
}

baton_status_t baton__find_aliases(baton_schedule_t *schedule)
{
    /* An earlier commit that failed may have left its array. */
    baton__free(schedule->ranges);
    schedule->ranges =
        baton__alloc(schedule->buffer_count, sizeof *schedule->ranges);
    if (schedule->ranges == NULL) {
        return BATON__COMMIT_ERROR(BATON_ERR_NO_MEMORY, schedule,
                                   "no memory to compare %u buffers",
                                   schedule->buffer_count);
    }
    for (uint32_t i = 0; i < schedule->buffer_count; i++) {
        baton__buffer_t *buffer = &schedule->buffers[i];
        buffer->space = i;
        buffer->base = 0;
        buffer->written = false;
    }
    uint32_t count = sort_buffers(schedule);
    find_spaces(schedule, schedule->ranges, count);
    baton_status_t status = BATON_OK;
    for (uint32_t node = 0; node < schedule->count && status == BATON_OK;
         node++) {
        const baton__op_t *op = &schedule->ops[node];
        if (baton__kinds[op->kind].writes != 0) {
            schedule->buffers[op->buffer[BATON__TARGET]].written = true;
        }
        status = alias_check_node(schedule, node);
    }
    /* count_overlaps returns true here, because it compares with the overlaps
       that were found just now. */
    (void)count_overlaps(schedule, count, &schedule->overlaps);
    return status;
}

/* ---- after the commit ------------------------------------------------- */

baton_status_t baton__check_alias(const baton_schedule_t *schedule,
                                  uint32_t buffer)
{
    const baton__buffer_t *own = &schedule->buffers[buffer];
    for (uint32_t i = 0; i < schedule->buffer_count; i++) {
        const baton__buffer_t *other = &schedule->buffers[i];
        if (i == buffer || other->scratch ||
            (!own->written && !other->written) || lie_as_before(own, other)) {
            continue;
        }
        uint32_t first = buffer < i ? buffer : i;
        uint32_t second = buffer < i ? i : buffer;
        bool overlapped =
            own->space == other->space &&
            overlap(own->base, own->bytes, other->base, other->bytes);
        return baton__error(
            BATON_ERR_INVALID,
            "\"%s\": buffers %u and %u %s when it was committed, and now they "
            "%s (%s, and %s): rebind both, or commit another schedule",
            schedule->name, first, second,
            overlapped ? "shared memory" : "were apart",
            overlapped ? "do not, or not in the same way" : "share memory",
            baton__buffer_place(schedule, first),
            baton__buffer_place(schedule, second));
    }
    return BATON_OK;
}

baton_status_t baton__check_rebound(baton_schedule_t *schedule)
{
    uint32_t rebound = 0;
    for (uint32_t i = 0; i < schedule->buffer_count; i++) {
        rebound += schedule->buffers[i].rebound;
    }
    /* If the overlaps differ from those at commit, comparing one by one finds
       the two buffers that the error names. */
    uint64_t overlaps;
    bool one_by_one =
        rebound <= COMPARED_ONE_BY_ONE ||
        !count_overlaps(schedule, sort_buffers(schedule), &overlaps) ||
        overlaps != schedule->overlaps;
    for (uint32_t i = 0; i < schedule->buffer_count; i++) {
        if (!schedule->buffers[i].rebound) {
            continue;
        }
        baton_status_t status =
            one_by_one ? baton__check_alias(schedule, i) : BATON_OK;
        if (status == BATON_OK) {
            status = baton__check_bound(schedule, i);
        }
        if (status != BATON_OK) {
            return status;
        }
    }
    for (uint32_t i = 0; i < schedule->buffer_count; i++) {
        schedule->buffers[i].rebound = false;
    }
    return BATON_OK;
}

size_t baton_buffer_bytes(const baton_schedule_t *schedule,
                          baton_buffer_t buffer)
{
    return baton__is_schedule(schedule, __func__) &&
                   buffer.index < schedule->buffer_count
               ? schedule->buffers[buffer.index].bytes
               : SIZE_MAX;
}

const void *baton_view_address(const baton_schedule_t *schedule,
                               baton_view_t view)
{
    if (!baton__is_schedule(schedule, __func__) ||
        view.buffer.index >= schedule->buffer_count) {
        return NULL;
    }
    const char *memory = schedule->buffers[view.buffer.index].memory;
    return memory == NULL ? NULL : memory + view.offset;
}
