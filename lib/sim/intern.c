/* Records of one size, each kept once. */
#include "sim/intern.h"

#include "base/alloc.h"
#include "base/random.h"

#include <string.h>

#define FIRST_ROOM 16
#define MOST       ((uint32_t)1 << 31) /* records: numbers have 32 bits */

/* The slot where the record is or would be: at most half of the slots are used,
   so the search ends. */
static uint32_t *slot_of(const baton__intern_t *intern, const uint64_t *record)
{
    size_t mask = 2 * (size_t)intern->room - 1;
    uint64_t hash = 0;
    for (size_t i = 0; i < intern->words; i++) {
        hash = baton__mix(hash ^ record[i]);
    }
    uint32_t *slot = &intern->slots[hash & mask];
    while (*slot != 0 && memcmp(baton__intern_record(intern, *slot - 1), record,
                                intern->words * sizeof *record) != 0) {
        slot = &intern->slots[(size_t)(slot - intern->slots + 1) & mask];
    }
    return slot;
}

bool baton__intern_reserve(baton__intern_t *intern, size_t more)
{
    if (more > MOST - intern->count) {
        return false;
    }
    uint32_t room = intern->room;
    while (room - intern->count < more) {
        room = room > 0 ? room * 2 : FIRST_ROOM;
    }
    if (room == intern->room) {
        return true;
    }
    uint32_t *slots = baton__alloc(2 * (size_t)room, sizeof *slots);
    if (slots == NULL) {
        return false;
    }
    uint64_t *records =
        baton__grow(intern->records, intern->count * intern->words,
                    room * intern->words, sizeof *records);
    if (records == NULL) {
        baton__free(slots);
        return false;
    }
    baton__free(intern->slots);
    intern->slots = slots;
    intern->records = records;
    intern->room = room;
    for (uint32_t i = 0; i < intern->count; i++) {
        *slot_of(intern, baton__intern_record(intern, i)) = i + 1;
    }
    return true;
}

uint32_t baton__intern(baton__intern_t *intern, const uint64_t *record)
{
    uint32_t *slot = intern->room > 0 ? slot_of(intern, record) : NULL;
    if (slot == NULL || *slot == 0) {
        if (!baton__intern_reserve(intern, 1)) {
            return BATON__NO_NUMBER;
        }
        memcpy(intern->records + intern->count * intern->words, record,
               intern->words * sizeof *record);
        slot = slot_of(intern, record);
        *slot = ++intern->count;
    }
    return *slot - 1;
}

void baton__intern_fini(baton__intern_t *intern)
{
    baton__free(intern->records);
    baton__free(intern->slots);
}
