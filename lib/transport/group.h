/* A group: this rank's place among P ranks, and the schedules by identity.

   Schedules that belong together on different ranks have one identity: the hash
   of their name, and the attempt, which counts the schedules of that name that
   a rank has created in the group. Messages carry the identity, so that a
   schedule that exists only on some ranks takes no messages of other
   schedules. */
#pragma once

#include "transport/device.h"

#include <baton/transport.h>

/* An entry of a hash table. Each table uses one field of the union. (A hello is
   a notice by which a peer says that it has committed a schedule, and what its
   messages are.)

       table      field      meaning
       names      attempts   the number of schedules created by a name, or of
                             groups made by equal calls
       table      schedule   a committed schedule
       hellos     hellos     a list of the hellos for a schedule that is not
                             committed here
       destroyed  destroyed  the record of a destroyed schedule
       channels   group      a subset */
typedef struct baton__place {
    uint64_t key; /* 0: the entry is free */
    union {
        uint32_t attempts;
        baton_schedule_t *schedule;
        baton_group_t *group;
        struct baton__notice *hellos;
        struct baton__destroyed *destroyed;
    };
} baton__place_t;

typedef struct baton__table {
    /* `size` entries, a power of two, of which at most half are used; NULL if
       `size` is 0. */
    baton__place_t *places;
    uint32_t size;
    uint32_t count;
} baton__table_t;

/* A block of memory that was allocated for the user (baton/memory.h). */
typedef struct baton__memory {
    struct baton__memory *next;
    void *address;
    size_t bytes;
    /* The transport has allocated the block, so peers can read it. */
    bool shared;
} baton__memory_t;

/* A pointer that the user keeps with the group; see baton_group_attribute. */
typedef struct baton__attribute {
    struct baton__attribute *next;
    const void *key;
    void *value;
    /* Called when the group is destroyed, or NULL. */
    baton_attribute_destroy_fn destroy;
} baton__attribute_t;

/* If a receiver need not keep a message, the transport lends the message: the
   receiver uses the data where the sender has it. If that is outside of this
   process's memory, the data is read in parts of this many bytes. A group has
   space for one part of each operand of a reduction. */
enum { BATON__PART_BYTES = 128 * 1024 };

/* The most ranks of a group that can shrink, and of one that it makes with
   processes that join: a notice of a shrink, which has at most
   BATON_NOTICE_BYTES, has a bit for each rank. */
enum { BATON__SHRINK_RANKS = 8 * 248 };

/* The fields that each step accesses come first. The fields that progress alone
   uses are in the baton__member_t that embeds the group; see
   progress/state/member.h. */
struct baton_group {
    const baton_transport_t *transport;
    void *endpoint;
    /* The stepper (progress/state/stepper.h), which advances the epochs of the
       group's schedules. */
    struct baton__stepper *stepper;
    const struct baton__kind_info *kinds; /* functions of the node kinds */
    /* Space for a part of each operand of a reduction; used if the transport
       copies parts of lent messages by `read`. */
    char *parts;
    baton__device_t *device; /* the engine's device, or NULL */
    /* The next group in the engine's list of roots, or in a root's list of
       subsets. */
    baton_group_t *next;
    /* If this group is a subset, its root: the group whose endpoint it uses,
       which is itself no subset. Else NULL. See subset.h. */
    baton_group_t *root;
    uint16_t incarnation; /* number of recoveries of the group so far */
    bool retired;         /* destroyed by the user: it only answers its peers */
    bool cost_only;       /* a simulation in which messages carry no data */
    bool borrowed;        /* a simulator owns the group */
    /* True if all ranks destroy the group together. It is set in a group of
       several processes, after all ranks have made theirs. It is atomic because
       the engine's driver may use the group by then. */
    _Atomic bool collective;
    int rank;
    int size;
    /* In a simulation: the plans that ranks share; or NULL. */
    struct baton__sharing *sharing;
    baton_engine_t *engine;

    baton__table_t table; /* committed schedules; used by the driver alone */

