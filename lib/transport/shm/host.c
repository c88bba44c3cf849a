/* The processes of a host; see host.h. */
#include "transport/shm/host.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/descriptor.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>

/* Buffers may take at most MOST_BYTES of /dev/shm, and at most 1 / MOST_PART of
   its free space: other programs need space there, too. */
#define MOST_BYTES ((size_t)64 << 20)
#define MOST_PART  8

/* The most cells that all rings to a process have together. If there are so
   many rings that BATON__RING_LEAST_CELLS cells for each exceed this number,
   the rings have more cells together. */
#define INBOX_CELLS 2048

/* The minimum interval between two searches for another processor. */
#define SPREAD_NS UINT64_C(10000000)

int baton__host_afford(int count, int wanted)
{
    size_t part = baton__share_free_bytes() / MOST_PART;
    size_t bytes = part < MOST_BYTES ? part : MOST_BYTES;
    size_t each = bytes / sizeof(baton__host_buffer_t) / (size_t)count;
    return each < (size_t)wanted ? (int)each : wanted;
}

/* ---- layout ----------------------------------------------------------- */

/* Returns the address memory + *used for an array of `count` elements of `size`
   bytes, and advances *used to the next page after the array. If `memory` is
   NULL, only advances *used. */
static void *host_carve(char *memory, size_t *used, size_t count, size_t size)
{
    void *at = memory != NULL ? memory + *used : NULL;
    *used += (count * size + 4095) / 4096 * 4096;
    return at;
}

/* Returns the number of cells of a ring: the more rings lead to a process, the
   shorter each ring is. */
static uint32_t ring_cells(int count)
{
    uint32_t cells = BATON__RING_MOST_CELLS;
    while (cells > BATON__RING_LEAST_CELLS &&
           cells * (uint32_t)count > INBOX_CELLS) {
        cells /= 2;
    }
    return cells;
}

/* Returns the bytes of an inbox's counts, padded to whole cache lines. Returns
   0 if the counts are in the process's state (doorbell.h). */
static size_t row_of_counts(const baton__host_t *host)
{
    return host->count <= BATON__STATE_COUNTS
               ? 0
               : ((size_t)host->count + 63) / 64 * 64;
}

static size_t host_lay_out(baton__host_t *host, char *memory)
{
    size_t count = (size_t)host->count;
    size_t cells = ring_cells(host->count);
    size_t used = 0;
    host->boards = host_carve(memory, &used, count, BATON_BOARD_BYTES);
    host->doorbell.states =
        host_carve(memory, &used, count, sizeof(baton__peer_state_t));
    host->tables =
        host_carve(memory, &used, count, sizeof(baton__segment_table_t));
    host->freed = host_carve(memory, &used, 1, sizeof(baton__freed_count_t));
    host->probes = host_carve(memory, &used, count, sizeof *host->probes);
    host->outcome = host_carve(memory, &used, 2, sizeof *host->outcome);
    host->refused = host->outcome + 1;
    host->credits = host_carve(memory, &used, count * baton__host_row(host),
                               sizeof *host->credits);
    host->processors =
        host_carve(memory, &used, count, sizeof *host->processors);
    host->losses =
        host_carve(memory, &used, count * count, sizeof *host->losses);
    host->counts = host_carve(memory, &used, count * row_of_counts(host),
                              sizeof *host->counts);
    host->offers = host_carve(memory, &used, count * BATON__HOST_OFFERS,
                              sizeof *host->offers);
    host->posts = host_carve(memory, &used, count * count * BATON__HOST_POSTS,
                             sizeof *host->posts);
    host->cells =
        host_carve(memory, &used, count * count * BATON__RING_STRIDE(cells),
                   sizeof *host->cells);
    host->buffer_memory =
        host_carve(memory, &used, count * (size_t)host->buffers,
                   sizeof *host->buffer_memory);
    return used;
}

bool baton__host_reserve(baton__host_t *host, int buffer)
{
    if (buffer == host->reserved && buffer < host->usable) {
        baton__host_buffer_t *memory =
            baton__host_buffer(host, host->index, (uint32_t)buffer);
        bool done = baton__share_reserve(memory, sizeof *memory);
        host->reserved += done;
        host->usable = done ? host->usable : buffer;
    }
    return buffer < host->reserved;
}

