/* Slots; see slots.h. */
#include "transport/slots.h"

#include "base/alloc.h"
#include "base/config.h"
#include "base/error.h"
#include "transport/share.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

/* What the slots of a host may take of /dev/shm, where others need room, too:
   so much, and so large a part of what is left. */
#define MOST_BYTES ((size_t)64 << 20)
#define MOST_PART  8

typedef struct slot {
    /* Set by its owner alone; cleared with release by who read it last. */
    _Alignas(64) _Atomic uint32_t full;
    size_t bytes;
    _Alignas(64) char data[BATON__SLOT_BYTES];
} slot_t;

static_assert(sizeof(slot_t) % 4096 == 0, "whole pages");

struct baton__slots {
    slot_t *slots; /* [count][each] */
    int count;
    int index;
    int each;
};

static size_t bytes_of(const baton__slots_t *slots)
{
    return (size_t)slots->count * (size_t)slots->each * sizeof(slot_t);
}

static slot_t *slot_of(const baton__slots_t *slots, int index, int slot)
{
    return &slots->slots[(size_t)index * (size_t)slots->each + (size_t)slot];
}

int baton__slots_afford(int count)
{
    size_t room = baton__share_room() / MOST_PART;
    size_t bytes = room < MOST_BYTES ? room : MOST_BYTES;
    size_t each = bytes / sizeof(slot_t) / (size_t)count;
    size_t wanted = (size_t)baton__config_number(BATON__CONFIG_SLOTS);
    return (int)(each < wanted ? each : wanted);
}

baton_status_t baton__slots_open(const char *name, int count, int index,
                                 int each, bool create, baton__slots_t **out)
{
    baton__slots_t *slots = baton__alloc(1, sizeof *slots);
    if (!slots) {
        return baton__error(BATON_ERR_NO_MEMORY, "slots: out of memory");
    }
    slots->count = count;
    slots->index = index;
    slots->each = each;
    void *memory = NULL;
    baton_status_t status =
        baton__share_map(name, bytes_of(slots), create, &memory);
    if (status) {
        baton__free(slots);
        return status;
    }
    slots->slots = memory;
    *out = slots;
    return BATON_OK;
}

void baton__slots_close(baton__slots_t *slots)
{
    if (slots) {
        baton__share_unmap(slots->slots, bytes_of(slots));
        baton__free(slots);
    }
}

int baton__slots_put(baton__slots_t *slots, const void *data, size_t bytes)
{
    for (int i = 0; i < slots->each; i++) {
        slot_t *slot = slot_of(slots, slots->index, i);
        /* Pairs with the release in clear: it has been read. */
        if (atomic_load_explicit(&slot->full, memory_order_acquire) == 0) {
            atomic_store_explicit(&slot->full, 1, memory_order_relaxed);
            slot->bytes = bytes;
            memcpy(slot->data, data, bytes);
            return i;
        }
    }
    return -1;
}

void baton__slots_clear(baton__slots_t *slots, int index, int slot)
{
    atomic_store_explicit(&slot_of(slots, index, slot)->full, 0,
                          memory_order_release);
}

size_t baton__slots_take(baton__slots_t *slots, int index, int slot,
                         void *memory, size_t room)
{
    const slot_t *from = slot_of(slots, index, slot);
    /* Where another thread has received the announcement inside MPI. */
    atomic_thread_fence(memory_order_acquire);
    size_t bytes = from->bytes;
    if (bytes <= room) {
        memcpy(memory, from->data, bytes);
    }
    baton__slots_clear(slots, index, slot);
    return bytes;
}
