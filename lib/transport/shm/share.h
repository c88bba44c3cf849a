/* Memory that the ranks of one host share. The caller makes the ranks agree on
   the name, and waits for all of them between the steps:

       one rank:   name, map(create)
       the others: map                after the first has returned
       one rank:   shm_unlink         after all have returned, also on failure

   The memory stays until all have unmapped it. */
#ifndef BATON_TRANSPORT_SHM_SHARE_H
#define BATON_TRANSPORT_SHM_SHARE_H

#include <baton/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#define BATON__SHARE_NAME_BYTES 48

/* Stores a name that nothing else on this host has. */
void baton__share_name(char name[BATON__SHARE_NAME_BYTES]);

/* Maps `bytes` of zeros; the same name gives the same memory. BATON_ERR_SYSTEM.
 */
baton_status_t baton__share_map(const char *name, size_t bytes, bool create,
                                void **out);

/* How many bytes can still be shared. */
size_t baton__share_room(void);

uint64_t baton__share_random(void);

/* Sends `bytes` bytes and a descriptor to the socket of that address; false if
   it can't take them now. */
bool baton__share_send(int socket, const struct sockaddr_un *to,
                       socklen_t to_bytes, const void *data, size_t bytes,
                       int descriptor);

/* Takes what was sent to a socket; false if that is empty. Bytes of another
   number become zeros, a descriptor that is missing -1. */
bool baton__share_receive(int socket, void *data, size_t bytes,
                          int *descriptor_out);

#endif
