/* Doorbells between ranks of one host: a rank that waits for messages sleeps
   on a descriptor, and who posts a send to it rings.

   All ranks of a host map one file of shared memory with a line each: whether
   the rank is awake, rests or sleeps, and the address of its socket. A sender
   that finds it resting or asleep makes it awake, and wakes it with a system
   call only from its sleep: so one sleep costs one peer one system call, and a
   rank that rests sees in its own line whether anything has come. */
#ifndef BATON_TRANSPORT_DOORBELL_H
#define BATON_TRANSPORT_DOORBELL_H

#include <baton/status.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct baton__doorbell baton__doorbell_t;

/* Opens this rank's own bell, number `index` of `count`, in the steps of
   share.h. BATON_ERR_NO_MEMORY, _SYSTEM (no shared memory, no socket). */
baton_status_t baton__doorbell_open(const char *name, int count, int index,
                                    bool create, baton__doorbell_t **out);

void baton__doorbell_close(baton__doorbell_t *bell);

/* After all have opened: whether the two can ring each other. They can not from
   different network namespaces, such as two containers on a host. */
bool baton__doorbell_reaches(const baton__doorbell_t *bell, int index);

/* Call after the message has been posted. */
void baton__doorbell_ring(baton__doorbell_t *bell, int index);

/* From now on rings are noted. False: they were already, and none has come. */
bool baton__doorbell_rest(baton__doorbell_t *bell);

/* Whether this rank rests or sleeps and nobody has rung since. */
bool baton__doorbell_is_silent(const baton__doorbell_t *bell);

/* From now on the first ring makes the descriptor readable. False: somebody has
   rung since rest(). */
bool baton__doorbell_sleep(baton__doorbell_t *bell);

void baton__doorbell_awake(baton__doorbell_t *bell);

/* Readable once rung. hush takes one ring off, from any thread. */
int baton__doorbell_descriptor(const baton__doorbell_t *bell);
void baton__doorbell_hush(baton__doorbell_t *bell);

#endif
