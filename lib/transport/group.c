/* Groups: ranks, sizes, schedules by identity. Creation is the engine's. */
#include "transport/group.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/random.h"

#include <baton/sim.h>

#include <assert.h>
#include <string.h>

int baton_group_rank(const baton_group_t *group)
{
    if (group == NULL) {
        (void)baton__error(BATON_ERR_INVALID, "%s: group is NULL", __func__);
        return -1;
    }
    return group->rank;
}

bool baton_group_has_payload(const baton_group_t *group)
{
    return group != NULL && !group->cost_only;
}

int baton_group_size(const baton_group_t *group)
{
    if (group == NULL) {
        (void)baton__error(BATON_ERR_INVALID, "%s: group is NULL", __func__);
        return -1;
    }
    return group->size;
}

baton_engine_t *baton_group_engine(const baton_group_t *group)
{
    return group != NULL ? group->engine : NULL;
}

/* ---- identities ------------------------------------------------------- */

/* The upper bits are the name's, the lower ones the attempt's. */
enum { ATTEMPT_BITS = 24 };
#define ATTEMPT_MASK ((UINT64_C(1) << ATTEMPT_BITS) - 1)

static uint64_t hash_of(const char *name)
{
    uint64_t hash = 0;
    for (const char *at = name; *at != '\0'; at++) {
        hash = baton__mix(hash * 257 + (unsigned char)*at + 1);
    }
    return baton__mix(hash + 1) >> ATTEMPT_BITS;
}

uint64_t baton__identity(const char *name, uint32_t attempt)
{
    return hash_of(name) << ATTEMPT_BITS | (attempt & ATTEMPT_MASK);
}

/* The place of a hash in the table, or where it would be; NULL without a table.
 */
static baton__name_t *name_place(const baton_group_t *group, uint64_t hash)
{
    uint32_t mask = group->name_capacity - 1;
    if (group->name_capacity == 0) {
        return NULL;
    }
    uint32_t at = (uint32_t)hash & mask;
    while (group->names[at].used && group->names[at].hash != hash) {
        at = (at + 1) & mask;
    }
    return &group->names[at];
}

static baton__name_t *find_name(const baton_group_t *group, uint64_t hash)
{
    baton__name_t *entry = name_place(group, hash);
    return entry != NULL && entry->used ? entry : NULL;
}

/* At most half of the table is used. */
static bool grow_names(baton_group_t *group)
{
    uint32_t capacity = group->name_capacity;
    baton__name_t *names = group->names;
    uint32_t room = capacity > 0 ? capacity * 2 : 8;
    baton__name_t *larger = baton__alloc(room, sizeof *larger);
    if (larger == NULL) {
        return false;
    }
    group->names = larger;
    group->name_capacity = room;
    for (uint32_t i = 0; i < capacity; i++) {
        if (names[i].used) {
            *name_place(group, names[i].hash) = names[i];
        }
    }
    baton__free(names);
    return true;
}

uint32_t baton__group_attempt(baton_group_t *group, const char *name)
{
    uint64_t hash = hash_of(name);
    baton__name_t *entry = find_name(group, hash);
    if (entry == NULL) {
        if (group->name_count >= group->name_capacity / 2 &&
            !grow_names(group)) {
            return 0;
        }
        entry = name_place(group, hash);
        *entry = (baton__name_t){.hash = hash, .used = true};
        group->name_count++;
    }
    return ++entry->attempts;
}

uint32_t baton__group_attempts(const baton_group_t *group, const char *name)
{
    const baton__name_t *entry = find_name(group, hash_of(name));
    return entry != NULL ? entry->attempts : 0;
}

void baton__group_take_back(baton_group_t *group, const char *name)
{
    find_name(group, hash_of(name))->attempts--;
}

bool baton__group_has_made(const baton_group_t *group, uint64_t identity)
{
    const baton__name_t *entry = find_name(group, identity >> ATTEMPT_BITS);
    return entry != NULL && entry->attempts >= (identity & ATTEMPT_MASK);
}

uint64_t baton__group_departed(baton_group_t *group, uint64_t identity,
                               uint16_t incarnation)
{
    baton__departed_t **link = &group->departed;
    while (*link != NULL && (*link)->identity != identity) {
        link = &(*link)->next;
    }
    baton__departed_t *departed = *link;
    if (departed == NULL) {
        return 1;
    }
    uint64_t epoch = departed->incarnation == incarnation ? departed->epoch : 1;
    if (--departed->unheard == 0) {
        *link = departed->next;
        baton__free(departed);
    }
    return epoch;
}

