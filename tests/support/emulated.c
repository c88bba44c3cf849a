/* The emulated device: its memory, its streams, and the threads that execute
   them.

   A stream counts the pieces of work that were put into it, and those that are
   done. So an event is a stream and a position in that stream, with no state of
   its own: it has been reached once the stream has done as many pieces as the
   position says. Work that waits for an event has a copy of both, so a later
   record of the event does not affect this work.

   An address of device memory is given out only once, so released memory is
   never taken for other memory.

   One lock protects all devices. Work is executed without the lock. Meanwhile
   its stream is marked busy. */
#include "support/emulated.h"

#include "support/random.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { ALIGN = 256, PAGE = 4096, STREAMS_MOST = 256 };
/* The time between two looks at a word for which a stream waits. */
enum { LOOK_US = 100 };
/* The memory of a device, in bytes. */
static const size_t ROOM = (size_t)1 << 32;

typedef enum kind {
    COPY,
    REDUCE,
    SELECT,
    ENTRIES,
    SCALE,
    SQUARE,
    CALL,
    DELAY,
    FOLLOW,
    AWAIT,
    RAISE
} kind_t;

typedef struct stream stream_t;

typedef struct event {
    stream_t *stream; /* NULL: the event was never recorded */
    uint64_t position;
} event_t;

/* A range of memory that a piece of work uses. */
typedef struct range {
    /* The address that the caller has given. After the work was queued, the
       address of the data (`shadow`). */
    char *at;
    size_t bytes;
} range_t;

enum { TARGET, LEFT, RIGHT, FOURTH, RANGES };

typedef struct work {
    struct work *next;
    kind_t kind;
    bool delayed;
    /* The time before which the work may not begin, if `delayed` is set. */
    int64_t not_before;
    int delay_us; /* the length of a DELAY */
    range_t ranges[RANGES];
    size_t count;
    const baton_op_t *op;
    baton_dtype_t dtype;
    double factor;
    baton_device_selection_t selection;
    baton_device_transfer_t transfer;
    void (*fn)(void *arg);
    void *arg;
    event_t event;
    /* The word of an AWAIT or RAISE. NULL: the word was freed. */
    _Atomic uint64_t *word;
    uint64_t value;
} work_t;

struct stream {
    int index;
    work_t *head, *tail;
    bool busy;
    uint64_t submitted, completed;
    /* The position of the work that has failed; 0: none has. */
    uint64_t failed_at;
    /* The position up to which the work must be done before the descriptor
       becomes readable; 0: the stream is not armed. */
    uint64_t armed;
};

typedef struct allocation {
    struct allocation *next;
    char *address; /* the address that was given out */
    size_t bytes;
    baton_memory_t kind; /* pinned main memory, or device memory */
    bool opened;         /* another device has opened the handle */
} allocation_t;

struct emulated {
    emulated_t *next; /* the next in the list of all devices */
    int number;
    char name[32];
    emulated_options_t options;
    baton_device_port_t port;
    char *base; /* the beginning of the range of addresses that are given out */
    /* The beginning of the memory that holds the data of these addresses. */
    char *shadow;
    /* number of addresses given out, and of bytes used at `shadow` */
    size_t used;
    int event_fd;
    /* Signalled when work was added or done, or a flag was raised. */
    pthread_cond_t changed;
    bool closing;
    pthread_t *threads;
    support_random_t random;
    /* The device's own streams, then the stream that the handle NULL means, and
       then the streams that tests have created. */
    stream_t *streams[STREAMS_MOST];
    int stream_count;
    allocation_t *allocations;
    int fail_work, fail_submit, fail_allocate;
    emulated_counters_t counters;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static emulated_t *devices;
static int next_number;

__attribute__((noreturn, format(printf, 1, 2))) static void
give_up(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    fprintf(stderr, "emulated device: ");
    /* The warning is false: clang-tidy 14 does not see va_start when two
       programs compile this file. */
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
    vfprintf(stderr, format, values);
    fprintf(stderr, "\n");
    va_end(values);
    abort();
}

static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000;
}

/* Counts a planted fault down. Returns true in the call that is to fail. */
static bool is_due(int *countdown)
{
    return *countdown > 0 && --*countdown == 0;
}

