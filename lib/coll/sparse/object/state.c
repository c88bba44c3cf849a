/* A rank's state, as bytes in the user's memory:

       header: magic, version, rank, options, counters, learned values
       extra words of the algorithm
       residual, n elements
       velocity, n elements, with momentum
       pending gradients, n elements, with options.partial
       checksum of the bytes before

   Numbers are in the processor's byte order; with another order the magic
   differs. All of a state is checked before any of it is used. */
#include "coll/sparse/object/object.h"

#include "base/random.h"
#include "coll/partial/parts.h"

#include <string.h>

#define MAGIC   UINT64_C(0x73706172736531ff)
#define VERSION 3

typedef struct header {
    uint64_t magic, version;
    uint64_t rank, ranks;
    uint64_t options[BATON__SPARSE_STATE_OPTIONS];
    uint64_t k, steps;
    baton__learned_t learned;
} header_t;

static header_t state_header_of(const baton_sparse_t *sparse)
{
    header_t header = {
        .magic = MAGIC,
        .version = VERSION,
        .rank = (uint64_t)sparse->rank,
        .ranks = (uint64_t)sparse->size,
        .k = sparse->options.partial ? sparse->options.k : sparse->k,
        .steps = sparse->steps,
        .learned = sparse->learned,
    };
    baton__sparse_state_options(&sparse->options, header.options);
    return header;
}

/* The offsets of a state's parts. `sum` is that of the checksum, which covers
   all bytes before it. */
typedef struct layout {
    size_t extra, residual, velocity, pending, sum, all;
} layout_t;

static layout_t layout_of(const baton_sparse_t *sparse)
{
    const size_t vector = sparse->vector_bytes;
    layout_t at = {.extra = sizeof(header_t)};
    at.residual = at.extra + sparse->extra_count * sizeof *sparse->extra;
    at.velocity = at.residual + vector;
    at.pending = at.velocity + (sparse->options.momentum > 0 ? vector : 0);
    at.sum = at.pending + (sparse->options.partial ? vector : 0);
    at.all = at.sum + sizeof(uint64_t);
    return at;
}

/* Returns the checksum of bytes, which are read as words. The last word is
   padded with zeros. */
static uint64_t checksum(const char *at, size_t bytes)
{
    uint64_t sum = 0;
    while (bytes > 0) {
        uint64_t word = 0;
        size_t length = bytes < sizeof word ? bytes : sizeof word;
        memcpy(&word, at, length);
        sum = baton__mix(sum ^ word) + UINT64_C(0x9e3779b97f4a7c15);
        at += length;
        bytes -= length;
    }
    return sum;
}

baton_status_t baton__sparse_check_state(const baton_sparse_t *sparse,
                                         const char *doing)
{
    baton_status_t status = baton__sparse_check_idle(sparse, doing);
    return status != BATON_OK || sparse->payload
               ? status
               : baton__sparse_error(sparse, BATON_ERR_UNSUPPORTED, doing,
                                     "a cost-only simulation has no state");
}

size_t baton_sparse_state_size(const baton_sparse_t *sparse)
{
    return sparse != NULL && sparse->connected && sparse->payload
               ? layout_of(sparse).all
               : 0;
}

/* ---- export ------------------------------------------------------------ */

baton_status_t baton_sparse_state_export(baton_sparse_t *sparse, void *state,
                                         size_t bytes)
{
    baton_status_t status = baton__sparse_check_state(sparse, "export");
    if (status != BATON_OK) {
        return status;
    }
    const layout_t at = layout_of(sparse);
    if (state == NULL || bytes < at.all) {
        return baton__sparse_error(
            sparse, BATON_ERR_INVALID, "export",
            "state is %s, and bytes %zu; allowed: %zu and more",
            state == NULL ? "NULL" : "not NULL", bytes, at.all);
    }
    char *to = state;
    status = baton__sparse_hold(sparse, "export", true);
    if (status != BATON_OK) {
        return status;
    }
    const header_t header = state_header_of(sparse);
    memcpy(to, &header, sizeof header);
    if (sparse->backend->save != NULL) {
        sparse->backend->save(sparse, to + at.residual, to + at.pending);
    } else {
        status = sparse->backend->read(sparse, false, to + at.residual);
    }
    if (sparse->extra_count > 0) {
        memcpy(to + at.extra, sparse->extra, at.residual - at.extra);
    }
    if (status == BATON_OK && sparse->options.momentum > 0) {
        status = sparse->backend->read(sparse, true, to + at.velocity);
    }
    baton__sparse_release(sparse);
    const uint64_t sum = checksum(to, at.sum);
    memcpy(to + at.sum, &sum, sizeof sum);
    return status;
}

