/* The bootstrap through a store. Each exchange has a number. Each rank puts its
   record under NAME.NUMBER.RANK; rank 0 gets all records, and puts them
   together under NAME.NUMBER.all: its answer, which the others get. So an
   exchange of P ranks takes 4 P calls of the store, and not P squared.

   Each record begins with a random number that its rank has chosen for this
   group. A rank takes only an answer whose copy of its own record begins with
   that random number, because the last answer may stay in the store, and a
   later group may have the same name.

   The callers on different ranks may give different sizes of the group; then
   rank 0 may wait for ranks that never come. So in the first exchange the other
   ranks read rank 0's record while they wait, and rank 0 says there which rank
   has another size.

   If some ranks share no memory, which are mostly ranks of several hosts, the
   ranks make a wire of UCX: they exchange the sizes of their workers'
   addresses, and then the addresses. */
#include "transport/mpi/bootstrap_store.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "transport/mpi/exchange.h"
#include "transport/mpi/wire_ucx.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    NAME_CHARS = 100,
    /* The longest time for which rank 0 waits until the other ranks have got
       the last answer. */
    CONFIRM_NS = 1000000000,
    CONFIRM_SLEEP_NS = 1000000 /* the sleep between two looks at the store */
};

/* A rank's report about its end of the wire, which all other ranks get. */
typedef struct wire_end {
    int status;   /* BATON_OK: the rank has opened its end */
    size_t bytes; /* bytes of the address of the rank's worker (wire_ucx.h) */
} wire_end_t;

/* The beginning of each record. */
typedef struct head {
    uint64_t nonce;
    int32_t size; /* the group's size, as the caller on this rank gave it */
    /* In a record of rank 0: another rank, whose caller gave the size
       `odd_size`, which is not that of rank 0. 0: no such rank is known. */
    int32_t odd, odd_size, unused;
} head_t;

typedef struct bootstrap_store {
    /* This field is first, since this file casts its address. */
    baton__bootstrap_t shared;
    const baton__store_use_t *use;
    head_t head;         /* the head of this rank's records */
    unsigned exchange;   /* number of the current exchange, from 1 on */
    unsigned char *data; /* result of the current exchange */
    size_t bytes;        /* bytes of a record in `data` */
    /* The records of all ranks as they are in the store, each with its head. */
    unsigned char *records;
    int received; /* rank 0: number of records received, its own included */
    /* The answer of rank 0 that this rank last found in the store is one to
       another group. So this rank goes on waiting. */
    bool foreign;
    bool spans; /* the group needs a wire */
} bootstrap_store_t;

typedef struct store_key {
    char text[NAME_CHARS + 40];
} store_key_t;

/* Returns the key of a rank's record, or of rank 0's answer if `rank` is -1. */
static store_key_t store_key_of(unsigned exchange, int rank)
{
    store_key_t key;
    if (rank < 0) {
        (void)snprintf(key.text, sizeof key.text, "%u.all", exchange);
    } else {
        (void)snprintf(key.text, sizeof key.text, "%u.%d", exchange, rank);
    }
    return key;
}

static store_key_t whole_key(const baton__store_use_t *use, const char *key)
{
    store_key_t whole;
    (void)snprintf(whole.text, sizeof whole.text, "%.*s.%.38s", NAME_CHARS,
                   use->name, key);
    return whole;
}

/* The first bytes of this thread's error message, saved before a call of the
   store. If the call fails and the message has changed since, the store has set
   the message, and it says why the call failed. */
typedef struct said {
    char text[160];
} said_t;

static said_t last_said(void)
{
    said_t said;
    (void)snprintf(said.text, sizeof said.text, "%s", baton_error_message());
    return said;
}

/* Sets the error of a call of the store. `before` is what last_said() returned
   before the call. */
static baton_status_t check_call(const baton__store_use_t *use,
                                 const char *call, const store_key_t *key,
                                 baton_status_t status, said_t before)
{
    if (status == BATON_OK) {
        return status;
    }
    const said_t said = last_said();
    const bool changed = strcmp(said.text, before.text) != 0;
    return baton__error(
        baton__failure_of(status), "%s: the store's %s of %s failed (%s%s%s)",
        use->function, call, key->text, baton_status_text(status),
        changed ? ": " : "", changed ? said.text : "");
}

