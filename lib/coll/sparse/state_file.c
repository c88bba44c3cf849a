/* A rank's state in a file:

       header: magic, version, what the state belongs to, what it consists of
       extra words of the algorithm
       residual, n elements
       velocity, n elements, with momentum
       checksum of all before

   Numbers are in the processor's byte order; the magic tells another one. A
   file is written under another name and renamed, so a crash leaves the old
   one. Only a regular file is replaced, with its permissions, or the one that
   a symbolic link points to; a rename alone would put the file in the place of
   a link, a FIFO or a device. A file is read into memory that is not in use
   between steps, so a bad one changes nothing. */
#include "coll/sparse/on_device.h"
#include "coll/sparse/partial.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/random.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* ---- paths ------------------------------------------------------------- */

enum { LINKS_MOST = 40 }; /* to follow, as Linux does */

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
    if (path == NULL || path[0] == '\0') {
        return baton__error(BATON_ERR_INVALID, "%s \"%s\": path is %s", doing,
                            sparse->name, path == NULL ? "NULL" : "empty");
    }
    if (strlen(path) >= PATH_MAX) {
        return baton__error(BATON_ERR_INVALID,
                            "%s \"%s\": path has %zu bytes; allowed: 1 to %d",
                            doing, sparse->name, strlen(path), PATH_MAX - 1);
    }
    return sparse->payload
               ? BATON_OK
               : baton__error(BATON_ERR_UNSUPPORTED,
                              "%s \"%s\": a cost-only simulation has no state",
                              doing, sparse->name);
}

static baton_status_t system_error(const baton_sparse_t *sparse,
                                   const char *doing, const char *path,
                                   int cause)
{
    return baton__error(BATON_ERR_SYSTEM, "%s \"%s\", file %s: %s", doing,
                        sparse->name, path, strerror(cause));
}

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode)    ? "a directory"
           : S_ISLNK(mode)  ? "a symbolic link"
           : S_ISFIFO(mode) ? "a FIFO"
           : S_ISSOCK(mode) ? "a socket"
           : S_ISCHR(mode)  ? "a character device"
           : S_ISBLK(mode)  ? "a block device"
                            : "of an unknown kind";
}

static baton_status_t check_regular(const baton_sparse_t *sparse,
                                    const char *doing, const char *path,
                                    mode_t mode)
{
    return S_ISREG(mode)
               ? BATON_OK
               : baton__error(BATON_ERR_INVALID,
                              "%s \"%s\": %s is %s, not a regular file", doing,
                              sparse->name, path, kind_of(mode));
}

/* Replaces the name of a symbolic link, in place, by what it points to. */
static int follow_link(char *path)
{
    char next[PATH_MAX], target[PATH_MAX];
    ssize_t length = readlink(path, target, sizeof target);
    if (length < 0) {
        return errno;
    }
    const char *slash = strrchr(path, '/');
    size_t folder =
        target[0] == '/' || slash == NULL ? 0 : (size_t)(slash - path) + 1;
    if (folder + (size_t)length >= sizeof next) {
        return ENAMETOOLONG;
    }
    memcpy(next, path, folder);
    memcpy(next + folder, target, (size_t)length);
    next[folder + (size_t)length] = '\0';
    memcpy(path, next, folder + (size_t)length + 1);
    return 0;
}

/* What is at the end of all links, from `path` on, whose name becomes that. An
   errno; ENOENT where nothing is there yet. */
static int follow_links(char *path, struct stat *found)
{
    for (int links = 0; links <= LINKS_MOST; links++) {
        if (lstat(path, found) != 0) {
            return errno;
        }
        if (!S_ISLNK(found->st_mode)) {
            return 0;
        }
        int cause = follow_link(path);
        if (cause != 0) {
            return cause;
        }
    }
    return ELOOP;
}

/* ---- save -------------------------------------------------------------- */