/* Releases the lock and returns `status`. */
static baton_status_t leave(baton_status_t status)
{
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- memory ------------------------------------------------------------ */

/* Returns the device that this address belongs to, or NULL. */
static emulated_t *device_of(const void *memory)
{
    const char *address = memory;
    emulated_t *at = devices;
    while (at != NULL && (address < at->base || address >= at->base + ROOM)) {
        at = at->next;
    }
    return at;
}

static char *followed(const emulated_t *device, const void *memory)
{
    return device->shadow + ((const char *)memory - device->base);
}

/* Returns the allocation that contains the whole range, or NULL. */
static allocation_t *find(const emulated_t *device, const void *memory,
                          size_t bytes)
{
    const char *address = memory;
    for (allocation_t *at = device->allocations; at != NULL; at = at->next) {
        if (address >= at->address && address < at->address + at->bytes &&
            bytes <= (size_t)(at->address + at->bytes - address)) {
            return at;
        }
    }
    return NULL;
}

/* Returns the number of bytes to reserve for an allocation: a multiple of
   `align`, with a gap after the allocation's end. */
static size_t rounded(size_t bytes, size_t align)
{
    return (bytes + align) / align * align;
}

/* Allocates memory filled with bytes that no test expects. */
static char *make_memory(emulated_t *device, baton_memory_t kind, size_t bytes)
{
    allocation_t *made = malloc(sizeof *made);
    char *address = NULL, *data = NULL;
    if (made == NULL || bytes > ROOM) {
        free(made);
        return NULL;
    }
    if (kind == BATON_MEMORY_HOST) {
        address = data = aligned_alloc(ALIGN, rounded(bytes, ALIGN));
    } else if (rounded(bytes, PAGE) <= ROOM - device->used) {
        address = device->base + device->used;
        data = followed(device, address);
        device->used += rounded(bytes, PAGE);
    }
    if (address == NULL) {
        free(made);
        return NULL;
    }
    memset(data, 0xcb, bytes);
    *made = (allocation_t){.next = device->allocations,
                           .address = address,
                           .bytes = bytes,
                           .kind = kind};
    device->allocations = made;
    device->counters.allocated++;
    return address;
}

static baton_status_t no_memory(const emulated_t *device, size_t bytes)
{
    return baton_error_set(BATON_ERR_NO_MEMORY,
                           "%s: there is no memory for %zu bytes", device->name,
                           bytes);
}

static baton_status_t port_allocate(void *arg, baton_memory_t kind,
                                    size_t bytes, void **out)
{
    emulated_t *device = arg;
    pthread_mutex_lock(&lock);
    char *made = is_due(&device->fail_allocate) || bytes == 0
                     ? NULL
                     : make_memory(device, kind, bytes);
    *out = made != NULL ? made : *out;
    return leave(made != NULL ? BATON_OK : no_memory(device, bytes));
}

static bool overlaps(const char *at, size_t bytes, const char *memory,
                     size_t memory_bytes)
{
    return at != NULL && at < memory + memory_bytes && memory < at + bytes;
}

static bool is_raised(const work_t *work)
{
    return work->word == NULL || atomic_load(work->word) >= work->value;
}

/* Returns whether a piece of work uses the memory. An AWAIT no longer uses its
   word once the word has reached the value. */
static bool touches(work_t *work, const char *memory, size_t bytes)
{
    bool touched =
        overlaps((const char *)work->word, sizeof *work->word, memory, bytes);
    if (touched && work->kind == AWAIT && is_raised(work)) {
        work->word = NULL;
        touched = false;
    }
    for (int i = 0; i < RANGES; i++) {
        touched = touched || overlaps(work->ranges[i].at, work->ranges[i].bytes,
                                      memory, bytes);
    }
    return touched;
}

/* Aborts if queued or running work uses the memory. */
static void require_unused(const char *memory, size_t bytes)
{
    for (emulated_t *at = devices; at != NULL; at = at->next) {
        for (int i = 0; i < at->stream_count; i++) {
            for (work_t *work = at->streams[i]->head; work != NULL;
                 work = work->next) {
                if (touches(work, memory, bytes)) {
                    give_up("%s has work in stream %d for memory that is "
                            "released",
                            at->name, i);
                }
            }
        }
    }
}

static void free_allocation(emulated_t *device, allocation_t *gone)
{
    if (gone->kind == BATON_MEMORY_HOST) {
        free(gone->address);
    } else {
        (void)madvise(followed(device, gone->address),
                      rounded(gone->bytes, PAGE), MADV_DONTNEED);
    }
    free(gone);
}

static void port_release(void *arg, baton_memory_t kind, void *memory)
{
    emulated_t *device = arg;
    if (memory == NULL) {
        return;
    }
    pthread_mutex_lock(&lock);
    allocation_t **link = &device->allocations;
    while (*link != NULL && (*link)->address != memory) {
        link = &(*link)->next;
    }
    allocation_t *gone = *link;
    if (gone == NULL || gone->kind != kind) {
        give_up("%s releases %p, which it did not allocate as that kind",
                device->name, memory);
    }
    require_unused(kind == BATON_MEMORY_DEVICE ? followed(device, memory)
                                               : memory,
                   gone->bytes);
    *link = gone->next;
    device->counters.allocated--;
    free_allocation(device, gone);
    pthread_mutex_unlock(&lock);
}

static baton_status_t port_check(void *arg, const void *memory, size_t bytes,
                                 baton_memory_t kind)
{
    emulated_t *device = arg;
    pthread_mutex_lock(&lock);
    const emulated_t *owner = device_of(memory);
    if (bytes == 0 || (owner == NULL && kind == BATON_MEMORY_HOST)) {
        return leave(BATON_OK);
    }
    if (owner == NULL) {
        return leave(baton_error_set(BATON_ERR_INVALID, "%s: %p is host memory",
                                     device->name, memory));
    }
    if (owner != device || kind == BATON_MEMORY_HOST) {
        return leave(baton_error_set(BATON_ERR_INVALID,
                                     "%s: %p is memory of device %d",
                                     device->name, memory, owner->number));
    }
    if (find(owner, memory, bytes) == NULL) {
        return leave(baton_error_set(BATON_ERR_INVALID,
                                     "%s: %p is not allocated for %zu bytes",
                                     device->name, memory, bytes));
    }
    return leave(BATON_OK);
}

/* ---- streams ----------------------------------------------------------- */

static stream_t *make_stream(emulated_t *device)
{
    stream_t *stream = calloc(1, sizeof *stream);
    if (stream == NULL || device->stream_count == STREAMS_MOST) {
        give_up("%s has no room for a stream", device->name);
    }
    stream->index = device->stream_count;
    device->streams[device->stream_count++] = stream;
    return stream;
}

/* Returns the stream that a handle means, or NULL if the device has no such
   stream. The handle NULL means the stream after the device's own streams. */
static stream_t *stream_of(const emulated_t *device, baton_stream_t handle)
{
    if (handle == NULL) {
        return device->streams[BATON_DEVICE_STREAMS];
    }
    for (int i = 0; i < device->stream_count; i++) {
        if (device->streams[i] == handle) {
            return handle;
        }
    }
    return NULL;
}

/* Returns BATON_OK if work may be put into the stream: the stream exists, and
   no fault was planted in this call. */
static baton_status_t check_submit(emulated_t *device, const stream_t *stream)
{
    if (stream != NULL && !is_due(&device->fail_submit)) {
        return BATON_OK;
    }
    return baton_error_set(BATON_ERR_SYSTEM, "%s: %s", device->name,
                           stream == NULL ? "this is no stream of the device"
                                          : "a test made this call fail");
}

/* Replaces the address of a range by the address of its data. Returns false if
   the device cannot access that memory. Only in a copy may the source be on
   another device, and may both ends be in main memory. */
static bool reach(emulated_t *device, const work_t *work, range_t *range)
{
    emulated_t *owner = device_of(range->at);
    bool foreign = owner != device;
    if (range->bytes == 0) {
        range->at = NULL;
        return true;
    }
    if (owner == NULL) {
        device->counters.unpinned +=
            find(device, range->at, range->bytes) == NULL;
        return work->kind == COPY;
    }
    const allocation_t *found = find(owner, range->at, range->bytes);
    if (found == NULL || (foreign && (work->kind != COPY || !found->opened ||
                                      range != &work->ranges[LEFT]))) {
        return false;
    }
    device->counters.foreign += foreign;
    range->at = followed(owner, range->at);
    return true;
}

static void count_work(emulated_t *device, const work_t *work,
                       const work_t *given)
{
    emulated_counters_t *counters = &device->counters;
    counters->submissions++;
    counters->reduces += work->kind == REDUCE;
    counters->on_entries += work->kind >= SELECT && work->kind <= SQUARE;
    counters->raises += work->kind == RAISE;
    counters->follows += work->kind == FOLLOW;
    if (work->kind == COPY) {
        bool from = device_of(given->ranges[LEFT].at) != NULL;
        bool to = device_of(given->ranges[TARGET].at) != NULL;
        static const int directions[2][2] = {
            {EMULATED_HOST_TO_HOST, EMULATED_HOST_TO_DEVICE},
            {EMULATED_DEVICE_TO_HOST, EMULATED_DEVICE_TO_DEVICE}};
        int direction = directions[from][to];
        counters->copies[direction]++;
        counters->copied_bytes[direction] += work->ranges[LEFT].bytes;
    }
}

/* Puts a piece of work into a stream. */
static baton_status_t put(emulated_t *device, baton_stream_t handle,
                          const work_t *given)
{
    pthread_mutex_lock(&lock);
    stream_t *stream = stream_of(device, handle);
    baton_status_t status = check_submit(device, stream);
    work_t *work = malloc(sizeof *work);
    if (status != BATON_OK || work == NULL) {
        free(work);
        return leave(work == NULL ? no_memory(device, sizeof *work) : status);
    }
    *work = *given;
    for (int i = 0; i < RANGES; i++) {
        if (!reach(device, work, &work->ranges[i])) {
            free(work);
            return leave(baton_error_set(
                BATON_ERR_SYSTEM,
                "%s: can't reach %zu bytes at %p: they are not allocated on "
                "the device, or of one that was not opened",
                device->name, given->ranges[i].bytes,
                (void *)given->ranges[i].at));
        }
    }
    *(stream->head == NULL ? &stream->head : &stream->tail->next) = work;
    stream->tail = work;
    stream->submitted++;
    count_work(device, work, given);
    pthread_cond_broadcast(&device->changed);
    return leave(BATON_OK);
}

static range_t range_of(const void *memory, size_t bytes)
{
    return (range_t){(char *)(uintptr_t)memory, bytes};
}

static baton_status_t port_copy(void *arg, baton_stream_t stream, void *target,
                                const void *source, size_t bytes)
{
    const work_t work = {
        .kind = COPY,
        .ranges = {range_of(target, bytes), range_of(source, bytes)}};
    return put(arg, stream, &work);
}

static bool port_reduces(void *arg, const baton_op_t *op, baton_dtype_t dtype)
{
    const emulated_t *device = arg;
    /* An operator that a test has defined does not list its types, so its
       `dtypes` is 0. */
    return baton_op_element_bytes(op, dtype) > 0 && baton_op_takes(op, dtype) &&
           (op->dtypes != 0 || !device->options.builtin_only);
}

static baton_status_t port_reduce(void *arg, baton_stream_t stream,
                                  const baton_op_t *op, baton_dtype_t dtype,
                                  void *target, const void *left,
                                  const void *right, size_t count)
{
    size_t bytes = count * baton_op_element_bytes(op, dtype);
    const work_t work = {.kind = REDUCE,
                         .op = op,
                         .dtype = dtype,
                         .count = count,
                         .ranges = {range_of(target, bytes),
                                    range_of(left, bytes),
                                    range_of(right, bytes)}};
    return put(arg, stream, &work);
}

/* ---- selection and lists ----------------------------------------------- */

static size_t port_select_bytes(void *arg, baton_dtype_t dtype, size_t count,
                                size_t k)
{
    return baton_select_scratch_bytes(count, k);
}

static bool is_sampled(const baton_device_selection_t *selection)
{
    return selection->method == BATON_DEVICE_SAMPLED ||
           selection->method == BATON_DEVICE_REUSED;
}

static baton_status_t port_select(void *arg, baton_stream_t stream,
                                  const baton_device_selection_t *given)
{
    const baton_selection_t *from = &given->from;
    size_t most = is_sampled(given) ? 2 * given->k : given->k;
    most = most < from->count ? most : from->count;
    const work_t work = {
        .kind = SELECT,
        .selection = *given,
        .count = most,
        .ranges = {
            range_of(given->selected, sizeof *given->selected),
            range_of(from->values, from->count * baton_dtype_size(from->dtype)),
            range_of(given->indices, most * sizeof *given->indices),
            range_of(given->scratch,
                     baton_select_scratch_bytes(from->count, given->k))}};
    return put(arg, stream, &work);
}

static baton_status_t port_entries(void *arg, baton_stream_t stream,
                                   const baton_device_transfer_t *given)
{
    const baton_device_entries_t *list = &given->list;
    size_t capacity = list->capacity;
    bool reads = given->direction <= BATON_DEVICE_TAKE;
    const work_t work = {
        .kind = ENTRIES,
        .transfer = *given,
        .ranges = {
            range_of(given->dense, capacity > 0), /* the length of the dense
                                                     vector is unknown */
            range_of(list->data, capacity * baton_entry_bytes(list->dtype)),
            range_of(given->indices,
                     reads ? capacity * sizeof *given->indices : 0),
            range_of(list->count,
                     list->count != NULL ? sizeof *list->count : 0)}};
    return put(arg, stream, &work);
}

static baton_status_t port_scale(void *arg, baton_stream_t stream,
                                 baton_dtype_t dtype, void *target,
                                 const void *source, size_t count,
                                 double factor)
{
    size_t bytes = count * baton_dtype_size(dtype);
    const work_t work = {.kind = SCALE,
                         .dtype = dtype,
                         .count = count,
                         .factor = factor,
                         .ranges = {range_of(target, bytes),
                                    range_of(source, source ? bytes : 0)}};
    return put(arg, stream, &work);
}

static baton_status_t port_square_sum(void *arg, baton_stream_t stream,
                                      baton_dtype_t dtype, const void *values,
                                      size_t count, double *sum_out,
                                      void *scratch)
{
    const work_t work = {
        .kind = SQUARE,
        .dtype = dtype,
        .count = count,
        .ranges = {range_of(sum_out, sizeof *sum_out),
                   range_of(values, count * baton_dtype_size(dtype)),
                   range_of(scratch, baton_select_scratch_bytes(count, 1))}};
    return put(arg, stream, &work);
}

/* ---- events and words -------------------------------------------------- */

static baton_status_t port_event_create(void *arg, void **out)
{
    emulated_t *device = arg;
    pthread_mutex_lock(&lock);
    event_t *event = calloc(1, sizeof *event);
    if (event == NULL) {
        return leave(no_memory(device, sizeof *event));
    }
    device->counters.events++;
    *out = event;
    return leave(BATON_OK);
}

static void port_event_destroy(void *arg, void *event)
{
    emulated_t *device = arg;
    pthread_mutex_lock(&lock);
    device->counters.events -= event != NULL;
    free(event);
    pthread_mutex_unlock(&lock);
}

static baton_status_t port_record(void *arg, baton_stream_t handle, void *event)
{
    emulated_t *device = arg;
    pthread_mutex_lock(&lock);
    stream_t *stream = stream_of(device, handle);
    baton_status_t status = check_submit(device, stream);
    if (status == BATON_OK) {
        *(event_t *)event = (event_t){stream, stream->submitted};
        device->counters.records++;
    }
    return leave(status);
}

static baton_status_t port_follow(void *arg, baton_stream_t stream, void *event)
{
    pthread_mutex_lock(&lock);
    const work_t work = {.kind = FOLLOW, .event = *(event_t *)event};
    pthread_mutex_unlock(&lock);
    return put(arg, stream, &work);
}

static bool is_reached(const event_t *event)
{
    return event->stream == NULL || event->stream->completed >= event->position;
}

static bool has_failed(const event_t *event)
{
    return event->stream != NULL && event->stream->failed_at != 0 &&
           event->position >= event->stream->failed_at;
}

/* Returns the status of an event. Even if it is an error, no work that comes
   before the event is in progress any more. */
static baton_status_t port_query(void *arg, void *handle)
{
    emulated_t *device = arg;
    const event_t *event = handle;
    pthread_mutex_lock(&lock);
    device->counters.queries++;
    if (!is_reached(event)) {
        return leave(BATON_AGAIN);
    }
    return leave(
        has_failed(event)
            ? baton_error_set(BATON_ERR_SYSTEM,
                              "%s: work in stream %d failed, as a test asked",
                              device->name, event->stream->index)
            : BATON_OK);
}

static baton_status_t put_word(emulated_t *device, baton_stream_t stream,
                               kind_t kind, uint64_t *word, uint64_t value)
{
    const work_t work = {
        .kind = kind, .word = (_Atomic uint64_t *)word, .value = value};
    pthread_mutex_lock(&lock);
    bool pinned =
        device_of(word) == NULL && find(device, word, sizeof *word) != NULL;
    pthread_mutex_unlock(&lock);
    return pinned ? put(device, stream, &work)
                  : baton_error_set(BATON_ERR_SYSTEM,
                                    "%s: %p is not in pinned memory",
                                    device->name, (void *)word);
}

static baton_status_t port_await(void *arg, baton_stream_t stream,
                                 uint64_t *word, uint64_t value)
{
    return put_word(arg, stream, AWAIT, word, value);
}

static baton_status_t port_raise(void *arg, baton_stream_t stream,
                                 uint64_t *word, uint64_t value)
{
    return put_word(arg, stream, RAISE, word, value);
}

static void raise_to(_Atomic uint64_t *word, uint64_t value)
{
    if (atomic_load(word) < value) {
        atomic_store(word, value);
    }
}

/* ---- the threads ------------------------------------------------------- */

/* Delays half of the pieces of work, when they get to the front of their
   stream. Returns the time at which the work may begin. */
static int64_t begin_of(emulated_t *device, work_t *work)
{
    if (!work->delayed) {
        work->delayed = true;
        uint64_t most = (uint64_t)device->options.delay_us;
        bool late = support_random_below(&device->random, 2) == 0;
        uint64_t us =
            late ? support_random_below(&device->random, most + 1) : 0;
        us += (uint64_t)work->delay_us;
        work->not_before = us > 0 ? now_us() + (int64_t)us : 0;
    }
    return work->not_before;
}

static bool is_ready(const stream_t *stream, const work_t *work)
{
    return stream->failed_at != 0 ||
           ((work->kind != FOLLOW || is_reached(&work->event)) &&
            (work->kind != AWAIT || is_raised(work)));
}

/* Returns a stream with work that can be executed now, chosen at random. If
   there is none, returns NULL, and sets *when to the time at which there may be
   one. INT64_MAX means that there will be none before something changes. */
static stream_t *choose(emulated_t *device, int64_t *when)
{
    stream_t *chosen = NULL;
    uint64_t candidates = 0;
    int64_t now = now_us();
    *when = INT64_MAX;
    for (int i = 0; i < device->stream_count; i++) {
        stream_t *stream = device->streams[i];
        work_t *work = stream->head;
        if (work == NULL || stream->busy) {
            continue;
        }
        int64_t begin = INT64_MAX;
        if (is_ready(stream, work)) {
            begin = begin_of(device, work);
            /* No signal tells that the CPU has raised the word, so a thread
               looks at it again soon. */
        } else if (work->kind == AWAIT) {
            begin = now + LOOK_US;
        }
        if (begin > now) {
            *when = begin < *when ? begin : *when;
        } else if (support_random_below(&device->random, ++candidates) == 0) {
            chosen = stream;
        }
    }
    return chosen;
}

static void await_change(emulated_t *device, int64_t until)
{
    if (until == INT64_MAX) {
        pthread_cond_wait(&device->changed, &lock);
        return;
    }
    struct timespec time = {until / 1000000, until % 1000000 * 1000};
    (void)pthread_cond_timedwait(&device->changed, &lock, &time);
}

/* Selects the elements that reach the threshold. Returns whether the threshold
   can be used: it is not 0, and no more elements reach it than the selection
   has room for. */
static bool do_threshold(const work_t *work, const baton_selection_t *from)
{
    baton_device_selected_t *out = (void *)work->ranges[TARGET].at;
    out->count = baton_select_at_least(
        from, out->threshold, (void *)work->ranges[RIGHT].at, work->count);
    return out->threshold != 0 && out->count <= 2 * work->selection.k;
}

static void do_select(const work_t *work)
{
    baton_device_selected_t *out = (void *)work->ranges[TARGET].at;
    uint32_t *indices = (void *)work->ranges[RIGHT].at;
    void *scratch = work->ranges[FOURTH].at;
    size_t k = work->selection.k;
    baton_selection_t from = work->selection.from;
    from.values = work->ranges[LEFT].at;
    if (work->selection.method == BATON_DEVICE_REUSED &&
        do_threshold(work, &from)) {
        return;
    }
    if (is_sampled(&work->selection)) {
        out->threshold = baton_select_search(&from, k, indices, scratch);
        if (do_threshold(work, &from)) {
            return;
        }
    }
    out->count = baton_select_topk(&from, k, indices, scratch, &out->threshold);
}

static void do_list(const work_t *work)
{
    const baton_device_transfer_t *transfer = &work->transfer;
    baton_dtype_t dtype = transfer->list.dtype;
    char *dense = work->ranges[TARGET].at, *list = work->ranges[LEFT].at;
    const uint32_t *indices = (const void *)work->ranges[RIGHT].at;
    const uint64_t *told = (const void *)work->ranges[FOURTH].at;
    size_t count = transfer->list.capacity;
    count = told != NULL && *told < count ? (size_t)*told : count;
    if (count == 0) {
        return;
    }
    switch (transfer->direction) {
    case BATON_DEVICE_GATHER:
        baton_entries_gather(dtype, list, indices, count, dense);
        break;
    case BATON_DEVICE_TAKE:
        baton_entries_take(dtype, list, indices, count, dense);
        break;
    case BATON_DEVICE_PUT:
        baton_entries_put(dtype, list, count, dense);
        break;
    case BATON_DEVICE_ADD:
        baton_entries_add(dtype, list, count, transfer->factor, dense);
        break;
    }
}

static void do_scale(const work_t *work)
{
    const range_t *target = &work->ranges[TARGET];
    if (target->bytes > 0 && work->ranges[LEFT].at == NULL) {
        memset(target->at, 0, target->bytes);
    } else if (target->bytes > 0) {
        memmove(target->at, work->ranges[LEFT].at, target->bytes);
        baton_elements_scale(work->dtype, target->at, work->count,
                             work->factor);
    }
}

/* Executes a piece of work. The caller does not hold the lock. */
static void do_work(const work_t *work)
{
    char *target = work->ranges[TARGET].at, *left = work->ranges[LEFT].at;
    if (work->kind == COPY && target != NULL) {
        memmove(target, left, work->ranges[TARGET].bytes);
    } else if (work->kind == REDUCE && target != NULL) {
        work->op->reduce(work->op->arg, target, left, work->ranges[RIGHT].at,
                         work->count, work->dtype);
    } else if (work->kind == SELECT) {
        do_select(work);
    } else if (work->kind == ENTRIES) {
        do_list(work);
    } else if (work->kind == SCALE) {
        do_scale(work);
    } else if (work->kind == SQUARE) {
        double sum = 0;
        if (work->count > 0) {
            sum = baton_elements_measure(work->dtype, left, work->count)
                      .square_sum;
        }
        memcpy(target, &sum, sizeof sum);
    } else if (work->kind == CALL) {
        work->fn(work->arg);
    }
}

/* Executes the first piece of work of the stream. The caller holds the lock.
   This function releases it while the work is executed. */
static void work_on(emulated_t *device, stream_t *stream)
{
    work_t *work = stream->head;
    bool counts = work->kind <= CALL;
    if (stream->failed_at == 0 &&
        ((counts && is_due(&device->fail_work)) ||
         (work->kind == FOLLOW && has_failed(&work->event)))) {
        stream->failed_at = stream->completed + 1;
    }
    stream->busy = true;
    if (stream->failed_at == 0 && work->kind == RAISE) {
        raise_to(work->word, work->value);
    } else if (stream->failed_at == 0 && counts) {
        pthread_mutex_unlock(&lock);
        do_work(work);
        pthread_mutex_lock(&lock);
    }
    stream->head = work->next;
    stream->completed++;
    stream->busy = false;
    free(work);
    if (stream->armed != 0 && stream->completed >= stream->armed) {
        const uint64_t one = 1;
        stream->armed = 0;
        (void)!write(device->event_fd, &one, sizeof one);
    }
    pthread_cond_broadcast(&device->changed);
}

static void *work_off(void *arg)
{
    emulated_t *device = arg;
    pthread_mutex_lock(&lock);
    while (!device->closing) {
        int64_t when;
        stream_t *stream = choose(device, &when);
        if (stream != NULL) {
            work_on(device, stream);
        } else {
            await_change(device, when);
        }
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* ---- sleep, handles ---------------------------------------------------- */

/* Arms each of the device's own streams that has work now: the descriptor
   becomes readable when this work is done. */
static baton_status_t port_arm(void *arg)
{
    emulated_t *device = arg;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < BATON_DEVICE_STREAMS; i++) {
        stream_t *stream = device->streams[i];
        if (stream->completed < stream->submitted) {
            stream->armed = stream->submitted;
        }
    }
    return leave(BATON_OK);
}

/* Writes the handle of device memory, which is the memory's address. After
   open_handle another device can copy from that address. */
static baton_status_t
port_get_handle(void *arg, const void *memory,
                unsigned char out[BATON_DEVICE_HANDLE_BYTES])
{
    const emulated_t *device = arg;
    if (port_check(arg, memory, 1, BATON_MEMORY_DEVICE) != BATON_OK) {
        return baton_error_set(BATON_ERR_UNSUPPORTED,
                               "%s: there is no handle for such memory",
                               device->name);
    }
    memset(out, 0, BATON_DEVICE_HANDLE_BYTES);
    memcpy(out, &memory, sizeof memory);
    return BATON_OK;
}

static baton_status_t
port_open_handle(void *arg,
                 const unsigned char bytes[BATON_DEVICE_HANDLE_BYTES],
                 const void **out)
{
    const emulated_t *device = arg;
    const void *memory;
    memcpy(&memory, bytes, sizeof memory);
    pthread_mutex_lock(&lock);
    const emulated_t *owner = device_of(memory);
    allocation_t *found = owner != NULL ? find(owner, memory, 1) : NULL;
    if (found == NULL) {
        return leave(baton_error_set(
            BATON_ERR_UNSUPPORTED,
            "%s: the handle's memory is not in this process", device->name));
    }
    found->opened = true;
    *out = memory;
    return leave(BATON_OK);
}

/* ---- open and close ---------------------------------------------------- */

/* Closes the device. Lets work that is running end, and drops work that is
   queued. */
static void port_close(void *arg)
{
    emulated_t *device = arg;
    pthread_mutex_lock(&lock);
    device->closing = true;
    pthread_cond_broadcast(&device->changed);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < device->options.workers; i++) {
        pthread_join(device->threads[i], NULL);
    }
    pthread_mutex_lock(&lock);
    emulated_t **link = &devices;
    while (*link != device) {
        link = &(*link)->next;
    }
    *link = device->next;
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < device->stream_count; i++) {
        while (device->streams[i]->head != NULL) {
            work_t *work = device->streams[i]->head;
            device->streams[i]->head = work->next;
            free(work);
        }
        free(device->streams[i]);
    }
    while (device->allocations != NULL) {
        allocation_t *gone = device->allocations;
        device->allocations = gone->next;
        free_allocation(device, gone);
    }
    munmap(device->base, ROOM);
    munmap(device->shadow, ROOM);
    close(device->event_fd);
    pthread_cond_destroy(&device->changed);
    free(device->threads);
    free(device);
}

