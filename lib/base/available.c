/* Available memory; see available.h. */
#include "base/available.h"

#include "base/descriptor.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096, FILE_BYTES = 2 * PATH_BYTES };

/* The names of files and counters in the two versions of control groups. */
typedef struct version {
    const char *mount, *limit, *used, *inactive, *active;
} version_t;

static const version_t v1 = {.mount = "/sys/fs/cgroup/memory",
                             .limit = "memory.limit_in_bytes",
                             .used = "memory.usage_in_bytes",
                             .inactive = "total_inactive_file ",
                             .active = "total_active_file "};
static const version_t v2 = {.mount = "/sys/fs/cgroup",
                             .limit = "memory.max",
                             .used = "memory.current",
                             .inactive = "inactive_file ",
                             .active = "active_file "};

static void available_read(const char *root, const char *folder,
                           const char *name, char *out, size_t bytes)
{
    char path[PATH_BYTES + 256];
    (void)snprintf(path, sizeof path, "%s%s/%s", root, folder, name);
    (void)baton__descriptor_read(path, out, bytes);
}

/* Finds the line that begins with `key` in the file root/folder/name, and
   stores the number after the key. Returns false if there is no such line, or
   if a word such as "max" follows instead of a number. */
static bool available_find(const char *root, const char *folder,
                           const char *name, const char *key, uint64_t *out)
{
    char text[FILE_BYTES];
    char *rest = text;
    char *line = NULL;
    bool found = false;
    available_read(root, folder, name, text, sizeof text);
    while (!found && (line = strsep(&rest, "\n")) != NULL) {
        const char *number = line + strlen(key);
        if (strncmp(line, key, strlen(key)) == 0) {
            *out = strtoull(number, &line, 10);
            found = line > number;
        }
    }
    return found;
}

/* Returns the bytes that a control group has left. Returns UINT64_MAX if the
   group has no limit, or if the limit is unknown. Cached pages of files count
   as free: the kernel drops them before it kills a process. */
static uint64_t available_in(const char *root, const version_t *names,
                             const char *folder)
{
    uint64_t limit = 0;
    uint64_t used = 0;
    uint64_t inactive = 0;
    uint64_t active = 0;
    if (!available_find(root, folder, names->limit, "", &limit) ||
        !available_find(root, folder, names->used, "", &used)) {
        return UINT64_MAX;
    }
    (void)available_find(root, folder, "memory.stat", names->inactive,
                         &inactive);
    (void)available_find(root, folder, "memory.stat", names->active, &active);
    used -= inactive + active < used ? inactive + active : used;
    return used < limit ? limit - used : 0;
}

/* Returns the least number of bytes that a control group or one of its
   ancestors has left. In a container the process's own group may be mounted as
   the root of the hierarchy; then the path in /proc names no folder there, and
   only the root counts. */
static uint64_t available_upwards(const char *root, const version_t *names,
                                  const char *group)
{
    char folder[PATH_BYTES];
    uint64_t least = UINT64_MAX;
    size_t mount = strlen(names->mount);
    (void)snprintf(folder, sizeof folder, "%s%s", names->mount, group);
    for (char *end = folder + strlen(folder); end != NULL;
         end = strrchr(folder + mount, '/')) {
        *end = '\0';
        uint64_t left = available_in(root, names, folder);
        least = left < least ? left : least;
    }
    return least;
}

/* Returns the least number of bytes that any control group of the process has
   left. /proc/self/cgroup has a line for each group: "4:memory:/job" or
   "3:cpu,memory:/job" in version 1, "0::/job" in version 2. */
static uint64_t available_in_groups(const char *root)
{
    char text[FILE_BYTES];
    char *rest = text;
    char *line;
    uint64_t least = UINT64_MAX;
    available_read(root, "/proc/self", "cgroup", text, sizeof text);
    while ((line = strsep(&rest, "\n")) != NULL) {
        char *names = strchr(line, ':');
        char *group = names != NULL ? strchr(names + 1, ':') : NULL;
        if (group == NULL) {
            continue;
        }
        *group++ = '\0';
        bool is_v2 = names[1] == '\0';
        if (!is_v2 && strstr(names, "memory") == NULL) {
            continue;
        }
        uint64_t left = available_upwards(root, is_v2 ? &v2 : &v1, group);
        least = left < least ? left : least;
    }
    return least;
}

size_t baton__available_memory(const char *root)
{
    uint64_t free_kb = 0;
    uint64_t swap_kb = 0;
    uint64_t least = available_in_groups(root);
    if (available_find(root, "/proc", "meminfo", "MemAvailable:", &free_kb)) {
        (void)available_find(root, "/proc", "meminfo", "SwapFree:", &swap_kb);
        uint64_t left = (free_kb + swap_kb) * 1024;
        least = left < least ? left : least;
    }
    return least < SIZE_MAX ? (size_t)least : SIZE_MAX;
}
