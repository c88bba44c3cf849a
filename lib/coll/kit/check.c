#include "coll/kit/check.h"

#include "base/error.h"
#include "base/options.h"
#include "base/thread.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Sets the schedule's error to BATON_ERR_INVALID with a message. The macro's
   value is false. */
#define REFUSE(...)                                                            \
    (baton_schedule_fail(schedule, BATON_ERR_INVALID, __VA_ARGS__), false)

enum { ARGS_MOST = 256 }; /* the most bytes of a builder's arguments */

bool baton__check_schedule(const baton_schedule_t *schedule,
                           const char *builder)
{
    return baton__is_given(schedule, true, builder, "schedule");
}

const void *baton__read_args(baton_schedule_t *schedule, const char *builder,
                             const void *args, size_t bytes, const char *type)
{
    if (schedule != NULL && args != NULL) {
        baton_schedule_agree(schedule, "%s", builder);
    }
    return baton__pass_args(schedule, builder, args, bytes, type);
}

const void *baton__pass_args(baton_schedule_t *schedule, const char *builder,
                             const void *args, size_t bytes, const char *type)
{
    static _Thread_local _Alignas(max_align_t) char whole[ARGS_MOST];
    size_t size = 0;
    if (!baton__check_schedule(schedule, builder)) {
        return NULL;
    }
    if (args == NULL) {
        baton_schedule_fail(schedule, BATON_ERR_INVALID,
                            "%s: args is NULL; it must point to the arguments",
                            builder);
        return NULL;
    }
    memcpy(&size, args, sizeof size);
    if (size == bytes) {
        return args;
    }
    assert(bytes <= sizeof whole);
    char what[128], initialiser[64];
    (void)snprintf(what, sizeof what, "%s: args", builder);
    (void)snprintf(initialiser, sizeof initialiser, "sizeof(%s)", type);
    baton_status_t status =
        baton__options_read(whole, bytes, args, what, initialiser);
    if (status != BATON_OK) {
        baton_schedule_fail(schedule, status, "%s", baton_error_message());
        return NULL;
    }
    return whole;
}

bool baton__check_root(baton_schedule_t *schedule, const char *builder,
                       int root)
{
    int size = baton_schedule_size(schedule);
    baton_schedule_agree(schedule, "root %d", root);
    return (root >= 0 && root < size) ||
           REFUSE("%s: root is %d, must be a rank of the group, 0 to %d",
                  builder, root, size - 1);
}

size_t baton__check_op(baton_schedule_t *schedule, const char *builder,
                       const baton_op_t *op, baton_dtype_t dtype)
{
    baton_status_t status = baton_op_check(op, dtype);
    if (status != BATON_OK) {
        baton_schedule_fail(schedule, status, "%s: %s", builder,
                            baton_error_message());
        return 0;
    }
    baton_schedule_agree(schedule, "%s, op %s", baton_dtype_name(dtype),
                         op->name != NULL ? op->name : "?");
    size_t element = baton_op_element_bytes(op, dtype);
    if (op->element_bytes != 0) {
        baton_schedule_agree(schedule, "elements of %zu bytes", element);
    }
    return element;
}

void baton__agree_counts(baton_schedule_t *schedule, const char *what,
                         const size_t *counts)
{
    for (int i = 0; counts != NULL && i < baton_schedule_size(schedule); i++) {
        baton_schedule_agree(schedule, "%s[%d] %zu", what, i, counts[i]);
    }
}

void baton__agree_chunk(baton_schedule_t *schedule, size_t chunk_bytes)
{
    if (chunk_bytes > 0) {
        baton_schedule_agree(schedule, "chunk_bytes %zu", chunk_bytes);
    }
}

bool baton__check_commutative(baton_schedule_t *schedule, const char *builder,
                              const baton_op_t *op, const char *others)
{
    if (!op->commutative) {
        baton_schedule_fail(schedule, BATON_ERR_UNSUPPORTED,
                            "%s: reduction \"%s\" is not commutative; use %s",
                            builder, op->name != NULL ? op->name : "?", others);
    }
    return op->commutative;
}

bool baton__check_bytes(baton_schedule_t *schedule, const char *builder,
                        const char *what, size_t bytes, size_t expected)
{
    return bytes == expected || REFUSE("%s: %s has %zu bytes, must have %zu",
                                       builder, what, bytes, expected);
}