/* ---- the table -------------------------------------------------------- */

static uint32_t place_of(const baton_group_t *group, uint64_t identity)
{
    return (uint32_t)(baton__mix(identity) & (group->table_size - 1));
}

static void put(baton_group_t *group, baton__place_t place)
{
    uint32_t at = place_of(group, place.identity);
    while (group->table[at].identity != 0) {
        at = (at + 1) & (group->table_size - 1);
    }
    group->table[at] = place;
}

bool baton__group_reserve(baton_group_t *group)
{
    if (2 * (group->table_count + 1) <= group->table_size) {
        return true;
    }
    uint32_t old_size = group->table_size;
    baton__place_t *old = group->table;
    uint32_t size = old_size == 0 ? 2 : 2 * old_size;
    baton__place_t *table = baton__alloc(size, sizeof *table);
    if (table == NULL) {
        return false;
    }
    group->table = table;
    group->table_size = size;
    for (uint32_t i = 0; i < old_size; i++) {
        if (old[i].identity != 0) {
            put(group, old[i]);
        }
    }
    baton__free(old);
    return true;
}

void baton__group_enter(baton_group_t *group, uint64_t identity,
                        baton_schedule_t *schedule)
{
    put(group, (baton__place_t){identity, schedule});
    group->table_count++;
}

void baton__group_remove(baton_group_t *group, uint64_t identity)
{
    uint32_t mask = group->table_size - 1;
    uint32_t at = place_of(group, identity);
    while (group->table[at].identity != identity) {
        at = (at + 1) & mask;
    }
    group->table[at].identity = 0;
    group->table_count--;
    /* Entries that were displaced past this place are put again. */
    for (at = (at + 1) & mask; group->table[at].identity != 0;
         at = (at + 1) & mask) {
        baton__place_t place = group->table[at];
        group->table[at].identity = 0;
        put(group, place);
    }
}

baton_schedule_t *baton__group_find(const baton_group_t *group,
                                    uint64_t identity)
{
    if (group->table_size == 0) {
        return NULL;
    }
    uint32_t mask = group->table_size - 1;
    for (uint32_t at = place_of(group, identity);; at = (at + 1) & mask) {
        const baton__place_t *place = &group->table[at];
        if (place->identity == identity) {
            return place->schedule;
        }
        if (place->identity == 0) {
            return NULL;
        }
    }
}

/* ---- peers that are gone ---------------------------------------------- */

void baton__group_set_recovery(baton_group_t *group,
                               baton__recovery_state_t state)
{
    /* From (row) to (column): none, stopping, joined, over. */
    static const bool
        legal[BATON__RECOVERY_STATE_COUNT][BATON__RECOVERY_STATE_COUNT] = {
            [BATON__RECOVERY_NONE] = {false, true, false, false},
            [BATON__RECOVERY_STOPPING] = {false, false, true, true},
            [BATON__RECOVERY_JOINED] = {false, false, false, true},
            [BATON__RECOVERY_OVER] = {true, false, false, false},
        };
    assert(legal[group->recovery][state]);
    (void)legal; /* without assertions */
    group->recovery = state;
}

void baton__group_lose(baton_group_t *group, int peer)
{
    if (group->lost_count == group->lost_capacity) {
        uint32_t room = group->lost_capacity * 2 + 4;
        int *lost =
            baton__grow(group->lost, group->lost_count, room, sizeof *lost);
        if (lost == NULL) {
            group->all_lost = true;
            return;
        }
        group->lost = lost;
        group->lost_capacity = room;
    }
    group->lost[group->lost_count++] = peer;
}

bool baton__group_has_lost(const baton_group_t *group, int peer)
{
    for (uint32_t i = 0; i < group->lost_count; i++) {
        if (group->lost[i] == peer) {
            return true;
        }
    }
    return group->all_lost;
}

void baton__group_fini(baton_group_t *group)
{
    while (group->memory != NULL) { /* a simulated group's, with the rest */
        baton__memory_t *block = group->memory;
        group->memory = block->next;
        baton__free(block->address);
        baton__free(block);
    }
    while (group->departed != NULL) {
        baton__departed_t *departed = group->departed;
        group->departed = departed->next;
        baton__free(departed);
    }
    baton__free(group->table);
    baton__free(group->names);
    baton__free(group->lost);
}
