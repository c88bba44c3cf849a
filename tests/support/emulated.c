/* The emulated device: memory, streams, and the threads that work them off.

   A stream counts what was put into it and what has been done. So an event is a
   stream and a position in it, and has no state of its own: it has been reached
   when the stream has done as much. What follows it copies both, and later
   records don't matter.

   Locks: each device has one; the list of devices has one, which is taken
   first. Work is done without a lock, its stream marked busy. */
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

enum { ALIGN = 256, STREAMS_MOST = 256 };
enum { LOOK_US = 100 }; /* at words that streams wait for */

typedef enum kind {
    COPY,
    REDUCE,
    SELECT,
    ENTRIES,
    SCALE,
    SQUARE,
    CLEAR,
    CALL,
    DELAY,
    FOLLOW,
    AWAIT,
    RAISE
} kind_t;

typedef struct stream stream_t;

typedef struct event {
    stream_t *stream; /* NULL: nothing was recorded */
    uint64_t position;
} event_t;

/* A piece of work; addresses are those that can be followed. */
typedef struct work {
    struct work *next;
    kind_t kind;
    bool delayed;
    int64_t not_before; /* once delayed */
    int delay_us;       /* of DELAY */
    char *target;
    const char *left, *right;
    size_t bytes; /* of each operand */
    size_t count;
    const baton_op_t *op;
    baton_dtype_t dtype;
    /* Of selections and lists; see do_list. */
    baton_device_selection_t selection;
    baton_device_direction_t direction;
    const uint64_t *list_count;
    char *dense;
    double factor;
    void (*fn)(void *arg);
    void *arg;
    event_t event;
    _Atomic uint64_t *word; /* of AWAIT, RAISE; NULL: it was freed */
    uint64_t value;
} work_t;

struct stream {
    emulated_t *device;
    int index;
    work_t *head, *tail;
    bool busy;
    uint64_t submitted, completed;
    uint64_t failed_at; /* position; 0: it has not failed */
    uint64_t armed;     /* position whose end rings; 0: none */
};

typedef struct allocation {
    struct allocation *next; /* by address */
    char *address;           /* as it was given out */
    size_t bytes;
    baton_memory_t kind; /* pinned host memory, or the device's */
    uint64_t serial;
    bool opened; /* by another device */
} allocation_t;

struct emulated {
    emulated_t *next; /* of the list of all */
    int number;
    char name[32];
    emulated_options_t options;
    baton_device_port_t port;
    char *base;   /* of the addresses given out */
    char *shadow; /* where the data are */
    int event_fd;

    pthread_mutex_t mutex;
    pthread_cond_t changed; /* work came, work was done, a flag was raised */
    bool closing;
    pthread_t *threads;
    support_random_t random;
    stream_t *streams[STREAMS_MOST]; /* the own ones, NULL's, the user's */
    int stream_count;
    work_t *unused;
    allocation_t *allocations;
    uint64_t serial;
    int fail_work, fail_submit, fail_allocate;
    emulated_counters_t counters;
};

typedef struct handle {
    int device;
    uint64_t serial;
    uint64_t offset;
} handle_t;
_Static_assert(sizeof(handle_t) <= BATON_DEVICE_HANDLE_BYTES, "");

static pthread_mutex_t list_mutex = PTHREAD_MUTEX_INITIALIZER;
static emulated_t *devices;
static int next_number;