static const baton_device_port_t PORT = {.size = sizeof PORT,
                                         .allocate = port_allocate,
                                         .release = port_release,
                                         .check = port_check,
                                         .copy = port_copy,
                                         .reduces = port_reduces,
                                         .reduce = port_reduce,
                                         .event_create = port_event_create,
                                         .event_destroy = port_event_destroy,
                                         .record = port_record,
                                         .follow = port_follow,
                                         .query = port_query,
                                         .await = port_await,
                                         .raise = port_raise,
                                         .arm = port_arm,
                                         .get_handle = port_get_handle,
                                         .open_handle = port_open_handle,
                                         .close = port_close,
                                         .select_bytes = port_select_bytes,
                                         .select = port_select,
                                         .entries = port_entries,
                                         .scale = port_scale,
                                         .square_sum = port_square_sum};

static void *map(int access)
{
    void *memory = mmap(NULL, ROOM, access,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        give_up("can't map %zu bytes: %s", ROOM, strerror(errno));
    }
    return memory;
}

static void start_threads(emulated_t *device)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&device->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    size_t workers = (size_t)device->options.workers;
    device->threads = calloc(workers, sizeof *device->threads);
    for (size_t i = 0; i < workers; i++) {
        if (device->threads == NULL ||
            pthread_create(&device->threads[i], NULL, work_off, device) != 0) {
            give_up("can't start %zu threads", workers);
        }
    }
}