bool baton__host_decide(baton__host_t *host, bool outcome)
{
    uint32_t before = 2 * host->decided | 1;
    uint32_t word = 2 * ++host->decided | outcome;
    uint32_t seen = atomic_load_explicit(host->outcome, memory_order_relaxed);
    while (seen <= before && !atomic_compare_exchange_weak_explicit(
                                 host->outcome, &seen, word,
                                 memory_order_relaxed, memory_order_relaxed)) {
    }
    return seen <= before ? outcome : seen & 1;
}

bool baton__host_has_agreed(const baton__host_t *host)
{
    uint32_t seen = atomic_load_explicit(host->outcome, memory_order_acquire);
    return seen > (2 * host->decided | 1) && (seen & 1) != 0;
}

static _Atomic uint32_t *loss_between(const baton__host_t *host, int other)
{
    const bool lower = host->index < other;
    const size_t row = (size_t)(lower ? host->index : other);
    const size_t column = (size_t)(lower ? other : host->index);
    return &host->losses[row * (size_t)host->count + column];
}

bool baton__host_lose(const baton__host_t *host, int other)
{
    uint32_t lost = 0;
    (void)atomic_compare_exchange_strong_explicit(
        loss_between(host, other), &lost, (uint32_t)other + 1,
        memory_order_relaxed, memory_order_relaxed);
    /* Pairs with the fence in baton__host_is_lost_to: a peer that reads what
       this process writes to its vectors from now on then also sees the loss,
       and does not take what it has read for a message. */
    atomic_thread_fence(memory_order_seq_cst);
    return lost == (uint32_t)host->index + 1;
}

bool baton__host_is_lost_to(const baton__host_t *host, int other)
{
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(loss_between(host, other),
                                memory_order_relaxed) ==
           (uint32_t)host->index + 1;
}

static _Atomic uint8_t *counts_of(const baton__host_t *host, int index)
{
    size_t row = row_of_counts(host);
    return row == 0 ? host->doorbell.states[index].counts
                    : &host->counts[(size_t)index * row];
}

static baton__cell_t *cells_of(const baton__host_t *host, int to, int from)
{
    size_t ring = (size_t)to * (size_t)host->count + (size_t)from;
    return &host->cells[ring * BATON__RING_STRIDE(ring_cells(host->count))];
}

baton__ring_t baton__host_ring(const baton__host_t *host, int to)
{
    return (baton__ring_t){.cells = cells_of(host, to, host->index),
                           .credit = baton__host_credit(host, to, host->index),
                           .count = &counts_of(host, to)[host->index],
                           .size = ring_cells(host->count)};
}

static baton_status_t open_inbox(baton__host_t *host)
{
    int index = host->index;
    host->inbox = (baton__inbox_t){
        .cells = cells_of(host, index, 0),
        .credits = baton__host_credit(host, index, 0),
        .counts = counts_of(host, index),
        .taken = baton__alloc((size_t)host->count, sizeof *host->inbox.taken),
        .producers = host->count,
        .size = ring_cells(host->count)};
    host->posted = baton__alloc((size_t)host->count * BATON__HOST_POSTS,
                                sizeof *host->posted);
    return host->inbox.taken != NULL && host->posted != NULL
               ? BATON_OK
               : baton__error(BATON_ERR_NO_MEMORY,
                              "no memory for an inbox of %d processes",
                              host->count);
}