baton_status_t baton__store_put(const baton__store_use_t *use, const char *key,
                                const void *value, size_t bytes)
{
    const store_key_t whole = whole_key(use, key);
    const said_t before = last_said();
    baton_status_t status =
        use->store->put(use->store->context, whole.text, value, bytes);
    return check_call(use, "put", &whole, status, before);
}

baton_status_t baton__store_get(const baton__store_use_t *use, const char *key,
                                void *value, size_t bytes, size_t *bytes_out)
{
    const store_key_t whole = whole_key(use, key);
    const said_t before = last_said();
    baton_status_t status = use->store->get(use->store->context, whole.text,
                                            value, bytes, bytes_out);
    return status == BATON_AGAIN
               ? status
               : check_call(use, "get", &whole, status, before);
}

void baton__store_remove(const baton__store_use_t *use, const char *key)
{
    const store_key_t whole = whole_key(use, key);
    if (use->store->remove != NULL) {
        use->store->remove(use->store->context, whole.text);
    }
}

static baton_status_t store_put(const bootstrap_store_t *self, int rank,
                                const void *value, size_t bytes)
{
    const store_key_t key = store_key_of(self->exchange, rank);
    return baton__store_put(self->use, key.text, value, bytes);
}

static baton_status_t store_get(const bootstrap_store_t *self, int rank,
                                void *value, size_t bytes, size_t *bytes_out)
{
    const store_key_t key = store_key_of(self->exchange, rank);
    return baton__store_get(self->use, key.text, value, bytes, bytes_out);
}

static void store_remove(const bootstrap_store_t *self, unsigned exchange,
                         int rank)
{
    const store_key_t key = store_key_of(exchange, rank);
    if (exchange > 0) {
        baton__store_remove(self->use, key.text);
    }
}

/* ---- the bootstrap ------------------------------------------------------- */

static unsigned char *store_allocate(size_t bytes)
{
    unsigned char *memory = baton__alloc(1, bytes);
    if (memory == NULL) {
        (void)baton__error(BATON_ERR_NO_MEMORY,
                           "baton_group_create_store: no memory");
    }
    return memory;
}

static void store_release(baton__bootstrap_t *shared, unsigned char *memory)
{
    baton__free(memory);
}

/* Makes space for records of `bytes` bytes, without their heads, and for those
   of any exchange but that of the addresses. Returns false if there is no
   memory. */
static bool make_records(bootstrap_store_t *self, size_t bytes)
{
    const size_t size = (size_t)self->shared.size;
    bytes = bytes > size ? bytes : size;
    bytes = bytes > BATON__EXCHANGE_BYTES ? bytes : BATON__EXCHANGE_BYTES;
    baton__free(self->records);
    self->records = store_allocate(size * (sizeof(head_t) + bytes));
    return self->records != NULL;
}

static unsigned char *record_of(const bootstrap_store_t *self, int rank)
{
    return self->records + (size_t)rank * (sizeof(head_t) + self->bytes);
}

static baton_status_t store_gather(baton__bootstrap_t *shared,
                                   unsigned char *data, size_t bytes)
{
    bootstrap_store_t *self = (bootstrap_store_t *)shared;
    self->exchange++;
    self->data = data;
    self->bytes = bytes;
    self->received = 1;
    unsigned char *own = record_of(self, shared->rank);
    memcpy(own, &self->head, sizeof self->head);
    memcpy(own + sizeof self->head, data + (size_t)shared->rank * bytes, bytes);
    return store_put(self, shared->rank, own, sizeof self->head + bytes);
}

/* Sets the error that rank 0's caller gave the size `first`, and the caller on
   `rank` the size `size`. */
static baton_status_t tell_sizes(const bootstrap_store_t *self, int first,
                                 int rank, int size)
{
    return baton__error(
        BATON_ERR_MISMATCH,
        "%s: the group has %d ranks according to rank 0, and %d according to "
        "rank %d (if none of your ranks says so, the store still has values of "
        "a group that was not completed: choose another name)",
        self->shared.function, first, size, rank);
}

