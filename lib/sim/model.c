#include "sim/model.h"

#include "base/error.h"

static const char options_text[] = "simulator options";

static baton_status_t model_check_costs(const baton_sim_options_t *options)
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
    const struct {
        const char *subject;
        const baton_distribution_t *value;
    } distributions[] = {{"simulator options: speed", &options->speed},
                         {"simulator options: skew", &options->skew},
                         {"simulator options: lag", &options->lag}};
    baton_status_t status = model_check_costs(options);
    for (int i = 0; i < 3 && status == BATON_OK; i++) {
        status = baton__distribution_check(distributions[i].subject,
                                           distributions[i].value);
    }
    return status;
}

/* Brings a cost of the user's topology function into the allowed range. The
   function is called when a message is transferred, where no error can be
   reported. */
static double cost_in_range(double cost)
{
    double least = cost > 0 ? cost : 0; /* this also replaces a NaN by 0 */
    return least < BATON__SIM_MOST ? least : BATON__SIM_MOST;
}

baton_sim_link_t baton__sim_link(const baton_sim_options_t *options, int from,
                                 int to)
{
    if (options->topology != NULL) {
        baton_sim_link_t link =
            options->topology(options->topology_arg, from, to);
        return (baton_sim_link_t){.alpha_us = cost_in_range(link.alpha_us),
                                  .beta_ns = cost_in_range(link.beta_ns)};
    }
    int ranks = options->host_ranks;
    bool same_host = ranks > 1 && from / ranks == to / ranks;
    return same_host ? options->host_link : options->link;
}
