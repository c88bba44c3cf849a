#include "mpi/handles.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

static _Atomic bool any; /* at least one handle has been recorded so far */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static baton__mpi_known_t *all[256]; /* lists, by a hash of the handle */

static baton__mpi_known_t **bucket_of(const void *handle)
{
    return &all[((uintptr_t)handle >> 6 ^ (uintptr_t)handle >> 14) % 256];
}

void baton__mpi_know(baton__mpi_known_t *known, const void *handle)
{
    baton__mpi_known_t **bucket = bucket_of(handle);
    known->handle = handle;
    (void)pthread_mutex_lock(&lock);
    known->next = *bucket;
    *bucket = known;
    (void)pthread_mutex_unlock(&lock);
    atomic_store_explicit(&any, true, memory_order_release);
}

baton__mpi_known_t *baton__mpi_known(const void *handle, bool forgets)
{
    if (!atomic_load_explicit(&any, memory_order_acquire)) {
        return NULL;
    }
    baton__mpi_known_t **at = bucket_of(handle);
    (void)pthread_mutex_lock(&lock);
    while (*at != NULL && (*at)->handle != handle) {
        at = &(*at)->next;
    }
    baton__mpi_known_t *known = *at;
    if (known != NULL && forgets) {
        *at = known->next;
    }
    (void)pthread_mutex_unlock(&lock);
    return known;
}
