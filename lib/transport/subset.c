/* Subsets; see subset.h. */
#include "transport/subset.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/random.h"
#include "transport/around.h"

typedef struct subset {
    baton__around_t around; /* passes calls on to the endpoint of the root */
    uint64_t channel;
    int size;
    /* By rank of the subset, the number of the rank's host in the subset. */
    int *hosts;
    /* By rank of the root: the rank's number in the subset, or -1. */
    int *ranks;
} subset_t;

/* ---- channels ---------------------------------------------------------- */

/* Returns `count` bits of a number, from bit `from` on. */
static uint64_t bits(uint64_t number, int from, int count)
{
    return number >> from & ((UINT64_C(1) << count) - 1);
}

uint64_t baton__subset_channel(uint64_t channel, uint64_t key)
{
    uint64_t mixed = bits(baton__mix(baton__mix(channel) + key), 0,
                          BATON__CHANNEL_KIND_BITS + BATON__CHANNEL_TAG_BITS +
                              BATON__CHANNEL_EPOCH_BITS);
    return bits(mixed, 0, BATON__CHANNEL_KIND_BITS) != 0 ? mixed : mixed + 1;
}

static baton_header_t marked(const subset_t *self, const baton_header_t *plain)
{
    baton_header_t header = *plain;
    const int tag_from = BATON__CHANNEL_KIND_BITS;
    const int epoch_from = tag_from + BATON__CHANNEL_TAG_BITS;
    header.kind |=
        (uint16_t)(bits(self->channel, 0, tag_from) << BATON__CHANNEL_SHIFT);
    header.tag |=
        (uint32_t)bits(self->channel, tag_from, BATON__CHANNEL_TAG_BITS)
        << BATON__TAG_BITS;
    header.epoch |= self->channel >> epoch_from
                                         << (64 - BATON__CHANNEL_EPOCH_BITS);
    return header;
}

baton_header_t baton__subset_header(const baton_header_t *header)
{
    baton_header_t plain = *header;
    plain.kind &= (uint16_t) ~(((1U << BATON__CHANNEL_KIND_BITS) - 1)
                               << BATON__CHANNEL_SHIFT);
    plain.tag = (uint32_t)bits(plain.tag, 0, BATON__TAG_BITS);
    plain.epoch = bits(plain.epoch, 0, 64 - BATON__CHANNEL_EPOCH_BITS);
    return plain;
}

void baton__subset_take(const void *endpoint, baton_message_t *message)
{
    const subset_t *self = endpoint;
    message->header = baton__subset_header(&message->header);
    message->peer = self->ranks[message->peer];
}

/* Undoes baton__subset_take, unless an earlier call has done so: subset_lend
   restores a message, which the engine passes to subset_drop or subset_accept
   later. */
static baton_message_t *restored(const subset_t *self, baton_message_t *message)
{
    if (baton__subset_channel_of(&message->header) == 0) {
        message->header = marked(self, &message->header);
        message->peer = self->around.inner_ranks[message->peer];
    }
    return message;
}

/* ---- functions that call the root's ------------------------------------ */

static baton_status_t subset_send(void *endpoint, baton_token_t token, int peer,
                                  const baton_header_t *header,
                                  const void *data, size_t bytes)
{
    const subset_t *self = endpoint;
    const baton_header_t own = marked(self, header);
    return self->around.inner->send(self->around.endpoint, token,
                                    self->around.inner_ranks[peer], &own, data,
                                    bytes);
}

static baton_status_t subset_notify(void *endpoint, int peer,
                                    const baton_header_t *header,
                                    const void *data, size_t bytes)
{
    const subset_t *self = endpoint;
    const baton_header_t own = marked(self, header);
    return self->around.inner->notify(self->around.endpoint,
                                      self->around.inner_ranks[peer], &own,
                                      data, bytes);
}

static baton_status_t subset_accept(void *endpoint, baton_message_t *message,
                                    baton_token_t token, void *target)
{
    const subset_t *self = endpoint;
    return self->around.inner->accept(self->around.endpoint,
                                      restored(self, message), token, target);
}

static void subset_drop(void *endpoint, baton_message_t *message)
{
    const subset_t *self = endpoint;
    self->around.inner->drop(self->around.endpoint, restored(self, message));
}

