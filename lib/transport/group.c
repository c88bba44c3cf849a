/* Groups: their ranks, attributes and tables, and the identities of schedules.
   The engine creates groups. */
#include "transport/group.h"

#include "base/alloc.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/random.h"
#include "base/thread.h"

#include <assert.h>
#include <string.h>

static bool is_alive(const baton_group_t *group, const char *function)
{
    return baton__is_alive(group, group != NULL && group->retired, function,
                           "group");
}

bool baton__is_group(const baton_group_t *group, const char *function)
{
    return is_alive(group, function) && baton__process_is_own(function);
}

int baton_group_rank(const baton_group_t *group)
{
    return is_alive(group, __func__) ? group->rank : -1;
}

bool baton_group_has_payload(const baton_group_t *group)
{
    return group != NULL && !group->cost_only;
}

int baton_group_size(const baton_group_t *group)
{
    return is_alive(group, __func__) ? group->size : -1;
}

int baton_group_origin(const baton_group_t *group, int rank)
{
    if (!is_alive(group, __func__) || rank < 0 || rank >= group->size) {
        return -1;
    }
    return group->origins != NULL ? group->origins[rank] : rank;
}

baton_engine_t *baton_group_engine(const baton_group_t *group)
{
    return group != NULL ? group->engine : NULL;
}

bool baton_group_is_simulated(const baton_group_t *group)
{
    return group != NULL && group->borrowed;
}

unsigned baton_group_recoveries(const baton_group_t *group)
{
    return group != NULL ? group->incarnation : 0;
}

/* ---- attributes ------------------------------------------------------- */

static pthread_mutex_t attributes_lock = PTHREAD_MUTEX_INITIALIZER;

static void *attribute(baton_group_t *group, const void *key, void *value,
                       baton_attribute_destroy_fn destroy)
{
    assert(baton__thread_has_locked(&attributes_lock));
    baton__attribute_t *found = group->attributes;
    while (found != NULL && found->key != key) {
        found = found->next;
    }
    if (found == NULL && value != NULL) {
        found = baton__alloc(1, sizeof *found);
        if (found != NULL) {
            *found = (baton__attribute_t){.next = group->attributes,
                                          .key = key,
                                          .value = value,
                                          .destroy = destroy};
            group->attributes = found;
        }
    }
    return found != NULL ? found->value : NULL;
}

void *baton_group_attribute(baton_group_t *group, const void *key, void *value,
                            baton_attribute_destroy_fn destroy)
{
    if (!baton__is_group(group, __func__) ||
        !baton__is_given(key, true, __func__, "key")) {
        return NULL;
    }
    pthread_mutex_lock(&attributes_lock);
    void *stored = attribute(group, key, value, destroy);
    pthread_mutex_unlock(&attributes_lock);
    return stored;
}

/* ---- identities ------------------------------------------------------- */

/* The upper bits of an identity are the name's hash, and the lower bits the
   attempt. */
enum { ATTEMPT_BITS = 24 };
#define ATTEMPT_MASK ((UINT64_C(1) << ATTEMPT_BITS) - 1)

static uint64_t hash_of(const char *name)
{
    uint64_t hash = 0;
    for (const char *at = name; *at != '\0'; at++) {
        hash = baton__mix(hash * 257 + (unsigned char)*at + 1);
    }
    hash = baton__mix(hash + 1) >> ATTEMPT_BITS;
    return hash != 0 ? hash : 1;
}

uint64_t baton__identity(const char *name, uint32_t attempt)
{
    return hash_of(name) << ATTEMPT_BITS | (attempt & ATTEMPT_MASK);
}

/* ---- tables ----------------------------------------------------------- */

/* Returns the entry of a key, or the free entry where the key would be put. The
   table must have entries. */
static baton__place_t *transport_group_place_of(const baton__table_t *table,
                                                uint64_t key)
{
    uint32_t at = (uint32_t)baton__mix(key) & (table->size - 1);
    while (table->places[at].key != 0 && table->places[at].key != key) {
        at = (at + 1) & (table->size - 1);
    }
    return &table->places[at];
}

baton__place_t *baton__table_find(const baton__table_t *table, uint64_t key)
{
    baton__place_t *place =
        table->size > 0 ? transport_group_place_of(table, key) : NULL;
    return place != NULL && place->key != 0 ? place : NULL;
}

bool baton__table_reserve(baton__table_t *table, uint32_t more)
{
    baton__table_t larger = {.size = table->size == 0 ? 2 : table->size,
                             .count = table->count};
    while (2 * (table->count + more) > larger.size) {
        larger.size *= 2;
    }
    if (larger.size == table->size) {
        return true;
    }
    larger.places = baton__alloc(larger.size, sizeof *larger.places);
    if (larger.places == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < table->size; i++) {
        if (table->places[i].key != 0) {
            *transport_group_place_of(&larger, table->places[i].key) =
                table->places[i];
        }
    }
    baton__free(table->places);
    *table = larger;
    return true;
}

baton__place_t *baton__table_enter(baton__table_t *table, uint64_t key)
{
    baton__place_t *place = transport_group_place_of(table, key);
    *place = (baton__place_t){.key = key};
    table->count++;
    return place;
}

