/* The table of waiting messages and the pool of slots of a loop rank. */
#include "transport/loop_rank.h"

#include "base/alloc.h"
#include "base/error.h"

/* ---- the table of a rank, under its mutex ----------------------------- */

static baton__loop_list_t *bucket_of(baton__loop_rank_t *rank, int source,
                                     uint32_t tag)
{
    uint64_t key = (uint64_t)(uint32_t)source << 32 | tag;
    uint64_t hash = key * UINT64_C(0x9E3779B97F4A7C15);
    /* By the upper bits, which depend on all of the key. */
    return &rank->buckets[(hash >> 32) * rank->bucket_count >> 32];
}

/* The message that came first with this key, or NULL. */
baton__loop_message_t *baton__loop_table_find(baton__loop_rank_t *rank,
                                              int source, uint32_t tag)
{
    baton__loop_message_t *message = bucket_of(rank, source, tag)->head;
    while (message && (message->tag != tag || message->source != source)) {
        message = message->next;
    }
    return message;
}

void baton__loop_table_append(baton__loop_rank_t *rank,
                              baton__loop_message_t *message)
{
    baton__loop_list_t *bucket = bucket_of(rank, message->source, message->tag);
    message->next = NULL;
    message->previous = bucket->tail;
    if (bucket->tail) {
        bucket->tail->next = message;
    } else {
        bucket->head = message;
    }
    bucket->tail = message;
}

void baton__loop_table_remove(baton__loop_rank_t *rank,
                              baton__loop_message_t *message)
{
    baton__loop_list_t *bucket = bucket_of(rank, message->source, message->tag);
    if (message->previous) {
        message->previous->next = message->next;
    } else {
        bucket->head = message->next;
    }
    if (message->next) {
        message->next->previous = message->previous;
    } else {
        bucket->tail = message->previous;
    }
}

/* Messages of one key stay in order: they all come from one old bucket. */
static baton_status_t table_grow(baton__loop_rank_t *rank, size_t bucket_count)
{
    baton__loop_list_t *buckets = baton__alloc(bucket_count, sizeof *buckets);
    if (!buckets) {
        return baton__error(BATON_ERR_NO_MEMORY,
                            "loop: no memory to match messages of rank %d",
                            rank->index);
    }
    pthread_mutex_lock(&rank->mutex);
    baton__loop_list_t *old = rank->buckets;
    size_t old_count = rank->bucket_count;
    rank->buckets = buckets;
    rank->bucket_count = bucket_count;
    for (size_t i = 0; i < old_count; i++) {
        baton__loop_message_t *next;
        for (baton__loop_message_t *message = old[i].head; message;
             message = next) {
            next = message->next;
            baton__loop_table_append(rank, message);
        }
    }
    pthread_mutex_unlock(&rank->mutex);
    baton__free(old);
    return BATON_OK;
}

/* ---- slots ------------------------------------------------------------ */

baton__loop_message_t *baton__loop_take_slot(baton__loop_rank_t *rank)
{
    baton__loop_message_t *slot = rank->slots;
    if (slot) {
        rank->slots = slot->next;
    }
    return slot;
}

void baton__loop_give_slot(baton__loop_rank_t *rank,
                           baton__loop_message_t *slot)
{
    slot->next = rank->slots;
    rank->slots = slot;
}

baton__loop_message_t *baton__loop_take_eager(baton__loop_rank_t *rank)
{
    if (!rank->eagers) {
        rank->eagers = atomic_exchange_explicit(&rank->eager_back, NULL,
                                                memory_order_acquire);
    }
    baton__loop_message_t *eager = rank->eagers;
    if (eager) {
        rank->eagers = eager->next;
    }
    return eager;
}

/* From any thread. Nobody pops single ones, so a stale head does no harm. */
void baton__loop_give_eager(baton__loop_message_t *eager)
{
    _Atomic(baton__loop_message_t *) *back = &eager->owner->eager_back;
    baton__loop_message_t *head =
        atomic_load_explicit(back, memory_order_relaxed);
    do {
        eager->next = head;
    } while (!atomic_compare_exchange_weak_explicit(
        back, &head, eager, memory_order_release, memory_order_relaxed));
}

static baton_status_t add_slab(baton__loop_rank_t *rank, size_t count)
{
    size_t eager_count = BATON__LOOP_EAGER_MAX - rank->eager_capacity;
    eager_count = count < eager_count ? count : eager_count;
    baton__loop_slab_t *slab = baton__alloc(1, sizeof *slab);
    baton__loop_message_t *slots = baton__alloc(count, sizeof *slots);
    baton__loop_eager_t *eagers = baton__alloc(eager_count, sizeof *eagers);
    if (!slab || !slots || !eagers) {
        baton__free(slab);
        baton__free(slots);
        baton__free(eagers);
        return baton__error(BATON_ERR_NO_MEMORY,
                            "loop: no memory for %zu more messages of rank %d",
                            count, rank->index);
    }
    *slab = (baton__loop_slab_t){rank->slabs, slots, eagers, count};
    rank->slabs = slab;
    rank->capacity += count;
    rank->eager_capacity += eager_count;
    for (size_t i = 0; i < count; i++) {
        slots[i].owner = rank;
        baton__loop_give_slot(rank, &slots[i]);
    }
    for (size_t i = 0; i < eager_count; i++) {
        eagers[i].message.owner = rank;
        eagers[i].message.kind = BATON__LOOP_EAGER;
        eagers[i].message.data.source = eagers[i].payload;
        baton__loop_give_eager(&eagers[i].message);
    }
    return BATON_OK;
}

/* Slabs double the pool, so that there are few of them. */
baton_status_t baton__loop_grow(baton__loop_rank_t *rank, size_t messages)
{
    baton_status_t status = BATON_OK;
    if (messages > rank->capacity) {
        size_t count = messages - rank->capacity;
        count = count < rank->capacity ? rank->capacity : count;
        count = count < BATON__LOOP_SLAB_MIN ? BATON__LOOP_SLAB_MIN : count;
        status = add_slab(rank, count);
    }
    size_t bucket_count = rank->bucket_count;
    while (bucket_count < messages) {
        bucket_count *= 2;
    }
    if (!status && bucket_count != rank->bucket_count) {
        status = table_grow(rank, bucket_count);
    }
    return status;
}

void baton__loop_free(baton__loop_rank_t *rank)
{
    while (rank->slabs) {
        baton__loop_slab_t *slab = rank->slabs;
        rank->slabs = slab->next;
        baton__free(slab->messages);
        baton__free(slab->eagers);
        baton__free(slab);
    }
    baton__free(rank->buckets);
}
