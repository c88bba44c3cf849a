#include "bench/memory.h"
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <unistd.h>

double memory_allocated(void)
{
    struct mallinfo2 info = mallinfo2();
    return (double)info.uordblks + (double)info.hblkhd;
}

/* Avoids stdio, whose allocations would affect memory_allocated. */
double memory_resident(void)
{
    char text[128] = "";
    int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return 0;
    }
    ssize_t bytes = read(file, text, sizeof(text) - 1);
    (void)close(file);
    long pages = 0;
    if (bytes <= 0 || sscanf(text, "%*s %ld", &pages) != 1) {
        return 0;
    }
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}
