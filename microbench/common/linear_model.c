#include "common/linear_model.h"

/* splitmix64's finaliser: a bijection that spreads every bit. */
static uint64_t mix(uint64_t value)
{
    value += UINT64_C(0x9e3779b97f4a7c15);
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

line_t line_of(uint64_t salt, int rank, uint32_t iteration)
{
    uint64_t key = (uint64_t)(uint32_t)rank << 32 | iteration;
    uint64_t base = mix(salt ^ mix(key));
    return (line_t){.base = base, .slope = mix(base)};
}

line_t line_add(line_t a, line_t b)
{
    return (line_t){a.base + b.base, a.slope + b.slope};
}

uint64_t line_at(line_t line, size_t element)
{
    return line.base + element * line.slope;
}

void line_fill(line_t line, uint64_t *data, size_t count)
{
    for (size_t j = 0; j < count; j++) {
        data[j] = line_at(line, j);
    }
}

size_t line_first_off(line_t line, const uint64_t *data, size_t count)
{
    for (size_t j = 0; j < count; j++) {
        if (data[j] != line_at(line, j)) {
            return j;
        }
    }
    return count;
}
