/* The proof of baton/proof.h: elements that stand for sets of contributing
   ranks, each of which is stored once.

   A value is an element's index and the set of ranks that have contributed to
   it, or a flaw, which says what went wrong when the value was made. An element
   in a user's buffer is the number of a value. Sets are stored apart from
   values because the elements of a block have the same ranks: each value takes
   three words, and the P bits of their set are stored once. Equal values have
   equal numbers, so memory is bounded by the number of distinct values, and no
   set has to be compared twice.

   A union with a flaw is that flaw, so that baton_proof_check finds the first
   flaw, which is the cause of the others.

   A reduction can't fail: if there is no memory for a union, the result is the
   flaw NO_MEMORY, whose number exists from the start. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/random.h"

#include <baton/proof.h>
#include <string.h>

/* ---- records, each kept once -------------------------------------------- */

#define NO_NUMBER      UINT32_MAX
#define FIRST_CAPACITY 16
/* The most records. The number that is reserved doubles, and the next power of
   two does not fit in 32 bits. */
#define MOST ((uint32_t)1 << 31)

/* Records of one size, numbered from 0: equal records have equal numbers. An
   empty records_t has `words` set and the rest zero. */
typedef struct records {
    size_t words; /* number of 64-bit words of a record */
    /* The words of all records, in the order of their numbers. */
    uint64_t *all;
    /* The hash table, which has 2 * capacity slots. A slot has a record's
       number + 1; 0: the slot is empty. */
    uint32_t *slots;
    uint32_t count;
    /* The number of records that `all` has memory for: 0 or a power of two. */
    uint32_t capacity;
} records_t;

/* Returns the record of the given number. The address is valid until a new
   record is stored. */
static const uint64_t *proof_record_of(const records_t *records,
                                       uint32_t number)
{
    return records->all + number * records->words;
}

/* Returns the slot of a record in the hash table, or the empty slot where it
   would be. The search ends, since at most half of the slots are used. */
static uint32_t *slot_of(const records_t *records, const uint64_t *record)
{
    size_t mask = 2 * (size_t)records->capacity - 1;
    uint64_t hash = 0;
    for (size_t i = 0; i < records->words; i++) {
        /* All words of a record are set.
           NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult) */
        hash = baton__mix(hash ^ record[i]);
    }
    uint32_t *slot = &records->slots[hash & mask];
    while (*slot != 0 && memcmp(proof_record_of(records, *slot - 1), record,
                                records->words * sizeof *record) != 0) {
        slot = &records->slots[(size_t)(slot - records->slots + 1) & mask];
    }
    return slot;
}

/* Reserves memory for `more` records, so that storing them can't fail. If there
   is no memory, returns false and changes nothing. */
static bool proof_reserve(records_t *records, size_t more)
{
    if (more > MOST - records->count) {
        return false;
    }
    uint32_t capacity = records->capacity;
    while (capacity - records->count < more) {
        capacity = capacity > 0 ? capacity * 2 : FIRST_CAPACITY;
    }
    if (capacity == records->capacity) {
        return true;
    }
    uint32_t *slots = baton__alloc(2 * (size_t)capacity, sizeof *slots);
    if (slots == NULL ||
        !baton__extend(&records->all, records->count * records->words,
                       capacity * records->words, sizeof *records->all)) {
        baton__free(slots);
        return false;
    }
    baton__free(records->slots);
    records->slots = slots;
    records->capacity = capacity;
    for (uint32_t i = 0; i < records->count; i++) {
        *slot_of(records, proof_record_of(records, i)) = i + 1;
    }
    return true;
}

/* Returns the number of a record, which is stored if it is new. Returns
   NO_NUMBER if there is no memory to store it. */
static uint32_t intern(records_t *records, const uint64_t *record)
{
    if (!proof_reserve(records, 1)) {
        return NO_NUMBER;
    }
    uint32_t *slot = slot_of(records, record);
    if (*slot == 0) {
        memcpy(records->all + records->count * records->words, record,
               records->words * sizeof *record);
        *slot = ++records->count;
    }
    return *slot - 1;
}

static void proof_free_records(records_t *records)
{
    baton__free(records->all);
    baton__free(records->slots);
}

/* ---- values ----------------------------------------------------------- */

typedef enum kind {
    SET,       /* an element with the ranks of set number `detail` */
    NO_MEMORY, /* this and the kinds below are flaws */
    TWICE,     /* rank `detail` was on both sides of a union */
    MIXED,     /* `element` was united with element `detail` */
    FOREIGN    /* `detail` was not an element of this proof */
} kind_t;

typedef struct value {
    kind_t kind;
    uint64_t element;
    uint64_t detail;
} value_t;

enum { VALUE_WORDS = 3 };

/* The number of the empty set of ranks, which may belong to any element. It is
   the first value, so that memory of zeros holds empty sets. */
#define EMPTY 0u

