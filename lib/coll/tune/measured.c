/* Measured choices, and their lines in calibration files. */
#include "coll/tune/tune.h"

#include "base/alloc.h"
#include "base/config.h"
#include "base/descriptor.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define CHOICE     "choice "
#define FORM       "choice COLLECTIVE BYTES RANKS HOSTS in|out ALGORITHM SEGMENT"
#define LINE_BYTES 256
#define PATH_BYTES 1024

/* ---- keys and lists ------------------------------------------------------ */

size_t baton__measured_class(size_t bytes)
{
    size_t class_bytes = 1;
    while (class_bytes < SIZE_MAX / 4 && bytes / 2 >= class_bytes) {
        class_bytes *= 4;
    }
    return class_bytes;
}

baton__measured_t baton__measured_key(const baton_choice_case_t *of)
{
    return (baton__measured_t){
        .collective = of->collective,
        .class_bytes = baton__measured_class(of->bytes),
        .ranks = of->ranks,
        .hosts = of->hosts > 0 ? of->hosts : 1,
        .in_place =
            of->in_place && of->collective == BATON_COLLECTIVE_ALLREDUCE,
    };
}

static bool same_key(const baton__measured_t *a, const baton__measured_t *b)
{
    return a->collective == b->collective && a->class_bytes == b->class_bytes &&
           a->ranks == b->ranks && a->hosts == b->hosts &&
           a->in_place == b->in_place;
}

const baton__measured_t *baton__measured_find(const baton__measured_t *list,
                                              const baton__measured_t *key)
{
    while (list != NULL && !same_key(list, key)) {
        list = list->next;
    }
    return list;
}

baton_status_t baton__measured_add(baton__measured_t **list,
                                   const baton__measured_t *one)
{
    baton__measured_t *added = baton__alloc(1, sizeof *added);
    if (added == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY,
                            "no memory for a measured choice");
    }
    *added = *one;
    added->next = *list;
    *list = added;
    return BATON_OK;
}

void baton__measured_free(baton__measured_t **list)
{
    while (*list != NULL) {
        baton__measured_t *first = *list;
        *list = first->next;
        baton__free(first);
    }
}

/* ---- files --------------------------------------------------------------- */

static baton_status_t measured_system_error(const char *doing, const char *path)
{
    return baton__error(BATON_ERR_SYSTEM, "calibration: can't %s \"%s\": %s",
                        doing, path, strerror(errno));
}

static bool find_collective(const char *name, baton_collective_t *out)
{
    for (int i = 0; i < (int)BATON_COLLECTIVE_COUNT; i++) {
        if (strcmp(name, baton_collective_name((baton_collective_t)i)) == 0) {
            *out = (baton_collective_t)i;
            return true;
        }
    }
    return false;
}

/* Sets out->algorithm to the algorithm's name, in static memory. Returns false
   if the collective has no such algorithm. Also returns false if the line has a
   segment size and the algorithm has no segments, or the other way round. */
static bool find_algorithm(baton_collective_t collective, const char *name,
                           baton__measured_t *out)
{
    baton_algorithm_t found;
    bool known = baton_algorithm_find(collective, name, &found) == BATON_OK;
    out->algorithm = known ? found.name : NULL;
    return known && found.segmented == (out->segment_bytes > 0);
}

static bool measured_parse(const char *line, baton__measured_t *out)
{
    char collective[32];
    char place[4];
    char algorithm[48];
    char rest;
    int fields = sscanf(line, CHOICE "%31s %zu %d %d %3s %47s %zu %c",
                        collective, &out->class_bytes, &out->ranks, &out->hosts,
                        place, algorithm, &out->segment_bytes, &rest);
    if (fields != 7 || !find_collective(collective, &out->collective)) {
        return false;
    }
    out->in_place = strcmp(place, "in") == 0;
    return (out->in_place ? out->collective == BATON_COLLECTIVE_ALLREDUCE
                          : strcmp(place, "out") == 0) &&
           out->class_bytes == baton__measured_class(out->class_bytes) &&
           out->ranks > 1 && out->hosts > 0 && out->hosts <= out->ranks &&
           out->segment_bytes <= (size_t)1 << 30 &&
           find_algorithm(out->collective, algorithm, out);
}

static baton_status_t read_lines(FILE *file, const char *path,
                                 baton__measured_t **list)
{
    char line[LINE_BYTES];
    baton_status_t status = BATON_OK;
    for (int number = 1;
         status == BATON_OK && fgets(line, sizeof line, file) != NULL;
         number++) {
        baton__measured_t one = {.next = NULL};
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, CHOICE, strlen(CHOICE)) != 0) {
            continue;
        }
        if (!measured_parse(line, &one)) {
            return baton__error(BATON_ERR_INVALID,
                                "calibration: line %d of \"%s\" is \"%.80s\", "
                                "must be \"" FORM "\", of this version's "
                                "algorithms",
                                number, path, line);
        }
        status = baton__measured_add(list, &one);
    }
    return status;
}

static baton_status_t read_file(const char *path, baton__measured_t **list)
{
    FILE *file = baton__descriptor_fopen(path);
    if (file == NULL) {
        return measured_system_error("open", path);
    }
    baton_status_t status = read_lines(file, path, list);
    (void)fclose(file);
    return status;
}

/* If several lines have the same key, the last one counts. So lines are only
   added, and none is changed. */
baton_status_t baton__measured_append(const char *path,
                                      const baton__measured_t *list)
{
    int file =
        baton__descriptor_move(open(path, O_WRONLY | O_APPEND | O_CLOEXEC));
    if (file < 0) {
        return measured_system_error("open", path);
    }
    bool written = true;
    for (; list != NULL; list = list->next) {
        char line[LINE_BYTES];
        int length =
            snprintf(line, sizeof line, CHOICE "%s %zu %d %d %s %s %zu\n",
                     baton_collective_name(list->collective), list->class_bytes,
                     list->ranks, list->hosts, list->in_place ? "in" : "out",
                     list->algorithm, list->segment_bytes);
        written &= write(file, line, (size_t)length) == length;
    }
    bool closed = close(file) == 0;
    return written && closed ? BATON_OK : measured_system_error("write", path);
}

/* ---- in force ------------------------------------------------------------ */

/* The path of the file that was read last, and the choices in it. `lock` guards
   both. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char known_path[PATH_BYTES];
static baton__measured_t *known;

static baton_status_t read_known(const char *path)
{
    if (strcmp(path, known_path) == 0) {
        return BATON_OK;
    }
    baton__measured_free(&known);
    known_path[0] = '\0';
    baton_status_t status = read_file(path, &known);
    if (status == BATON_OK) {
        (void)snprintf(known_path, sizeof known_path, "%s", path);
    }
    return status;
}

baton_status_t baton__measured_in_file(const baton__measured_t *key,
                                       baton__measured_t *out, bool *found_out)
{
    const char *path = baton__config_text(BATON__CONFIG_CALIBRATION);
    *found_out = false;
    if (path[0] == '\0') {
        return BATON_OK;
    }
    pthread_mutex_lock(&lock);
    baton_status_t status = read_known(path);
    const baton__measured_t *found =
        status == BATON_OK ? baton__measured_find(known, key) : NULL;
    if (status != BATON_OK) {
        status = baton__calibration_failed(status);
    }
    if (found != NULL) {
        *out = *found;
        *found_out = true;
    }
    pthread_mutex_unlock(&lock);
    return status;
}