static void make_port(emulated_t *device)
{
    baton_device_port_t *port = &device->port;
    *port = PORT;
    port->name = device->name;
    port->descriptor = device->event_fd;
    port->kin = (uint64_t)getpid();
    /* The device's own streams, and the stream of the handle NULL. */
    for (int i = 0; i <= BATON_DEVICE_STREAMS; i++) {
        stream_t *stream = make_stream(device);
        if (i < BATON_DEVICE_STREAMS) {
            port->streams[i] = stream;
        }
    }
    if (device->options.no_handles) {
        port->get_handle = NULL;
        port->open_handle = NULL;
        port->kin = 0;
    }
    if (device->options.no_selection) {
        port->select_bytes = NULL;
        port->select = NULL;
        port->entries = NULL;
        port->scale = NULL;
        port->square_sum = NULL;
    }
}

emulated_t *emulated_open(const emulated_options_t *options)
{
    emulated_t *device = calloc(1, sizeof *device);
    if (device == NULL) {
        give_up("there is no memory for a device");
    }
    device->options = options != NULL ? *options : (emulated_options_t){0};
    device->options.workers =
        device->options.workers > 0 ? device->options.workers : 2;
    device->options.delay_us =
        device->options.delay_us > 0 ? device->options.delay_us : 50;
    device->base = map(PROT_NONE);
    device->shadow = map(PROT_READ | PROT_WRITE);
    device->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    device->random = support_random(device->options.seed, 4711);
    pthread_mutex_lock(&lock);
    device->number = next_number++;
    snprintf(device->name, sizeof device->name, "emulated:%d", device->number);
    make_port(device);
    start_threads(device);
    device->next = devices;
    devices = device;
    pthread_mutex_unlock(&lock);
    return device;
}