/* The vectors of a state. */
typedef struct vectors {
    char *residual, *velocity; /* velocity is NULL without momentum */
} vectors_t;

/* Memory for them beside the state's; where the residual is on the host `work`
   has it. False: no memory. */
static bool make_vectors(const baton_sparse_t *sparse, vectors_t *out)
{
    size_t count = sparse->options.count, size = sparse->element_bytes;
    out->residual =
        sparse->device != NULL ? baton__alloc(count, size) : sparse->work;
    if (sparse->options.momentum > 0) {
        out->velocity = baton__alloc(count, size);
    }
    return out->residual != NULL &&
           (out->velocity != NULL || sparse->options.momentum == 0);
}

static void free_vectors(const baton_sparse_t *sparse, vectors_t *vectors)
{
    if (sparse->device != NULL) { /* else it is one of the state's */
        baton__free(vectors->residual);
    }
    baton__free(vectors->velocity);
}

static bool write_state(const baton_sparse_t *sparse, const vectors_t *vectors,
                        FILE *file)
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
    sum = checksum(sum, vectors->residual, bytes);
    ok = ok && fwrite(vectors->residual, bytes, 1, file) == 1;
    if (vectors->velocity != NULL) {
        sum = checksum(sum, vectors->velocity, bytes);
        ok = ok && fwrite(vectors->velocity, bytes, 1, file) == 1;
    }
    return ok && fwrite(&sum, sizeof sum, 1, file) == 1;
}

/* Where a state goes: the file that it replaces, and the one that is written
   and renamed. */
typedef struct target {
    char path[PATH_MAX];
    char other[PATH_MAX + sizeof ".new"];
    bool exists;
    mode_t mode; /* if it exists */
} target_t;

static baton_status_t find_target(const baton_sparse_t *sparse,
                                  const char *path, target_t *target)
{
    struct stat found;
    memcpy(target->path, path, strlen(path) + 1);
    int cause = follow_links(target->path, &found);
    target->exists = cause == 0;
    target->mode = cause == 0 ? found.st_mode : 0;
    (void)snprintf(target->other, sizeof target->other, "%s.new", target->path);
    if (cause != 0) {
        return cause == ENOENT ? BATON_OK
                               : system_error(sparse, "save", path, cause);
    }
    return check_regular(sparse, "save", path, target->mode);
}

/* Removes what an earlier save has left. */
static baton_status_t remove_other(const baton_sparse_t *sparse,
                                   const target_t *target)
{
    struct stat found;
    if (lstat(target->other, &found) != 0) {
        return BATON_OK; /* whatever is wrong, to create it says */
    }
    baton_status_t status =
        check_regular(sparse, "save", target->other, found.st_mode);
    return status != BATON_OK || remove(target->other) == 0
               ? status
               : system_error(sparse, "save", target->other, errno);
}

/* NULL, and errno, where it cannot be created. */
static FILE *create_other(const target_t *target)
{
    /* Nobody may read meanwhile what they may not read in the end. */
    int file = open(target->other, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                    target->exists ? 0600 : 0666);
    if (file < 0) {
        return NULL;
    }
    FILE *stream = NULL;
    if (!target->exists || fchmod(file, target->mode & 0777) == 0) {
        stream = fdopen(file, "wb");
    }
    if (stream == NULL) {
        int cause = errno;
        (void)close(file);
        (void)remove(target->other);
        errno = cause;
    }
    return stream;
}

static baton_status_t save_to(const baton_sparse_t *sparse,
                              const vectors_t *vectors, const target_t *target)
{
    FILE *file = create_other(target);
    if (file == NULL) {
        return system_error(sparse, "save", target->other, errno);
    }
    bool ok = write_state(sparse, vectors, file);
    int cause = errno;
    if (fclose(file) != 0 && ok) {
        ok = false;
        cause = errno;
    }
    if (ok && rename(target->other, target->path) == 0) {
        return BATON_OK;
    }
    cause = ok ? errno : cause;
    (void)remove(target->other);
    return system_error(sparse, "save", target->path, cause);
}

