#include "coll/dense/algorithms.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

static const baton_algorithm_t *const table[] = {
#define RECORD(name) &baton__##name##_algorithm,
    BATON__ALGORITHM_LIST(RECORD)
#undef RECORD
};

enum { COUNT = sizeof table / sizeof table[0] };

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

bool baton_algorithm_get(size_t i, baton_algorithm_t *out)
{
    if (!baton__is_given(out, true, __func__, "out") || i >= COUNT) {
        return false;
    }
    *out = *table[i];
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
    const char *names[COUNT];
    size_t count = 0;
    for (size_t i = 0; i < COUNT; i++) {
        if (table[i]->collective != collective) {
            continue;
        }
        names[count++] = table[i]->name;
        if (strcmp(table[i]->name, name) == 0) {
            *out = *table[i];
            return BATON_OK;
        }
    }
    char what[64];
    (void)snprintf(what, sizeof what, "algorithm of %s",
                   baton_collective_name(collective));
    return baton__error_unknown(what, name, names, count);
}