const baton_device_port_t *emulated_port(const emulated_t *device)
{
    return &device->port;
}

/* ---- for tests --------------------------------------------------------- */

static void set(int *what, int value)
{
    pthread_mutex_lock(&lock);
    *what = value;
    pthread_mutex_unlock(&lock);
}

void emulated_fail_work(emulated_t *device, int k)
{
    set(&device->fail_work, k);
}

void emulated_fail_submit(emulated_t *device, int k)
{
    set(&device->fail_submit, k);
}

void emulated_fail_allocate(emulated_t *device, int k)
{
    set(&device->fail_allocate, k);
}

void emulated_repair(emulated_t *device)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < device->stream_count; i++) {
        device->streams[i]->failed_at = 0;
    }
    device->fail_work = device->fail_submit = device->fail_allocate = 0;
    pthread_cond_broadcast(&device->changed);
    pthread_mutex_unlock(&lock);
}

emulated_counters_t emulated_counters(emulated_t *device)
{
    pthread_mutex_lock(&lock);
    emulated_counters_t counters = device->counters;
    pthread_mutex_unlock(&lock);
    return counters;
}

baton_stream_t emulated_stream(emulated_t *device)
{
    pthread_mutex_lock(&lock);
    stream_t *stream = make_stream(device);
    pthread_mutex_unlock(&lock);
    return stream;
}

