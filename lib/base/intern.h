/* Records of one size, each kept once and numbered from 0: equal records have
   equal numbers, so whoever has numbers compares by them. */
#ifndef BATON_BASE_INTERN_H
#define BATON_BASE_INTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BATON__NO_NUMBER UINT32_MAX

/* Begins with `words` set and the rest zero. */
typedef struct baton__intern {
    size_t words;      /* of 64 bits, of a record */
    uint64_t *records; /* by number */
    uint32_t *slots;   /* 2 * room, hashed: a record's number + 1, or 0 */
    uint32_t count;
    uint32_t room; /* 0 or a power of two */
} baton__intern_t;

void baton__intern_fini(baton__intern_t *intern);

/* Makes room for so many more: these can't fail then. On false all is as it
   was. */
bool baton__intern_reserve(baton__intern_t *intern, size_t more);

/* The record's number, the one it has or a new one. BATON__NO_NUMBER: a new one
   would need memory and there is none. */
uint32_t baton__intern(baton__intern_t *intern, const uint64_t *record);

/* Valid until a new record comes. */
static inline const uint64_t *
baton__intern_record(const baton__intern_t *intern, uint32_t number)
{
    return intern->records + number * intern->words;
}

#endif
