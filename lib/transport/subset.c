/* Subsets; see subset.h. */
#include "transport/subset.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/random.h"
#include "transport/around.h"

typedef struct member {
    int root_rank;
    int host; /* its number in the subset */
} member_t;

typedef struct subset {
    baton__around_t around; /* the root's */
    uint64_t channel;
    int size;
    member_t *members;
    int *ranks; /* of each rank of the root: the one here, or -1 */
} subset_t;

/* ---- channels ---------------------------------------------------------- */

/* The bits of a number from one on. */
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

/* Makes a message what the root's poll has found, if it is not yet: what is
   lent is dropped later. */
static baton_message_t *restored(const subset_t *self, baton_message_t *message)
{
    if (baton__subset_channel_of(&message->header) == 0) {
        message->header = marked(self, &message->header);
        message->peer = self->members[message->peer].root_rank;
    }
    return message;
}

/* ---- the root's functions ---------------------------------------------- */

static baton_status_t subset_reserve(void *endpoint, int peer, int64_t sends,
                                     int64_t receives)
{
    const subset_t *self = endpoint;
    return self->around.inner->reserve(
        self->around.endpoint, self->members[peer].root_rank, sends, receives);
}

static baton_status_t subset_send(void *endpoint, baton_token_t token, int peer,
                                  const baton_header_t *header,
                                  const void *data, size_t bytes)
{
    const subset_t *self = endpoint;
    const baton_header_t own = marked(self, header);
    return self->around.inner->send(self->around.endpoint, token,
                                    self->members[peer].root_rank, &own, data,
                                    bytes);
}

static baton_status_t subset_notify(void *endpoint, int peer,
                                    const baton_header_t *header,
                                    const void *data, size_t bytes)
{
    const subset_t *self = endpoint;
    const baton_header_t own = marked(self, header);
    return self->around.inner->notify(self->around.endpoint,
                                      self->members[peer].root_rank, &own, data,
                                      bytes);
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

/* What is lent is not looked at any more, but read and dropped. */
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
                                            self->members[peer].root_rank, &own,
                                            target, bytes);
}

static bool subset_withdraw_receive(void *endpoint, baton_token_t token,
                                    int peer)
{
    const subset_t *self = endpoint;
    return self->around.inner->withdraw_receive(self->around.endpoint, token,
                                                self->members[peer].root_rank);
}

static void subset_inner_lose(void *endpoint, int peer, baton_status_t status,
                              const char *detail)
{
    const subset_t *self = endpoint;
    self->around.inner->lose(self->around.endpoint,
                             self->members[peer].root_rank, status, detail);
}

static void subset_ask(void *endpoint, int peer)
{
    const subset_t *self = endpoint;
    self->around.inner->ask(self->around.endpoint,
                            self->members[peer].root_rank);
}

static int subset_process(const void *endpoint, int rank, const char **host_out)
{
    const subset_t *self = endpoint;
    return self->around.inner->process(self->around.endpoint,
                                       self->members[rank].root_rank, host_out);
}

static int subset_host_of(const void *endpoint, int rank)
{
    const subset_t *self = endpoint;
    return self->members[rank].host;
}

/* ---- its own ----------------------------------------------------------- */

int baton__subset_root_rank(const void *endpoint, int rank)
{
    const subset_t *self = endpoint;
    return self->members[rank].root_rank;
}

int baton__subset_rank(const void *endpoint, int root_rank)
{
    const subset_t *self = endpoint;
    return self->ranks[root_rank];
}

bool baton__has_ended(const baton_group_t *group, int rank)
{
    bool ended =
        group->root != NULL &&
        baton__has_ended(group->root,
                         baton__subset_root_rank(group->endpoint, rank));
    for (uint32_t i = 0; i < group->lost_count; i++) {
        ended |= group->lost[i].peer == rank && group->lost[i].ended;
    }
    return ended;
}

static void subset_close(void *endpoint)
{
    subset_t *self = endpoint;
    baton__free(self->members);
    baton__free(self->ranks);
    baton__free(self);
}

/* ---- opening ----------------------------------------------------------- */

static baton_transport_t table_around(const baton_transport_t *inner)
{
    baton_transport_t table = baton__around(inner);
    table.reserve = subset_reserve;
    table.send = subset_send;
    table.notify = subset_notify;
    table.accept = subset_accept;
    table.drop = subset_drop;
    table.close = subset_close;
    table.lend = inner->lend != NULL ? subset_lend : NULL;
    if (inner->post_receive != NULL) {
        table.post_receive = subset_post_receive;
        table.withdraw_receive = subset_withdraw_receive;
    }
    table.host_of = subset_host_of;
    table.lose = inner->lose != NULL ? subset_inner_lose : NULL;
    table.ask = inner->ask != NULL ? subset_ask : NULL;
    table.process = inner->process != NULL ? subset_process : NULL;
    table.flush = NULL; /* the root's are called */
    table.is_copying = NULL;
    table.takes_device = NULL; /* messages of devices are staged at the root */
    return table;
}

/* False if there is no memory. */
static bool find_hosts(subset_t *self, const baton_group_t *root)
{
    const member_t *members = self->members;
    int *hosts = baton__alloc((size_t)self->size, sizeof *hosts);
    if (hosts == NULL) {
        return false;
    }
    for (int i = 0; i < self->size; i++) {
        int host = baton__group_host(root, members[i].root_rank);
        while (baton__group_host(root, members[hosts[i]].root_rank) != host) {
            hosts[i]++;
        }
    }
    baton__group_number_hosts(&self->around.transport, hosts, self->size);
    for (int i = 0; i < self->size; i++) {
        self->members[i].host = hosts[i];
    }
    baton__free(hosts);
    return true;
}

baton_status_t baton__subset_open(const baton_group_t *root, uint64_t channel,
                                  const int *ranks, int size,
                                  const baton_transport_t **transport_out,
                                  void **endpoint_out)
{
    subset_t *self = baton__alloc(1, sizeof *self);
    if (self == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for a group");
    }
    *self = (subset_t){.around = {.transport = table_around(root->transport),
                                  .inner = root->transport,
                                  .endpoint = root->endpoint},
                       .channel = channel,
                       .size = size};
    self->members = baton__alloc((size_t)size, sizeof *self->members);
    self->ranks = baton__alloc((size_t)root->size, sizeof *self->ranks);
    bool made = self->members != NULL && self->ranks != NULL;
    for (int i = 0; made && i < root->size; i++) {
        self->ranks[i] = -1;
    }
    for (int i = 0; made && i < size; i++) {
        self->members[i].root_rank = ranks[i];
        self->ranks[ranks[i]] = i;
    }
    if (!made || !find_hosts(self, root)) {
        subset_close(self);
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for a group");
    }
    *transport_out = &self->around.transport;
    *endpoint_out = self;
    return BATON_OK;
}