bool baton__check_multiple(baton_schedule_t *schedule, const char *builder,
                           const char *what, size_t bytes, size_t unit)
{
    baton_schedule_agree(schedule, "%s of %zu %s", what, bytes / unit,
                         unit > 1 ? "elements" : "bytes");
    return bytes % unit == 0 ||
           REFUSE("%s: %s has %zu bytes, must be a multiple of %zu", builder,
                  what, bytes, unit);
}

bool baton__same_place(const baton_schedule_t *schedule, baton_view_t a,
                       baton_view_t b)
{
    const void *address = baton_view_address(schedule, a);
    return (a.buffer.index == b.buffer.index && a.offset == b.offset) ||
           (address != NULL && address == baton_view_address(schedule, b));
}

bool baton__check_view(baton_schedule_t *schedule, const char *builder,
                       const char *what, baton_view_t view)
{
    size_t size = baton_buffer_bytes(schedule, view.buffer);
    if (size == SIZE_MAX) {
        return view.bytes == 0 ||
               REFUSE("%s: %s names buffer %u, which is not one of the "
                      "schedule's: baton_buffer_bind gives one",
                      builder, what, view.buffer.index);
    }
    return (view.offset <= size && view.bytes <= size - view.offset) ||
           REFUSE("%s: %s is %zu bytes at %zu of buffer %u, which has %zu "
                  "bytes",
                  builder, what, view.bytes, view.offset, view.buffer.index,
                  size);
}

bool baton__check_places(baton_schedule_t *schedule, const char *builder,
                         baton_view_t source, baton_view_t target,
                         bool in_place)
{
    if (!baton__check_view(schedule, builder, "source", source) ||
        !baton__check_view(schedule, builder, "target", target)) {
        return false;
    }
    /* Compares differences instead of sums: sums could overflow if a view lies
       in no buffer. */
    uintptr_t from = source.offset;
    uintptr_t to = target.offset;
    bool known = true;
    if (source.buffer.index != target.buffer.index) {
        from = (uintptr_t)baton_view_address(schedule, source);
        to = (uintptr_t)baton_view_address(schedule, target);
        known = from != 0 && to != 0;
    }
    bool overlap =
        !in_place && known && source.bytes > 0 && target.bytes > 0 &&
        (from <= to ? to - from < source.bytes : from - to < target.bytes);
    return !overlap ||
           REFUSE("%s: source (%zu bytes at %zu of buffer %u, %p) and target "
                  "(%zu bytes at %zu of buffer %u, %p) overlap: they must be "
                  "the same (in place) or apart. Is the count in bytes?",
                  builder, source.bytes, source.offset, source.buffer.index,
                  baton_view_address(schedule, source), target.bytes,
                  target.offset, target.buffer.index,
                  baton_view_address(schedule, target));
}

bool baton__check_alike(baton_schedule_t *schedule, const char *builder,
                        baton_view_t source, baton_view_t target)
{
    return source.bytes == target.bytes ||
           REFUSE("%s: source has %zu bytes and target has %zu, must be the "
                  "same number (of bytes, not of elements)",
                  builder, source.bytes, target.bytes);
}

bool baton__check_reduction(baton_schedule_t *schedule, const char *builder,
                            const baton_op_t *op, baton_dtype_t dtype,
                            baton_view_t source, baton_view_t target,
                            bool *in_place_out)
{
    size_t element = baton__check_op(schedule, builder, op, dtype);
    *in_place_out = baton__same_place(schedule, source, target);
    return element > 0 &&
           baton__check_multiple(schedule, builder, "source", source.bytes,
                                 element) &&
           baton__check_alike(schedule, builder, source, target) &&
           baton__check_places(schedule, builder, source, target,
                               *in_place_out);
}

baton_status_t baton__start_to_wait(baton_schedule_t *schedule)
{
    baton_failure_t failure;
    baton_status_t status = baton_schedule_start(schedule);
    return status == BATON_ERR_FAILED &&
                   baton_schedule_failure(schedule, &failure) == BATON_OK
               ? baton__error(failure.status, "%s", failure.message)
               : status;
}

baton_status_t baton__wait_out(baton_schedule_t *schedule, int timeout_ms)
{
    baton__thread_patience++;
    baton_status_t status = baton_schedule_wait(schedule, timeout_ms);
    baton__thread_patience--;
    return status;
}