/* Checks the head of a record that rank 0 has received. If the caller on that
   rank gave another size, replaces rank 0's own record by one that says so, for
   the other ranks, and returns the error. */
static baton_status_t store_check_size(bootstrap_store_t *self, int rank)
{
    head_t head;
    memcpy(&head, record_of(self, rank), sizeof head);
    if (head.size == self->shared.size) {
        return BATON_OK;
    }
    self->head.odd = rank;
    self->head.odd_size = head.size;
    baton_status_t status = store_put(self, 0, &self->head, sizeof self->head);
    return status == BATON_OK
               ? tell_sizes(self, self->shared.size, rank, head.size)
               : status;
}

/* Gets the records that rank 0 still lacks. Puts the answer into the store when
   rank 0 has all records. */
static baton_status_t collect(bootstrap_store_t *self)
{
    const size_t bytes = sizeof(head_t) + self->bytes;
    const int size = self->shared.size;
    baton_status_t status = BATON_OK;
    while (self->received < size && status == BATON_OK) {
        size_t stored = 0;
        status = store_get(self, self->received,
                           record_of(self, self->received), bytes, &stored);
        if (status == BATON_OK && stored != bytes) {
            return baton__error(BATON_ERR_MISMATCH,
                                "%s: the record of rank %d has %zu bytes, and "
                                "not %zu: have all ranks load one libbaton",
                                self->shared.function, self->received, stored,
                                bytes);
        }
        if (status == BATON_OK) {
            status = store_check_size(self, self->received++);
        }
    }
    if (status == BATON_OK) {
        status = store_put(self, -1, self->records, bytes * (size_t)size);
        store_remove(self, self->exchange - 1, -1);
    }
    return status;
}

/* Reads rank 0's record while rank 0 has not answered: the record says whether
   a rank gives the group another size. Returns BATON_AGAIN if no other size is
   known. */
static baton_status_t ask_rank_0(const bootstrap_store_t *self)
{
    const int size = self->shared.size;
    head_t first = {.size = size};
    size_t stored = 0;
    if (self->exchange > 1) {
        return BATON_AGAIN;
    }
    baton_status_t status = store_get(self, 0, &first, sizeof first, &stored);
    if (status != BATON_OK) {
        return status;
    }
    if (first.size != size) {
        return tell_sizes(self, first.size, self->shared.rank, size);
    }
    return first.odd != 0 ? tell_sizes(self, size, first.odd, first.odd_size)
                          : BATON_AGAIN;
}

static baton_status_t store_take_answer(bootstrap_store_t *self)
{
    const size_t bytes =
        (sizeof(head_t) + self->bytes) * (size_t)self->shared.size;
    size_t stored = 0;
    baton_status_t status = store_get(self, -1, self->records, bytes, &stored);
    self->foreign =
        status == BATON_OK &&
        (stored != bytes || memcmp(record_of(self, self->shared.rank),
                                   &self->head, sizeof self->head) != 0);
    return status == BATON_AGAIN || self->foreign ? ask_rank_0(self) : status;
}

static baton_status_t store_test(baton__bootstrap_t *shared, bool *ended_out)
{
    bootstrap_store_t *self = (bootstrap_store_t *)shared;
    baton_status_t status =
        shared->rank == 0 ? collect(self) : store_take_answer(self);
    *ended_out = status == BATON_OK;
    if (status == BATON_OK) {
        for (int i = 0; i < shared->size; i++) {
            memcpy(self->data + (size_t)i * self->bytes,
                   record_of(self, i) + sizeof(head_t), self->bytes);
        }
        /* Rank 0 has answered, so no rank waits for this record. */
        store_remove(self, self->exchange, shared->rank);
    }
    return status == BATON_AGAIN ? BATON_OK : status;
}

/* Checks that all ranks have opened their ends of the wire. `said` says why
   this rank could not. */
