/* The memory that the kernel can still give. The kernel promises more memory
   than it has, and kills a process that touches too much of it. So the library
   compares large allocations with this number first. */
#pragma once

#include <stddef.h>

/* Returns the number of bytes left in the host's memory and swap space, or
   below the limits of this process's control groups (v1 and v2) if that is
   less. Returns SIZE_MAX if nothing is known. The kernel's files are read below
   `root`, which is "" except in tests. */
size_t baton__available_memory(const char *root);
