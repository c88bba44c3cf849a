/* Messages of entries; see core.h. */
#include "coll/sparse/core/core.h"

#include <string.h>

#define PADDING UINT32_MAX /* the index of entries that only fill up a list */

void baton__message_init(baton__message_t *message, baton_sparse_t *sparse,
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
    baton__message_init(message, sparse, capacity);
    message->sends = 1;
    message->node = baton_add_send(sparse->schedule, peer, message->view);
    baton_set_length(sparse->schedule, message->node, message->length);
}

void baton__message_recv(baton__message_t *message, baton_sparse_t *sparse,
                         int peer, size_t capacity)
{
    baton__message_init(message, sparse, capacity);
    message->node = baton_add_recv(sparse->schedule, peer, message->view);
    baton_set_length(sparse->schedule, message->node, message->length);
}

char *baton__message_begin(baton__message_t *message, baton_call_t *call)
{
    message->data = baton_call_address(call, message->view);
    return message->data;
}

void baton__message_count(baton_sparse_t *sparse, int sends, size_t bytes)
{
    sparse->counting.messages_sent += (uint64_t)sends;
    sparse->counting.bytes_sent += (uint64_t)sends * bytes;
}

baton_status_t baton__message_end(baton__message_t *message, baton_call_t *call,
                                  size_t bytes)
{
    message->bytes = bytes;
    baton__message_count(message->sparse, message->sends, bytes);
    return baton_call_set_length(call, message->length, bytes);
}

void baton__message_take(baton__message_t *message, baton_call_t *call)
{
    message->data = baton_call_address(call, message->view);
    message->bytes = baton_call_length(call, message->length);
    message->sparse->counting.messages_received++;
    message->sparse->counting.bytes_received += message->bytes;
}

baton_status_t baton__message_put(baton__message_t *message, baton_call_t *call,
                                  baton_entries_t list)
{
    size_t bytes = list.count * message->sparse->entry_bytes;
    char *to = baton__message_begin(message, call);
    if (to != NULL && list.data != NULL && bytes > 0) {
        memcpy(to, list.data, bytes);
    }
    return baton__message_end(message, call, bytes);
}

/* ---- lists in messages ------------------------------------------------- */

void baton__entries_pad(const baton_sparse_t *sparse, char *list, size_t count,
                        size_t all)
{
    memset(list + count * sparse->entry_bytes, PADDING & 0xff,
           (all - count) * sparse->entry_bytes);
}

baton_entries_t baton__entries_unpadded(const baton_sparse_t *sparse,
                                        const char *list, size_t all)
{
    while (all > 0 &&
           baton_entry_index(sparse->dtype, list, all - 1) == PADDING) {
        all--;
    }
    return (baton_entries_t){list, all};
}

size_t baton__entries_within(const baton_sparse_t *sparse, const char *list,
                             size_t most, size_t likely, size_t first,
                             size_t count)
{
    /* If the index is below `first`, the difference wraps around to a large
       number. */
    if (likely > 0 && likely <= most &&
        baton_entry_index(sparse->dtype, list, likely - 1) - first < count) {
        return likely;
    }
    size_t i = 0;
    while (i < most &&
           baton_entry_index(sparse->dtype, list, i) - first < count) {
        i++;
    }
    return i;
}

void baton__entries_join(const baton_sparse_t *sparse, char *to,
                         const void *indices, const void *values,
                         size_t value_step, size_t count)
{
    const char *index = indices, *value = values;
    for (size_t i = 0; i < count; i++) {
        memcpy(to, index + i * sizeof(uint32_t), sizeof(uint32_t));
        memcpy(to + sizeof(uint32_t), value + i * value_step,
               sparse->element_bytes);
        to += sparse->entry_bytes;
    }
}