__attribute__((noreturn, format(printf, 1, 2))) static void
give_up(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    fprintf(stderr, "emulated device: ");
    /* clang-tidy 14 loses sight of va_start in a file of two programs. */
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

/* True for the call that a countdown was set for. */
static bool is_due(int *countdown)
{
    return *countdown > 0 && --*countdown == 0;
}

/* ---- memory ---------------------------------------------------------------
 */

static bool is_in_range(const emulated_t *device, const void *memory)
{
    const char *address = memory;
    return address >= device->base &&
           address < device->base + device->options.bytes;
}

static char *followed(const emulated_t *device, const void *memory)
{
    return device->shadow + ((const char *)memory - device->base);
}

/* The allocation that holds all of the range, or NULL. */
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

/* The device in whose range of addresses this is. Under list_mutex. */
static emulated_t *device_of(const void *memory)
{
    emulated_t *at = devices;
    while (at != NULL && !is_in_range(at, memory)) {
        at = at->next;
    }
    return at;
}

static size_t rounded(size_t bytes)
{
    return (bytes + ALIGN) / ALIGN * ALIGN; /* a gap behind each */
}

/* The first gap that is large enough; at NULL there is none. Device memory is
   in the list in the order of addresses, behind pinned memory. */
static char *find_gap(emulated_t *device, size_t bytes, allocation_t ***link)
{
    char *from = device->base;
    *link = &device->allocations;
    for (allocation_t *at = **link; at != NULL; at = **link) {
        if (at->kind == BATON_MEMORY_DEVICE) {
            if ((size_t)(at->address - from) >= rounded(bytes)) {
                return from;
            }
            from = at->address + rounded(at->bytes);
        }
        *link = &at->next;
    }
    size_t used = (size_t)(from - device->base);
    return rounded(bytes) <= device->options.bytes - used ? from : NULL;
}

static baton_status_t no_memory(const emulated_t *device, size_t bytes)
{
    return baton_error_set(BATON_ERR_NO_MEMORY,
                           "%s: there is no memory for %zu bytes", device->name,
                           bytes);
}

/* What is new in memory is never what a test expects. */
static allocation_t *allocate(emulated_t *device, baton_memory_t kind,
                              size_t bytes)
{
    allocation_t *made = malloc(sizeof *made);
    allocation_t **link = &device->allocations;
    char *address = kind == BATON_MEMORY_DEVICE
                        ? find_gap(device, bytes, &link)
                        : aligned_alloc(ALIGN, rounded(bytes));
    if (made == NULL || address == NULL) {
        free(made);
        return NULL;
    }
    memset(kind == BATON_MEMORY_DEVICE ? followed(device, address) : address,
           0xcb, bytes);
    *made =
        (allocation_t){*link, address, bytes, kind, ++device->serial, false};
    *link = made;
    device->counters.allocated++;
    return made;
}

static baton_status_t port_allocate(void *arg, baton_memory_t kind,
                                    size_t bytes, void **out)
{
    emulated_t *device = arg;
    pthread_mutex_lock(&device->mutex);
    allocation_t *made = is_due(&device->fail_allocate) || bytes == 0 ||
                                 bytes > PTRDIFF_MAX - ALIGN
                             ? NULL
                             : allocate(device, kind, bytes);
    if (made != NULL) {
        *out = made->address;
    }
    pthread_mutex_unlock(&device->mutex);
    return made != NULL ? BATON_OK : no_memory(device, bytes);
}

static bool overlaps(const char *a, size_t a_bytes, const char *b,
                     size_t b_bytes)
{
    return a != NULL && a < b + b_bytes && b < a + a_bytes;
}

static bool touches(const work_t *work, const char *memory, size_t bytes)
{
    return overlaps((const char *)work->word, sizeof *work->word, memory,
                    bytes) ||
           overlaps(work->target, work->bytes, memory, bytes) ||
           overlaps(work->left, work->bytes, memory, bytes) ||
           overlaps(work->right, work->bytes, memory, bytes);
}

static bool is_raised(const work_t *work)
{
    return work->word == NULL || atomic_load(work->word) >= work->value;
}

/* Aborts when work that is queued, or being done, will touch the memory. A word
   that is as large as it is waited for is not needed any more. */
static void require_unused(emulated_t *device, const char *memory, size_t bytes)
{
    for (int i = 0; i < device->stream_count; i++) {
        for (work_t *work = device->streams[i]->head; work; work = work->next) {
            if (work->word != NULL &&
                overlaps((const char *)work->word, sizeof *work->word, memory,
                         bytes) &&
                work->kind == AWAIT && is_raised(work)) {
                work->word = NULL;
            }
            if (touches(work, memory, bytes)) {
                give_up("%s has work in stream %d for memory that is released",
                        device->name, i);
            }
        }
    }
}

static void require_unused_anywhere(const char *memory, size_t bytes)
{
    pthread_mutex_lock(&list_mutex);
    for (emulated_t *at = devices; at != NULL; at = at->next) {
        pthread_mutex_lock(&at->mutex);
        require_unused(at, memory, bytes);
        pthread_mutex_unlock(&at->mutex);
    }
    pthread_mutex_unlock(&list_mutex);
}

static void port_release(void *arg, baton_memory_t kind, void *memory)
{
    emulated_t *device = arg;
    if (memory == NULL) {
        return;
    }
    pthread_mutex_lock(&device->mutex);
    allocation_t **link = &device->allocations;
    while (*link != NULL && (*link)->address != memory) {
        link = &(*link)->next;
    }
    allocation_t *gone = *link;
    if (gone == NULL || gone->kind != kind) {
        give_up("%s releases %p, which it did not allocate as that kind",
                device->name, memory);
    }
    char *data =
        kind == BATON_MEMORY_DEVICE ? followed(device, memory) : memory;
    pthread_mutex_unlock(&device->mutex);
    require_unused_anywhere(data, gone->bytes);
    pthread_mutex_lock(&device->mutex);
    memset(data, 0xdd, gone->bytes);
    for (link = &device->allocations; *link != gone;) {
        link = &(*link)->next;
    }
    *link = gone->next;
    device->counters.allocated--;
    pthread_mutex_unlock(&device->mutex);
    if (kind == BATON_MEMORY_HOST) {
        free(memory);
    }
    free(gone);
}

/* Under list_mutex; what the memory is, in words. */
static baton_status_t check_is_device(emulated_t *device, emulated_t *owner,
                                      const void *memory, size_t bytes)
{
    if (owner == NULL) {
        return baton_error_set(BATON_ERR_INVALID, "%s: %p is host memory",
                               device->name, memory);
    }
    if (owner != device) {
        return baton_error_set(BATON_ERR_INVALID,
                               "%s: %p is memory of device %d", device->name,
                               memory, owner->number);
    }
    pthread_mutex_lock(&device->mutex);
    bool all = find(device, memory, bytes) != NULL;
    bool some = find(device, memory, 1) != NULL;
    pthread_mutex_unlock(&device->mutex);
    return all ? BATON_OK
               : baton_error_set(BATON_ERR_INVALID,
                                 some ? "%s: %p is memory of the device, but "
                                        "less than %zu bytes"
                                      : "%s: %p is not allocated (%zu bytes)",
                                 device->name, memory, bytes);
}

static baton_status_t port_check(void *arg, const void *memory, size_t bytes,
                                 baton_memory_t kind)
{
    emulated_t *device = arg;
    if (bytes == 0) {
        return BATON_OK;
    }
    pthread_mutex_lock(&list_mutex);
    emulated_t *owner = device_of(memory);
    baton_status_t status = BATON_OK;
    if (kind == BATON_MEMORY_DEVICE) {
        status = check_is_device(device, owner, memory, bytes);
    } else if (owner != NULL) {
        status =
            baton_error_set(BATON_ERR_INVALID, "%s: %p is memory of device %d",
                            device->name, memory, owner->number);
    }
    pthread_mutex_unlock(&list_mutex);
    return status;
}

/* Where the data of a range are, and in which memory; NULL if the device can't
   reach them. Under list_mutex. */
static char *resolve(emulated_t *device, const void *memory, size_t bytes,
                     bool *on_device, bool *foreign, bool *pinned)
{
    emulated_t *owner = device_of(memory);
    *on_device = owner != NULL;
    *foreign = owner != NULL && owner != device;
    if (owner == NULL) {
        pthread_mutex_lock(&device->mutex);
        *pinned = find(device, memory, bytes) != NULL;
        pthread_mutex_unlock(&device->mutex);
        return (char *)memory;
    }
    *pinned = true;
    pthread_mutex_lock(&owner->mutex);
    const allocation_t *found = find(owner, memory, bytes);
    bool there = found != NULL && (!*foreign || found->opened);
    pthread_mutex_unlock(&owner->mutex);
    return there ? followed(owner, memory) : NULL;
}

/* ---- streams --------------------------------------------------------------
 */

static stream_t *make_stream(emulated_t *device)
{
    stream_t *stream = calloc(1, sizeof *stream);
    if (stream == NULL || device->stream_count == STREAMS_MOST) {
        give_up("%s has no room for a stream", device->name);
    }
    stream->device = device;
    stream->index = device->stream_count;
    device->streams[device->stream_count++] = stream;
    return stream;
}

/* NULL's stream comes behind the device's own. */
static stream_t *stream_of(emulated_t *device, baton_stream_t handle)
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

static work_t *take_work(emulated_t *device)
{
    work_t *work = device->unused;
    if (work != NULL) {
        device->unused = work->next;
        return work;
    }
    work = malloc(sizeof *work);
    if (work == NULL) {
        give_up("%s has no memory for work", device->name);
    }
    return work;
}

static bool is_due_to_fail(emulated_t *device, baton_status_t *status)
{
    bool due = is_due(&device->fail_submit);
    if (due) {
        *status = baton_error_set(
            BATON_ERR_SYSTEM, "%s: a test made this call fail", device->name);
    }
    return due;
}

static baton_status_t not_a_stream(const emulated_t *device,
                                   baton_stream_t handle)
{
    return baton_error_set(BATON_ERR_SYSTEM,
                           "%s: %p is no stream of this device", device->name,
                           handle);
}

/* Puts a piece of work into a stream. Under the device's mutex. */
static baton_status_t submit(emulated_t *device, baton_stream_t handle,
                             const work_t *what)
{
    stream_t *stream = stream_of(device, handle);
    if (stream == NULL) {
        return not_a_stream(device, handle);
    }
    baton_status_t status = BATON_OK;
    if (is_due_to_fail(device, &status)) {
        return status;
    }
    work_t *work = take_work(device);
    *work = *what;
    work->next = NULL;
    *(stream->head == NULL ? &stream->head : &stream->tail->next) = work;
    stream->tail = work;
    stream->submitted++;
    device->counters.submissions++;
    pthread_cond_broadcast(&device->changed);
    return BATON_OK;
}

static baton_status_t submit_alone(emulated_t *device, baton_stream_t stream,
                                   const work_t *what)
{
    pthread_mutex_lock(&device->mutex);
    baton_status_t status = submit(device, stream, what);
    pthread_mutex_unlock(&device->mutex);
    return status;
}

static baton_status_t unreachable(const emulated_t *device, const void *memory,
                                  size_t bytes)
{
    return baton_error_set(BATON_ERR_SYSTEM,
                           "%s: can't reach %zu bytes at %p: they are not "
                           "allocated, or of a device that was not opened",
                           device->name, bytes, memory);
}

static void count_copy(emulated_t *device, bool from_device, bool to_device,
                       bool foreign, bool pinned, size_t bytes)
{
    int direction = from_device ? to_device ? EMULATED_DEVICE_TO_DEVICE
                                            : EMULATED_DEVICE_TO_HOST
                    : to_device ? EMULATED_HOST_TO_DEVICE
                                : EMULATED_HOST_TO_HOST;
    device->counters.copies[direction]++;
    device->counters.copied_bytes[direction] += bytes;
    device->counters.foreign += foreign;
    device->counters.unpinned += !pinned;
}

static baton_status_t port_copy(void *arg, baton_stream_t stream, void *target,
                                const void *source, size_t bytes)
{
    emulated_t *device = arg;
    bool to_device = false, from_device = false, foreign_target = false;
    bool foreign = false, pinned_target = true, pinned = true;
    work_t work = {.kind = COPY, .bytes = bytes};
    if (bytes > 0) {
        pthread_mutex_lock(&list_mutex);
        work.left =
            resolve(device, source, bytes, &from_device, &foreign, &pinned);
        work.target = resolve(device, target, bytes, &to_device,
                              &foreign_target, &pinned_target);
        pthread_mutex_unlock(&list_mutex);
        if (work.left == NULL || work.target == NULL || foreign_target) {
            return unreachable(device, work.left == NULL ? source : target,
                               bytes);
        }
    }
    pthread_mutex_lock(&device->mutex);
    baton_status_t status = submit(device, stream, &work);
    if (status == BATON_OK) {
        count_copy(device, from_device, to_device, foreign,
                   pinned && pinned_target, bytes);
    }
    pthread_mutex_unlock(&device->mutex);
    return status;
}

static bool port_reduces(void *arg, const baton_op_t *op, baton_dtype_t dtype)
{
    const emulated_t *device = arg;
    bool built_in = op == BATON_SUM || op == BATON_PROD || op == BATON_MIN ||
                    op == BATON_MAX;
    return baton_op_element_bytes(op, dtype) > 0 &&
           (built_in || !device->options.builtin_only);
}

/* Whether the range is allocated here; *out is where its data are. Nothing is
   anywhere. Under the device's mutex. */
static bool reach(const emulated_t *device, const void *memory, size_t bytes,
                  char **out)
{
    bool there = bytes == 0 || (is_in_range(device, memory) &&
                                find(device, memory, bytes) != NULL);
    *out = there && bytes > 0 ? followed(device, memory) : NULL;
    return there;
}

/* Puts the work into the stream, if all that it touches was reached. */
static baton_status_t submit_reached(emulated_t *device, baton_stream_t stream,
                                     const work_t *work, bool reached)
{
    baton_status_t status =
        reached ? submit(device, stream, work)
                : baton_error_set(BATON_ERR_SYSTEM,
                                  "%s: what work is to touch is not allocated "
                                  "on the device",
                                  device->name);
    *(work->kind == REDUCE ? &device->counters.reduces
                           : &device->counters.on_entries) +=
        status == BATON_OK;
    pthread_mutex_unlock(&device->mutex);
    return status;
}

static baton_status_t port_reduce(void *arg, baton_stream_t stream,
                                  const baton_op_t *op, baton_dtype_t dtype,
                                  void *target, const void *left,
                                  const void *right, size_t count)
{
    emulated_t *device = arg;
    work_t work = {.kind = REDUCE,
                   .op = op,
                   .dtype = dtype,
                   .bytes = count * baton_op_element_bytes(op, dtype),
                   .count = count};
    char *first = NULL, *second = NULL;
    pthread_mutex_lock(&device->mutex);
    bool reached = reach(device, target, work.bytes, &work.target) &&
                   reach(device, left, work.bytes, &first) &&
                   reach(device, right, work.bytes, &second);
    work.left = first;
    work.right = second;
    return submit_reached(device, stream, &work, reached);
}

/* ---- selection and lists --------------------------------------------------
 */

static size_t port_select_bytes(void *arg, baton_dtype_t dtype, size_t count,
                                size_t k)
{
    (void)arg;
    (void)dtype;
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
    emulated_t *device = arg;
    work_t work = {.kind = SELECT, .bytes = 1, .selection = *given};
    const baton_selection_t *from = &given->from;
    size_t bytes = from->count * baton_dtype_size(from->dtype);
    size_t most = is_sampled(given) ? 2 * given->k : given->k;
    size_t scratch = baton_select_scratch_bytes(from->count, given->k);
    char *values = NULL, *left = NULL, *right = NULL;
    most = most < from->count ? most : from->count;
    pthread_mutex_lock(&device->mutex);
    bool reached =
        reach(device, from->values, bytes, &values) &&
        reach(device, given->indices, most * sizeof *given->indices, &right) &&
        reach(device, given->selected, sizeof *given->selected, &work.target) &&
        reach(device, given->scratch, scratch, &left);
    work.selection.from.values = values;
    work.left = left;
    work.right = right;
    work.count = most;
    return submit_reached(device, stream, &work, reached);
}

static baton_status_t port_entries(void *arg, baton_stream_t stream,
                                   const baton_device_transfer_t *given)
{
    emulated_t *device = arg;
    const baton_device_entries_t *list = &given->list;
    bool any = list->capacity > 0;
    bool reads = given->direction <= BATON_DEVICE_TAKE;
    work_t work = {.kind = ENTRIES,
                   .direction = given->direction,
                   .dtype = list->dtype,
                   .bytes = 1,
                   .count = list->capacity,
                   .factor = given->factor};
    char *count = NULL, *right = NULL;
    pthread_mutex_lock(&device->mutex);
    bool reached =
        reach(device, list->data,
              list->capacity * baton_entry_bytes(list->dtype), &work.target) &&
        reach(device, list->count,
              list->count != NULL ? sizeof *list->count : 0, &count) &&
        reach(device, given->indices,
              reads ? list->capacity * sizeof *given->indices : 0, &right) &&
        reach(device, given->dense, any ? 1 : 0, &work.dense);
    work.list_count = (const void *)count;
    work.right = right;
    return submit_reached(device, stream, &work, reached);
}

static baton_status_t port_scale(void *arg, baton_stream_t stream,
                                 baton_dtype_t dtype, void *target,
                                 const void *source, size_t count,
                                 double factor)
{
    emulated_t *device = arg;
    work_t work = {.kind = SCALE,
                   .dtype = dtype,
                   .count = count,
                   .bytes = count * baton_dtype_size(dtype),
                   .factor = factor};
    char *left = NULL;
    pthread_mutex_lock(&device->mutex);
    bool reached = reach(device, target, work.bytes, &work.target) &&
                   reach(device, source, work.bytes, &left);
    work.left = left;
    return submit_reached(device, stream, &work, reached);
}

static baton_status_t port_square_sum(void *arg, baton_stream_t stream,
                                      baton_dtype_t dtype, const void *values,
                                      size_t count, double *sum_out,
                                      void *scratch)
{
    emulated_t *device = arg;
    work_t work = {.kind = SQUARE, .dtype = dtype, .count = count, .bytes = 1};
    char *left = NULL, *unused = NULL;
    pthread_mutex_lock(&device->mutex);
    bool reached =
        reach(device, values, count * baton_dtype_size(dtype), &left) &&
        reach(device, sum_out, sizeof *sum_out, &work.target) &&
        reach(device, scratch, baton_select_scratch_bytes(count, 1), &unused);
    work.left = left;
    return submit_reached(device, stream, &work, reached);
}

static baton_status_t port_clear(void *arg, baton_stream_t stream, void *target,
                                 size_t bytes)
{
    emulated_t *device = arg;
    work_t work = {.kind = CLEAR, .bytes = bytes};
    pthread_mutex_lock(&device->mutex);
    bool reached = reach(device, target, bytes, &work.target);
    return submit_reached(device, stream, &work, reached);
}

/* ---- events and flags ------------------------------------------------------
 */

static baton_status_t port_event_create(void *arg, void **out)
{
    emulated_t *device = arg;
    event_t *event = calloc(1, sizeof *event);
    if (event == NULL) {
        return no_memory(device, sizeof *event);
    }
    pthread_mutex_lock(&device->mutex);
    device->counters.events++;
    pthread_mutex_unlock(&device->mutex);
    *out = event;
    return BATON_OK;
}

static void port_event_destroy(void *arg, void *handle)
{
    emulated_t *device = arg;
    event_t *event = handle;
    pthread_mutex_lock(&device->mutex);
    device->counters.events -= event != NULL;
    pthread_mutex_unlock(&device->mutex);
    free(event);
}

static baton_status_t port_record(void *arg, baton_stream_t handle, void *event)
{
    emulated_t *device = arg;
    pthread_mutex_lock(&device->mutex);
    stream_t *stream = stream_of(device, handle);
    baton_status_t status = BATON_OK;
    if (stream == NULL) {
        status = not_a_stream(device, handle);
    } else if (!is_due_to_fail(device, &status)) {
        *(event_t *)event = (event_t){stream, stream->submitted};
        device->counters.records++;
    }
    pthread_mutex_unlock(&device->mutex);
    return status;
}

static baton_status_t port_follow(void *arg, baton_stream_t stream, void *event)
{
    emulated_t *device = arg;
    pthread_mutex_lock(&device->mutex);
    const work_t work = {.kind = FOLLOW, .event = *(event_t *)event};
    baton_status_t status = submit(device, stream, &work);
    device->counters.follows += status == BATON_OK;
    pthread_mutex_unlock(&device->mutex);
    return status;
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

/* An error says, too, that nothing before the event is in progress. */
static baton_status_t port_query(void *arg, void *handle)
{
    emulated_t *device = arg;
    pthread_mutex_lock(&device->mutex);
    device->counters.queries++;
    event_t event = *(const event_t *)handle;
    bool reached = is_reached(&event);
    bool failed = reached && has_failed(&event);
    pthread_mutex_unlock(&device->mutex);
    return failed ? baton_error_set(
                        BATON_ERR_SYSTEM,
                        "%s: work in stream %d failed, as a test asked",
                        device->name, event.stream->index)
                  : (reached ? BATON_OK : BATON_AGAIN);
}

static baton_status_t put_word(emulated_t *device, baton_stream_t stream,
                               kind_t kind, uint64_t *word, uint64_t value)
{
    work_t work = {
        .kind = kind, .word = (_Atomic uint64_t *)word, .value = value};
    pthread_mutex_lock(&device->mutex);
    bool pinned =
        !is_in_range(device, word) && find(device, word, sizeof *word) != NULL;
    baton_status_t status =
        pinned ? submit(device, stream, &work)
               : baton_error_set(BATON_ERR_SYSTEM,
                                 "%s: %p is not in pinned memory", device->name,
                                 (void *)word);
    device->counters.raises += status == BATON_OK && kind == RAISE;
    pthread_mutex_unlock(&device->mutex);
    return status;
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

/* ---- the threads ------------------------------------------------------------
 */

/* Half of the pieces of work are delayed when they get to the front. */
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
           (work->kind == FOLLOW  ? is_reached(&work->event)
            : work->kind == AWAIT ? is_raised(work)
                                  : true);
}

/* A stream with work that can be done now, at random; or NULL, and when there
   may be one (INT64_MAX: when something has changed). */
static stream_t *choose(emulated_t *device, int64_t *when)
{
    stream_t *chosen = NULL;
    uint64_t candidates = 0;
    int64_t now = 0;
    *when = INT64_MAX;
    for (int i = 0; i < device->stream_count; i++) {
        stream_t *stream = device->streams[i];
        work_t *work = stream->head;
        if (work == NULL || stream->busy) {
            continue;
        }
        if (!is_ready(stream, work)) {
            if (work->kind == AWAIT) { /* the host tells nobody of a word */
                now = now == 0 ? now_us() : now;
                *when = now + LOOK_US < *when ? now + LOOK_US : *when;
            }
            continue;
        }
        int64_t begin = begin_of(device, work);
        now = begin > 0 && now == 0 ? now_us() : now;
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
        pthread_cond_wait(&device->changed, &device->mutex);
        return;
    }
    struct timespec time = {until / 1000000, until % 1000000 * 1000};
    (void)pthread_cond_timedwait(&device->changed, &device->mutex, &time);
}

/* `target` has the number and threshold, `left` the scratch and `right` the
   indices. TRIMMED has the same result. */
static void do_topk(const work_t *work)
{
    baton_device_selected_t *out = (void *)work->target;
    out->count =
        baton_select_topk(&work->selection.from, work->selection.k,
                          (void *)(uintptr_t)work->right,
                          (void *)(uintptr_t)work->left, &out->threshold);
}

/* Whether the threshold leaves as many elements as there is room for. */
static bool do_threshold(const work_t *work)
{
    baton_device_selected_t *out = (void *)work->target;
    out->count =
        baton_select_at_least(&work->selection.from, out->threshold,
                              (void *)(uintptr_t)work->right, work->count);
    return out->threshold != 0 && out->count <= 2 * work->selection.k;
}

static void do_sampled(const work_t *work)
{
    baton_device_selected_t *out = (void *)work->target;
    if (work->selection.method == BATON_DEVICE_REUSED && do_threshold(work)) {
        return;
    }
    out->threshold = baton_select_search(
        &work->selection.from, work->selection.k,
        (void *)(uintptr_t)work->right, (void *)(uintptr_t)work->left);
    if (!do_threshold(work)) {
        do_topk(work);
    }
}

/* `target` has the entries, `right` the indices that are gathered. */
static void do_list(const work_t *work)
{
    size_t count = work->count;
    if (work->list_count != NULL && *work->list_count < count) {
        count = (size_t)*work->list_count;
    }
    if (count == 0) {
        return;
    }
    const uint32_t *indices = (const void *)work->right;
    if (work->direction == BATON_DEVICE_PUT) {
        baton_entries_put(work->dtype, work->target, count, work->dense);
    } else if (work->direction == BATON_DEVICE_ADD) {
        baton_entries_add(work->dtype, work->target, count, work->factor,
                          work->dense);
    } else if (work->direction == BATON_DEVICE_TAKE) {
        baton_entries_take(work->dtype, work->target, indices, count,
                           work->dense);
    } else {
        baton_entries_gather(work->dtype, work->target, indices, count,
                             work->dense);
    }
}

static void do_scale(const work_t *work)
{
    if (work->count > 0) {
        memmove(work->target, work->left, work->bytes);
        baton_elements_scale(work->dtype, work->target, work->count,
                             work->factor);
    }
}

/* Without a lock. */
static void do_work(const work_t *work)
{
    if (work->kind == COPY && work->bytes > 0) {
        memmove(work->target, work->left, work->bytes);
    } else if (work->kind == REDUCE && work->bytes > 0) {
        work->op->reduce(work->op->arg, work->target, work->left, work->right,
                         work->count, work->dtype);
    } else if (work->kind == SELECT && is_sampled(&work->selection)) {
        do_sampled(work);
    } else if (work->kind == SELECT) {
        do_topk(work);
    } else if (work->kind == ENTRIES) {
        do_list(work);
    } else if (work->kind == SCALE) {
        do_scale(work);
    } else if (work->kind == SQUARE) {
        double *sum = (void *)work->target;
        *sum =
            work->count == 0
                ? 0
                : baton_elements_measure(work->dtype, work->left, work->count)
                      .square_sum;
    } else if (work->kind == CLEAR && work->bytes > 0) {
        memset(work->target, 0, work->bytes);
    } else if (work->kind == CALL) {
        work->fn(work->arg);
    }
}

static void ring(emulated_t *device)
{
    uint64_t one = 1;
    ssize_t written = write(device->event_fd, &one, sizeof one);
    (void)written;
}

/* Takes the first piece of work off a stream, which has been done. */
static void retire(emulated_t *device, stream_t *stream)
{
    work_t *work = stream->head;
    stream->head = work->next;
    stream->completed++;
    stream->busy = false;
    work->next = device->unused;
    device->unused = work;
    if (stream->armed != 0 && stream->completed >= stream->armed) {
        stream->armed = 0;
        ring(device);
    }
    pthread_cond_broadcast(&device->changed);
}

static void work_on(emulated_t *device, stream_t *stream)
{
    work_t *work = stream->head;
    uint64_t position = stream->completed + 1;
    bool counts = work->kind <= CALL;
    if (stream->failed_at == 0 &&
        ((counts && is_due(&device->fail_work)) ||
         (work->kind == FOLLOW && has_failed(&work->event)))) {
        stream->failed_at = position;
    }
    stream->busy = true;
    if (stream->failed_at == 0 && work->kind == RAISE) {
        raise_to(work->word, work->value);
    } else if (stream->failed_at == 0 && counts) {
        pthread_mutex_unlock(&device->mutex);
        do_work(work);
        pthread_mutex_lock(&device->mutex);
    }
    retire(device, stream);
}

static void *work_off(void *arg)
{
    emulated_t *device = arg;
    pthread_mutex_lock(&device->mutex);
    while (!device->closing) {
        int64_t when;
        stream_t *stream = choose(device, &when);
        if (stream != NULL) {
            work_on(device, stream);
        } else {
            await_change(device, when);
        }
    }
    pthread_mutex_unlock(&device->mutex);
    return NULL;
}

/* ---- sleep, handles --------------------------------------------------------
 */

/* Rings once for each of the device's own streams that has work. */
static baton_status_t port_arm(void *arg)
{
    emulated_t *device = arg;
    pthread_mutex_lock(&device->mutex);
    for (int i = 0; i < BATON_DEVICE_STREAMS; i++) {
        stream_t *stream = device->streams[i];
        if (stream->completed < stream->submitted) {
            stream->armed = stream->submitted;
        }
    }
    pthread_mutex_unlock(&device->mutex);
    return BATON_OK;
}

static baton_status_t no_handle(const emulated_t *device, const char *why)
{
    return baton_error_set(BATON_ERR_UNSUPPORTED, "%s: %s", device->name, why);
}

static baton_status_t
port_get_handle(void *arg, const void *memory,
                unsigned char out[BATON_DEVICE_HANDLE_BYTES])
{
    emulated_t *device = arg;
    pthread_mutex_lock(&device->mutex);
    const allocation_t *in =
        is_in_range(device, memory) ? find(device, memory, 1) : NULL;
    handle_t handle = {0};
    if (in != NULL) {
        handle.device = device->number;
        handle.serial = in->serial;
        handle.offset = (uint64_t)((const char *)memory - in->address);
    }
    pthread_mutex_unlock(&device->mutex);
    if (in == NULL) {
        return no_handle(device, "there is no handle for such memory");
    }
    memset(out, 0, BATON_DEVICE_HANDLE_BYTES);
    memcpy(out, &handle, sizeof handle);
    return BATON_OK;
}

/* Where a handle's memory is, or NULL. Under list_mutex. */
static const char *open_memory(const handle_t *handle)
{
    emulated_t *owner = devices;
    while (owner != NULL && owner->number != handle->device) {
        owner = owner->next;
    }
    const char *found = NULL;
    if (owner != NULL) {
        pthread_mutex_lock(&owner->mutex);
        for (allocation_t *at = owner->allocations; at; at = at->next) {
            if (at->serial == handle->serial) {
                found = at->address + handle->offset;
                at->opened = true;
            }
        }
        pthread_mutex_unlock(&owner->mutex);
    }
    return found;
}

static baton_status_t
port_open_handle(void *arg,
                 const unsigned char bytes[BATON_DEVICE_HANDLE_BYTES],
                 const void **out)
{
    emulated_t *device = arg;
    handle_t handle;
    memcpy(&handle, bytes, sizeof handle);
    pthread_mutex_lock(&list_mutex);
    const char *address = open_memory(&handle);
    pthread_mutex_unlock(&list_mutex);
    if (address == NULL) {
        return no_handle(device, "the handle's memory is not in this process");
    }
    *out = address;
    return BATON_OK;
}

/* ---- open and close ---------------------------------------------------------
 */

static void free_stream(stream_t *stream)
{
    while (stream->head != NULL) {
        work_t *work = stream->head;
        stream->head = work->next;
        free(work);
    }
    free(stream);
}

static void leave_list(emulated_t *device)
{
    pthread_mutex_lock(&list_mutex);
    emulated_t **link = &devices;
    while (*link != device) {
        link = &(*link)->next;
    }
    *link = device->next;
    pthread_mutex_unlock(&list_mutex);
}

static void free_memory(emulated_t *device)
{
    while (device->allocations != NULL) {
        allocation_t *at = device->allocations;
        device->allocations = at->next;
        if (at->kind == BATON_MEMORY_HOST) {
            free(at->address);
        }
        free(at);
    }
    munmap(device->base, device->options.bytes);
    munmap(device->shadow, device->options.bytes);
}

/* Work that is being done ends; what is queued behind it is forgotten. */
static void port_close(void *arg)
{
    emulated_t *device = arg;
    pthread_mutex_lock(&device->mutex);
    device->closing = true;
    pthread_cond_broadcast(&device->changed);
    pthread_mutex_unlock(&device->mutex);
    for (int i = 0; i < device->options.workers; i++) {
        pthread_join(device->threads[i], NULL);
    }
    leave_list(device);
    for (int i = 0; i < device->stream_count; i++) {
        free_stream(device->streams[i]);
    }
    while (device->unused != NULL) {
        work_t *work = device->unused;
        device->unused = work->next;
        free(work);
    }
    free_memory(device);
    close(device->event_fd);
    pthread_cond_destroy(&device->changed);
    pthread_mutex_destroy(&device->mutex);
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
                                         .square_sum = port_square_sum,
                                         .clear = port_clear};

static void *map(size_t bytes, int access)
{
    void *memory = mmap(NULL, bytes, access,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        give_up("can't map %zu bytes: %s", bytes, strerror(errno));
    }
    return memory;
}

static emulated_options_t with_defaults(const emulated_options_t *given)
{
    emulated_options_t made = given != NULL ? *given : (emulated_options_t){0};
    made.workers = made.workers > 0 ? made.workers : 2;
    made.delay_us = made.delay_us > 0 ? made.delay_us : 50;
    made.bytes = made.bytes > 0 ? made.bytes : (size_t)256 << 20;
    made.bytes = (made.bytes + 65535) / 65536 * 65536;
    return made;
}

static void start_threads(emulated_t *device)
{
    pthread_condattr_t monotonic;
    pthread_mutex_init(&device->mutex, NULL);
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

static void join_list(emulated_t *device)
{
    pthread_mutex_lock(&list_mutex);
    device->number = next_number++;
    snprintf(device->name, sizeof device->name, "emulated:%d", device->number);
    device->next = devices;
    devices = device;
    pthread_mutex_unlock(&list_mutex);
}

emulated_t *emulated_open(const emulated_options_t *options)
{
    emulated_t *device = calloc(1, sizeof *device);
    if (device == NULL) {
        give_up("there is no memory for a device");
    }
    device->options = with_defaults(options);
    device->base = map(device->options.bytes, PROT_NONE);
    device->shadow = map(device->options.bytes, PROT_READ | PROT_WRITE);
    device->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    device->random = support_random(device->options.seed, 4711);
    device->port = PORT;
    device->port.descriptor = device->event_fd;
    for (int i = 0; i <= BATON_DEVICE_STREAMS; i++) { /* and NULL's */
        stream_t *stream = make_stream(device);
        if (i < BATON_DEVICE_STREAMS) {
            device->port.streams[i] = stream;
        }
    }
    device->port.kin = (uint64_t)getpid();
    if (device->options.no_handles) {
        device->port.get_handle = NULL;
        device->port.open_handle = NULL;
        device->port.kin = 0;
    }
    if (device->options.no_selection) {
        device->port.select_bytes = NULL;
        device->port.select = NULL;
        device->port.entries = NULL;
        device->port.scale = NULL;
        device->port.square_sum = NULL;
        device->port.clear = NULL;
    }
    start_threads(device);
    join_list(device);
    device->port.name = device->name;
    return device;
}

const baton_device_port_t *emulated_port(const emulated_t *device)
{
    return &device->port;
}

/* ---- for tests
 * --------------------------------------------------------------- */

static void set(emulated_t *device, int *what, int value)
{
    pthread_mutex_lock(&device->mutex);
    *what = value;
    pthread_mutex_unlock(&device->mutex);
}

void emulated_fail_work(emulated_t *device, int k)
{
    set(device, &device->fail_work, k);
}

void emulated_fail_submit(emulated_t *device, int k)
{
    set(device, &device->fail_submit, k);
}

void emulated_fail_allocate(emulated_t *device, int k)
{
    set(device, &device->fail_allocate, k);
}

void emulated_repair(emulated_t *device)
{
    pthread_mutex_lock(&device->mutex);
    for (int i = 0; i < device->stream_count; i++) {
        device->streams[i]->failed_at = 0;
    }
    device->fail_work = device->fail_submit = device->fail_allocate = 0;
    pthread_cond_broadcast(&device->changed);
    pthread_mutex_unlock(&device->mutex);
}

emulated_counters_t emulated_counters(emulated_t *device)
{
    pthread_mutex_lock(&device->mutex);
    emulated_counters_t counters = device->counters;
    pthread_mutex_unlock(&device->mutex);
    return counters;
}

baton_stream_t emulated_stream(emulated_t *device)
{
    pthread_mutex_lock(&device->mutex);
    stream_t *stream = make_stream(device);
    pthread_mutex_unlock(&device->mutex);
    return stream;
}

void emulated_delay(emulated_t *device, baton_stream_t stream, int us)
{
    const work_t work = {.kind = DELAY, .delay_us = us};
    if (submit_alone(device, stream, &work) != BATON_OK) {
        give_up("%s", baton_error_message());
    }
}

baton_status_t emulated_call(emulated_t *device, baton_stream_t stream,
                             void (*fn)(void *arg), void *arg)
{
    const work_t work = {.kind = CALL, .fn = fn, .arg = arg};
    return submit_alone(device, stream, &work);
}

void *emulated_gate(emulated_t *device)
{
    void *gate = NULL;
    if (port_allocate(device, BATON_MEMORY_HOST, sizeof(uint64_t), &gate)) {
        give_up("%s", baton_error_message());
    }
    atomic_init((_Atomic uint64_t *)gate, 0);
    return gate;
}

void emulated_open_gate(emulated_t *device, void *gate, uint64_t value)
{
    pthread_mutex_lock(&device->mutex);
    raise_to(gate, value);
    pthread_cond_broadcast(&device->changed);
    pthread_mutex_unlock(&device->mutex);
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
        pthread_cond_wait(&device->changed, &device->mutex);
    }
}

void emulated_synchronise(emulated_t *device, baton_stream_t handle)
{
    pthread_mutex_lock(&device->mutex);
    stream_t *stream = stream_of(device, handle);
    if (stream == NULL) {
        give_up("%s waits for a stream that is not its own", device->name);
    }
    wait_for(device, stream);
    pthread_mutex_unlock(&device->mutex);
}

void emulated_synchronise_all(emulated_t *device)
{
    pthread_mutex_lock(&device->mutex);
    for (int i = 0; i < device->stream_count; i++) {
        wait_for(device, device->streams[i]);
    }
    pthread_mutex_unlock(&device->mutex);
}

void *emulated_allocate(emulated_t *device, size_t bytes)
{
    void *memory = NULL;
    if (port_allocate(device, BATON_MEMORY_DEVICE, bytes, &memory)) {
        give_up("%s", baton_error_message());
    }
    return memory;
}

void emulated_release(emulated_t *device, void *memory)
{
    port_release(device, BATON_MEMORY_DEVICE, memory);
}

static char *must_find(emulated_t *device, const void *memory, size_t bytes)
{
    if (port_check(device, memory, bytes, BATON_MEMORY_DEVICE)) {
        give_up("%s", baton_error_message());
    }
    return followed(device, memory);
}

void emulated_read(emulated_t *device, void *target, const void *source,
                   size_t bytes)
{
    if (bytes > 0) {
        memcpy(target, must_find(device, source, bytes), bytes);
    }
}

void emulated_write(emulated_t *device, void *target, const void *source,
                    size_t bytes)
{
    if (bytes > 0) {
        memcpy(must_find(device, target, bytes), source, bytes);
    }
}