static baton_status_t no_memory_to(const baton_sparse_t *sparse,
                                   const char *doing)
{
    return baton__error(BATON_ERR_NO_MEMORY, "%s \"%s\": no memory", doing,
                        sparse->name);
}

/* With a residual on the device. */
static baton_status_t save_copies(baton_sparse_t *sparse,
                                  const target_t *target)
{
    vectors_t copies = {NULL, NULL};
    baton_status_t status =
        make_vectors(sparse, &copies)
            ? baton__sparse_device_read(sparse, false, copies.residual)
            : no_memory_to(sparse, "save");
    if (status == BATON_OK && copies.velocity != NULL) {
        status = baton__sparse_device_read(sparse, true, copies.velocity);
    }
    if (status == BATON_OK) {
        status = save_to(sparse, &copies, target);
    }
    free_vectors(sparse, &copies);
    return status;
}

baton_status_t baton_sparse_save(baton_sparse_t *sparse, const char *path)
{
    target_t target;
    baton_status_t status = check_path(sparse, "save", path);
    if (status == BATON_OK) {
        status = find_target(sparse, path, &target);
    }
    if (status == BATON_OK) {
        status = remove_other(sparse, &target);
    }
    if (status != BATON_OK || sparse->device != NULL) {
        return status == BATON_OK ? save_copies(sparse, &target) : status;
    }
    const vectors_t own = {sparse->residual, sparse->velocity};
    return save_to(sparse, &own, &target);
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
    vectors_t vectors;
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
    bool whole =
        read_part(file, loaded->extra,
                  sparse->extra_count * sizeof *loaded->extra, &sum) &&
        read_part(file, loaded->vectors.residual, bytes, &sum) &&
        read_part(file, loaded->vectors.velocity,
                  loaded->vectors.velocity != NULL ? bytes : 0, &sum) &&
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

static void adopt_vectors(baton_sparse_t *sparse, const vectors_t *loaded)
{
    char *residual = sparse->work;
    sparse->work = sparse->residual;
    sparse->residual = residual;
    if (loaded->velocity != NULL && sparse->velocity != NULL) {
        memcpy(sparse->velocity, loaded->velocity,
               sparse->options.count * sparse->element_bytes);
    }
}

static baton_status_t adopt(baton_sparse_t *sparse, const loaded_t *loaded)
{
    if (sparse->device == NULL) {
        adopt_vectors(sparse, &loaded->vectors);
    } else {
        baton_status_t status = baton__sparse_device_write(
            sparse, loaded->vectors.residual, loaded->vectors.velocity);
        if (status != BATON_OK) {
            return status;
        }
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
    return BATON_OK;
}

static baton_status_t load_from(baton_sparse_t *sparse, const char *path,
                                loaded_t *loaded)
{
    struct stat found;
    if (stat(path, &found) != 0) {
        return system_error(sparse, "load", path, errno);
    }
    baton_status_t status = check_regular(sparse, "load", path, found.st_mode);
    if (status != BATON_OK) {
        return status;
    }
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return system_error(sparse, "load", path, errno);
    }
    if (loaded->vectors.residual == sparse->work) {
        /* It is a dense step's result: that is gone now. */
        sparse->has_result = sparse->has_result && sparse->last.indices != NULL;
    }
    status = read_state(sparse, path, file, loaded);
    (void)fclose(file);
    if (status == BATON_OK) {
        status = adopt(sparse, loaded);
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
    bool ok = make_vectors(sparse, &loaded.vectors) && loaded.extra != NULL;
    status =
        ok ? load_from(sparse, path, &loaded) : no_memory_to(sparse, "load");
    baton__free(loaded.extra);
    free_vectors(sparse, &loaded.vectors);
    return status;
}
