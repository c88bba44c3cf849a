/* The MPI transport's pools: records of sends, and of messages that have
   arrived.

   There is one record for each reserved send. For messages that arrive there is
   one record for each reserved receive, because a peer may send that many
   messages without a credit; one for each credit granted to a peer; and one for
   each notice that a peer may send. So a record is always free for a message
   that arrives, with one exception: a peer may still send to a schedule that
   was destroyed here. Such a message may have to wait until the engine has
   dropped another one. */
#include "transport/mpi/endpoint.h"

#include "base/alloc.h"
#include "base/error.h"

#include <inttypes.h>
#include <limits.h>

typedef struct baton__slab {
    struct baton__slab *next;
    baton__send_t *sends;
    baton__record_t records[];
} baton__slab_t;

enum { LEAST = 16 };

/* Returns the number of records to add to `count` so that there are at least
   `wanted`. A result other than 0 is at least `count`, so that pools grow
   rarely. */
static uint32_t growth(uint32_t count, int64_t wanted)
{
    if (wanted <= count) {
        return 0;
    }
    uint32_t more = (uint32_t)wanted - count;
    more = more < count ? count : more;
    return more < LEAST ? LEAST : more;
}

static baton_status_t pool_grow(baton__mpi_t *mpi, uint32_t sends,
                                uint32_t records)
{
    baton__send_t *new_sends = baton__alloc(sends, sizeof *new_sends);
    baton__slab_t *slab =
        baton__alloc(1, sizeof *slab + records * sizeof *slab->records);
    if (slab == NULL || new_sends == NULL ||
        !baton__extend(&mpi->sends, mpi->send_count, mpi->send_count + sends,
                       sizeof *mpi->sends) ||
        !baton__net_reserve(&mpi->net, mpi->send_count + sends +
                                           mpi->record_count + records)) {
        baton__free(new_sends);
        baton__free(slab);
        return baton__error(BATON_ERR_NO_MEMORY,
                            "mpi: no memory for %u more sends and %u more "
                            "receives in flight",
                            sends, records);
    }
    slab->sends = new_sends;
    slab->next = mpi->slabs;
    mpi->slabs = slab;
    /* The new sends go after the free ones, so that low ids are used first:
       only sends with low ids have a word for an offer in shared memory. */
    baton__send_t **end = &mpi->free_sends;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    for (uint32_t i = 0; i < sends; i++) {
        slab->sends[i].id = mpi->send_count + i;
        mpi->sends[slab->sends[i].id] = &slab->sends[i];
        *end = &slab->sends[i];
        end = &slab->sends[i].next;
    }
    mpi->in_use += records;
    for (uint32_t i = records; i-- > 0;) {
        baton__mpi_give_record(mpi, &slab->records[i]);
    }
    mpi->send_count += sends;
    mpi->is_hashed = false;
    mpi->record_count += records;
    return BATON_OK;
}

/* Grants the peer its first credits: a window of messages, which this rank need
   not answer. */
static void grant_window(baton__mpi_t *mpi, baton__peer_t *peer)
{
    peer->contacted = true;
    if (peer->local >= 0) {
        baton__credit_t *credit =
            baton__host_credit(&mpi->host, mpi->host.index, peer->local);
        /* Pairs with the load in has_credit, send.c. */
        atomic_fetch_add_explicit(&credit->messages, mpi->window,
                                  memory_order_release);
    } else {
        peer->messages.granted += mpi->window;
    }
}

static baton_status_t pool_ensure(baton__mpi_t *mpi, int64_t sends,
                                  int64_t records)
{
    if (sends > INT_MAX / 4 || records > INT_MAX / 4) {
        int64_t all = sends + records;
        return baton__error(BATON_ERR_NO_MEMORY,
                            "mpi: %" PRId64 " messages in flight are too many",
                            all);
    }
    uint32_t more_sends = growth(mpi->send_count, sends);
    uint32_t more_records = growth(mpi->record_count, records);
    return more_sends + more_records > 0
               ? pool_grow(mpi, more_sends, more_records)
               : BATON_OK;
}

baton_status_t baton__mpi_reserve(void *endpoint, int peer, int64_t sends,
                                  int64_t receives)
{
    baton__mpi_t *mpi = endpoint;
    baton__peer_t *other = &mpi->peers[peer];
    int64_t all_sends = mpi->reserved_sends + sends;
    int64_t all_records = mpi->reserved_records + receives +
                          (other->contacted ? 0 : (int64_t)mpi->window);
    baton_status_t status = pool_ensure(mpi, all_sends, all_records);
    if (status == BATON_OK && !other->contacted) {
        status = baton__net_reserve_bodies(mpi, other);
    }
    if (status != BATON_OK) {
        return status;
    }
    mpi->reserved_sends = all_sends;
    mpi->reserved_records = all_records;
    if (!other->contacted) {
        grant_window(mpi, other);
        baton__net_contact(mpi, other);
    }
    return BATON_OK;
}

baton_status_t baton__mpi_reserve_notices(baton__mpi_t *mpi)
{
    int64_t records = (int64_t)mpi->size * BATON__MPI_NOTICES;
    baton_status_t status = pool_ensure(mpi, 0, records);
    if (status == BATON_OK) {
        mpi->reserved_records = records;
    }
    return status;
}

void baton__mpi_free_pools(baton__mpi_t *mpi)
{
    while (mpi->slabs != NULL) {
        baton__slab_t *slab = mpi->slabs;
        mpi->slabs = slab->next;
        baton__free(slab->sends);
        baton__free(slab);
    }
    baton__free(mpi->sends);
}
