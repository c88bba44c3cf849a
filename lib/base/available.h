/* How much memory the kernel can still give. It promises more than it has, and
   ends a process once that is touched: so large allocations are compared with
   this first. */
#pragma once

#include <stddef.h>

/* The bytes that are left in the host's memory and swap space, and below the
   limits of this process's control groups (v1 and v2), whichever are fewer;
   SIZE_MAX if nothing is known. The files are read below `root`, which is ""
   except in tests. */
size_t baton__available_memory(const char *root);
