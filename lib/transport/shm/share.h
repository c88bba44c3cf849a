/* Memory that the ranks of one host share: a file of /dev/shm, which one rank
   creates, and whose descriptor it passes to the others. The file has no name,
   so nothing is left of it, however the ranks end. It exists until all ranks
   have unmapped it. */
#pragma once

#include <baton/types.h>
#include <sys/socket.h>
#include <sys/un.h>

/* Creates a file of `bytes` zeros. Memory is reserved for the first `reserved`
   bytes. Before other bytes are read or written, baton__share_reserve must have
   returned true for them. Returns BATON_ERR_SYSTEM on failure. */
baton_status_t baton__share_create(size_t bytes, size_t reserved,
                                   int *file_out);

/* Sets the size of a file in memory and reserves memory for its first
   `reserved` bytes, or for all bytes on a kernel where baton__share_reserve
   can't do that later. Returns 0 or an errno. */
int baton__share_resize(int file, size_t bytes, size_t reserved);

/* Reserves memory for a part of a mapped file. The part consists of whole
   pages. Returns false if there is too little memory. */
bool baton__share_reserve(void *part, size_t bytes);

/* Maps a shared file. Returns BATON_ERR_SYSTEM on failure. */
baton_status_t baton__share_map(int file, size_t bytes, void **out);

/* Opens the socket on which rank `index` receives a descriptor. Its address
   follows from `secret`, which the ranks of the host know. On failure returns
   -1 and sets errno. */
int baton__share_socket(uint64_t secret, int index);

/* Sends a file's descriptor through `socket` to the socket of rank `index`.
   Returns false if that socket can't take the descriptor now. */
bool baton__share_pass(int socket, uint64_t secret, int index, int file);

/* Returns the descriptor that was passed to this socket. On failure returns -1
   and sets errno: EMFILE means that this process has too many descriptors. */
int baton__share_take(int socket, uint64_t secret);

/* Returns how many bytes are free in /dev/shm. */
size_t baton__share_free_bytes(void);

uint64_t baton__share_random(void);

/* Opens a datagram socket with this address. On failure returns -1 and sets
   errno. */
int baton__share_bind(const struct sockaddr_un *own, socklen_t bytes);

/* Sends `bytes` bytes and a descriptor to the socket at address `to`. Returns
   false if that socket can't take them now. */
bool baton__share_send(int socket, const struct sockaddr_un *to,
                       socklen_t to_bytes, const void *data, size_t bytes,
                       int descriptor);

/* Receives one datagram and its descriptor. Returns false if the socket is
   empty. If the datagram has another length than `bytes`, `data` becomes zeros.
   If the descriptor is missing, *descriptor_out becomes -1, and errno says
   why. */
bool baton__share_receive(int socket, void *data, size_t bytes,
                          int *descriptor_out);
