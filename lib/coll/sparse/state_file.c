/* A rank's state in a file:

       header: magic, version, what the state belongs to, what it consists of
       extra words of the algorithm
       residual, n elements
       velocity, n elements, with momentum
       checksum of all before

   Numbers are in the processor's byte order; the magic tells another one. A
   file is written under another name and renamed, so a crash leaves the old
   one; it is read into memory that is not in use between steps, so a bad one
   changes nothing. */
#include "coll/sparse/partial.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/random.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MAGIC   UINT64_C(0x73706172736531ff)
#define VERSION 1

typedef struct header {
    uint64_t magic;
    uint64_t version;
    uint64_t rank, ranks;
    uint64_t algorithm, count, dtype, teams, exchange, has_velocity;
    uint64_t k, steps;
    baton__learned_t learned;
} header_t;

static header_t header_of(const baton_sparse_t *sparse)
{
    const baton_sparse_options_t *o = &sparse->options;
    return (header_t){
        .magic = MAGIC,
        .version = VERSION,
        .rank = (uint64_t)sparse->rank,
        .ranks = (uint64_t)sparse->size,
        .algorithm = (uint64_t)o->algorithm,
        .count = o->count,
        .dtype = (uint64_t)o->dtype,
        .teams = (uint64_t)o->teams,
        .exchange = (uint64_t)o->exchange,
        .has_velocity = o->momentum > 0,
        .k = sparse->k,
        .steps = sparse->steps,
        .learned = sparse->learned,
    };
}

/* Of words, the last one filled up with zeros. */
static uint64_t checksum(uint64_t sum, const void *data, size_t bytes)
{
    const char *at = data;
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

/* ---- save -------------------------------------------------------------- */

static bool write_state(const baton_sparse_t *sparse, FILE *file)
{
    header_t header = header_of(sparse);
    size_t bytes = sparse->options.count * sparse->element_bytes;
    size_t extra = sparse->extra_count * sizeof *sparse->extra;
    uint64_t sum = checksum(0, &header, sizeof header);
    bool ok = fwrite(&header, sizeof header, 1, file) == 1;
    if (extra > 0) {
        sum = checksum(sum, sparse->extra, extra);
        ok = ok && fwrite(sparse->extra, extra, 1, file) == 1;
    }
    sum = checksum(sum, sparse->residual, bytes);
    ok = ok && fwrite(sparse->residual, bytes, 1, file) == 1;
    if (sparse->velocity != NULL) {
        sum = checksum(sum, sparse->velocity, bytes);
        ok = ok && fwrite(sparse->velocity, bytes, 1, file) == 1;
    }
    return ok && fwrite(&sum, sizeof sum, 1, file) == 1;
}

static baton_status_t check_path(const baton_sparse_t *sparse,
                                 const char *doing, const char *path)
{
    baton_status_t status = baton__sparse_check_full(sparse, doing);
    if (status == BATON_OK) {
        status = baton__sparse_check_idle(sparse, doing);
    }
    if (status != BATON_OK) {
        return status;
    }
    if (path == NULL) {
        return baton__error(BATON_ERR_INVALID, "%s \"%s\": path is NULL", doing,
                            sparse->name);
    }
    return sparse->payload
               ? BATON_OK
               : baton__error(BATON_ERR_UNSUPPORTED,
                              "%s \"%s\": a cost-only simulation has no state",
                              doing, sparse->name);
}

static baton_status_t save_to(const baton_sparse_t *sparse, const char *path,
                              const char *other)
{
    FILE *file = fopen(other, "wb");
    bool ok = file != NULL && write_state(sparse, file);
    if (file != NULL) {
        ok = fclose(file) == 0 && ok;
    }
    if (ok && rename(other, path) == 0) {
        return BATON_OK;
    }
    int cause = errno;
    (void)remove(other);
    return baton__error(BATON_ERR_SYSTEM, "save \"%s\" to %s: %s", sparse->name,
                        path, strerror(cause));
}

baton_status_t baton_sparse_save(baton_sparse_t *sparse, const char *path)
{
    baton_status_t status = check_path(sparse, "save", path);
    if (status != BATON_OK) {
        return status;
    }
    size_t bytes = strlen(path) + sizeof ".new";
    char *other = baton__alloc(1, bytes);
    if (other == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "save \"%s\": no memory",
                            sparse->name);
    }
    (void)snprintf(other, bytes, "%s.new", path);
    status = save_to(sparse, path, other);
    baton__free(other);
    return status;
}

/* ---- load -------------------------------------------------------------- */

static baton_status_t refuse(const baton_sparse_t *sparse, const char *path,
                             const char *what, uint64_t actual,
                             uint64_t expected)
{
    return baton__error(BATON_ERR_INVALID,
                        "load \"%s\" from %s: %s is %llu, expected %llu",
                        sparse->name, path, what, (unsigned long long)actual,
                        (unsigned long long)expected);
}