static void must(baton_status_t status)
{
    if (status != BATON_OK) {
        give_up("%s", baton_error_message());
    }
}

void emulated_delay(emulated_t *device, baton_stream_t stream, int us)
{
    const work_t work = {.kind = DELAY, .delay_us = us};
    must(put(device, stream, &work));
}

baton_status_t emulated_call(emulated_t *device, baton_stream_t stream,
                             void (*fn)(void *arg), void *arg)
{
    const work_t work = {.kind = CALL, .fn = fn, .arg = arg};
    return put(device, stream, &work);
}

void *emulated_gate(emulated_t *device)
{
    void *gate = NULL;
    must(port_allocate(device, BATON_MEMORY_HOST, sizeof(uint64_t), &gate));
    atomic_init((_Atomic uint64_t *)gate, 0);
    return gate;
}

void emulated_open_gate(emulated_t *device, void *gate, uint64_t value)
{
    pthread_mutex_lock(&lock);
    raise_to(gate, value);
    pthread_cond_broadcast(&device->changed);
    pthread_mutex_unlock(&lock);
}

void emulated_free_gate(emulated_t *device, void *gate)
{
    emulated_open_gate(device, gate, UINT64_MAX);
    port_release(device, BATON_MEMORY_HOST, gate);
}

static void wait_for(emulated_t *device, const stream_t *stream)
{
    uint64_t position = stream->submitted;
    while (stream->completed < position) {
        pthread_cond_wait(&device->changed, &lock);
    }
}

