/* Messages of entries; see sparse.h. */
#include "coll/sparse/sparse.h"

static void init(baton__message_t *message, baton_sparse_t *sparse,
                 size_t capacity)
{
    baton_schedule_t *s = sparse->schedule;
    *message = (baton__message_t){
        .sparse = sparse,
        .view = baton_view(baton_buffer_scratch(s, capacity), 0, capacity),
        .length = baton_add_length(s),
    };
}

void baton__message_send(baton__message_t *message, baton_sparse_t *sparse,
                         int peer, size_t capacity)
{
    init(message, sparse, capacity);
    message->node = baton_add_send(sparse->schedule, peer, message->view);
    baton_set_length(sparse->schedule, message->node, message->length);
}

void baton__message_recv(baton__message_t *message, baton_sparse_t *sparse,
                         int peer, size_t capacity)
{
    init(message, sparse, capacity);
    message->node = baton_add_recv(sparse->schedule, peer, message->view);
    baton_set_length(sparse->schedule, message->node, message->length);
}

char *baton__message_begin(baton__message_t *message, baton_call_t *call)
{
    message->data = baton_call_address(call, message->view);
    return message->data;
}

void baton__message_count(baton_sparse_t *sparse, size_t bytes)
{
    sparse->counting.messages_sent++;
    sparse->counting.bytes_sent += bytes;
}

baton_status_t baton__message_end(baton__message_t *message, baton_call_t *call,
                                  size_t bytes)
{
    message->bytes = bytes;
    baton__message_count(message->sparse, bytes);
    return baton_call_set_length(call, message->length, bytes);
}

void baton__message_take(baton__message_t *message, baton_call_t *call)
{
    message->data = baton_call_address(call, message->view);
    message->bytes = baton_call_length(call, message->length);
    message->sparse->counting.messages_received++;
    message->sparse->counting.bytes_received += message->bytes;
}