static baton_status_t check_header(const baton_sparse_t *sparse,
                                   const char *path, const header_t *header)
{
    const header_t own = header_of(sparse);
    const struct {
        const char *what;
        uint64_t actual, expected;
    } checks[] = {
        {"the first word", header->magic, own.magic},
        {"version", header->version, own.version},
        {"rank", header->rank, own.rank},
        {"number of ranks", header->ranks, own.ranks},
        {"algorithm", header->algorithm, own.algorithm},
        {"count", header->count, own.count},
        {"dtype", header->dtype, own.dtype},
        {"teams", header->teams, own.teams},
        {"exchange", header->exchange, own.exchange},
        {"momentum", header->has_velocity, own.has_velocity},
    };
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        if (checks[i].actual != checks[i].expected) {
            return refuse(sparse, path, checks[i].what, checks[i].actual,
                          checks[i].expected);
        }
    }
    if (header->k == 0 || header->k > sparse->options.max_k) {
        return refuse(sparse, path, "k", header->k, sparse->options.max_k);
    }
    return BATON_OK;
}

/* What is read apart from the state, until all of it is known to be good. */
typedef struct loaded {
    header_t header;
    uint64_t *extra;
    char *velocity; /* NULL without momentum; the residual is in `work` */
} loaded_t;

static bool read_part(FILE *file, void *to, size_t bytes, uint64_t *sum)
{
    if (bytes == 0) {
        return true;
    }
    bool whole = fread(to, bytes, 1, file) == 1;
    *sum = whole ? checksum(*sum, to, bytes) : 0;
    return whole;
}

static baton_status_t read_state(baton_sparse_t *sparse, const char *path,
                                 FILE *file, loaded_t *loaded)
{
    size_t bytes = sparse->options.count * sparse->element_bytes;
    uint64_t sum = 0, expected = 0, more;
    if (!read_part(file, &loaded->header, sizeof loaded->header, &sum)) {
        return baton__error(BATON_ERR_INVALID,
                            "load \"%s\" from %s: the file is shorter than a "
                            "header of %zu bytes",
                            sparse->name, path, sizeof loaded->header);
    }
    baton_status_t status = check_header(sparse, path, &loaded->header);
    if (status != BATON_OK) {
        return status;
    }
    bool whole = read_part(file, loaded->extra,
                           sparse->extra_count * sizeof *loaded->extra, &sum) &&
                 read_part(file, sparse->work, bytes, &sum) &&
                 read_part(file, loaded->velocity,
                           loaded->velocity != NULL ? bytes : 0, &sum) &&
                 fread(&expected, sizeof expected, 1, file) == 1;
    if (!whole || fread(&more, 1, 1, file) != 0) {
        return baton__error(BATON_ERR_INVALID,
                            "load \"%s\" from %s: the file is %s than "
                            "its header says",
                            sparse->name, path, whole ? "longer" : "shorter");
    }
    return sum == expected ? BATON_OK
                           : refuse(sparse, path, "checksum", sum, expected);
}

static void adopt(baton_sparse_t *sparse, const loaded_t *loaded)
{
    char *residual = sparse->work;
    sparse->work = sparse->residual;
    sparse->residual = residual;
    if (loaded->velocity != NULL) {
        memcpy(sparse->velocity, loaded->velocity,
               sparse->options.count * sparse->element_bytes);
    }
    if (sparse->extra_count > 0) {
        memcpy(sparse->extra, loaded->extra,
               sparse->extra_count * sizeof *sparse->extra);
    }
    sparse->k = loaded->header.k;
    sparse->learned = loaded->header.learned;
    sparse->sparse_base += loaded->header.steps - sparse->steps;
    sparse->steps = loaded->header.steps;
    sparse->has_result = false;
}

static baton_status_t load_from(baton_sparse_t *sparse, const char *path,
                                loaded_t *loaded)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return baton__error(BATON_ERR_SYSTEM, "load \"%s\" from %s: %s",
                            sparse->name, path, strerror(errno));
    }
    /* `work` is a dense step's result: that is gone now. */
    sparse->has_result = sparse->has_result && sparse->last.indices != NULL;
    baton_status_t status = read_state(sparse, path, file, loaded);
    (void)fclose(file);
    if (status == BATON_OK) {
        adopt(sparse, loaded);
    }
    return status;
}

baton_status_t baton_sparse_load(baton_sparse_t *sparse, const char *path)
{
    baton_status_t status = check_path(sparse, "load", path);
    if (status != BATON_OK) {
        return status;
    }
    loaded_t loaded = {
        .extra = baton__alloc(sparse->extra_count, sizeof *loaded.extra)};
    bool ok = loaded.extra != NULL;
    if (sparse->velocity != NULL) {
        loaded.velocity =
            baton__alloc(sparse->options.count, sparse->element_bytes);
        ok = ok && loaded.velocity != NULL;
    }
    status = ok ? load_from(sparse, path, &loaded)
                : baton__error(BATON_ERR_NO_MEMORY, "load \"%s\": no memory",
                               sparse->name);
    baton__free(loaded.extra);
    baton__free(loaded.velocity);
    return status;
}
