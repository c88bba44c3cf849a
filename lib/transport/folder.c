/* The store whose values are files of a folder. */
#include <baton/store.h>

#include "base/alloc.h"
#include "base/descriptor.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct folder {
    int descriptor;
} folder_t;

static baton_status_t folder_fail(const char *doing, const char *key)
{
    return baton__error(BATON_ERR_SYSTEM, "a folder's store can't %s %s: %s",
                        doing, key, baton__errno_text(errno));
}

/* Writes the value to a file of its own, and then renames the file to `key`. So
   no reader ever finds a part of a value. */
static baton_status_t folder_put(void *context, const char *key,
                                 const void *value, size_t bytes)
{
    const folder_t *folder = context;
    char new[200];
    (void)snprintf(new, sizeof new, "%s.%d.new", key, (int)getpid());
    int file = baton__descriptor_move(
        openat(folder->descriptor, new,
               O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    const bool written =
        file >= 0 && write(file, value, bytes) == (ssize_t)bytes;
    baton__descriptor_close(&file);
    if (written &&
        renameat(folder->descriptor, new, folder->descriptor, key) == 0) {
        return BATON_OK;
    }
    const baton_status_t status = folder_fail("write", key);
    (void)unlinkat(folder->descriptor, new, 0);
    return status;
}

static baton_status_t folder_get(void *context, const char *key, void *value,
                                 size_t capacity, size_t *bytes_out)
{
    const folder_t *folder = context;
    struct stat found;
    int file = baton__descriptor_move(
        openat(folder->descriptor, key, O_RDONLY | O_CLOEXEC));
    if (file < 0) {
        return errno == ENOENT ? BATON_AGAIN : folder_fail("open", key);
    }
    const ssize_t got =
        fstat(file, &found) == 0 ? read(file, value, capacity) : -1;
    baton__descriptor_close(&file);
    *bytes_out = (size_t)found.st_size;
    return got >= 0 ? BATON_OK : folder_fail("read", key);
}

static void folder_remove(void *context, const char *key)
{
    const folder_t *folder = context;
    (void)unlinkat(folder->descriptor, key, 0);
}

baton_status_t baton_store_open_folder(const char *path, baton_store_t *out)
{
    if (!baton__is_given(path, true, __func__, "path") ||
        !baton__is_given(out, true, __func__, "out")) {
        return BATON_ERR_INVALID;
    }
    folder_t *folder = baton__alloc(1, sizeof *folder);
    if (folder == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for a store");
    }
    folder->descriptor =
        baton__descriptor_move(open(path, O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (folder->descriptor < 0) {
        baton_status_t status = folder_fail("open", path);
        baton__free(folder);
        return status;
    }
    *out = (baton_store_t){.context = folder,
                           .put = folder_put,
                           .get = folder_get,
                           .remove = folder_remove};
    return BATON_OK;
}

void baton_store_close_folder(baton_store_t *store)
{
    if (store != NULL && store->context != NULL) {
        folder_t *folder = store->context;
        baton__descriptor_close(&folder->descriptor);
        baton__free(folder);
        *store = (baton_store_t){0};
    }
}