void baton__table_remove(baton__table_t *table, uint64_t key)
{
    uint32_t mask = table->size - 1;
    uint32_t at =
        (uint32_t)(transport_group_place_of(table, key) - table->places);
    table->places[at].key = 0;
    table->count--;
    /* Entries after the freed entry may have been displaced past it, so they
       are put in again. */
    for (at = (at + 1) & mask; table->places[at].key != 0;
         at = (at + 1) & mask) {
        baton__place_t place = table->places[at];
        table->places[at].key = 0;
        *transport_group_place_of(table, place.key) = place;
    }
}

/* ---- names ------------------------------------------------------------ */

uint32_t *baton__group_counter(baton_group_t *group, const char *name,
                               uint64_t key)
{
    key = name != NULL ? hash_of(name) : key | UINT64_C(1) << 63;
    baton__place_t *place = baton__table_find(&group->names, key);
    if (place == NULL && baton__table_reserve(&group->names, 1)) {
        place = baton__table_enter(&group->names, key);
    }
    return place != NULL ? &place->attempts : NULL;
}

bool baton__group_has_made(const baton_group_t *group, uint64_t identity)
{
    const baton__place_t *place =
        baton__table_find(&group->names, identity >> ATTEMPT_BITS);
    return place != NULL && place->attempts >= (identity & ATTEMPT_MASK);
}

baton_schedule_t *baton__group_find(const baton_group_t *group,
                                    uint64_t identity)
{
    const baton__place_t *place = baton__table_find(&group->table, identity);
    return place != NULL ? place->schedule : NULL;
}

/* ---- ranks ------------------------------------------------------------ */

const char baton__disowned[] = "it has lost this rank";

const char *baton__group_place(const baton_group_t *group)
{
    static _Thread_local char place[96];
    bool named = group->name != NULL;
    (void)snprintf(place, sizeof place, "rank %d of %d%s%.48s%s", group->rank,
                   group->size, named ? " in \"" : "", named ? group->name : "",
                   named ? "\"" : "");
    return place;
}

static int process_of(const baton_group_t *group, int rank, const char **host)
{
    const baton_transport_t *port = group->transport;
    *host = NULL;
    return port->process != NULL && rank >= 0 && rank < group->size
               ? port->process(group->endpoint, rank, host)
               : 0;
}

const char *baton__group_rank_text(const baton_group_t *group, int rank)
{
    static _Thread_local char texts[2][96];
    static _Thread_local unsigned next;
    char *text = texts[next++ % 2];
    const char *host;
    int process = process_of(group, rank, &host);
    if (process > 0) {
        (void)snprintf(text, sizeof texts[0],
                       "rank %d (host %.32s, process %d)", rank, host, process);
    } else {
        (void)snprintf(text, sizeof texts[0], "rank %d", rank);
    }
    return text;
}

/* In the text of /proc/PID/stat the state follows the program's name, which is
   in parentheses. */
bool baton__group_is_stopped(const baton_group_t *group, int rank)
{
    char path[32];
    char text[256];
    const char *host;
    int process = process_of(group, rank, &host);
    if (process <= 0 || !baton__group_is_local(group, rank)) {
        return false;
    }
    (void)snprintf(path, sizeof path, "/proc/%d/stat", process);
    (void)baton__descriptor_read(path, text, sizeof text);
    const char *name_end = strrchr(text, ')');
    return name_end != NULL && strspn(name_end, ") ") == 2 &&
           strchr("Tt", name_end[2]) != NULL;
}

int baton__group_host(const baton_group_t *group, int rank)
{
    const baton_transport_t *port = group->transport;
    if (port->host_block > 0) {
        return rank / port->host_block;
    }
    return port->host_of != NULL ? port->host_of(group->endpoint, rank) : 0;
}

bool baton__group_is_local(const baton_group_t *group, int rank)
{
    return baton__group_host(group, rank) ==
           baton__group_host(group, group->rank);
}

void baton__group_number_hosts(baton_transport_t *transport, int *host_of,
                               int size)
{
    int hosts = 0;
    int block = 0;
    for (int rank = 0; rank < size; rank++) {
        bool leads = host_of[rank] == rank;
        host_of[rank] = leads ? hosts : host_of[host_of[rank]];
        hosts += leads;
        block += host_of[rank] == 0;
    }
    for (int rank = 0; rank < size && block > 0; rank++) {
        block = host_of[rank] == rank / block ? block : 0;
    }
    transport->hosts = hosts;
    transport->host_block = block;
}

void baton__group_take_notice(const baton_group_t *group,
                              baton_message_t *message, void *content,
                              size_t bytes)
{
    char memory[BATON_NOTICE_BYTES] = {0};
    const baton_token_t no_token = {.owner = NULL};
    if (message->bytes > sizeof memory) {
        group->transport->drop(group->endpoint, message);
    } else {
        (void)group->transport->accept(group->endpoint, message, no_token,
                                       memory);
    }
    memcpy(content, memory, bytes);
}

void baton__group_drop_attributes(baton_group_t *group)
{
    while (group->attributes != NULL) {
        baton__attribute_t *first = group->attributes;
        group->attributes = first->next;
        if (first->destroy != NULL) {
            first->destroy(first->value);
        }
        baton__free(first);
    }
}

void baton__group_fini(baton_group_t *group)
{
    baton__group_drop_attributes(group);
    /* Only a simulated group may still have blocks here. */
    while (group->memory != NULL) {
        baton__memory_t *block = group->memory;
        group->memory = block->next;
        baton__free(block->address);
        baton__free(block);
    }
    baton__free(group->name);
    baton__free(group->average);
    baton__free(group->channels.places);
    baton__free(group->table.places);
    baton__free(group->names.places);
    baton__free(group->origins);
}
