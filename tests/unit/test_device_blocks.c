/* Blocks of the pipeline between devices: the closed form gives the time of the
   pipeline, and the block that is chosen is the best, except for rounding. */
#include "support/cluster.h"
#include "transport/staged/block.h"

#include <baton/costs.h>
#include <math.h>

/* Returns the time of the pipeline. A block enters a stage after it has left
   the stage before, and after the block before it has left this stage. */
static double pipelined_us(const baton__block_model_t *model, size_t bytes,
                           size_t block)
{
    const baton_link_cost_t *const stages[] = {&model->copy, &model->send,
                                               &model->copy};
    double free_us[3] = {0};
    for (size_t at = 0; at < bytes; at += block) {
        size_t left = bytes - at;
        double us = 0;
        for (int k = 0; k < 3; k++) {
            us = (free_us[k] > us ? free_us[k] : us) + stages[k]->alpha_us +
                 (double)(left < block ? left : block) * stages[k]->beta_ns *
                     1e-3;
            free_us[k] = us;
        }
    }
    return free_us[2];
}

static const baton__block_model_t models[] = {
    {.copy = {10, 0.05}, .send = {2, 0.1}}, /* the estimates for one host */
    /* The estimates for several hosts. */
    {.copy = {10, 0.05}, .send = {20, 0.8}},
    {.copy = {10, 0.05}, .send = {2, 0.01}}, /* copies are slower than sends */
    {.copy = {1, 0.2}, .send = {30, 0.1}},   /* sends are slower below 290 KB */
    {.copy = {3, 0.1}, .send = {3, 0.1}},
    {.copy = {0, 0.1}, .send = {5, 0.1}},
    {.copy = {5, 0}, .send = {5, 0.1}},
    {.copy = {5, 0.1}, .send = {0, 0}},
};
enum { MODELS = sizeof models / sizeof *models };

TEST(test_closed_form_is_what_the_pipeline_takes)
{
    static const size_t blocks[] = {1, 2, 3, 7, 16, 64};
    for (int m = 0; m < MODELS; m++) {
        for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
            size_t block = 12288;
            double right = pipelined_us(&models[m], block * blocks[i], block);
            double form = baton__block_us(
                &models[m], (double)(block * blocks[i]), (double)block);
            assert_true(fabs(form - right) <= 1e-9 * right);
        }
    }
}

/* Of the powers of two, no block is better than the chosen one by more than its
   rounding costs. */
TEST(test_chosen_block_is_the_best)
{
    static const size_t sizes[] = {1 << 16, 1 << 18, 1 << 20, 1 << 22};
    for (int m = 0; m < MODELS; m++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            size_t bytes = sizes[i];
            size_t block = baton__block_for(&models[m], bytes);
            assert_in_range(block, BATON__BLOCK_LEAST, BATON__BLOCK_MOST);
            double us = pipelined_us(&models[m], bytes, block);
            for (size_t other = BATON__BLOCK_LEAST;
                 other <= bytes && other <= BATON__BLOCK_MOST; other *= 2) {
                assert_true(us <=
                            1.05 * pipelined_us(&models[m], bytes, other));
            }
        }
    }
}

TEST(test_long_messages_have_long_blocks)
{
    for (int m = 0; m < 2; m++) {
        size_t before = 0;
        for (size_t bytes = 1; bytes < (size_t)1 << 36; bytes *= 4) {
            size_t block = baton__block_for(&models[m], bytes);
            assert_true(block >= before || block >= bytes / 2);
            before = block;
        }
        assert_true(before == BATON__BLOCK_MOST);
    }
}

/* The variable sets the block. Otherwise it follows from the costs of messages,
   within a host or between hosts. */
TEST(test_block_of_the_variable_or_the_costs)
{
    static const struct {
        const char *variable;
        size_t block;
    } fixed[] = {{"12345", 12345}, {"1", BATON__BLOCK_LEAST}};
    baton__block_model_t model, between;
    support_set_variable("BATON_CALIBRATION", "/nonexistent/file");
    support_expect(baton__block_model(2, &model), BATON_ERR_SYSTEM);
    for (int i = 0; i < 2; i++) {
        support_set_variable("BATON_DEVICE_BLOCK", fixed[i].variable);
        support_ok(baton__block_model(2, &model));
        assert_int_equal(baton__block_for(&model, 1 << 20), fixed[i].block);
    }
    support_set_variable("BATON_CALIBRATION", NULL);
    support_set_variable("BATON_DEVICE_BLOCK", NULL);
    support_ok(baton__block_model(1, &model));
    support_ok(baton__block_model(2, &between));
    baton_costs_t costs = BATON_COSTS;
    support_ok(baton_costs_get(&costs));
    assert_true(model.send.alpha_us == costs.inside.alpha_us);
    assert_true(between.send.alpha_us == costs.between.alpha_us);
    assert_true(baton__block_for(&model, 1 << 20) > BATON__BLOCK_LEAST);
}
