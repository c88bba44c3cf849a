/* Functions that a user's function may call while it runs in a call node: they
   read and change the state of the node's epoch. */
#include "base/error.h"
#include "sched/schedule.h"

/* Returns the call's schedule; NULL, with this thread's error set, if `call` is
   NULL. */
static const baton_schedule_t *call_schedule_of(const baton_call_t *call,
                                                const char *function)
{
    return baton__is_given(call, true, function, "call") ? call->owner : NULL;
}

uint64_t baton_call_epoch(const baton_call_t *call)
{
    const baton_schedule_t *schedule = call_schedule_of(call, __func__);
    return schedule != NULL ? schedule->run.epoch : 0;
}

baton_status_t baton_call_fail(baton_call_t *call, baton_status_t status,
                               const char *format, ...)
{
    baton__text_t text = BATON__TEXT(BATON__SENTENCE_BYTES);
    if (call_schedule_of(call, __func__) == NULL) {
        return BATON_ERR_INVALID;
    }
    BATON__TEXT_ADD_ARGUMENTS(&text, format);
    call->explained = true;
    return baton__error(status, "%s", text.data);
}

void *baton_call_address(const baton_call_t *call, baton_view_t view)
{
    const baton_schedule_t *schedule = call_schedule_of(call, __func__);
    if (schedule == NULL || view.buffer.index >= schedule->buffer_count) {
        return NULL;
    }
    size_t bytes = schedule->buffers[view.buffer.index].bytes;
    char *base = schedule->addresses[view.buffer.index];
    return base == NULL || view.offset > bytes ||
                   view.bytes > bytes - view.offset
               ? NULL
               : base + view.offset;
}

bool baton_call_completed(const baton_call_t *call, baton_node_t node)
{
    const baton_schedule_t *schedule = call_schedule_of(call, __func__);
    return schedule != NULL && node.index < schedule->count &&
           schedule->run.state[node.index] == BATON__NODE_COMPLETED;
}

size_t baton_call_length(const baton_call_t *call, baton_length_t length)
{
    const baton_schedule_t *schedule = call_schedule_of(call, __func__);
    return schedule != NULL && length.index < schedule->length_count
               ? schedule->run.lengths[length.index]
               : BATON__LENGTH_UNSET;
}

BATON_PRINTF(2, 3)
static baton_status_t wrong(const baton_call_t *call, const char *format, ...)
{
    const baton_schedule_t *schedule = call->owner;
    baton__text_t text = BATON__TEXT(128);
    BATON__TEXT_ADD_ARGUMENTS(&text, format);
    return baton__error(BATON_ERR_INVALID, "\"%s\" epoch %llu, %s: %s",
                        schedule->name, (unsigned long long)schedule->run.epoch,
                        baton__node_name(schedule, call->node), text.data);
}

baton_status_t baton_call_set_length(baton_call_t *call, baton_length_t length,
                                     size_t bytes)
{
    const baton_schedule_t *schedule = call_schedule_of(call, __func__);
    if (schedule == NULL) {
        return BATON_ERR_INVALID;
    }
    if (length.index >= schedule->length_count) {
        return wrong(call, "there is no length %u; the schedule has %u",
                     length.index, schedule->length_count);
    }
    size_t limit = schedule->run.lengths[schedule->length_count + length.index];
    if (bytes > limit) {
        return wrong(call,
                     "length %u can't be %zu: its smallest view has %zu "
                     "bytes",
                     length.index, bytes, limit);
    }
    schedule->run.lengths[length.index] = bytes;
    return BATON_OK;
}

uint64_t baton_call_word(const baton_call_t *call, baton_node_t armed_recv)
{
    const baton_schedule_t *schedule = call_schedule_of(call, __func__);
    if (schedule == NULL || armed_recv.index >= schedule->count ||
        schedule->ops[armed_recv.index].kind != BATON__ARMED_RECV) {
        return 0;
    }
    const baton__op_t *op = &schedule->ops[armed_recv.index];
    return schedule->run.activations[op->message.slot].word;
}

baton_status_t baton_call_set_word(baton_call_t *call, baton_node_t activate,
                                   uint64_t word)
{
    const baton_schedule_t *schedule = call_schedule_of(call, __func__);
    if (schedule == NULL) {
        return BATON_ERR_INVALID;
    }
    if (activate.index >= schedule->count ||
        schedule->ops[activate.index].kind != BATON__ACTIVATE) {
        return wrong(call, "node %u of %u is not an activate node",
                     activate.index, schedule->count);
    }
    if (schedule->run.state[activate.index] != BATON__NODE_IDLE) {
        return wrong(call, "%s has sent its word already",
                     baton__node_name(schedule, activate.index));
    }
    const baton__op_t *op = &schedule->ops[activate.index];
    schedule->run.activations[op->message.slot].word = word;
    return BATON_OK;
}
