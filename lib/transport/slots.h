/* Slots: shared memory for messages of medium size between ranks of one host.

   Each rank has some slots of its own. A sender copies a message into one and
   tells the receiver its number; who has copied it out clears the slot. So a
   send is over as soon as it is posted, and the sender need not be woken to
   learn that its message was received. Where no slot is free, or the message is
   too long for one, it has to go another way; and a message that nobody ever
   receives keeps its slot. */
#ifndef BATON_TRANSPORT_SLOTS_H
#define BATON_TRANSPORT_SLOTS_H

#include <baton/status.h>
#include <stdbool.h>
#include <stddef.h>

enum {
    BATON__SLOTS = 8, /* of a rank, at most */
    /* Of a message: 64 KiB, and room for what rides with them. */
    BATON__SLOT_BYTES = 68 * 1024 - 64
};

typedef struct baton__slots baton__slots_t;

/* How many slots each of `count` ranks may have: BATON_SLOTS, fewer where there
   is little room in /dev/shm, and 0 where there is none. */
int baton__slots_afford(int count);

/* Opens `each` of each of `count` ranks, 1 to BATON__SLOTS, on rank `index`, in
   the steps of share.h. BATON_ERR_NO_MEMORY, _SYSTEM. */
baton_status_t baton__slots_open(const char *name, int count, int index,
                                 int each, bool create, baton__slots_t **out);
void baton__slots_close(baton__slots_t *slots);

/* Fills a slot of this rank with up to BATON__SLOT_BYTES: its number, or -1
   when none is free. */
int baton__slots_put(baton__slots_t *slots, const void *data, size_t bytes);

/* Clears slot `slot` of rank `index`: that of a message which could not be
   announced. */
void baton__slots_clear(baton__slots_t *slots, int index, int slot);

/* Copies the message out, if it has at most `room` bytes, and clears the slot;
   returns how long it is. For who has received the announcement. */
size_t baton__slots_take(baton__slots_t *slots, int index, int slot,
                         void *memory, size_t room);

#endif
