/* Samples have the same bits on every machine.

   The results of the C library's log, exp and pow do not: glibc has one version
   of these functions for processors with a fused multiply-add and one for those
   without. The last bits of their results differ, so the same simulation would
   run differently on two machines. The functions here use only operations that
   IEEE 754 rounds in one way (sqrt is one of them) or that are exact (frexp,
   ldexp, floor). Their relative errors stay below 1e-15. */
#include "base/error.h"
#include "base/random.h"
#include "sim/model.h"

#include <math.h>
#include <string.h>

#define LN2 0.69314718055994530942
/* LN2_HIGH has the first 32 bits of ln 2, so that its multiples are exact;
   LN2_LOW has the other bits. */
#define LN2_HIGH  0x1.62e42feep-1
#define LN2_LOW   1.90821492927058770002e-10
#define SQRT_HALF 0.70710678118654752440

/* Returns ln x for an x above 0: the logarithm of its power of two, plus the
   logarithm of its fraction, which lies within a factor of sqrt 2 of 1. The
   fraction is (1 + s) / (1 - s), and its logarithm the series of 2 atanh(s). */
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

/* Returns e^x as 2^k times a series. The series is for x - k ln 2, whose
   magnitude is at most half of ln 2. The result is constant for x above 700,
   where it is larger than the largest sample. */
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

/* Returns a number strictly between 0 and 1: the middle of one of 2^52
   intervals. */
static double unit(uint64_t random)
{
    return ((double)(random >> 12) + 0.5) * 0x1p-52;
}

/* Returns a radius times the cosine of a random direction (Box, Muller 1958),
   which is the direction of a random point in a circle (von Neumann 1951). The
   bits that follow `random` come from splitmix64's sequence, which has no short
   cycle. */
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
    /* unit() never returns 1/2, so x is not 0, and neither is the root. */
    return radius * (x / sqrt(square));
}

static double distribution_sample(const baton_distribution_t *distribution,
                                  uint64_t random)
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

double baton__distribution_sample(const baton_distribution_t *distribution,
                                  uint64_t random)
{
    double sample = distribution_sample(distribution, random);
    double value = sample < 0 ? 0 : sample;
    return value > BATON__SIM_MOST ? BATON__SIM_MOST : value;
}

bool baton__distribution_is_zero(const baton_distribution_t *distribution)
{
    if (distribution->kind == BATON_DISTRIBUTION_UNIFORM) {
        return distribution->b <= 0;
    }
    bool spread =
        distribution->kind == BATON_DISTRIBUTION_NORMAL && distribution->b > 0;
    return distribution->a <= 0 && !spread;
}

double baton_distribution_sample(const baton_distribution_t *distribution,
                                 uint64_t seed, uint64_t stream, uint64_t k)
{
    return distribution == NULL
               ? 0
               : baton__distribution_sample(distribution,
                                            baton__random(seed, stream, k));
}

/* ---- text --------------------------------------------------------------- */

enum { PARAMETERS = 2 };

typedef struct form {
    const char *name;
    const char *parameters[PARAMETERS]; /* names of the parameters, then NULL */
} form_t;

static const form_t forms[BATON_DISTRIBUTION_COUNT] = {
#define FORM(NAME, name, ...)                                                  \
    [BATON_DISTRIBUTION_##NAME] = {name, {__VA_ARGS__}},
    BATON_DISTRIBUTION_LIST(FORM)
#undef FORM
};

baton_status_t baton__sim_check_number(const char *subject, const char *name,
                                       double value, double least, bool above)
{
    /* For a NaN both comparisons are false, so NaNs are refused. */
    if ((above ? value > least : value >= least) && value <= BATON__SIM_MOST) {
        return BATON_OK;
    }
    return baton__error(
        BATON_ERR_INVALID, "%s: %s is %g; allowed: %s %g up to %g", subject,
        name, value, above ? "above" : "from", least, BATON__SIM_MOST);
}

static baton_status_t check_parameters(const char *subject,
                                       const baton_distribution_t *distribution)
{
    const form_t *form = &forms[distribution->kind];
    const double values[PARAMETERS] = {distribution->a, distribution->b};
    for (int i = 0; i < PARAMETERS && form->parameters[i] != NULL; i++) {
        double least = 0;
        if (distribution->kind == BATON_DISTRIBUTION_NORMAL && i == 0) {
            least = -BATON__SIM_MOST; /* a normal distribution may have a
                                         negative mean: some of its samples can
                                         still be above 0 */
        } else if (distribution->kind == BATON_DISTRIBUTION_UNIFORM && i == 1) {
            least = values[0];
        }
        bool above = distribution->kind == BATON_DISTRIBUTION_PARETO && i == 1;
        baton_status_t status = baton__sim_check_number(
            subject, form->parameters[i], values[i], least, above);
        if (status != BATON_OK) {
            return status;
        }
    }
    return BATON_OK;
}

/* Reads the parameters that follow a name. Returns the text after them, or NULL
   if they are wrong. */
static const char *read_parameters(const char *at, const form_t *form,
                                   double values[PARAMETERS])
{
    for (int i = 0; i < PARAMETERS && form->parameters[i] != NULL; i++) {
        at = at != NULL && *at == ':' ? baton__read_number(at + 1, &values[i])
                                      : NULL;
    }
    return at;
}

static baton_status_t fail_text(const char *subject)
{
    baton__text_t allowed = BATON__TEXT(BATON__MESSAGE_BYTES);
    for (const form_t *form = forms; form < forms + BATON_DISTRIBUTION_COUNT;
         form++) {
        baton__text_add(&allowed, ", %s", form->name);
        for (int i = 0; i < PARAMETERS && form->parameters[i] != NULL; i++) {
            baton__text_add(&allowed, ":%s", form->parameters[i]);
        }
    }
    return baton__error(BATON_ERR_INVALID, "%s; allowed: a number%s", subject,
                        allowed.data);
}

baton_status_t baton_distribution_parse(const char *text,
                                        baton_distribution_t *out)
{
    if (!baton__is_given(text, true, __func__, "text") ||
        !baton__is_given(out, true, __func__, "out")) {
        return BATON_ERR_INVALID;
    }
    baton__text_t subject = BATON__TEXT(128);
    baton__text_add(&subject, "distribution \"%s\"", text);
    int kind = BATON_DISTRIBUTION_CONSTANT;
    double values[PARAMETERS] = {0};
    const char *end = baton__read_number(text, &values[0]);
    size_t length = strcspn(text, ":");
    for (int i = 0; i < BATON_DISTRIBUTION_COUNT && end == NULL; i++) {
        if (strlen(forms[i].name) == length &&
            strncmp(forms[i].name, text, length) == 0) {
            kind = i;
            end = read_parameters(text + length, &forms[i], values);
        }
    }
    if (end == NULL || *end != '\0') {
        return fail_text(subject.data);
    }
    const baton_distribution_t result = {(baton_distribution_kind_t)kind,
                                         values[0], values[1]};
    baton_status_t status = check_parameters(subject.data, &result);
    if (status == BATON_OK) {
        *out = result;
    }
    return status;
}

baton_status_t
baton__distribution_check(const char *subject,
                          const baton_distribution_t *distribution)
{
    /* The cast also catches negative values, which an enumeration may have. */
    if ((unsigned)distribution->kind >= BATON_DISTRIBUTION_COUNT) {
        return baton__error(
            BATON_ERR_INVALID, "%s: kind is %d; allowed: 0 to %d", subject,
            (int)distribution->kind, BATON_DISTRIBUTION_COUNT - 1);
    }
    return check_parameters(subject, distribution);
}
