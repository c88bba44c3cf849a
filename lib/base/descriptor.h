/* Descriptors above the standard ones. If a program has closed 0, 1 or 2, the
   kernel gives these numbers to the next opened files, and text for standard
   error, such as the library's warnings, would be written there. So the library
   passes every descriptor that it opens or receives to
   baton__descriptor_move. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

/* Returns fd if it is above 2. Otherwise closes fd and returns a duplicate
   above 2, which exec closes. Returns -1, with errno, if fd is negative or
   can't be duplicated. */
int baton__descriptor_move(int fd);

/* Closes a descriptor, unless it is negative, and sets it to -1. Keeps
   errno. */
void baton__descriptor_close(int *fd);

/* Reads a file of the kernel: stores its first bytes - 1 bytes and a final
   zero. Returns false, and stores "", if the file can't be read. */
bool baton__descriptor_read(const char *path, char *out, size_t bytes);

/* Opens a file for reading. On failure returns NULL and sets errno. */
FILE *baton__descriptor_fopen(const char *path);
