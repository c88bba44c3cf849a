#include "train.h"

#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

void die(const char *what)
{
    fprintf(stderr, "train: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

void must(baton_status_t status)
{
    if (status != BATON_OK) {
        die(baton_error_message());
    }
}

void *zeroed(size_t count, size_t bytes)
{
    void *memory = calloc(count > 0 ? count : 1, bytes);
    if (memory == NULL) {
        die("no memory");
    }
    return memory;
}

/* Splitmix64 (Steele, Lea, Flood 2014). */
double uniform(uint64_t stream, uint64_t k)
{
    uint64_t x = (stream << 40) + (k + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((x ^ (x >> 31)) >> 11) / 9007199254740992.0;
}

float centred(uint64_t stream, uint64_t k)
{
    return (float)((uniform(stream, k) - 0.5) * sqrt(12.0));
}

/* Box and Muller. */
double normal(uint64_t stream, uint64_t k)
{
    double radius = sqrt(-2 * log(1 - uniform(stream, 2 * k)));
    return radius * cos(6.283185307179586 * uniform(stream, 2 * k + 1));
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, compare);
    return values[count / 2];
}