static baton_status_t map_alone(baton__host_t *host)
{
    host->memory = mmap(NULL, host->bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (host->memory == MAP_FAILED) {
        host->memory = NULL;
        return baton__error(BATON_ERR_SYSTEM, "mmap of %zu bytes: %s",
                            host->bytes, baton__errno_text(errno));
    }
    return BATON_OK;
}

/* Opens the parts that belong to this process. */
static baton_status_t open_own(baton__host_t *host)
{
    int index = host->index;
    size_t limit = (size_t)baton__config_number(BATON__CONFIG_SHM_MEMORY) << 20;
    const baton__peer_state_t *state = &host->doorbell.states[index];
    baton__segments_init(&host->segments, &host->doorbell, &host->tables[index],
                         host->freed, host->count, limit);
    baton_status_t status = open_inbox(host);
    if (status == BATON_OK) {
        status =
            baton__doorbell_open(&host->doorbell, host->doorbell.states, index);
    }
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

baton_status_t baton__host_create(int count, int buffers, int *file_out)
{
    baton__host_t host = {.count = count};
    size_t reserved = host_lay_out(&host, NULL);
    host.buffers = buffers;
    return baton__share_create(host_lay_out(&host, NULL), reserved, file_out);
}

baton_status_t baton__host_open(baton__host_t *host, int file, int count,
                                int index, int buffers)
{
    *host = (baton__host_t){.count = count,
                            .index = index,
                            .buffers = buffers,
                            .usable = buffers,
                            .file = -1,
                            .doorbell.socket = -1,
                            .liveness = {.epoll = -1},
                            .mappings.socket = -1};
    host->bytes = host_lay_out(host, NULL);
    baton_status_t status =
        file < 0 && count == 1
            ? map_alone(host)
            : baton__share_map(file, host->bytes, &host->memory);
    if (status != BATON_OK) {
        return status;
    }
    (void)host_lay_out(host, host->memory);
    /* If this fails, no other process can read how late the ranks are
       (baton/lateness.h). */
    host->file = file < 0 ? -1 : fcntl(file, F_DUPFD_CLOEXEC, 3);
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
    baton__free(host->inbox.taken);
    baton__free(host->posted);
    baton__descriptor_close(&host->file);
    (void)munmap(host->memory, host->bytes);
    host->memory = NULL;
}

/* ---- processors -------------------------------------------------------- */

/* Of the processes that share a processor, only the one with the highest index
   moves. Otherwise all would move at once. */
void baton__host_spread(baton__host_t *host)
{
    /* By 1 + the number of a processor: how many processes of this host polled
       there last. */
    uint16_t on[CPU_SETSIZE + 1] = {0};
    _Atomic int32_t *processors = host->processors;
    int at = sched_getcpu() % CPU_SETSIZE + 1;
    bool last = at > 0;
    if (last && atomic_load_explicit(&processors[host->index],
                                     memory_order_relaxed) != at) {
        atomic_store_explicit(&processors[host->index], at,
                              memory_order_relaxed);
    }
    for (int i = 0; i < host->count && last; i++) {
        int other = atomic_load_explicit(&processors[i], memory_order_relaxed);
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
    for (int i = 1; i <= CPU_SETSIZE; i++) {
        if (CPU_ISSET((size_t)i - 1, &allowed) && on[i] + (to == at) < on[to]) {
            to = i;
        }
    }
    if (to != at) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET((size_t)to - 1, &set);
        (void)sched_setaffinity(0, sizeof set, &set);
        (void)sched_setaffinity(0, sizeof allowed, &allowed);
        atomic_store_explicit(&processors[host->index], to,
                              memory_order_relaxed);
    }
}

/* ---- other processes' memory ------------------------------------------ */

typedef ssize_t (*copy_fn)(pid_t, const struct iovec *, unsigned long,
                           const struct iovec *, unsigned long, unsigned long);

static int host_copy(const baton__host_t *host, int index, copy_fn copy,
                     void *here, uint64_t address, size_t bytes)
{
    const pid_t process = (pid_t)host->doorbell.states[index].process;
    struct iovec local = {here, bytes};
    struct iovec remote = {(void *)(uintptr_t)address, bytes};
    while (local.iov_len > 0) {
        ssize_t done = copy(process, &local, 1, &remote, 1, 0);
        if (done <= 0) {
            return done < 0 ? errno : EFAULT;
        }
        local.iov_base = (char *)local.iov_base + done;
        remote.iov_base = (char *)remote.iov_base + done;
        local.iov_len = remote.iov_len -= (size_t)done;
    }
    return 0;
}

/* If a value that was read is not the process's nonce, it is from an unrelated
   process: in containers a process may have different numbers in different PID
   namespaces. */
int baton__host_probe(const baton__host_t *host, bool write)
{
    int error = 0;
    for (int i = 0; i < host->count && error == 0; i++) {
        uint64_t value = write ? host->doorbell.states[i].nonce : 0;
        copy_fn copy = write ? process_vm_writev : process_vm_readv;
        if (i == host->index) {
            continue;
        }
        error = host_copy(host, i, copy, &value, host->probes[i], sizeof value);
        if (error == 0 && value != host->doorbell.states[i].nonce) {
            error = ESRCH;
        }
    }
    return error;
}

int baton__host_read(const baton__host_t *host, int index, void *target,
                     uint64_t address, size_t bytes)
{
    if (index == host->index) {
        memcpy(target, (const void *)(uintptr_t)address, bytes);
        return 0;
    }
    return host_copy(host, index, process_vm_readv, target, address, bytes);
}

int baton__host_write(const baton__host_t *host, int index, uint64_t address,
                      const void *source, size_t bytes)
{
    return host_copy(host, index, process_vm_writev, (void *)(uintptr_t)source,
                     address, bytes);
}
