/* A state (state.c) in a file of its own. It is written to a temporary file in
   the same folder, which is synchronised with the disk and renamed. So a crash
   leaves the old file or the new one, and never a part. */
#include "coll/sparse/sparse.h"

#include "base/alloc.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef char path_t[PATH_MAX + sizeof ".new"];

static baton_status_t check_path(const baton_sparse_t *sparse,
                                 const char *doing, const char *path)
{
    baton_status_t status = baton__sparse_check_state(sparse, doing);
    if (status != BATON_OK) {
        return status;
    }
    size_t length = path != NULL ? strlen(path) : 0;
    return length > 0 && length < PATH_MAX
               ? BATON_OK
               : baton__error(BATON_ERR_INVALID,
                              "%s \"%s\": path is %s, with %zu bytes; allowed: "
                              "1 to %d",
                              doing, sparse->name,
                              path == NULL ? "NULL" : "not NULL", length,
                              PATH_MAX - 1);
}

static baton_status_t system_error(const baton_sparse_t *sparse,
                                   const char *doing, const char *path,
                                   int cause)
{
    return baton__error(BATON_ERR_SYSTEM, "%s \"%s\", file %s: %s", doing,
                        sparse->name, path, strerror(cause));
}

static baton_status_t check_regular(const baton_sparse_t *sparse,
                                    const char *doing, const char *path,
                                    mode_t mode)
{
    return S_ISREG(mode) ? BATON_OK
                         : baton__error(BATON_ERR_INVALID,
                                        "%s \"%s\": %s is not a regular file",
                                        doing, sparse->name, path);
}

/* Reads or writes all of it; 0, or an errno. */
static int transfer(int file, bool writes, char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t done =
            writes ? write(file, data, bytes) : read(file, data, bytes);
        if (done > 0) {
            data += done;
            bytes -= (size_t)done;
        } else if (done == 0 || errno != EINTR) {
            return done == 0 ? EIO : errno;
        }
    }
    return 0;
}

/* ---- save -------------------------------------------------------------- */

/* The name is durable only once its folder is; 0, or an errno. */
static int sync_folder(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash != NULL) {
        slash[slash == path] = '\0';
    }
    int folder =
        open(slash != NULL ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int cause = folder < 0 || fsync(folder) != 0 ? errno : 0;
    if (folder >= 0) {
        (void)close(folder);
    }
    return cause;
}

/* With the permissions of what it replaces, before anything is in it. */
static int write_new(const char *path, mode_t mode, bool replaces, char *data,
                     size_t bytes)
{
    (void)unlink(path); /* that of a crash */
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                    replaces ? 0600 : 0666);
    if (file < 0) {
        return errno;
    }
    int cause = replaces && fchmod(file, mode & 0777) != 0 ? errno : 0;
    cause = cause == 0 ? transfer(file, true, data, bytes) : cause;
    cause = cause == 0 && fsync(file) != 0 ? errno : cause;
    return close(file) != 0 && cause == 0 ? errno : cause;
}

static baton_status_t replace(const baton_sparse_t *sparse, const char *path,
                              char *data, size_t bytes)
{
    path_t target, other;
    struct stat found = {0};
    bool exists = lstat(path, &found) == 0;
    (void)snprintf(target, sizeof target, "%s", path);
    if (exists && (realpath(path, target) == NULL || stat(path, &found) != 0)) {
        return system_error(sparse, "save", path, errno);
    }
    baton_status_t status =
        exists ? check_regular(sparse, "save", path, found.st_mode) : BATON_OK;
    if (status != BATON_OK) {
        return status;
    }
    (void)snprintf(other, sizeof other, "%.*s.new", PATH_MAX, target);
    int cause = write_new(other, found.st_mode, exists, data, bytes);
    if (cause == 0 && rename(other, target) == 0) {
        cause = sync_folder(target);
        return cause == 0 ? BATON_OK
                          : system_error(sparse, "save", path, cause);
    }
    cause = cause == 0 ? errno : cause;
    (void)unlink(other);
    return system_error(sparse, "save", path, cause);
}

static baton_status_t no_memory(const baton_sparse_t *sparse, const char *doing)
{
    return baton__error(BATON_ERR_NO_MEMORY,
                        "%s \"%s\": no memory for %zu "
                        "bytes",
                        doing, sparse->name, baton_sparse_state_size(sparse));
}

baton_status_t baton_sparse_save(baton_sparse_t *sparse, const char *path)
{
    baton_status_t status = check_path(sparse, "save", path);
    if (status != BATON_OK) {
        return status;
    }
    size_t bytes = baton_sparse_state_size(sparse);
    char *data = baton__alloc(1, bytes);
    status = data != NULL ? baton_sparse_state_export(sparse, data, bytes)
                          : no_memory(sparse, "save");
    if (status == BATON_OK) {
        status = replace(sparse, path, data, bytes);
    }
    baton__free(data);
    return status;
}

/* ---- load -------------------------------------------------------------- */

static baton_status_t load_from(baton_sparse_t *sparse, const char *path,
                                int file)
{
    struct stat found;
    if (fstat(file, &found) != 0) {
        return system_error(sparse, "load", path, errno);
    }
    baton_status_t status = check_regular(sparse, "load", path, found.st_mode);
    if (status != BATON_OK) {
        return status;
    }
    /* One byte more than a state has is enough to tell that it does not fit. */
    size_t most = baton_sparse_state_size(sparse) + 1;
    size_t bytes = (size_t)found.st_size;
    bytes = bytes < most ? bytes : most;
    char *data = baton__alloc(1, most);
    if (data == NULL) {
        return no_memory(sparse, "load");
    }
    int cause = transfer(file, false, data, bytes);
    if (cause != 0) {
        status = system_error(sparse, "load", path, cause);
    } else if ((status = baton_sparse_state_import(sparse, data, bytes)) !=
               BATON_OK) {
        status = baton__error(status, "load \"%s\" from %s: %s", sparse->name,
                              path, baton_error_message());
    }
    baton__free(data);
    return status;
}

baton_status_t baton_sparse_load(baton_sparse_t *sparse, const char *path)
{
    baton_status_t status = check_path(sparse, "load", path);
    if (status != BATON_OK) {
        return status;
    }
    int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) {
        return system_error(sparse, "load", path, errno);
    }
    status = load_from(sparse, path, file);
    (void)close(file);
    return status;
}
