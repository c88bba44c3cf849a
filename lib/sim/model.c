#include "sim/model.h"

#include "base/error.h"
#include "sim/distribution.h"

/* At a lower speed times would be too long to add up. */
#define LEAST_SPEED 1e-9

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
        status = baton__sim_check_number(options_text, costs[i].name,
                                         costs[i].value, 0, false);
    }
    return status;
}

static baton_status_t check_speed(const baton_distribution_t *speed)
{
    static const char subject[] = "simulator options: speed";
    baton_status_t status = baton__distribution_check(subject, speed);
    if (status != BATON_OK || baton__distribution_is_zero(speed)) {
        return status;
    }
    double least = baton__distribution_least(speed);
    if (least >= LEAST_SPEED) {
        return BATON_OK;
    }
    char given[128];
    baton__text_t text = {given, sizeof given, 0};
    baton__distribution_print(speed, &text);
    return baton__error(BATON_ERR_INVALID,
                        "%s: %s may be as low as %g; allowed: from %g up",
                        subject, given, least, LEAST_SPEED);
}

baton_status_t baton__sim_check_speed(double speed)
{
    return baton__sim_check_number("sim", "speed", speed, LEAST_SPEED, false);
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
        /* An error could not be reported from here. */
        link.alpha_us = cost_in_range(link.alpha_us);
        link.beta_ns = cost_in_range(link.beta_ns);
        return link;
    }
    int ranks = options->host_ranks;
    bool same_host = ranks > 1 && from / ranks == to / ranks;
    return same_host ? options->host_link : options->link;
}
