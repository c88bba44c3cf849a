#include "coll/dense/algorithms.h"

#include "base/error.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static const baton_algorithm_t *const table[] = {
#define RECORD(name) &baton__##name##_algorithm,
    BATON__ALGORITHM_LIST(RECORD)
#undef RECORD
};

enum {
    COUNT = sizeof table / sizeof table[0],
    MOST_OWN = 32,
    NAME_BYTES = 48 /* bytes of a name with its final zero, as in measured.c */
};

/* The algorithms that the program has added. `added` is stored with release
   after the new algorithm is complete, and loaded with acquire. */
static baton_algorithm_t own[MOST_OWN];
static char own_names[MOST_OWN][NAME_BYTES];
static _Atomic size_t added;
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;

/* Returns the i-th algorithm, or NULL past the end. */
static const baton_algorithm_t *algorithm_at(size_t i)
{
    if (i < COUNT) {
        return table[i];
    }
    return i - COUNT < atomic_load_explicit(&added, memory_order_acquire)
               ? &own[i - COUNT]
               : NULL;
}

/* Returns the collective's algorithm of this name, or NULL if it has none. */
static const baton_algorithm_t *algorithm_named(baton_collective_t collective,
                                                const char *name)
{
    const baton_algorithm_t *each;
    for (size_t i = 0; (each = algorithm_at(i)) != NULL; i++) {
        if (each->collective == collective && strcmp(each->name, name) == 0) {
            return each;
        }
    }
    return NULL;
}

const char *baton_collective_name(baton_collective_t collective)
{
    static const char *const names[] = {
#define NAME(id, name) name,
        BATON_COLLECTIVE_LIST(NAME)
#undef NAME
    };
    bool known = (unsigned)collective < (unsigned)BATON_COLLECTIVE_COUNT;
    return known ? names[collective] : "?";
}

#define FACTS(NAME, from, to, ...)                                             \
    [BATON_COLLECTIVE_##NAME] = {                                              \
        .source = BATON_SPAN_##from, .target = BATON_SPAN_##to, __VA_ARGS__}
const baton_collective_facts_t baton__facts[] = {
    FACTS(BROADCAST, NONE, PART, .rooted = true),
    FACTS(REDUCE, PART, PART, .reduces = true, .rooted = true,
          .target_at_root = true),
    FACTS(ALLREDUCE, PART, PART, .reduces = true),
    FACTS(REDUCE_SCATTER, BLOCKS, PART, .reduces = true),
    FACTS(ALLGATHER, PART, BLOCKS, .rooted = false),
    FACTS(SCATTER, BLOCKS, PART, .rooted = true, .source_at_root = true),
    FACTS(GATHER, PART, BLOCKS, .rooted = true, .target_at_root = true),
    FACTS(ALLTOALL, BLOCKS, BLOCKS, .rooted = false),
    FACTS(SCAN, PART, PART, .reduces = true),
    FACTS(EXSCAN, PART, PART, .reduces = true),
    FACTS(BARRIER, NONE, NONE, .rooted = false),
};

const baton_collective_facts_t *
baton_collective_facts(baton_collective_t collective)
{
    bool known = (unsigned)collective < (unsigned)BATON_COLLECTIVE_COUNT;
    return known ? &baton__facts[collective] : NULL;
}

bool baton_algorithm_get(size_t i, baton_algorithm_t *out)
{
    const baton_algorithm_t *found = algorithm_at(i);
    if (!baton__is_given(out, true, __func__, "out") || found == NULL) {
        return false;
    }
    *out = *found;
    return true;
}

baton_status_t baton__check_collective(const char *what,
                                       baton_collective_t collective)
{
    return (unsigned)collective < (unsigned)BATON_COLLECTIVE_COUNT
               ? BATON_OK
               : baton__error(BATON_ERR_INVALID,
                              "%s: collective is %d; allowed: 0 to %d", what,
                              (int)collective, (int)BATON_COLLECTIVE_COUNT - 1);
}

baton_status_t baton_algorithm_find(baton_collective_t collective,
                                    const char *name, baton_algorithm_t *out)
{
    if (name == NULL || out == NULL) {
        return baton__error(BATON_ERR_INVALID, "%s: %s is NULL", __func__,
                            name == NULL ? "name" : "out");
    }
    baton_status_t status = baton__check_collective("algorithm", collective);
    if (status != BATON_OK) {
        return status;
    }
    const baton_algorithm_t *each = algorithm_named(collective, name);
    if (each != NULL) {
        *out = *each;
        return BATON_OK;
    }
    const char *names[COUNT + MOST_OWN];
    size_t count = 0;
    for (size_t i = 0; (each = algorithm_at(i)) != NULL; i++) {
        if (each->collective == collective) {
            names[count++] = each->name;
        }
    }
    char what[64];
    (void)snprintf(what, sizeof what, "algorithm of %s",
                   baton_collective_name(collective));
    return baton__error_unknown(what, name, names, count);
}

/* ---- algorithms of the program ------------------------------------------- */

static bool algorithm_is_name(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    return name != NULL && name[0] != '\0' && strlen(name) < NAME_BYTES &&
           name[strspn(name, allowed)] == '\0';
}

static baton_status_t algorithm_check(const baton_algorithm_t *algorithm)
{
    static const char function[] = "baton_algorithm_add";
    if (!baton__is_given(algorithm, true, function, "algorithm")) {
        return BATON_ERR_INVALID;
    }
    baton_status_t status =
        baton__check_collective(function, algorithm->collective);
    if (status != BATON_OK) {
        return status;
    }
    if (!algorithm_is_name(algorithm->name)) {
        return baton__error(BATON_ERR_INVALID,
                            "%s: name must be of 1 to %d letters, digits, - "
                            "and _",
                            function, NAME_BYTES - 1);
    }
    return algorithm->build.barrier != NULL && algorithm->cost == NULL &&
                   algorithm->phases[0] == NULL && algorithm->work == NULL
               ? BATON_OK
               : baton__error(BATON_ERR_INVALID,
                              "%s: %s: build must be set, and phases, cost and "
                              "work must be NULL",
                              function, algorithm->name);
}

baton_status_t baton_algorithm_add(const baton_algorithm_t *algorithm)
{
    baton_status_t status = algorithm_check(algorithm);
    if (status != BATON_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&adding);
    const size_t at = atomic_load_explicit(&added, memory_order_relaxed);
    if (algorithm_named(algorithm->collective, algorithm->name) != NULL) {
        status = baton__error(
            BATON_ERR_INVALID, "%s: %s already has an algorithm of the name %s",
            __func__, baton_collective_name(algorithm->collective),
            algorithm->name);
    } else if (at == MOST_OWN) {
        status =
            baton__error(BATON_ERR_LIMIT, "%s: there are %d algorithms already",
                         __func__, MOST_OWN);
    } else {
        own[at] = *algorithm;
        own[at].name =
            memcpy(own_names[at], algorithm->name, strlen(algorithm->name) + 1);
        atomic_store_explicit(&added, at + 1, memory_order_release);
    }
    (void)pthread_mutex_unlock(&adding);
    return status;
}
