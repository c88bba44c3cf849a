/* Vectors that may be empty in an epoch; see null_contribution.h. */
#include "coll/kit/null_contribution.h"

#include "base/float_mode.h"

baton__maybe_vector_t baton__maybe_source(const baton_allreduce_args_t *args)
{
    const struct baton_given *given = args->given;
    bool applies =
        given != NULL && !given->known &&
        given->source.view.buffer.index == args->source.buffer.index &&
        given->source.view.offset == args->source.offset &&
        given->source.view.bytes == args->source.bytes;
    return applies ? given->source
                   : (baton__maybe_vector_t){args->source, BATON__WHOLE};
}

baton_length_t baton__length_like(baton_schedule_t *schedule,
                                  baton_length_t other)
{
    return baton__is_whole(other) ? other : baton_add_length(schedule);
}

void baton__limit_node(baton_schedule_t *schedule, baton_node_t node,
                       baton_length_t length)
{
    if (!baton__is_whole(length)) {
        baton_set_length(schedule, node, length);
    }
}

baton_node_t baton__add_maybe_recv(baton_schedule_t *schedule, int peer,
                                   baton__maybe_vector_t data)
{
    baton_node_t recv = baton_add_recv(schedule, peer, data.view);
    baton__limit_node(schedule, recv, data.length);
    return recv;
}

baton_node_t baton__add_maybe_send(baton_schedule_t *schedule, int peer,
                                   baton__maybe_vector_t data)
{
    baton_node_t send = baton_add_send(schedule, peer, data.view);
    baton__limit_node(schedule, send, data.length);
    return send;
}

static baton_status_t set_missing(void *arg, baton_call_t *call)
{
    const struct baton_given *given = arg;
    size_t there = baton_call_length(call, given->result.length);
    return baton_call_set_length(call, given->missing,
                                 there == 0 ? given->result.view.bytes : 0);
}

/* Fills the target with copies of the neutral element in those epochs to which
   no rank has contributed:

     last --> call: is the result missing? --> copy */
static void add_filled_on_device(baton_schedule_t *schedule,
                                 struct baton_given *given, baton_node_t last)
{
    given->missing = baton_add_length(schedule);
    baton_node_t call = baton_add_call(schedule, set_missing, given);
    baton_set_no_scratch(schedule, call);
    baton_before(schedule, last, call);
    baton_node_t copy =
        baton_add_copy(schedule, given->result.view, given->identity);
    baton_set_length(schedule, copy, given->missing);
    baton_before(schedule, call, copy);
}

static baton_status_t null_contribution_fill(void *arg, baton_call_t *call)
{
    const struct baton_given *given = arg;
    void *target = baton_call_address(call, given->result.view);
    if (baton_call_length(call, given->result.length) == 0 && target != NULL) {
        const baton_op_t *op = given->op;
        size_t count =
            given->result.view.bytes / baton_op_element_bytes(op, given->dtype);
        baton__float_mode_t mode = baton__float_mode_enter();
        op->identity(op->arg, target, count, given->dtype);
        baton__float_mode_leave(mode);
    }
    return BATON_OK;
}

void baton__add_result(baton_schedule_t *schedule,
                       const baton_allreduce_args_t *args,
                       baton_length_t length, baton_node_t last)
{
    struct baton_given *given = args->given;
    if (baton__is_whole(length)) {
        return;
    }
    given->known = true;
    given->op = args->op;
    given->dtype = args->dtype;
    given->result = (baton__maybe_vector_t){args->target, length};
    if (given->on_device) {
        add_filled_on_device(schedule, given, last);
        return;
    }
    baton_node_t filled =
        baton_add_call(schedule, null_contribution_fill, given);
    /* This call only writes the target, so it reads no scratch. */
    baton_set_no_scratch(schedule, filled);
    baton_before(schedule, last, filled);
}