    /* The fields from here on are protected by the engine's driver lock, unless
       their comment says otherwise. */
    /* Number of existing schedules, without the verifier's
       (lib/sim/verify.c). */
    uint32_t schedules;
    baton__memory_t *memory; /* blocks that the user has not freed */
    baton__table_t names;
    /* protected by attributes_lock in group.c */
    baton__attribute_t *attributes;
    /* If the group was made of the ranks of another group: by rank of this
       group, the rank's number in the other group; -1: it was not in that
       group. Else NULL. */
    int *origins;
    char *name; /* the name by which the group was created, or NULL */
    /* The operation that baton_schedule_average returns for this group; NULL:
       it was not asked for yet. */
    _Atomic(baton_op_t *) average;
    /* The number that marks the messages of a subset (subset.h); 0 if this
       group is a root. */
    uint64_t channel;
    /* If this group is a root: the subsets that use its endpoint. */
    baton_group_t *subsets;
    baton__table_t channels; /* the same subsets, by `channel` */
};

/* Returns "rank 1 of 2", or "rank 1 of 2 in \"name\"". The text is valid until
   this thread's next call. */
const char *baton__group_place(const baton_group_t *group);

/* Returns "rank 3 (host n1, process 1234)", or "rank 3" if these are unknown.
   The text is valid until this thread's next call but one, so that a message
   can name two ranks. */
const char *baton__group_rank_text(const baton_group_t *group, int rank);

/* True if a rank's process is on this host, and is stopped by a signal or a
   debugger. */
bool baton__group_is_stopped(const baton_group_t *group, int rank);

/* Returns false, with this thread's error set, if the group is NULL or was
   destroyed, or if this process is a forked child. */
bool baton__is_group(const baton_group_t *group, const char *function);

/* A schedule has at most 2^24 messages to one rank, because a message's number
   takes this many bits of the header's `tag`. */
enum { BATON__TAG_BITS = 24 };

/* Returns the identity of the `attempt`-th schedule of a name. */
uint64_t baton__identity(const char *name, uint32_t attempt);

/* Returns the address of the counter of the schedules that were created by this
   name so far. If `name` is NULL, returns the counter of `key`, which must be
   below 2^63 and stands for equal calls that make groups. Returns NULL if there
   is no memory. */
uint32_t *baton__group_counter(baton_group_t *group, const char *name,
                               uint64_t key);

/* True if this rank has created a schedule of this identity, which may have
   been destroyed since. */
bool baton__group_has_made(const baton_group_t *group, uint64_t identity);

/* Makes space for `more` entries. Returns false if there is no memory. */
bool baton__table_reserve(baton__table_t *table, uint32_t more);
/* Adds a key that the table does not have. The table must have reserved
   space. */
baton__place_t *baton__table_enter(baton__table_t *table, uint64_t key);
/* Removes a key that the table has. Entries may move. */
void baton__table_remove(baton__table_t *table, uint64_t key);
/* Returns the entry of a key; NULL if the table does not have the key. */
baton__place_t *baton__table_find(const baton__table_t *table, uint64_t key);

/* Returns the committed schedule of this identity, or NULL. */
baton_schedule_t *baton__group_find(const baton_group_t *group,
                                    uint64_t identity);

/* Returns the next group in a walk over all groups of an engine, or NULL. The
   walk begins with the engine's first root, and each root is followed by its
   subsets. */
static inline baton_group_t *baton__group_next(const baton_group_t *group)
{
    if (group->subsets != NULL) {
        return group->subsets;
    }
    if (group->next != NULL || group->root == NULL) {
        return group->next;
    }
    return group->root->next;
}

/* Returns the number of a rank's host; always 0 if nothing is known of
   hosts. */
int baton__group_host(const baton_group_t *group, int rank);

/* True if the rank is on this host, or nothing is known of hosts. */
bool baton__group_is_local(const baton_group_t *group, int rank);

/* The reason of a loss, as text, if this rank counts a peer as lost because the
   peer has lost this rank: the peer goes on without this rank. */
extern const char baton__disowned[];

static inline bool baton__group_is_collective(const baton_group_t *group)
{
    /* Pairs with the store in mpi/group.c. */
    return atomic_load_explicit(&group->collective, memory_order_relaxed);
}

/* Numbers the hosts in the order of their first ranks. `host_of` has, by rank,
   the lowest rank on the same host, which is replaced by the number of the
   host. `transport` gets the number of hosts and, if the ranks of each host are
   consecutive, the number of ranks on each host (host_block in
   baton/transport.h). */
void baton__group_number_hosts(baton_transport_t *transport, int *host_of,
                               int size);

/* Copies the first `bytes` bytes of a notice's content, padded with zeros, and
   gives the message back to the transport. */
void baton__group_take_notice(const baton_group_t *group,
                              baton_message_t *message, void *content,
                              size_t bytes);

void baton__group_drop_attributes(baton_group_t *group);

void baton__group_fini(baton_group_t *group);
