#include "bench_memory.h"
#include <malloc.h>
#include <stdio.h>
#include <unistd.h>

double memory_allocated(void)
{
    struct mallinfo2 info = mallinfo2();
    return (double)info.uordblks + (double)info.hblkhd;
}

double memory_resident(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file != NULL) {
        if (fscanf(file, "%*s %ld", &pages) != 1) {
            pages = 0;
        }
        (void)fclose(file);
    }
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}
