/* The layout of a board: the memory in which the ranks of a host store the
   times at which they come to epochs, and their counts of lateness.
   baton/lateness.h says when a rank comes to an epoch. The transport provides
   this memory (baton/transport.h). A board has a row for each rank, which that
   rank alone writes. A row has a slot for each of the rank's schedules. The
   ranks of the host read each other's rows. Other processes, which may have
   another version of Baton, read them, too (calls/lateness.c); so the layout
   has a number, BATON__BOARD_FORMAT.

   No reader or writer waits for another. A start time is one word, which also
   has bits of the epoch's number, so it is never read half written. Counts are
   relaxed atomics: the rank's driver adds to them, and a reader may see a new
   value of one count together with an old value of another. */
#pragma once

#include <baton/lateness.h>
#include <baton/transport.h>

#include <assert.h>
#include <stdatomic.h>

enum {
    BATON__BOARD_FORMAT = 2, /* raise this with each change of the layout */
    BATON__BOARD_SLOTS = 128,
    BATON__BOARD_NAME = 64,
    BATON__BOARD_COUNTS = sizeof(baton_lateness_t) / sizeof(uint64_t)
};

#define BATON__BOARD_MAGIC UINT64_C(0x736574616c6e7462) /* "btnlates" */

/* A rank's counts for one schedule. The words are accessed one by one, as
   atomics; the fields give them names. */
typedef union baton__counts {
    baton_lateness_t fields;
    uint64_t words[BATON__BOARD_COUNTS];
} baton__counts_t;

typedef struct baton__slot {
    /* The times at which the rank came to its last timed epochs; see
       arrivals.c. They have a cache line of their own, because other ranks read
       nothing else of a slot in each timed epoch. */
    _Alignas(64) _Atomic uint64_t starts[BATON_LATENESS_CAME];
    /* the words of a baton__counts_t */
    _Atomic uint64_t counts[BATON__BOARD_COUNTS];
    /* the channel of the schedule's group (transport/group.h) */
    _Atomic uint64_t channel;
    /* The rank's number in the schedule's group, the size of that group, and
       the schedule's name. They are constant while the slot has a key. */
    int32_t rank, size;
    char name[BATON__BOARD_NAME];
} baton__slot_t;

typedef struct baton__row {
    /* BATON__BOARD_MAGIC, stored with release when the row is ready. */
    _Alignas(64) _Atomic uint64_t magic;
    uint32_t format;
    int32_t rows; /* the number of rows of this board */
    int32_t process;
    /* The PID namespace in which the process has the number `process`. */
    uint32_t container;
    /* By slot: the key of its schedule (baton__task_key); 0: the slot is free.
       A rank stores the key with release when the slot is filled, which pairs
       with readers' acquire loads. */
    _Atomic uint64_t keys[BATON__BOARD_SLOTS];
    baton__slot_t slots[BATON__BOARD_SLOTS];
} baton__row_t;
static_assert(sizeof(baton__row_t) <= BATON_BOARD_BYTES, "a row fits");
static_assert(sizeof(baton_lateness_t) % sizeof(uint64_t) == 0, "words");

/* A rank of a group that is on this host, so that this rank can read its row of
   the board. This rank is one of its own neighbours. */
typedef struct baton__neighbour {
    int rank;
    baton__row_t *row;
} baton__neighbour_t;

/* The address of a slot's count for a field of baton_lateness_t. */
#define BATON__COUNT(slot, field)                                              \
    (&(slot)->counts[offsetof(baton_lateness_t, field) / sizeof(uint64_t)])

/* baton__count_set stores a count, and baton__count_add adds to one. Only the
   rank that owns the slot calls them. */
static inline void baton__count_set(_Atomic uint64_t *count, uint64_t value)
{
    atomic_store_explicit(count, value, memory_order_relaxed);
}

static inline void baton__count_add(_Atomic uint64_t *count, uint64_t more)
{
    baton__count_set(count,
                     atomic_load_explicit(count, memory_order_relaxed) + more);
}

/* Returns a row's slot for the schedule with this key; NULL if there is none.
   With the key 0, returns a free slot. */
static inline baton__slot_t *baton__row_find(baton__row_t *row, uint64_t key)
{
    for (size_t i = 0; i < BATON__BOARD_SLOTS; i++) {
        if (atomic_load_explicit(&row->keys[i], memory_order_acquire) == key) {
            return &row->slots[i];
        }
    }
    return NULL;
}
