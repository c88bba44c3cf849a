/* Functions that each simulation uses: they report its errors, allocate its
   memory, show its progress, run its epochs, and make and check the data of its
   ranks. */
#include "common/progress.h"
#include "sim/sim.h"
#include <baton/proof.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The state of the running simulation, and of its case. */
static struct {
    const sim_case_t *of;
    int built; /* number of schedules built so far */
    /* True while epochs run, false while schedules are built. */
    bool epochs;
    uint64_t ended;    /* number of epochs that have ended */
    uint64_t before;   /* number of messages sent before the epochs */
    double sum_us;     /* sum of the virtual times of the ended epochs */
    double formula_us; /* the virtual time of an epoch by the closed form */
    double began_us;   /* the virtual time at which the running epoch began */
} now;

bool sim_fail(const char *format, ...)
{
    const sim_case_t *c = now.of;
    va_list args;
    va_start(args, format);
    (void)fprintf(stderr, "baton-sim: %s, %d ranks, %s bytes: ", c->name,
                  c->ranks, cli_format_bytes(c->bytes));
    (void)vfprintf(stderr, format, args);
    (void)fputc('\n', stderr);
    va_end(args);
    return false;
}

bool sim_ok(baton_status_t status)
{
    return status == BATON_OK || (status != BATON_ERR_CANCELLED &&
                                  sim_fail("%s", baton_error_message()));
}

void *sim_alloc(size_t count, size_t size)
{
    double bytes = (double)count * (double)size;
    double most =
        (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    void *memory = bytes <= most ? calloc(count + 1, size) : NULL;
    if (memory == NULL) {
        (void)sim_fail("needs %.1f GiB, this machine has %.1f: lower --ranks, "
                       "or simulate costs only",
                       bytes / 0x1p30, most / 0x1p30);
    }
    return memory;
}

static uint64_t now_messages(void)
{
    return baton_sim_totals(now.of->sim).messages - now.before;
}

/* Updates the progress line. Expects an epoch to take the mean time of the
   epochs that have ended or, in the first epoch, the time by the closed
   form. */
bool sim_case_progress(void *arg)
{
    char what[128];
    if (!now.epochs) {
        return progress_show((double)now.built / now.of->ranks,
                             "building schedules");
    }
    double us = baton_sim_now_us(now.of->sim) - now.began_us;
    us /= now.ended > 0 ? now.sum_us / (double)now.ended : now.formula_us;
    (void)snprintf(what, sizeof(what), "%s, %d ranks, %.3g messages",
                   now.of->name, now.of->ranks, (double)now_messages());
    return progress_show(((double)now.ended + (us > 1 ? 1 : us)) /
                             (double)now.of->options->epochs,
                         what);
}

bool sim_case_build(void)
{
    now.built++;
    return sim_case_progress(NULL);
}

void sim_case_begin(const sim_case_t *c)
{
    memset(&now, 0, sizeof(now));
    now.of = c;
    progress_begin();
    progress_catch(true);
}

void sim_case_end(bool passed)
{
    double s = progress_end();
    progress_catch(false);
    if (passed || !progress_interrupted()) {
        return;
    }
    (void)fflush(stdout);
    (void)fprintf(stderr,
                  "baton-sim: %s, %d ranks: interrupted after %.0f s: %d "
                  "schedules, %" PRIu64 " of %" PRIu64 " epochs in %.3f us, "
                  "%.3f us of the next one; %" PRIu64 " messages\n",
                  now.of->name, now.of->ranks, s, now.built, now.ended,
                  now.of->options->epochs, now.sum_us,
                  baton_sim_now_us(now.of->sim) - now.began_us, now_messages());
}

bool sim_case_epochs(const sim_case_t *c, sim_epoch_fn run, void *arg,
                     sim_result_t *out)
{
    bool passed = true;
    out->low_us = INFINITY;
    now.epochs = true;
    now.before = baton_sim_totals(c->sim).messages;
    now.formula_us = out->formula_us;
    (void)progress_end();
    progress_begin();
    sim_trace_begin(c);
    while (passed && now.ended < c->options->epochs) {
        double us = 0;
        now.began_us = baton_sim_now_us(c->sim);
        passed = sim_case_progress(NULL) && run(arg, now.ended + 1, &us);
        if (passed) {
            now.ended++;
            now.sum_us += us;
            out->low_us = fmin(out->low_us, us);
            out->high_us = fmax(out->high_us, us);
        }
    }
    sim_trace_end(c);
    out->mean_us = now.sum_us / (double)now.ended;
    out->messages = now_messages();
    out->run_s = progress_end();
    return passed;
}

/* ---- data ------------------------------------------------------------- */

bool sim_data_open(const sim_case_t *c, uint64_t iterations, sim_data_t *out)
{
    size_t members = (size_t)c->ranks * (size_t)iterations;
    *out = (sim_data_t){
        .of = c,
        .dtype = c->options->prove ? BATON_U32 : BATON_U64,
        .op = BATON_SUM,
        .iterations = (uint32_t)iterations,
    };
    out->count = (size_t)(c->bytes / baton_dtype_size(out->dtype));
    if (!c->options->prove) {
        return true;
    }
    if (members > INT32_MAX) {
        return sim_fail("--prove takes at most %d contributions", INT32_MAX);
    }
    out->contributors = sim_alloc(members, sizeof(bool));
    if (out->contributors == NULL ||
        !sim_ok(baton_proof_create((int)members, &out->proof))) {
        return false;
    }
    out->op = baton_proof_op(out->proof);
    return true;
}

void sim_data_close(sim_data_t *data)
{
    (void)!baton_proof_destroy(data->proof);
    free(data->contributors);
}

static size_t member_of(const sim_data_t *data, int rank, uint64_t iteration)
{
    return (size_t)rank * data->iterations +
           (size_t)((iteration - 1) % data->iterations);
}

bool sim_data_fill(const sim_data_t *data, int rank, uint64_t iteration,
                   void *elements)
{
    int member = (int)member_of(data, rank, iteration);
    return sim_ok(
        baton_proof_fill(data->proof, member, 0, data->count, elements));
}

void sim_data_expect_none(sim_data_t *data)
{
    if (data->proof != NULL) {
        memset(data->contributors, 0,
               (size_t)data->of->ranks * data->iterations * sizeof(bool));
    }
}

void sim_data_expect(sim_data_t *data, int rank, uint64_t iteration)
{
    if (data->proof != NULL) {
        data->contributors[member_of(data, rank, iteration)] = true;
    }
}

bool sim_data_check(const sim_data_t *data, int rank, uint64_t epoch,
                    const void *elements)
{
    return baton_proof_check(data->proof, data->contributors, 0, data->count,
                             elements) == BATON_OK ||
           sim_fail("wrong result on rank %d in epoch %" PRIu64 ": %s", rank,
                    epoch, baton_error_message());
}