struct baton_proof {
    int ranks;
    records_t sets; /* a set has a bit for each rank; the first set is empty */
    records_t values;
    uint64_t *work;     /* a set under construction */
    uint32_t no_memory; /* the number of the value NO_MEMORY */
    baton_op_t op;
    bool misused;        /* elements of another type than u32 were reduced */
    baton_dtype_t dtype; /* if `misused`, the type of those elements */
};

/* Turns a number into an element. Elements are scattered over all 32-bit words
   (0 stays 0): otherwise small integers of other data would pass for values.
   The factors here and in proof_value_of are inverse modulo 2^32. */
static uint32_t word_of(uint32_t number)
{
    return number * UINT32_C(0x9e3779b1);
}

static value_t proof_value_of(const baton_proof_t *proof, uint32_t word)
{
    uint32_t number = word * UINT32_C(0x0e8b2f51);
    if (number >= proof->values.count) {
        return (value_t){FOREIGN, 0, word};
    }
    const uint64_t *record = proof_record_of(&proof->values, number);
    return (value_t){(kind_t)record[0], record[1], record[2]};
}

static uint32_t number_of(baton_proof_t *proof, value_t value)
{
    const uint64_t record[VALUE_WORDS] = {value.kind, value.element,
                                          value.detail};
    return intern(&proof->values, record);
}

static bool set_has(const uint64_t *set, int rank)
{
    return (set[rank / 64] >> (rank % 64) & 1) != 0;
}

/* Returns the union of two sets of one element, or the flaw TWICE. */
static value_t unite_sets(baton_proof_t *proof, value_t left, value_t right)
{
    const uint64_t *a = proof_record_of(&proof->sets, (uint32_t)left.detail);
    const uint64_t *b = proof_record_of(&proof->sets, (uint32_t)right.detail);
    for (size_t i = 0; i < proof->sets.words; i++) {
        proof->work[i] = a[i] | b[i];
        if ((a[i] & b[i]) != 0) {
            uint64_t rank = i * 64;
            while (!set_has(a, (int)rank) || !set_has(b, (int)rank)) {
                rank++;
            }
            return (value_t){TWICE, left.element, rank};
        }
    }
    uint32_t set = intern(&proof->sets, proof->work);
    return set != NO_NUMBER ? (value_t){SET, left.element, set}
                            : (value_t){NO_MEMORY, 0, 0};
}

static uint32_t unite(baton_proof_t *proof, uint32_t left, uint32_t right)
{
    value_t a = proof_value_of(proof, left);
    value_t b = proof_value_of(proof, right);
    value_t both;
    if (a.kind != SET || right == EMPTY) {
        both = a;
    } else if (b.kind != SET || left == EMPTY) {
        both = b;
    } else if (a.element != b.element) {
        both = (value_t){MIXED, a.element, b.element};
    } else {
        both = unite_sets(proof, a, b);
    }
    uint32_t number = number_of(proof, both);
    return word_of(number != NO_NUMBER ? number : proof->no_memory);
}

/* Elements may have any address, so they are copied instead of being accessed
   through a pointer of their type. */
static void reduce(void *arg, void *target, const void *left, const void *right,
                   size_t count, baton_dtype_t dtype)
{
    baton_proof_t *proof = arg;
    if (dtype != BATON_U32) {
        proof->misused = true;
        proof->dtype = dtype;
        memset(target, 0, count * baton_dtype_size(dtype));
        return;
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t a;
        uint32_t b;
        memcpy(&a, (const char *)left + i * sizeof a, sizeof a);
        memcpy(&b, (const char *)right + i * sizeof b, sizeof b);
        a = unite(proof, a, b);
        memcpy((char *)target + i * sizeof a, &a, sizeof a);
    }
}

static void identity(void *arg, void *target, size_t count, baton_dtype_t dtype)
{
    memset(target, 0, count * baton_dtype_size(dtype));
}

/* ---- the proof -------------------------------------------------------- */

static baton_status_t proof_no_memory(const char *what)
{
    return baton__error(BATON_ERR_NO_MEMORY, "proof: no memory for %s", what);
}

baton_status_t baton_proof_create(int ranks, baton_proof_t **out)
{
    if (!baton__is_given(out, true, __func__, "out")) {
        return BATON_ERR_INVALID;
    }
    if (ranks < 1) {
        return baton__error(BATON_ERR_INVALID,
                            "proof: ranks is %d; allowed: 1 or more", ranks);
    }
    baton_proof_t *proof = baton__alloc(1, sizeof *proof);
    if (proof == NULL) {
        return proof_no_memory("itself");
    }
    proof->ranks = ranks;
    proof->op = (baton_op_t){.name = "contributors",
                             .reduce = reduce,
                             .identity = identity,
                             .arg = proof,
                             .commutative = true};
    proof->sets.words = ((size_t)ranks + 63) / 64;
    proof->values.words = VALUE_WORDS;
    proof->work = baton__alloc(proof->sets.words, sizeof *proof->work);
    if (proof->work == NULL || !proof_reserve(&proof->sets, 1) ||
        !proof_reserve(&proof->values, 2)) {
        (void)!baton_proof_destroy(proof);
        return proof_no_memory("its first sets");
    }
    value_t empty = {SET, 0, intern(&proof->sets, proof->work)};
    (void)number_of(proof, empty); /* the first value, whose number is EMPTY */
    proof->no_memory = number_of(proof, (value_t){NO_MEMORY, 0, 0});
    *out = proof;
    return BATON_OK;
}

