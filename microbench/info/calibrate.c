#include "info/calibrate.h"

#include "common/harness.h"
#include "common/progress.h"
#include "common/table.h"

#include <baton/tuning.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The costs are measured first, and then the algorithms (baton_group_tune). A
   short message gives alpha, and a long message beta. Gamma, the cost of
   reducing a byte, is measured by reducing a vector that fits in cache, as a
   pipeline's segment does. */
enum { SHORT_BYTES = 8, LONG_BYTES = 1 << 20, REDUCED_BYTES = 256 * 1024 };
enum { WARM_UP = 20, REPEATS = 200 };

/* Returns the median time of a schedule's epochs, and destroys the schedule. On
   ranks whose schedule has no nodes the time is small, and not used. */
static double run_and_destroy(const harness_t *harness,
                              baton_schedule_t *schedule)
{
    double times[REPEATS];
    must(baton_schedule_commit(schedule));
    harness_barrier(harness);
    for (int i = -WARM_UP; i < REPEATS; i++) {
        double began = clock_now_us();
        harness_run_epochs(schedule, 1);
        times[i < 0 ? 0 : i] = clock_now_us() - began;
    }
    harness_barrier(harness);
    must(baton_schedule_destroy(schedule));
    return stats_of(times, REPEATS).median;
}

/* Returns, on rank 0, the time of a message to `peer`: half of the time that a
   message from rank 0 to `peer` and back takes. If `both`, the two ranks send
   at the same time, and this returns the time until rank 0 has sent and
   received. */
static double message_us(const harness_t *harness, int peer, size_t bytes,
                         bool both)
{
    baton_schedule_t *schedule =
        harness_schedule(harness->group, "calibrate/message");
    char *memory = harness_alloc(bytes, 2);
    baton_buffer_t buffer = baton_buffer_bind(schedule, memory, 2 * bytes);
    if (harness->rank == 0 || harness->rank == peer) {
        int other = harness->rank == 0 ? peer : 0;
        baton_node_t received =
            baton_add_recv(schedule, other, baton_view(buffer, bytes, bytes));
        baton_node_t sent =
            baton_add_send(schedule, other, baton_view(buffer, 0, bytes));
        if (harness->rank == peer && !both) {
            baton_before(schedule, received, sent);
        }
    }
    double us = run_and_destroy(harness, schedule);
    free(memory);
    return both ? us : us / 2;
}

static double reduction_us(const harness_t *harness)
{
    baton_schedule_t *schedule =
        harness_schedule(harness->group, "calibrate/reduce");
    baton_buffer_t buffer =
        baton_buffer_scratch(schedule, (size_t)2 * REDUCED_BYTES);
    baton_view_t left = baton_view(buffer, 0, REDUCED_BYTES);
    baton_view_t right = baton_view(buffer, REDUCED_BYTES, REDUCED_BYTES);
    (void)baton_add_reduce_local(schedule, BATON_F32, BATON_SUM, left, left,
                                 right);
    return run_and_destroy(harness, schedule);
}

/* Returns the time for which a waiting rank keeps a shared processor. The time
   is chosen so that the model predicts the measured time of a short all-reduce.
   Returns the value in `costs` if ranks share no processors or are on several
   hosts. */
static double shared_wait_us(const harness_t *harness,
                             const baton_costs_t *costs)
{
    baton_schedule_t *schedule =
        harness_schedule(harness->group, "calibrate/turn");
    baton_cost_case_t of = {.ranks = harness->size,
                            .bytes = SHORT_BYTES,
                            .alpha_us = costs->inside.alpha_us,
                            .beta_us = costs->inside.beta_ns / 1e3,
                            .gamma_us = costs->gamma_ns / 1e3,
                            .processors = baton_schedule_processors(schedule)};
    bool shared = baton_schedule_hosts(schedule) == 1 && of.processors > 0 &&
                  of.processors < of.ranks;
    baton_view_t data =
        baton_view(baton_buffer_scratch(schedule, SHORT_BYTES), 0, SHORT_BYTES);
    baton_allreduce_args_t args = {.size = sizeof(args),
                                   .source = data,
                                   .target = data,
                                   .dtype = BATON_F32,
                                   .op = BATON_SUM,
                                   .algorithm = "recursive_doubling"};
    baton_add_allreduce(schedule, &args);
    double us = run_and_destroy(harness, schedule);
    baton_algorithm_t algorithm;
    must(baton_algorithm_find(BATON_COLLECTIVE_ALLREDUCE, args.algorithm,
                              &algorithm));
    double without = baton_algorithm_host_us(&algorithm, &of);
    of.turn_us = 1;
    double each = baton_algorithm_host_us(&algorithm, &of) - without;
    return shared ? fmax(us - without, 0) / each : costs->turn_us;
}

