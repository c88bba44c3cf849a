/* Chooses the size of the blocks between devices; see block.h. */
#include "transport/staged/block.h"

#include "base/config.h"

#include <baton/costs.h>
#include <math.h>

static double stage_us(const baton_link_cost_t *link, double bytes)
{
    return link->alpha_us + bytes * link->beta_ns * 1e-3;
}

double baton__block_us(const baton__block_model_t *model, double bytes,
                       double block)
{
    double blocks = ceil(bytes / block);
    double copy_us = stage_us(&model->copy, block);
    double send_us = stage_us(&model->send, block);
    return 2 * copy_us + send_us + (blocks - 1) * fmax(copy_us, send_us);
}

size_t baton__block_for(const baton__block_model_t *model, size_t bytes)
{
    if (model->fixed > 0) {
        return model->fixed;
    }
    size_t best = 0;
    double best_us = INFINITY;
    for (size_t block = BATON__BLOCK_LEAST; block <= BATON__BLOCK_MOST;
         block *= 2) {
        double us = baton__block_us(model, (double)bytes,
                                    fmin((double)block, (double)bytes));
        if (us < best_us) {
            best = block;
            best_us = us;
        }
    }
    return best;
}

baton_status_t baton__block_model(int hosts, baton__block_model_t *out)
{
    baton_costs_t costs = BATON_COSTS;
    baton_status_t status = baton_costs_get(&costs);
    size_t fixed = (size_t)baton__config_number(BATON__CONFIG_DEVICE_BLOCK);
    /* The costs are not needed if the size is fixed. */
    if (status == BATON_OK || fixed > 0) {
        status = BATON_OK;
        *out = (baton__block_model_t){
            .fixed = fixed > 0 && fixed < BATON__BLOCK_LEAST
                         ? BATON__BLOCK_LEAST
                         : fixed,
            .copy = costs.device,
            .send = hosts > 1 ? costs.between : costs.inside};
    }
    return status;
}
