#include "sim/watch.h"
#include <inttypes.h>

/* The clock is read once in so many events, or ranks built. */
enum { EVENTS_PER_LOOK = 1 << 14, RANKS_PER_LOOK = 1 << 10 };

enum { LINE_BYTES = 128 };

void sim_watch_begin(sim_watch_t *watch, const sim_case_t *of, FILE *trace)
{
    *watch = (sim_watch_t){.of = of};
    progress_init(&watch->progress, true, of->options->epochs);
    sim_trace_begin(&watch->trace, trace, of->ranks,
                    of->options->model.multi_ported);
}

void sim_watch_build(sim_watch_t *watch, int rank)
{
    if (rank % RANKS_PER_LOOK == 0 && progress_due(&watch->progress)) {
        char text[LINE_BYTES];
        (void)snprintf(text, sizeof(text), "%s: building rank %d of %d",
                       watch->of->name, rank + 1, watch->of->ranks);
        progress_draw(&watch->progress, text);
    }
}

static void show_epoch(sim_watch_t *watch, double now_us)
{
    if (progress_due(&watch->progress)) {
        char text[LINE_BYTES];
        (void)snprintf(text, sizeof(text),
                       "%s, %d ranks: epoch %" PRIu64 " of %" PRIu64
                       ", %.3f ms of virtual time",
                       watch->of->name, watch->of->ranks,
                       watch->progress.done + 1, watch->progress.planned,
                       now_us / 1e3);
        progress_draw(&watch->progress, text);
    }
}

static void on_event(void *arg, const baton_sim_event_t *event)
{
    sim_watch_t *watch = arg;
    if (watch->trace.file != NULL) {
        sim_trace_event(&watch->trace, event);
    }
    if (++watch->seen % EVENTS_PER_LOOK == 0) {
        show_epoch(watch, event->end_us);
    }
}

void sim_watch_attach(sim_watch_t *watch, baton_sim_t *sim)
{
    /* Restarts the estimate: epochs take their own time. */
    progress_init(&watch->progress, true, watch->of->options->epochs);
    if (watch->trace.file != NULL || watch->progress.shown) {
        baton_sim_trace(sim, on_event, watch);
    }
}

void sim_watch_detach(baton_sim_t *sim)
{
    baton_sim_trace(sim, NULL, NULL);
}

void sim_watch_epoch(sim_watch_t *watch)
{
    watch->progress.done++;
}

void sim_watch_end(sim_watch_t *watch)
{
    progress_clear(&watch->progress);
    sim_trace_end(&watch->trace);
}