/* Measures a link. Between hosts both ranks send at once, as in algorithms,
   since the link, or the processors that serve it, may then be slower. Inside a
   host one rank sends at a time, since the model counts the copies that each
   processor makes. */
static baton_link_cost_t link_cost(const harness_t *harness, int peer,
                                   bool both)
{
    double small = message_us(harness, peer, SHORT_BYTES, both);
    double large = message_us(harness, peer, LONG_BYTES, both);
    double slope = (large - small) / (LONG_BYTES - SHORT_BYTES);
    return (baton_link_cost_t){.alpha_us = small,
                               .beta_ns = slope > 0 ? slope * 1e3 : 0};
}

/* Adds the machines of all ranks to rank 0's file, each machine once. All these
   machines use the file's costs, so that ranks choose the same algorithm. */
static bool add_machines(const harness_t *harness, const char *path)
{
    enum { NAME = 256 };
    char mine[NAME];
    (void)snprintf(mine, NAME, "%s", baton_machine_name());
    char(*names)[NAME] = harness_gather(mine, NAME);
    FILE *file = harness->rank == 0 ? fopen(path, "ae") : NULL;
    bool opened = file != NULL || harness->rank != 0 ||
                  output_fail("can't write", path, errno);
    for (int i = 1; file != NULL && i < harness->size; i++) {
        int first = 0;
        while (strcmp(names[first], names[i]) != 0) {
            first++;
        }
        if (first == i) {
            (void)printf("and for  %s\n", names[i]);
            (void)fprintf(file, "machine %s\n", names[i]);
        }
    }
    free(names);
    return output_close(file, path) && opened;
}

/* Prints and writes the costs on rank 0. peers[i] is -1 if there was no such
   peer to measure. */
static bool write_costs(const harness_t *harness, const char *path,
                        const baton_costs_t *costs, const int peers[2])
{
    if (harness->rank != 0) {
        return true;
    }
    (void)printf("machine  %s\n", baton_machine_name());
    for (int i = 0; i < 2; i++) {
        const baton_link_cost_t *link =
            i == 0 ? &costs->inside : &costs->between;
        (void)printf(
            "%-8s alpha %9.3f us, beta %7.4f ns a byte%s\n",
            i == 0 ? "inside" : "between", link->alpha_us, link->beta_ns,
            peers[i] < 0 ? " (not measured: there are no such ranks)" : "");
    }
    (void)printf("gamma    %.4f ns a byte\n", costs->gamma_ns);
    (void)printf("device   alpha %9.3f us, beta %7.4f ns a byte (not measured: "
                 "this command has no device)\n",
                 costs->device.alpha_us, costs->device.beta_ns);
    (void)printf("turn     %.3f us\n", costs->turn_us);
    if (baton_costs_write(path, costs) != BATON_OK) {
        (void)fprintf(stderr, "baton-info: %s\n", baton_error_message());
        return false;
    }
    (void)printf("written to %s: set BATON_CALIBRATION=%s on all ranks\n", path,
                 path);
    return true;
}

static void show_progress(void *arg, double part)
{
    (void)progress_show(part, "measuring algorithms");
}

int info_calibrate(const char *path)
{
    /* peers[0]: the first other rank on rank 0's host. peers[1]: the first rank
       on another host. */
    int peers[2] = {-1, -1};
    harness_t harness;
    baton_costs_t costs = BATON_COSTS;
    int ranks = harness_begin();
    bool root = harness_go_on();
    if (ranks < 2) {
        (void)fprintf(stderr, "baton-info: --calibrate: there is 1 rank, must "
                              "be 2 or more: run it under mpirun\n");
        return EXIT_FAILURE;
    }
    harness_open(&harness, NULL);
    must(baton_costs_get(&costs));
    for (int other = ranks - 1; other > 0; other--) {
        bool inside = baton_schedule_host_of(harness.barrier, other) ==
                      baton_schedule_host_of(harness.barrier, 0);
        peers[inside ? 0 : 1] = other;
    }
    if (peers[0] >= 0) {
        costs.inside = link_cost(&harness, peers[0], false);
    }
    if (peers[1] >= 0) {
        costs.between = link_cost(&harness, peers[1], true);
    }
    costs.gamma_ns = reduction_us(&harness) / REDUCED_BYTES * 1e3;
    costs.turn_us = shared_wait_us(&harness, &costs);
    bool written = write_costs(&harness, path, &costs, peers);
    written = harness_agree(add_machines(&harness, path) && written);
    if (written) {
        const baton_tune_options_t options = {.size = sizeof(options),
                                              .file = path,
                                              .on_progress =
                                                  root ? show_progress : NULL};
        progress_begin();
        must(baton_group_tune(harness.group, &options));
        (void)progress_end();
    }
    harness_close(&harness);
    return written ? EXIT_SUCCESS : EXIT_FAILURE;
}