void emulated_synchronise(emulated_t *device, baton_stream_t handle)
{
    pthread_mutex_lock(&lock);
    const stream_t *stream = stream_of(device, handle);
    if (stream == NULL) {
        give_up("%s waits for a stream that is not its own", device->name);
    }
    wait_for(device, stream);
    pthread_mutex_unlock(&lock);
}

void emulated_synchronise_all(emulated_t *device)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < device->stream_count; i++) {
        wait_for(device, device->streams[i]);
    }
    pthread_mutex_unlock(&lock);
}

void *emulated_allocate(emulated_t *device, size_t bytes)
{
    void *memory = NULL;
    must(port_allocate(device, BATON_MEMORY_DEVICE, bytes, &memory));
    return memory;
}

void emulated_release(emulated_t *device, void *memory)
{
    port_release(device, BATON_MEMORY_DEVICE, memory);
}

void emulated_read(emulated_t *device, void *target, const void *source,
                   size_t bytes)
{
    if (bytes > 0) {
        must(port_check(device, source, bytes, BATON_MEMORY_DEVICE));
        memcpy(target, followed(device, source), bytes);
    }
}

void emulated_write(emulated_t *device, void *target, const void *source,
                    size_t bytes)
{
    if (bytes > 0) {
        must(port_check(device, target, bytes, BATON_MEMORY_DEVICE));
        memcpy(followed(device, target), source, bytes);
    }
}
