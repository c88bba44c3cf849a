#include "allreduce.h"

bool baton__allreduce_in_place(const baton_schedule_t *schedule,
                               const baton_allreduce_t *args)
{
    const void *source = baton_view_address(schedule, args->source);
    return (args->source.buffer.index == args->target.buffer.index &&
            args->source.offset == args->target.offset) ||
           (source != NULL &&
            source == baton_view_address(schedule, args->target));
}

/* Views of one buffer, or of the same memory, that share bytes. Written without
   sums, which could overflow for offsets that an adder has yet to refuse. */
static bool views_overlap(const baton_schedule_t *schedule, baton_view_t a,
                          baton_view_t b)
{
    if (a.bytes == 0 || b.bytes == 0) {
        return false;
    }
    uintptr_t from = a.offset;
    uintptr_t to = b.offset;
    if (a.buffer.index != b.buffer.index) {
        from = (uintptr_t)baton_view_address(schedule, a);
        to = (uintptr_t)baton_view_address(schedule, b);
        if (from == 0 || to == 0) {
            return false;
        }
    }
    return from <= to ? to - from < a.bytes : from - to < b.bytes;
}

/* Says what is wrong, or returns true. */
static bool check(baton_schedule_t *schedule, const char *builder,
                  const baton_allreduce_t *args)
{
    if (args == NULL) {
        baton_schedule_fail(schedule, BATON_ERR_INVALID,
                            "%s: args is NULL, must point to its arguments",
                            builder);
        return false;
    }
    if (args->size != sizeof(*args)) {
        baton_schedule_fail(schedule, BATON_ERR_INVALID,
                            "%s: args.size is %zu, must be %zu: "
                            "sizeof(baton_allreduce_t)",
                            builder, args->size, sizeof(*args));
        return false;
    }
    if (args->op == NULL || args->op->reduce == NULL) {
        baton_schedule_fail(schedule, BATON_ERR_INVALID,
                            "%s: op%s is NULL, must be BATON_SUM, BATON_PROD, "
                            "BATON_MIN, BATON_MAX or a reduction of yours",
                            builder, args->op == NULL ? "" : "->reduce");
        return false;
    }
    size_t element = baton_op_element_bytes(args->op, args->dtype);
    if (element == 0) {
        baton_schedule_fail(
            schedule, BATON_ERR_INVALID,
            "%s: dtype is %d, must be one of baton_dtype_t, 0 to %d", builder,
            (int)args->dtype, (int)BATON_DTYPE_COUNT - 1);
        return false;
    }
    if (args->source.bytes != args->target.bytes) {
        baton_schedule_fail(schedule, BATON_ERR_INVALID,
                            "%s: source has %zu bytes and target %zu, must be "
                            "the same",
                            builder, args->source.bytes, args->target.bytes);
        return false;
    }
    if (args->source.bytes % element != 0) {
        baton_schedule_fail(schedule, BATON_ERR_INVALID,
                            "%s: source has %zu bytes, must be a multiple of "
                            "%zu, the size of %s",
                            builder, args->source.bytes, element,
                            args->op->element_bytes != 0
                                ? "the reduction's element"
                                : baton_dtype_name(args->dtype));
        return false;
    }
    if (!baton__allreduce_in_place(schedule, args) &&
        views_overlap(schedule, args->source, args->target)) {
        baton_schedule_fail(
            schedule, BATON_ERR_INVALID,
            "%s: source begins at byte %zu of buffer %u and target at byte %zu "
            "of buffer %u, %zu bytes each: they overlap, must be the same (in "
            "place) or apart",
            builder, args->source.offset, args->source.buffer.index,
            args->target.offset, args->target.buffer.index, args->source.bytes);
        return false;
    }
    return true;
}

bool baton__allreduce_begin(baton_schedule_t *schedule, const char *builder,
                            const baton_allreduce_t *args)
{
    if (!check(schedule, builder, args)) {
        return false;
    }
    if (args->source.bytes == 0) {
        return false;
    }
    if (baton_schedule_size(schedule) == 1) {
        if (!baton__allreduce_in_place(schedule, args)) {
            baton_add_copy(schedule, args->target, args->source);
        }
        return false;
    }
    return true;
}
