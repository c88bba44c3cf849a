/* Records of one size, each kept once and numbered from 0: equal records have
   equal numbers, so records can be compared by their numbers. */
#ifndef BATON_SIM_INTERN_H
#define BATON_SIM_INTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BATON__NO_NUMBER UINT32_MAX

/* Begins with `words` set and the rest zero. */
typedef struct baton__intern {
    size_t words;      /* of 64 bits, of a record */
    uint64_t *records; /* by number */
    uint32_t *slots;   /* hash table of 2 * room: a record's number + 1, or 0 */
    uint32_t count;
    uint32_t room; /* 0 or a power of two */
} baton__intern_t;

void baton__intern_fini(baton__intern_t *intern);

/* Makes room for so many more records, whose interning can't fail then. False,
   and nothing has changed, if there is no memory. */
bool baton__intern_reserve(baton__intern_t *intern, size_t more);

/* The record's number, which is new if the record is. BATON__NO_NUMBER if a new
   one needs memory and there is none. */
uint32_t baton__intern(baton__intern_t *intern, const uint64_t *record);

/* The record with a number; valid until the next new record. */
static inline const uint64_t *
baton__intern_record(const baton__intern_t *intern, uint32_t number)
{
    return intern->records + number * intern->words;
}

#endif
