/* Flags of a device; see device.h. */
#include "transport/device.h"

#include "base/alloc.h"
#include "base/thread.h"

#include <assert.h>

/* LINE is the number of bytes from one flag's word to the next, and FLAGS the
   number of flags in a piece of pinned memory. */
enum { LINE = 64, FLAGS = 64 };

typedef struct baton__flags {
    struct baton__flags *next;
    char *memory;
    baton__flag_t of[FLAGS];
} piece_t;

_Static_assert(sizeof(_Atomic uint64_t) == sizeof(uint64_t),
               "streams write the word as a plain integer");

/* Allocates a piece of unused flags, unless there is no memory. */
static void transport_device_add_piece(baton__device_t *device)
{
    assert(baton__thread_has_locked(&device->lock));
    void *memory = NULL;
    piece_t *piece = baton__alloc(1, sizeof *piece);
    if (piece == NULL ||
        device->port.allocate(device->device, BATON_MEMORY_HOST,
                              (size_t)LINE * FLAGS, &memory) != BATON_OK) {
        baton__free(piece);
        return;
    }
    piece->memory = memory;
    piece->next = device->all;
    device->all = piece;
    for (int i = 0; i < FLAGS; i++) {
        baton__flag_t *flag = &piece->of[i];
        flag->word = (void *)(piece->memory + (ptrdiff_t)i * LINE);
        atomic_init((_Atomic uint64_t *)flag->word, 0);
        flag->next = device->unused;
        device->unused = flag;
    }
}

baton__flag_t *baton__flag_take(baton__device_t *device)
{
    (void)pthread_mutex_lock(&device->lock);
    if (device->unused == NULL) {
        transport_device_add_piece(device);
    }
    baton__flag_t *flag = device->unused;
    if (flag != NULL) {
        device->unused = flag->next;
    }
    (void)pthread_mutex_unlock(&device->lock);
    return flag;
}

void baton__flag_give(baton__device_t *device, baton__flag_t *flag,
                      uint64_t value)
{
    flag->value = value;
    baton__flag_raise(flag, value);
    (void)pthread_mutex_lock(&device->lock);
    flag->next = device->unused;
    device->unused = flag;
    (void)pthread_mutex_unlock(&device->lock);
}

/* Stores with release, so that a stream that sees the value also sees all
   earlier writes of the host. */
void baton__flag_raise(const baton__flag_t *flag, uint64_t value)
{
    _Atomic uint64_t *word = (_Atomic uint64_t *)flag->word;
    if (atomic_load_explicit(word, memory_order_relaxed) < value) {
        atomic_store_explicit(word, value, memory_order_release);
    }
}

void baton__flags_free(baton__device_t *device)
{
    while (device->all != NULL) {
        piece_t *piece = device->all;
        device->all = piece->next;
        for (int i = 0; i < FLAGS; i++) {
            /* The streams compare by the signed difference of the two values.
               INT64_MAX makes all waiting streams go on; a larger value would
               not. */
            baton__flag_raise(&piece->of[i], INT64_MAX);
        }
        device->port.release(device->device, BATON_MEMORY_HOST, piece->memory);
        baton__free(piece);
    }
    device->unused = NULL;
}
