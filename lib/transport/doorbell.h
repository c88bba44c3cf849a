/* Doorbells between ranks of one host: a rank that waits for messages sleeps
   on a descriptor, and who posts a send to it rings.

   All ranks of a host map one file of shared memory with a line each: whether
   the rank rests, and the address of its socket. A sender rings only if the
   flag is set, and clears it, so one rest costs one system call of one peer.
   Nothing here knows of MPI: whoever creates doorbells lets the ranks agree on
   the name and waits for all between the steps.

       one rank:   name, open(create)
       the others: open               after the first has returned
       one rank:   unlink             after all have returned, also on failure
*/
#ifndef BATON_TRANSPORT_DOORBELL_H
#define BATON_TRANSPORT_DOORBELL_H

#include <baton/status.h>
#include <stdbool.h>
#include <stdint.h>

#define BATON__DOORBELL_NAME_BYTES 48

typedef struct baton__doorbell baton__doorbell_t;

/* A name that no other group of this host has. */
void baton__doorbell_name(char name[BATON__DOORBELL_NAME_BYTES]);

/* Opens this rank's own bell, number `index` of `count`. BATON_ERR_NO_MEMORY,
   _SYSTEM (no shared memory, no socket). */
baton_status_t baton__doorbell_open(const char *name, int count, int index,
                                    bool create, baton__doorbell_t **out);

/* Takes the name away; the memory stays until all have closed it. */
void baton__doorbell_unlink(const char *name);

void baton__doorbell_close(baton__doorbell_t *bell);

/* After all have opened: whether the two can ring each other. They can not from
   different network namespaces, such as two containers on a host. */
bool baton__doorbell_reaches(const baton__doorbell_t *bell, int index);

/* Call after the message has been posted. */
void baton__doorbell_ring(baton__doorbell_t *bell, int index);

void baton__doorbell_rest(baton__doorbell_t *bell);
void baton__doorbell_awake(baton__doorbell_t *bell);

/* Readable once rung. hush reads it empty, from any thread. */
int baton__doorbell_descriptor(const baton__doorbell_t *bell);
void baton__doorbell_hush(baton__doorbell_t *bell);

#endif
