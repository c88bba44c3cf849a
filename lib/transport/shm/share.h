/* Memory that the ranks of one host share: a file of /dev/shm, which one rank
   creates, and whose descriptor it passes to the others. It has no name, so
   nothing is left of it however they end; it stays until all have unmapped it.
 */
#pragma once

#include <baton/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

/* Creates a file of so many zeros. Memory is reserved for the first `reserved`
   ones: before any other is read or written, baton__share_reserve must have
   returned true for it. BATON_ERR_SYSTEM. */
baton_status_t baton__share_create(size_t bytes, size_t reserved,
                                   int *file_out);

/* Sets the size of a file of memory, and reserves that for its first bytes, or
   for all where baton__share_reserve can't later. Returns an error's number. */
int baton__share_resize(int file, size_t bytes, size_t reserved);

/* Reserves memory for a part that is mapped here, of whole pages; false if
   there is no room. */
bool baton__share_reserve(void *part, size_t bytes);

/* Maps it. BATON_ERR_SYSTEM. */
baton_status_t baton__share_map(int file, size_t bytes, void **out);

/* A socket, and its address, by which one of the ranks that know `secret` takes
   a descriptor; -1 with errno: it can't be had. */
int baton__share_socket(uint64_t secret, int index);
bool baton__share_pass(int socket, uint64_t secret, int index, int file);

/* The descriptor that was passed, or -1 with errno: EMFILE if this process has
   too many. */
int baton__share_take(int socket, uint64_t secret);

/* How many bytes can still be shared. */
size_t baton__share_room(void);

uint64_t baton__share_random(void);

/* Sends `bytes` bytes and a descriptor to the socket of that address; false if
   it can't take them now. */
bool baton__share_send(int socket, const struct sockaddr_un *to,
                       socklen_t to_bytes, const void *data, size_t bytes,
                       int descriptor);

/* Takes what was sent to a socket; false if that is empty. Bytes of another
   number become zeros, a descriptor that is missing -1 with errno. */
bool baton__share_receive(int socket, void *data, size_t bytes,
                          int *descriptor_out);
