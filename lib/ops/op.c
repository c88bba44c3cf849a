/* The table of node kinds, and how each is issued. */
#include "ops/op.h"

#include "base/error.h"

#include <string.h>

static char *operand(const baton__op_t *op, int which,
                     const baton__context_t *context)
{
    char *base = context->address[op->buffer[which]];
    /* An empty view of an unbound buffer is legal, and NULL + 0 is not. */
    return base == NULL ? NULL : base + op->offset[which];
}

static int posted(baton_status_t status, const baton__op_t *op,
                  const baton__context_t *context)
{
    if (status == BATON_OK) {
        return BATON__PENDING;
    }
    if (status == BATON_DONE) {
        return BATON_OK;
    }
    return baton__error(status,
                        "%s of %zu bytes, peer %d, tag %u: the %s "
                        "transport refused it: %s",
                        baton__kinds[op->kind].name, op->bytes, (int)op->peer,
                        op->tag, context->transport->name,
                        baton_status_text(status));
}

static int issue_send(const baton__op_t *op, uint32_t node,
                      const baton__context_t *context)
{
    baton_token_t token = {context->owner, node};
    return posted(context->transport->send(
                      context->endpoint, token, (int)op->peer, op->tag,
                      operand(op, BATON__LEFT, context), op->bytes),
                  op, context);
}

static int issue_recv(const baton__op_t *op, uint32_t node,
                      const baton__context_t *context)
{
    baton_token_t token = {context->owner, node};
    return posted(context->transport->recv(
                      context->endpoint, token, (int)op->peer, op->tag,
                      operand(op, BATON__TARGET, context), op->bytes),
                  op, context);
}

static int issue_activate(const baton__op_t *op, uint32_t node,
                          const baton__context_t *context)
{
    baton_token_t token = {context->owner, node};
    baton__header_t *header = &context->headers[op->header];
    header->epoch = context->epoch;
    return posted(context->transport->send(context->endpoint, token,
                                           (int)op->peer, op->tag, header,
                                           sizeof *header),
                  op, context);
}

static int issue_armed_recv(const baton__op_t *op, uint32_t node,
                            const baton__context_t *context)
{
    baton_token_t token = {context->owner, node};
    return posted(context->transport->recv(
                      context->endpoint, token, (int)op->peer, op->tag,
                      &context->headers[op->header], sizeof(baton__header_t)),
                  op, context);
}

static int issue_reduce(const baton__op_t *op, uint32_t node,
                        const baton__context_t *context)
{
    (void)node;
    if (op->bytes > 0) {
        baton_dtype_t dtype = (baton_dtype_t)op->dtype;
        op->reduction->reduce(
            op->reduction->arg, operand(op, BATON__TARGET, context),
            operand(op, BATON__LEFT, context),
            operand(op, BATON__RIGHT, context),
            op->bytes / baton_op_element_bytes(op->reduction, dtype), dtype);
    }
    return BATON_OK;
}

static int issue_copy(const baton__op_t *op, uint32_t node,
                      const baton__context_t *context)
{
    (void)node;
    if (op->bytes > 0) {
        memcpy(operand(op, BATON__TARGET, context),
               operand(op, BATON__LEFT, context), op->bytes);
    }
    return BATON_OK;
}

static int issue_call(const baton__op_t *op, uint32_t node,
                      const baton__context_t *context)
{
    baton_status_t status = op->call(op->argument, context->epoch);
    if (status == BATON_OK || status == BATON_SKIP) {
        return status;
    }
    /* Only errors may leave here: a stray positive value would be taken for
       another outcome. */
    status = status < 0 ? status : BATON_ERR_INVALID;
    return baton__error(status, "call#%u returned %s", node,
                        baton_status_name(status));
}

#define TARGET (1u << BATON__TARGET)
#define LEFT   (1u << BATON__LEFT)
#define RIGHT  (1u << BATON__RIGHT)

const baton__kind_info_t baton__kinds[BATON__KIND_COUNT] = {
    [BATON__SEND] = {"send", LEFT, 0, true, issue_send},
    [BATON__RECV] = {"recv", 0, TARGET, true, issue_recv},
    [BATON__REDUCE] = {"reduce", LEFT | RIGHT, TARGET, false, issue_reduce},
    [BATON__COPY] = {"copy", LEFT, TARGET, false, issue_copy},
    [BATON__CALL] = {"call", 0, 0, false, issue_call},
    [BATON__NOP] = {"nop", 0, 0, false, NULL},
    [BATON__ON_START] = {"on_start", 0, 0, false, NULL},
    [BATON__ARMED_RECV] = {"armed_recv", 0, 0, true, issue_armed_recv},
    [BATON__ACTIVATE] = {"activate", 0, 0, true, issue_activate},
};
