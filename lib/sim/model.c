/* What a user tells the simulator: distributions as text, options, links. */
#include "sim/model.h"

#include "base/error.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

/* A rank at a speed below this would make times too long to add up. */
#define LEAST_SPEED 1e-9

/* ---- distributions ------------------------------------------------------ */

enum { PARAMETERS = 2, SHOWN_BYTES = 128 };

typedef struct form {
    const char *name;
    const char *parameters[PARAMETERS]; /* NULL behind the last */
} form_t;

static const form_t forms[BATON_DISTRIBUTION_COUNT] = {
#define FORM(NAME, name, ...)                                                  \
    [BATON_DISTRIBUTION_##NAME] = {name, {__VA_ARGS__}},
    BATON_DISTRIBUTION_LIST(FORM)
#undef FORM
};

static void add_form(baton__text_t *text, const form_t *form)
{
    baton__text_add(text, "%s", form->name);
    for (int i = 0; i < PARAMETERS && form->parameters[i] != NULL; i++) {
        baton__text_add(text, ":%s", form->parameters[i]);
    }
}

static baton_status_t check_number(const char *of, const char *name,
                                   double value, double least, bool above)
{
    /* Each comparison is false for a NaN. */
    if ((above ? value > least : value >= least) && value <= BATON__SIM_MOST) {
        return BATON_OK;
    }
    return baton__error(
        BATON_ERR_INVALID, "%s: %s is %g; allowed: %s %g up to %g", of, name,
        value, above ? "above" : "from", least, BATON__SIM_MOST);
}

static baton_status_t check_parameters(const char *of,
                                       const baton_distribution_t *distribution)
{
    const form_t *form = &forms[distribution->kind];
    const double values[PARAMETERS] = {distribution->a, distribution->b};
    for (int i = 0; i < PARAMETERS && form->parameters[i] != NULL; i++) {
        double least = 0;
        if (distribution->kind == BATON_DISTRIBUTION_NORMAL && i == 0) {
            least = -BATON__SIM_MOST; /* part of the bell may be above 0 */
        } else if (distribution->kind == BATON_DISTRIBUTION_UNIFORM && i == 1) {
            least = values[0];
        }
        bool above = distribution->kind == BATON_DISTRIBUTION_PARETO && i == 1;
        baton_status_t status =
            check_number(of, form->parameters[i], values[i], least, above);
        if (status != BATON_OK) {
            return status;
        }
    }
    return BATON_OK;
}

static bool read_number(const char *text, size_t length, double *out)
{
    /* strtod also takes blanks, names and hexadecimal. */
    if (length == 0 || strspn(text, "0123456789.+-eE") < length) {
        return false;
    }
    /* The program's locale may have a decimal comma. */
    locale_t c = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    if (c == (locale_t)0) {
        return false;
    }
    char *end = NULL;
    *out = strtod_l(text, &end, c);
    freelocale(c);
    return end == text + length;
}

static baton_status_t unknown_name(const char *of)
{
    char message[BATON__MESSAGE_BYTES];
    baton__text_t allowed = {message, sizeof message, 0};
    for (int kind = 0; kind < BATON_DISTRIBUTION_COUNT; kind++) {
        baton__text_add(&allowed, kind == 0 ? "" : ", ");
        add_form(&allowed, &forms[kind]);
    }
    return baton__error(BATON_ERR_INVALID,
                        "%s: its name is none of %s, nor is it a number", of,
                        message);
}

/* text: what follows the name. */
static baton_status_t read_parameters(const char *of, const char *text,
                                      const form_t *form,
                                      double values[PARAMETERS])
{
    char message[SHOWN_BYTES];
    baton__text_t allowed = {message, sizeof message, 0};
    add_form(&allowed, form);
    for (int i = 0; i < PARAMETERS && form->parameters[i] != NULL; i++) {
        if (*text == '\0') {
            return baton__error(BATON_ERR_INVALID,
                                "%s: %s is missing; allowed: %s", of,
                                form->parameters[i], message);
        }
        text++; /* the colon */
        size_t length = strcspn(text, ":");
        if (!read_number(text, length, &values[i])) {
            return baton__error(BATON_ERR_INVALID,
                                "%s: %s is not a number; allowed: %s", of,
                                form->parameters[i], message);
        }
        text += length;
    }
    if (*text != '\0') {
        return baton__error(BATON_ERR_INVALID,
                            "%s: too many parameters; allowed: %s", of,
                            message);
    }
    return BATON_OK;
}

static const form_t *find_form(const char *name, size_t length)
{
    for (size_t kind = 0; kind < BATON_DISTRIBUTION_COUNT; kind++) {
        if (strlen(forms[kind].name) == length &&
            strncmp(forms[kind].name, name, length) == 0) {
            return &forms[kind];
        }
    }
    return NULL;
}

baton_status_t baton_distribution_parse(const char *text,
                                        baton_distribution_t *out)
{
    char of[SHOWN_BYTES];
    baton__text_t quoted = {of, sizeof of, 0};
    baton__text_add(&quoted, "distribution \"%s\"", text);

    const form_t *form = &forms[BATON_DISTRIBUTION_CONSTANT];
    double values[PARAMETERS] = {0};
    baton_status_t status = BATON_OK;
    if (!read_number(text, strlen(text), &values[0])) {
        size_t length = strcspn(text, ":");
        form = find_form(text, length);
        status = form == NULL
                     ? unknown_name(of)
                     : read_parameters(of, text + length, form, values);
    }
    if (status != BATON_OK) {
        return status;
    }
    const baton_distribution_t result = {
        (baton_distribution_kind_t)(form - forms), values[0], values[1]};
    status = check_parameters(of, &result);
    if (status == BATON_OK) {
        *out = result;
    }
    return status;
}

/* ---- options ------------------------------------------------------------ */

static const char options_text[] = "simulator options";

static baton_status_t check_costs(const baton_sim_options_t *options)
{
    const struct {
        const char *name;
        double value;
    } costs[] = {
        {"link.alpha_us", options->link.alpha_us},
        {"link.beta_ns", options->link.beta_ns},
        {"gamma_ns", options->gamma_ns},
        {"overhead_us", options->overhead_us},
        {"host_link.alpha_us", options->host_link.alpha_us},
        {"host_link.beta_ns", options->host_link.beta_ns},
    };
    baton_status_t status = BATON_OK;
    for (size_t i = 0; i < sizeof costs / sizeof costs[0] && status == BATON_OK;
         i++) {
        status =
            check_number(options_text, costs[i].name, costs[i].value, 0, false);
    }
    return status;
}

baton_status_t baton__distribution_check(const char *of,
                                         const baton_distribution_t *given)
{
    /* An enumeration may be signed. */
    if ((unsigned)given->kind >= BATON_DISTRIBUTION_COUNT) {
        return baton__error(BATON_ERR_INVALID,
                            "%s: kind is %d; allowed: 0 to %d", of,
                            (int)given->kind, BATON_DISTRIBUTION_COUNT - 1);
    }
    return check_parameters(of, given);
}

static baton_status_t check_speed(const baton_distribution_t *speed)
{
    static const char of[] = "simulator options: speed";
    baton_status_t status = baton__distribution_check(of, speed);
    if (status != BATON_OK || baton__distribution_is_zero(speed)) {
        return status;
    }
    double least = baton__distribution_least(speed);
    if (least >= LEAST_SPEED) {
        return BATON_OK;
    }
    char given[SHOWN_BYTES];
    baton__text_t text = {given, sizeof given, 0};
    baton__text_add(&text, "%s:%g", forms[speed->kind].name, speed->a);
    if (forms[speed->kind].parameters[1] != NULL) {
        baton__text_add(&text, ":%g", speed->b);
    }
    return baton__error(BATON_ERR_INVALID,
                        "%s: %s may be as low as %g; allowed: from %g up", of,
                        given, least, LEAST_SPEED);
}

baton_status_t baton__sim_check_speed(double speed)
{
    return check_number("sim", "speed", speed, LEAST_SPEED, false);
}

baton_status_t baton__sim_check_options(const baton_sim_options_t *options)
{
    if (options->ranks < 1 || options->ranks > BATON__SIM_RANKS_MOST) {
        return baton__error(BATON_ERR_INVALID,
                            "%s: ranks is %d; allowed: 1 to %d", options_text,
                            options->ranks, BATON__SIM_RANKS_MOST);
    }
    if (options->host_ranks < 0) {
        return baton__error(BATON_ERR_INVALID,
                            "%s: host_ranks is %d; allowed: 0 or more",
                            options_text, options->host_ranks);
    }
    if (options->sync_bytes != 0 &&
        options->eager_bytes > options->sync_bytes) {
        return baton__error(
            BATON_ERR_INVALID,
            "%s: eager_bytes is %zu; allowed: up to sync_bytes, "
            "which is %zu",
            options_text, options->eager_bytes, options->sync_bytes);
    }
    baton_status_t status = check_costs(options);
    if (status == BATON_OK) {
        status = check_speed(&options->speed);
    }
    if (status == BATON_OK) {
        status = baton__distribution_check("simulator options: skew",
                                           &options->skew);
    }
    if (status == BATON_OK) {
        status =
            baton__distribution_check("simulator options: lag", &options->lag);
    }
    return status;
}

/* ---- links -------------------------------------------------------------- */

static double cost_in_range(double cost)
{
    if (!(cost > 0)) { /* a NaN too */
        return 0;
    }
    return cost < BATON__SIM_MOST ? cost : BATON__SIM_MOST;
}

baton_sim_link_t baton__sim_link(const baton_sim_options_t *options, int from,
                                 int to)
{
    if (options->topology != NULL) {
        baton_sim_link_t link =
            options->topology(options->topology_arg, from, to);
        /* Here is nobody to whom an error could be reported. */
        link.alpha_us = cost_in_range(link.alpha_us);
        link.beta_ns = cost_in_range(link.beta_ns);
        return link;
    }
    int ranks = options->host_ranks;
    bool same_host = ranks > 1 && from / ranks == to / ranks;
    return same_host ? options->host_link : options->link;
}
