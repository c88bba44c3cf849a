/* The processes of a host; see host.h. */
#include "transport/shm/host.h"

#include "base/clock.h"
#include "base/config.h"
#include "base/error.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

/* Buffers may take at most so much of /dev/shm, and so large a part of what is
   left of it: others need room there, too. */
#define MOST_BYTES ((size_t)64 << 20)
#define MOST_PART  8

/* The least time between two looks for another processor. */
#define SPREAD_NS UINT64_C(10000000)

int baton__host_afford(int count, int wanted)
{
    size_t room = baton__share_room() / MOST_PART;
    size_t bytes = room < MOST_BYTES ? room : MOST_BYTES;
    size_t each = bytes / sizeof(baton__host_buffer_t) / (size_t)count;
    return each < (size_t)wanted ? (int)each : wanted;
}

/* ---- layout ----------------------------------------------------------- */

/* The address of `count` elements of `size` bytes at the next page. Without
   memory it only counts the bytes. */
static void *carve(char *memory, size_t *used, size_t count, size_t size)
{
    void *at = memory != NULL ? memory + *used : NULL;
    *used += (count * size + 4095) / 4096 * 4096;
    return at;
}

static size_t lay_out(baton__host_t *host, char *memory)
{
    size_t count = (size_t)host->count;
    size_t used = 0;
    host->doorbell.states =
        carve(memory, &used, count, sizeof(baton__peer_state_t));
    host->tables = carve(memory, &used, count, sizeof(baton__segment_table_t));
    host->freed = carve(memory, &used, 1, sizeof(baton__freed_count_t));
    host->probes = carve(memory, &used, count, sizeof *host->probes);
    host->credits = carve(memory, &used, count * count, sizeof *host->credits);
    host->offers =
        carve(memory, &used, count * BATON__HOST_OFFERS, sizeof *host->offers);
    host->rings = carve(memory, &used, count, sizeof *host->rings);
    host->buffer_memory = carve(memory, &used, count * (size_t)host->buffers,
                                sizeof *host->buffer_memory);
    return used;
}

static baton_status_t map_alone(baton__host_t *host)
{
    host->memory = mmap(NULL, host->bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (host->memory == MAP_FAILED) {
        host->memory = NULL;
        return baton__error(BATON_ERR_SYSTEM, "mmap of %zu bytes: %s",
                            host->bytes, strerror(errno));
    }
    return BATON_OK;
}

/* Opens what belongs to this process. */
static baton_status_t open_own(baton__host_t *host)
{
    int index = host->index;
    size_t limit = (size_t)baton__config_number(BATON__CONFIG_SHM_MEMORY) << 20;
    const baton__peer_state_t *state = &host->doorbell.states[index];
    baton__segments_init(&host->segments, &host->doorbell, &host->tables[index],
                         host->freed, host->count, limit);
    baton_status_t status =
        baton__doorbell_open(&host->doorbell, host->doorbell.states, index);
    if (status == BATON_OK && host->count > 1) {
        status = baton__liveness_open(&host->liveness, host->count);
    }
    if (status == BATON_OK) {
        status = baton__mappings_open(&host->mappings, state, host->tables,
                                      host->freed, host->count);
    }
    if (status != BATON_OK) {
        baton__host_close(host);
        return status;
    }
    host->tables[index].secret = baton__share_random();
    host->probe = state->nonce;
    host->probes[index] = (uint64_t)(uintptr_t)&host->probe;
    return BATON_OK;
}

baton_status_t baton__host_open(baton__host_t *host, const char *name,
                                int count, int index, int buffers, bool create)
{
    *host = (baton__host_t){.count = count,
                            .index = index,
                            .buffers = buffers,
                            .doorbell.socket = -1,
                            .liveness = {.epoll = -1, .own = -1},
                            .mappings.socket = -1};
    host->bytes = lay_out(host, NULL);
    baton_status_t status =
        count == 1 ? map_alone(host)
                   : baton__share_map(name, host->bytes, create, &host->memory);
    if (status != BATON_OK) {
        return status;
    }
    (void)lay_out(host, host->memory);
    return open_own(host);
}

void baton__host_close(baton__host_t *host)
{
    if (host->memory == NULL) {
        return;
    }
    baton__doorbell_disarm(&host->doorbell);
    baton__mappings_close(&host->mappings);
    baton__segments_fini(&host->segments);
    baton__liveness_close(&host->liveness);
    baton__doorbell_close(&host->doorbell);
    (void)munmap(host->memory, host->bytes);
    host->memory = NULL;
}

/* ---- processors -------------------------------------------------------- */

/* Of the processes on a processor only the last one moves. */
void baton__host_spread(baton__host_t *host)
{
    uint16_t on[CPU_SETSIZE] = {0}; /* processes, by processor */
    baton__peer_state_t *states = host->doorbell.states;
    int at = sched_getcpu() % CPU_SETSIZE;
    bool last = at >= 0;
    if (last && atomic_load_explicit(&states[host->index].processor,
                                     memory_order_relaxed) != at) {
        atomic_store_explicit(&states[host->index].processor, at,
                              memory_order_relaxed);
    }
    for (int i = 0; i < host->count && last; i++) {
        int other =
            atomic_load_explicit(&states[i].processor, memory_order_relaxed);
        last = i <= host->index || other != at;
        on[other]++;
    }
    cpu_set_t allowed;
    uint64_t now = last && on[at] > 1 ? baton__clock_ns() : 0;
    if (now == 0 || now - host->spread_ns < SPREAD_NS ||
        sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        return;
    }
    host->spread_ns = now;
    int to = at;
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET((size_t)i, &allowed) && on[i] + (to == at) < on[to]) {
            to = i;
        }
    }
    if (to != at) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET((size_t)to, &set);
        (void)sched_setaffinity(0, sizeof set, &set);
        (void)sched_setaffinity(0, sizeof allowed, &allowed);
        atomic_store_explicit(&states[host->index].processor, to,
                              memory_order_relaxed);
    }
}

/* ---- reading other processes' memory ---------------------------------- */

static ssize_t read_once(const baton__host_t *host, int index, void *target,
                         uint64_t address, size_t bytes)
{
    struct iovec local = {target, bytes};
    struct iovec remote = {(void *)(uintptr_t)address, bytes};
    return process_vm_readv((pid_t)host->doorbell.states[index].process, &local,
                            1, &remote, 1, 0);
}

/* In containers a process may also be known by different numbers. */
bool baton__host_probe(const baton__host_t *host)
{
    bool all = true;
    for (int i = 0; i < host->count && all; i++) {
        uint64_t value = 0;
        all = i == host->index ||
              (read_once(host, i, &value, host->probes[i], sizeof value) ==
                   (ssize_t)sizeof value &&
               value == host->doorbell.states[i].nonce);
    }
    return all;
}

int baton__host_read(const baton__host_t *host, int index, void *target,
                     uint64_t address, size_t bytes)
{
    char *at = target;
    if (index == host->index) {
        memcpy(target, (const void *)(uintptr_t)address, bytes);
        return 0;
    }
    while (bytes > 0) {
        ssize_t got = read_once(host, index, at, address, bytes);
        if (got <= 0) {
            return got < 0 ? errno : EFAULT;
        }
        at += got;
        address += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return 0;
}