static baton_status_t check_ends(const bootstrap_store_t *self,
                                 const wire_end_t *ends, said_t said)
{
    const bool opened = ends[self->shared.rank].status == BATON_OK;
    int rank = opened ? 0 : self->shared.rank;
    while (rank < self->shared.size && ends[rank].status == BATON_OK) {
        rank++;
    }
    return rank == self->shared.size
               ? BATON_OK
               : baton__error((baton_status_t)ends[rank].status,
                              "%s: ranks that share no memory, such as those "
                              "of several hosts, need UCX: rank %d%s%s",
                              self->shared.function, rank,
                              opened ? " can't use it (its message says why)"
                                     : ": ",
                              opened ? "" : said.text);
}

/* Exchanges the addresses of the workers of all ranks. */
static baton_status_t exchange_addresses(bootstrap_store_t *self,
                                         baton__exchange_t *exchange,
                                         const wire_end_t *ends,
                                         baton__wire_ucx_t *wire)
{
    size_t row = 0;
    for (int i = 0; i < self->shared.size; i++) {
        row = ends[i].bytes > row ? ends[i].bytes : row;
    }
    wire->row = row;
    wire->addresses = store_allocate((size_t)self->shared.size * row);
    baton_status_t status = BATON_ERR_NO_MEMORY;
    if (wire->addresses != NULL && make_records(self, row)) {
        memcpy(wire->addresses + (size_t)self->shared.rank * row, wire->own,
               wire->own_bytes);
        status = store_gather(&self->shared, wire->addresses, row);
    }
    /* After an error, this rank takes part in no further exchange. */
    baton__exchange_complete(exchange, status);
    return exchange->status;
}

/* A rank that can't open its end of the wire takes part in the first exchange,
   too, so that all ranks fail. */
static baton_status_t store_open_wire(baton__bootstrap_t *shared,
                                      baton__exchange_t *exchange, bool sends,
                                      baton__wire_t **out)
{
    bootstrap_store_t *self = (bootstrap_store_t *)shared;
    baton__wire_ucx_t *wire = NULL;
    wire_end_t own = {
        .status = baton__wire_open_ucx(shared->rank, shared->size, &wire)};
    const said_t said = last_said();
    own.bytes = wire != NULL ? wire->own_bytes : 0;
    self->spans = true;
    const wire_end_t *ends = baton__exchange_gather(exchange, &own, sizeof own);
    baton_status_t status =
        ends != NULL ? check_ends(self, ends, said) : exchange->status;
    if (status == BATON_OK && ends != NULL && wire != NULL) {
        status = exchange_addresses(self, exchange, ends, wire);
    }
    if (wire != NULL && status != BATON_OK) {
        wire->shared.close(&wire->shared, false);
    } else if (wire != NULL) {
        *out = &wire->shared;
    }
    return status;
}

static void store_missing(baton__bootstrap_t *shared, char *out, size_t bytes)
{
    const bootstrap_store_t *self = (bootstrap_store_t *)shared;
    size_t length = 0;
    int count = 0;
    for (int i = 0; i < shared->size; i++) {
        size_t stored = 0;
        char byte;
        if (store_get(self, i, &byte, 1, &stored) == BATON_OK) {
            continue;
        }
        if (length < bytes) {
            length += (size_t)snprintf(out + length, bytes - length, "%s%d",
                                       count == 0 ? "rank " : ", ", i);
        }
        count++;
    }
    if (count == 0) {
        (void)snprintf(out, bytes, "%s",
                       self->foreign
                           ? "rank 0: its answer is of another group (with "
                             "other processes, or of another size)"
                           : "rank 0 to answer");
    }
}

/* ---- creating a group ---------------------------------------------------- */

/* In a group that spans hosts, each rank tells rank 0 that it has got the last
   answer. Rank 0 waits for that, so that the application may remove the store
   when rank 0 returns. It does not wait for long, because a rank may have
   ended. A rank that is only slow, or that sees values late (NFS), still finds
   the answer. */
