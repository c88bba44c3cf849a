/* Descriptors beyond the standard ones. A program may have closed 0, 1 or 2,
   and the kernel gives their numbers to the next files that are opened. What is
   written to standard error then goes there, the library's own warnings too. So
   every descriptor that the library opens or receives goes through this. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

/* Returns the descriptor, or one above 2 in its place, which exec closes. On an
   error, and if fd is negative, returns -1 with errno; fd is closed. */
int baton__descriptor_move(int fd);

/* Closes a descriptor, unless it is negative, and makes it -1. Keeps errno. */
void baton__descriptor_close(int *fd);

/* Reads a file of the kernel's, of which it stores the first `bytes`, with a
   final zero. False, and "", if it can't be read. */
bool baton__descriptor_read(const char *path, char *out, size_t bytes);

/* Opens a file to read it, or returns NULL with errno. */
FILE *baton__descriptor_fopen(const char *path);