/* ---- import ------------------------------------------------------------ */

static baton_status_t state_refuse(const baton_sparse_t *sparse,
                                   const char *what, uint64_t actual,
                                   uint64_t expected)
{
    return baton__sparse_error(sparse, BATON_ERR_INVALID, "import",
                               "%s of the state is %llu, expected %llu", what,
                               (unsigned long long)actual,
                               (unsigned long long)expected);
}

static baton_status_t state_check(const baton_sparse_t *sparse,
                                  const char *from, size_t bytes,
                                  const header_t *header)
{
    const layout_t at = layout_of(sparse);
    const struct {
        const char *what;
        uint64_t actual, expected;
    } checks[] = {
        {"the first word", header->magic, MAGIC},
        {"version", header->version, VERSION},
        {"rank", header->rank, (uint64_t)sparse->rank},
        {"number of ranks", header->ranks, (uint64_t)sparse->size},
    };
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        if (checks[i].actual != checks[i].expected) {
            return state_refuse(sparse, checks[i].what, checks[i].actual,
                                checks[i].expected);
        }
    }
    baton_status_t status =
        baton__sparse_check_state_options(sparse, header->options);
    if (status != BATON_OK) {
        return status;
    }
    /* A partial sparse all-reduce does not take k from the state. */
    if (!sparse->options.partial &&
        (header->k == 0 || header->k > sparse->options.max_k)) {
        return baton__sparse_error(
            sparse, BATON_ERR_INVALID, "import",
            "k of the state is %llu; allowed: 1 to max_k, %zu",
            (unsigned long long)header->k, sparse->options.max_k);
    }
    if (bytes != at.all) {
        return state_refuse(sparse, "the size", bytes, at.all);
    }
    uint64_t sum;
    memcpy(&sum, from + at.sum, sizeof sum);
    const uint64_t expected = checksum(from, at.sum);
    return sum == expected
               ? BATON_OK
               : state_refuse(sparse, "the checksum", sum, expected);
}

static baton_status_t import(baton_sparse_t *sparse, const void *state,
                             size_t bytes)
{
    baton_status_t status;
    header_t header;
    if (state == NULL || bytes < sizeof header) {
        return baton__sparse_error(
            sparse, BATON_ERR_INVALID, "import",
            "state is %s, and bytes %zu; allowed: a header of %zu and more",
            state == NULL ? "NULL" : "not NULL", bytes, sizeof header);
    }
    const char *from = state;
    const layout_t at = layout_of(sparse);
    memcpy(&header, from, sizeof header);
    status = state_check(sparse, from, bytes, &header);
    if (status == BATON_OK) {
        status = baton__sparse_hold(sparse, "import", true);
    }
    if (status == BATON_OK) {
        status = sparse->backend->write(
            sparse, from + at.residual,
            sparse->options.momentum > 0 ? from + at.velocity : NULL);
        baton__sparse_release(sparse);
    }
    if (status != BATON_OK) {
        return status;
    }
    sparse->input.part_count = 0;
    if (sparse->extra_count > 0) {
        memcpy(sparse->extra, from + at.extra, at.residual - at.extra);
    }
    if (sparse->backend->load != NULL) {
        sparse->backend->load(sparse, header.steps, from + at.pending);
    }
    /* With options.partial, k stays that of the options. */
    if (!sparse->options.partial) {
        sparse->k = header.k;
    }
    sparse->learned = header.learned;
    sparse->base[false] += header.steps - sparse->steps;
    sparse->steps = header.steps;
    sparse->phase = BATON__SPARSE_NO_RESULT;
    return BATON_OK;
}

baton_status_t baton_sparse_state_import(baton_sparse_t *sparse,
                                         const void *state, size_t bytes)
{
    baton_status_t status = baton__sparse_check_state(sparse, "import");
    if (status == BATON_OK) {
        status = baton__survival_enter(sparse->epochs, "import");
    }
    if (status == BATON_OK) {
        status = import(sparse, state, bytes);
        baton__survival_leave(sparse->epochs);
    }
    return status;
}