static void confirm(bootstrap_store_t *self)
{
    const uint64_t until_ns = baton__clock_ns() + CONFIRM_NS;
    char byte = 0;
    size_t stored = 0;
    bool all = true;
    self->exchange++;
    for (int i = 1; i < self->shared.size && self->shared.rank == 0; i++) {
        while (store_get(self, i, &byte, 1, &stored) == BATON_AGAIN &&
               baton__clock_ns() < until_ns) {
            (void)nanosleep(&(struct timespec){.tv_nsec = CONFIRM_SLEEP_NS},
                            NULL);
        }
        all &= stored > 0;
        stored = 0;
        store_remove(self, self->exchange, i);
    }
    if (self->shared.rank == 0 && all) {
        store_remove(self, self->exchange - 1, -1);
    } else if (self->shared.rank > 0) {
        (void)store_put(self, self->shared.rank, &byte, 1);
    }
}

static bool is_name(const char *name)
{
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz"
                                 "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    return length > 0 && length <= NAME_CHARS && name[length] == '\0';
}

baton_status_t baton__store_check(const baton__store_use_t *use)
{
    const char *function = use->function;
    if (!baton__process_is_own(function)) {
        return BATON_ERR_STATE;
    }
    if (!baton__is_given(use->store, true, function, "store") ||
        !baton__is_given(use->name, true, function, "name")) {
        return BATON_ERR_INVALID;
    }
    if (use->store->put == NULL || use->store->get == NULL) {
        return baton__error(BATON_ERR_INVALID, "%s: the store lacks put or get",
                            function);
    }
    return is_name(use->name)
               ? BATON_OK
               : baton__error(BATON_ERR_INVALID,
                              "%s: the name \"%.20s\" must consist of 1 to %d "
                              "letters, digits and \"._-\"",
                              function, use->name, NAME_CHARS);
}

baton_status_t baton__bootstrap_open_store(const baton__store_use_t *use,
                                           int rank, int size, int timeout_ms,
                                           baton__bootstrap_t **out)
{
    bootstrap_store_t *self = (void *)store_allocate(sizeof *self);
    if (self == NULL) {
        return BATON_ERR_NO_MEMORY;
    }
    *self = (bootstrap_store_t){
        .shared = {.function = use->function,
                   .rank = rank,
                   .size = size,
                   .first_ms = timeout_ms < 0 ? 0 : (uint64_t)timeout_ms + 1,
                   .is_store = true,
                   .process_ids = use->process_ids,
                   .allocate = store_allocate,
                   .release = store_release,
                   .gather = store_gather,
                   .open_wire = store_open_wire,
                   .test = store_test,
                   .missing = store_missing},
        .use = use,
        .head = {.nonce = baton__share_random(), .size = size}};
    if (!make_records(self, 0)) {
        baton__free(self);
        return BATON_ERR_NO_MEMORY;
    }
    *out = &self->shared;
    return BATON_OK;
}

void baton__bootstrap_close_store(baton__bootstrap_t *shared)
{
    bootstrap_store_t *self = (bootstrap_store_t *)shared;
    if (self->spans) {
        confirm(self);
    }
    baton__free(self->records);
    baton__free(self);
}

baton_status_t baton__store_create_group(const baton__store_use_t *use,
                                         baton_engine_t *engine, int rank,
                                         int size, int timeout_ms,
                                         baton_group_t **out)
{
    baton__bootstrap_t *bootstrap = NULL;
    baton_status_t status =
        baton__bootstrap_open_store(use, rank, size, timeout_ms, &bootstrap);
    if (status == BATON_OK) {
        status = baton__mpi_create_group(engine, bootstrap, out);
        baton__bootstrap_close_store(bootstrap);
    }
    return status;
}

baton_status_t baton_group_create_store(baton_engine_t *engine,
                                        const baton_store_t *store, int rank,
                                        int size, const char *name,
                                        int timeout_ms, baton_group_t **out)
{
    const baton__store_use_t use = {
        .function = __func__, .store = store, .name = name};
    baton_status_t status = baton__store_check(&use);
    if (status == BATON_OK && (size < 1 || rank < 0 || rank >= size)) {
        status = baton__error(BATON_ERR_INVALID,
                              "%s: rank %d of %d: a group has at least 1 rank, "
                              "and ranks count from 0",
                              use.function, rank, size);
    }
    return status == BATON_OK ? baton__store_create_group(&use, engine, rank,
                                                          size, timeout_ms, out)
                              : status;
}
