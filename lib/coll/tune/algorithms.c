#include "coll/tune/algorithms.h"

#include "base/error.h"
#include "base/text.h"

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

static baton_status_t unknown(baton_collective_t collective, const char *name)
{
    char memory[BATON__MESSAGE_BYTES];
    baton__text_t text = {memory, sizeof memory, 0};
    const char *nearest = "";
    size_t least = SIZE_MAX;
    baton__text_add(&text, "no algorithm of %s is called \"%.40s\"; there are:",
                    baton_collective_name(collective), name);
    for (size_t i = 0; i < COUNT; i++) {
        if (table[i]->collective == collective) {
            baton__text_add(&text, " %s", table[i]->name);
            size_t distance = baton__edit_distance(name, table[i]->name);
            if (distance < least) {
                least = distance;
                nearest = table[i]->name;
            }
        }
    }
    return baton__error(BATON_ERR_INVALID, "%s; the nearest is %s", memory,
                        nearest);
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
    for (size_t i = 0; i < COUNT; i++) {
        if (table[i]->collective == collective &&
            strcmp(table[i]->name, name) == 0) {
            *out = *table[i];
            return BATON_OK;
        }
    }
    return unknown(collective, name);
}