baton_status_t baton_proof_destroy(baton_proof_t *proof)
{
    if (proof != NULL) {
        proof_free_records(&proof->sets);
        proof_free_records(&proof->values);
        baton__free(proof->work);
        baton__free(proof);
    }
    return BATON_OK;
}

const baton_op_t *baton_proof_op(baton_proof_t *proof)
{
    return baton__is_given(proof, true, __func__, "proof") ? &proof->op : NULL;
}

baton_status_t baton_proof_fill(baton_proof_t *proof, int rank, size_t first,
                                size_t count, uint32_t *elements)
{
    if (!baton__is_given(proof, true, __func__, "proof") ||
        !baton__is_given(elements, count > 0, __func__, "elements")) {
        return BATON_ERR_INVALID;
    }
    if (rank < 0 || rank >= proof->ranks) {
        return baton__error(BATON_ERR_INVALID,
                            "proof: rank is %d; allowed: 0 to %d", rank,
                            proof->ranks - 1);
    }
    memset(proof->work, 0, proof->sets.words * sizeof *proof->work);
    proof->work[rank / 64] = UINT64_C(1) << (rank % 64);
    uint32_t set = intern(&proof->sets, proof->work);
    if (set == NO_NUMBER || !proof_reserve(&proof->values, count)) {
        return proof_no_memory("more contributions");
    }
    for (size_t i = 0; i < count; i++) {
        value_t value = {SET, first + i, set};
        elements[i] = word_of(number_of(proof, value));
    }
    return BATON_OK;
}

/* Returns the lowest rank that is in the set but must not be, or that must be
   in the set but is missing. Returns the number of ranks if the set is
   right. */
static int wrong_rank(const baton_proof_t *proof, const uint64_t *set,
                      const bool *contributors)
{
    int rank = 0;
    while (rank < proof->ranks &&
           set_has(set, rank) == (contributors == NULL || contributors[rank])) {
        rank++;
    }
    return rank;
}

static baton_status_t report_flaw(value_t value, size_t element)
{
    unsigned long long detail = value.detail;
    switch (value.kind) {
    case NO_MEMORY:
        return baton__error(BATON_ERR_NO_MEMORY,
                            "proof: element %zu: no memory for a union on the "
                            "way",
                            element);
    case TWICE:
        return baton__error(BATON_ERR_MISMATCH,
                            "proof: element %zu has rank %llu twice", element,
                            detail);
    case MIXED:
        return baton__error(BATON_ERR_MISMATCH,
                            "proof: element %zu has elements %llu and %llu "
                            "mixed",
                            element, (unsigned long long)value.element, detail);
    case FOREIGN:
    case SET:
        break;
    }
    return baton__error(BATON_ERR_MISMATCH,
                        "proof: element %zu: 0x%llx, which stands for no set, "
                        "was taken for data",
                        element, detail);
}

baton_status_t baton_proof_check(const baton_proof_t *proof,
                                 const bool *contributors, size_t first,
                                 size_t count, const uint32_t *elements)
{
    if (!baton__is_given(proof, true, __func__, "proof") ||
        !baton__is_given(elements, count > 0, __func__, "elements")) {
        return BATON_ERR_INVALID;
    }
    if (proof->misused) {
        return baton__error(BATON_ERR_INVALID,
                            "proof: its reduction was used for %s; its "
                            "elements are u32",
                            baton_dtype_name(proof->dtype));
    }
    /* The number of a set that was checked and is right; NO_NUMBER: none
       yet. */
    uint64_t right = NO_NUMBER;
    for (size_t i = 0; i < count; i++) {
        value_t value = proof_value_of(proof, elements[i]);
        if (value.kind != SET) {
            return report_flaw(value, first + i);
        }
        if (value.element != first + i && elements[i] != EMPTY) {
            return baton__error(BATON_ERR_MISMATCH,
                                "proof: element %zu has element %llu in its "
                                "place",
                                first + i, (unsigned long long)value.element);
        }
        if (value.detail == right) {
            continue;
        }
        const uint64_t *set =
            proof_record_of(&proof->sets, (uint32_t)value.detail);
        int rank = wrong_rank(proof, set, contributors);
        if (rank < proof->ranks) {
            return baton__error(BATON_ERR_MISMATCH,
                                set_has(set, rank)
                                    ? "proof: element %zu has rank %d, which "
                                      "does not belong there"
                                    : "proof: element %zu lacks rank %d",
                                first + i, rank);
        }
        right = value.detail;
    }
    return BATON_OK;
}
