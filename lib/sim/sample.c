/* Random values of a distribution, the same bits on every machine.

   The C library's log, exp and pow are not: glibc has one version for
   processors with a fused multiply-add and one for those without, whose last
   bits differ, and from there on two runs do. What is here uses only operations
   that IEEE 754 rounds in one way (sqrt is one of them), or that are exact
   (frexp, ldexp, floor). Relative errors of the two functions stay below 1e-15.
 */
#include "base/random.h"
#include "sim/model.h"

#include <math.h>

#define LN2 0.69314718055994530942
/* Its first 32 bits, so that a multiple of it is exact; and the rest. */
#define LN2_HIGH  0x1.62e42feep-1
#define LN2_LOW   1.90821492927058770002e-10
#define SQRT_HALF 0.70710678118654752440

/* Of an x above 0: that of its exponent, and the series of 2 atanh(s) for its
   fraction (1 + s) / (1 - s), within a factor of sqrt 2 of 1. */
static double natural_log(double x)
{
    int exponent = 0;
    double fraction = frexp(x, &exponent);
    if (fraction < SQRT_HALF) {
        fraction *= 2;
        exponent--;
    }
    double s = (fraction - 1) / (fraction + 1);
    double square = s * s, sum = 0;
    for (int k = 19; k >= 1; k -= 2) { /* |s| < 0.172: s^21 / 21 < 1e-17 */
        sum = sum * square + 1.0 / k;
    }
    return exponent * LN2 + 2 * s * sum;
}

/* 2^k times the series for what is left, at most half of ln 2. Beyond 700 it
   stops growing: that is above the largest draw. */
static double exponential(double x)
{
    if (x < -700) {
        return 0;
    }
    double within = x > 700 ? 700 : x;
    double k = floor(within / LN2 + 0.5);
    double rest = (within - k * LN2_HIGH) - k * LN2_LOW;
    double sum = 1;
    for (int n = 13; n >= 1; n--) { /* 0.35^14 / 14! < 1e-17 */
        sum = 1 + sum * rest * (1.0 / n);
    }
    return ldexp(sum, (int)k);
}

/* Between 0 and 1, never either of them: the middles of 2^52 intervals. */
static double unit(uint64_t random)
{
    return ((double)(random >> 12) + 0.5) * 0x1p-52;
}

/* -ln of the least and of the greatest unit. */
#define MOST_EXPONENTIAL  36.7368005696771014 /* 53 ln 2 */
#define LEAST_EXPONENTIAL 0x1p-53

/* A radius, and the cosine of a random direction (Box, Muller 1958): that of a
   random point in a circle (von Neumann 1951). The bits that follow `random`
   come from splitmix64's sequence, which has no short cycle. */
static double normal(uint64_t random)
{
    const uint64_t step = UINT64_C(0x9e3779b97f4a7c15);
    double radius = sqrt(-2 * natural_log(unit(random)));
    double x = 0, square = 2;
    while (square > 1) {
        x = 2 * unit(baton__mix(random += step)) - 1;
        double y = 2 * unit(baton__mix(random += step)) - 1;
        square = x * x + y * y;
    }
    return radius * (x / sqrt(square)); /* no unit is 1/2: above 0 */
}

static double draw(const baton_distribution_t *distribution, uint64_t random)
{
    double a = distribution->a, b = distribution->b;
    switch (distribution->kind) {
    case BATON_DISTRIBUTION_CONSTANT:
        return a;
    case BATON_DISTRIBUTION_UNIFORM:
        return a + (b - a) * unit(random);
    case BATON_DISTRIBUTION_EXPONENTIAL:
        return a * -natural_log(unit(random));
    case BATON_DISTRIBUTION_NORMAL:
        return a + b * normal(random);
    case BATON_DISTRIBUTION_LOGNORMAL:
        return a * exponential(b * normal(random));
    case BATON_DISTRIBUTION_PARETO:
        return a * exponential(-natural_log(unit(random)) / b);
    case BATON_DISTRIBUTION_COUNT:
        break;
    }
    return 0;
}

static double in_range(double value)
{
    return value < 0 ? 0 : value > BATON__SIM_MOST ? BATON__SIM_MOST : value;
}

double baton__distribution_draw(const baton_distribution_t *distribution,
                                uint64_t random)
{
    return in_range(draw(distribution, random));
}

double baton__distribution_least(const baton_distribution_t *distribution)
{
    double a = distribution->a, b = distribution->b;
    double normal_most = sqrt(2 * MOST_EXPONENTIAL);
    switch (distribution->kind) {
    case BATON_DISTRIBUTION_EXPONENTIAL:
        return a * LEAST_EXPONENTIAL;
    case BATON_DISTRIBUTION_NORMAL:
        return in_range(a - b * normal_most);
    case BATON_DISTRIBUTION_LOGNORMAL:
        return a * exponential(-b * normal_most);
    case BATON_DISTRIBUTION_CONSTANT:
    case BATON_DISTRIBUTION_UNIFORM:
    case BATON_DISTRIBUTION_PARETO:
    case BATON_DISTRIBUTION_COUNT:
        break;
    }
    return a;
}

bool baton__distribution_is_zero(const baton_distribution_t *distribution)
{
    double a = distribution->a, b = distribution->b;
    switch (distribution->kind) {
    case BATON_DISTRIBUTION_UNIFORM:
        return b <= 0;
    case BATON_DISTRIBUTION_NORMAL:
        return a <= 0 && b <= 0;
    case BATON_DISTRIBUTION_CONSTANT:
    case BATON_DISTRIBUTION_EXPONENTIAL:
    case BATON_DISTRIBUTION_LOGNORMAL:
    case BATON_DISTRIBUTION_PARETO:
    case BATON_DISTRIBUTION_COUNT:
        break;
    }
    return a <= 0;
}

double baton_distribution_sample(const baton_distribution_t *distribution,
                               uint64_t seed, uint64_t stream, uint64_t k)
{
    return baton__distribution_draw(distribution,
                                    baton__random(seed, stream, k));
}