/* Restores the header and peer that the message has in the root, and does not
   convert them back afterwards: the engine does not look at the header of a
   message after it has called lend for it. */
static baton_status_t subset_lend(void *endpoint, baton_message_t *message)
{
    const subset_t *self = endpoint;
    return self->around.inner->lend(self->around.endpoint,
                                    restored(self, message));
}

static bool subset_post_receive(void *endpoint, baton_token_t token, int peer,
                                const baton_header_t *header, void *target,
                                size_t bytes)
{
    const subset_t *self = endpoint;
    const baton_header_t own = marked(self, header);
    return self->around.inner->post_receive(self->around.endpoint, token,
                                            self->around.inner_ranks[peer],
                                            &own, target, bytes);
}

static int subset_host_of(const void *endpoint, int rank)
{
    const subset_t *self = endpoint;
    return self->hosts[rank];
}

/* ---- the subset's own functions ---------------------------------------- */

int baton__subset_root_rank(const void *endpoint, int rank)
{
    const subset_t *self = endpoint;
    return self->around.inner_ranks[rank];
}

int baton__subset_rank(const void *endpoint, int root_rank)
{
    const subset_t *self = endpoint;
    return self->ranks[root_rank];
}

static void subset_close(void *endpoint)
{
    subset_t *self = endpoint;
    baton__free(self->around.inner_ranks);
    baton__free(self->hosts);
    baton__free(self->ranks);
    baton__free(self);
}

/* ---- opening ----------------------------------------------------------- */

static baton_transport_t subset_table_around(const baton_transport_t *inner)
{
    baton_transport_t table = baton__around(inner);
    table.send = subset_send;
    table.notify = subset_notify;
    table.accept = subset_accept;
    table.drop = subset_drop;
    table.close = subset_close;
    table.lend = inner->lend != NULL ? subset_lend : NULL;
    table.post_receive =
        inner->post_receive != NULL ? subset_post_receive : NULL;
    table.host_of = subset_host_of;
    /* The engine calls flush and is_copying of the root, which serve its
       subsets, too. */
    table.flush = NULL;
    table.is_copying = NULL;
    /* Messages of device memory are staged by the root's endpoint. */
    table.takes_device = NULL;
    return table;
}

/* Numbers the hosts that the subset's ranks are on. */
static void find_hosts(subset_t *self, const baton_group_t *root)
{
    const int *ranks = self->around.inner_ranks;
    int *hosts = self->hosts;
    for (int i = 0; i < self->size; i++) {
        int host = baton__group_host(root, ranks[i]);
        while (baton__group_host(root, ranks[hosts[i]]) != host) {
            hosts[i]++;
        }
    }
    baton__group_number_hosts(&self->around.transport, hosts, self->size);
}

baton_status_t baton__subset_open(const baton_group_t *of, uint64_t channel,
                                  const int *ranks, int size,
                                  const baton_transport_t **transport_out,
                                  void **endpoint_out)
{
    const baton_group_t *root = of->root != NULL ? of->root : of;
    subset_t *self = baton__alloc(1, sizeof *self);
    if (self == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for a group");
    }
    *self =
        (subset_t){.around = {.transport = subset_table_around(root->transport),
                              .inner = root->transport,
                              .endpoint = root->endpoint},
                   .channel = channel,
                   .size = size};
    self->around.inner_ranks = baton__alloc((size_t)size, sizeof(int));
    self->hosts = baton__alloc((size_t)size, sizeof *self->hosts);
    self->ranks = baton__alloc((size_t)root->size, sizeof *self->ranks);
    if (self->around.inner_ranks == NULL || self->hosts == NULL ||
        self->ranks == NULL) {
        subset_close(self);
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for a group");
    }
    for (int i = 0; i < root->size; i++) {
        self->ranks[i] = -1;
    }
    for (int i = 0; i < size; i++) {
        int rank = of == root ? ranks[i]
                              : baton__subset_root_rank(of->endpoint, ranks[i]);
        self->around.inner_ranks[i] = rank;
        self->ranks[rank] = i;
    }
    find_hosts(self, root);
    *transport_out = &self->around.transport;
    *endpoint_out = self;
    return BATON_OK;
}
