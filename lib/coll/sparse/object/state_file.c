/* A state (state.c) in a file of its own. A crash leaves either the old state
   or the new one. */
#include "coll/sparse/object/object.h"

#include "base/alloc.h"
#include "base/descriptor.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static baton_status_t state_file_system_error(const baton_sparse_t *sparse,
                                              const char *doing,
                                              const char *path)
{
    return baton__error(BATON_ERR_SYSTEM, "%s \"%s\", file %s: %s", doing,
                        sparse->name, path, strerror(errno));
}

/* Closes a file. Returns false if that fails, or if `done` is false. Then errno
   has the first error. */
static bool closed(int file, bool done)
{
    int cause = errno;
    bool ok = close(file) == 0 && done;
    errno = done ? errno : cause;
    return ok;
}

static bool transfer(int file, bool writes, char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t done =
            writes ? write(file, data, bytes) : read(file, data, bytes);
        if (done == 0 || (done < 0 && errno != EINTR)) {
            errno = done == 0 ? EIO : errno;
            return false;
        }
        data += done > 0 ? done : 0;
        bytes -= done > 0 ? (size_t)done : 0;
    }
    return true;
}

/* Syncs the folder of `path`. Without that the file's name might be lost in a
   crash. */
static bool sync_folder(char *path)
{
    char *slash = strrchr(path, '/');
    (void)snprintf(slash != NULL ? slash + 1 : path, sizeof ".", ".");
    int folder =
        baton__descriptor_move(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return folder >= 0 && closed(folder, fsync(folder) == 0);
}

/* Returns true if there is no file of this name, or if it is a regular file. A
   link or a device belongs to the user: it is neither replaced nor followed. */
static bool state_file_is_free(const char *path)
{
    struct stat found;
    return lstat(path, &found) != 0 || S_ISREG(found.st_mode);
}

static bool replace(const char *path, char *other, char *data, size_t bytes)
{
    /* An earlier save that did not end may have left this file. */
    (void)unlink(other);
    int file = baton__descriptor_move(
        open(other, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    return file >= 0 &&
           closed(file,
                  transfer(file, true, data, bytes) && fsync(file) == 0) &&
           rename(other, path) == 0 && sync_folder(other);
}

/* Allocates memory for a state and one byte more. The additional byte shows
   whether a file is too long. */
static baton_status_t state_file_alloc(const baton_sparse_t *sparse,
                                       const char *doing, const char *path,
                                       char **data_out)
{
    baton_status_t status = baton__sparse_check_state(sparse, doing);
    if (status != BATON_OK) {
        return status;
    }
    if (path == NULL || path[0] == '\0' || strlen(path) >= PATH_MAX) {
        return baton__sparse_error(sparse, BATON_ERR_INVALID, doing,
                                   "path must have 1 to %d bytes",
                                   PATH_MAX - 1);
    }
    *data_out = baton__alloc(1, baton_sparse_state_size(sparse) + 1);
    return *data_out != NULL ? BATON_OK
                             : baton__sparse_error(sparse, BATON_ERR_NO_MEMORY,
                                                   doing, "no memory");
}

baton_status_t baton_sparse_save(baton_sparse_t *sparse, const char *path)
{
    char *data = NULL;
    char other[PATH_MAX + sizeof ".new"];
    baton_status_t status = state_file_alloc(sparse, "save", path, &data);
    size_t bytes = baton_sparse_state_size(sparse);
    if (status == BATON_OK) {
        status = baton_sparse_state_export(sparse, data, bytes);
    }
    if (status == BATON_OK) {
        (void)snprintf(other, sizeof other, "%s.new", path);
        if (!state_file_is_free(path) || !state_file_is_free(other)) {
            status =
                baton__sparse_error(sparse, BATON_ERR_INVALID, "save",
                                    "%s is no regular file, and is not "
                                    "replaced: choose another path",
                                    state_file_is_free(path) ? other : path);
        } else if (!replace(path, other, data, bytes)) {
            status = state_file_system_error(sparse, "save", path);
        }
    }
    baton__free(data);
    return status;
}

baton_status_t baton_sparse_load(baton_sparse_t *sparse, const char *path)
{
    char *data = NULL;
    struct stat found;
    baton_status_t status = state_file_alloc(sparse, "load", path, &data);
    if (status != BATON_OK) {
        return status;
    }
    size_t most = baton_sparse_state_size(sparse) + 1, bytes = 0;
    int file = baton__descriptor_move(open(path, O_RDONLY | O_CLOEXEC));
    bool done = file >= 0 && fstat(file, &found) == 0;
    if (done) {
        bytes = (size_t)found.st_size < most ? (size_t)found.st_size : most;
        done = transfer(file, false, data, bytes);
    }
    if (file < 0 || !closed(file, done)) {
        status = state_file_system_error(sparse, "load", path);
    } else {
        status = baton_sparse_state_import(sparse, data, bytes);
        status = baton__error(status, "load \"%s\" from %s: %s", sparse->name,
                              path, baton_error_message());
    }
    baton__free(data);
    return status;
}
