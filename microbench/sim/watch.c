/* Times are printed in microseconds with six decimals, so that the same run
   gives the same bytes. */
#include "sim/sim.h"
#include <inttypes.h>

/* The clock is read once in so many events, or ranks built. */
enum { EVENTS_PER_LOOK = 1 << 14, RANKS_PER_LOOK = 1 << 10 };

/* ---- the trace -------------------------------------------------------- */

static const char *row_name(int what)
{
    static const char *const names[] = {
        [BATON_SIM_SEND] = "send port",
        [BATON_SIM_RECV] = "receive port",
        [BATON_SIM_REDUCE] = "processor",
        [BATON_SIM_EPOCH] = "epochs",
    };
    return names[what];
}

static void begin_trace(FILE *file, int ranks)
{
    (void)fputs("{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n", file);
    for (int rank = 0; rank < ranks; rank++) {
        (void)fprintf(file,
                      "%s{\"ph\": \"M\", \"pid\": %d, \"name\": "
                      "\"process_name\", \"args\": {\"name\": \"rank %d\"}}",
                      rank > 0 ? ",\n" : "", rank, rank);
        (void)fprintf(file,
                      ",\n{\"ph\": \"M\", \"pid\": %d, \"name\": "
                      "\"process_sort_index\", \"args\": {\"sort_index\": %d}}",
                      rank, rank);
        for (int row = BATON_SIM_SEND; row <= BATON_SIM_EPOCH; row++) {
            (void)fprintf(file,
                          ",\n{\"ph\": \"M\", \"pid\": %d, \"tid\": %d, "
                          "\"name\": \"thread_name\", \"args\": {\"name\": "
                          "\"%s\"}}",
                          rank, row, row_name(row));
        }
    }
}

static void write_name(FILE *file, const baton_sim_event_t *event)
{
    switch (event->what) {
    case BATON_SIM_SEND:
        (void)fprintf(file, "to %d", event->peer);
        break;
    case BATON_SIM_RECV:
        (void)fprintf(file, "from %d", event->peer);
        break;
    case BATON_SIM_REDUCE:
        (void)fputs("reduce", file);
        break;
    case BATON_SIM_EPOCH:
        (void)fprintf(file, "%s %" PRIu64, event->schedule, event->epoch);
        break;
    }
}

/* Events that may overlap in their row are asynchronous: two events that share
   an id begin and end them. */
static bool is_async(const sim_watch_t *watch, const baton_sim_event_t *event)
{
    return watch->of->options->model.multi_ported &&
           (event->what == BATON_SIM_SEND || event->what == BATON_SIM_RECV);
}

static void write_head(const sim_watch_t *watch, const baton_sim_event_t *event,
                       const char *phase, double at_us)
{
    FILE *file = watch->trace;
    (void)fprintf(file,
                  ",\n{\"ph\": \"%s\", \"pid\": %d, \"tid\": %d, \"ts\": %.6f, "
                  "\"name\": \"",
                  phase, event->rank, (int)event->what, at_us);
    write_name(file, event);
    (void)fputc('"', file);
    if (is_async(watch, event)) {
        (void)fprintf(file, ", \"cat\": \"%s\", \"id\": %" PRIu64,
                      row_name((int)event->what), watch->traced);
    }
}

static void trace_event(sim_watch_t *watch, const baton_sim_event_t *event)
{
    FILE *file = watch->trace;
    bool async = is_async(watch, event);
    write_head(watch, event, async ? "b" : "X", event->begin_us);
    if (!async) {
        (void)fprintf(file, ", \"dur\": %.6f", event->end_us - event->begin_us);
    }
    (void)fprintf(file, ", \"args\": {\"epoch\": %" PRIu64, event->epoch);
    if (event->what != BATON_SIM_EPOCH) {
        (void)fprintf(file,
                      ", \"schedule\": \"%s\", \"node\": %" PRIu32
                      ", \"bytes\": %zu",
                      event->schedule, event->node, event->bytes);
    }
    (void)fputs("}}", file);
    if (async) {
        write_head(watch, event, "e", event->end_us);
        (void)fputc('}', file);
    }
    watch->traced++;
}

/* ---- the watch -------------------------------------------------------- */

void sim_watch_begin(sim_watch_t *watch, const sim_case_t *of, FILE *trace)
{
    *watch = (sim_watch_t){.of = of, .trace = trace};
    progress_init(&watch->progress, true, of->options->epochs);
    if (trace != NULL) {
        begin_trace(trace, of->ranks);
    }
}

void sim_watch_build(sim_watch_t *watch, int rank)
{
    if (rank % RANKS_PER_LOOK == 0) {
        progress_draw(&watch->progress, "%s: building rank %d of %d",
                      watch->of->name, rank + 1, watch->of->ranks);
    }
}

static void on_event(void *arg, const baton_sim_event_t *event)
{
    sim_watch_t *watch = arg;
    if (watch->trace != NULL) {
        trace_event(watch, event);
    }
    if (++watch->seen % EVENTS_PER_LOOK == 0) {
        progress_draw(&watch->progress,
                      "%s, %d ranks: epoch %" PRIu64 " of %" PRIu64
                      ", %.3f ms of virtual time",
                      watch->of->name, watch->of->ranks,
                      watch->progress.done + 1, watch->progress.planned,
                      event->end_us / 1e3);
    }
}

void sim_watch_attach(sim_watch_t *watch, baton_sim_t *sim)
{
    /* Restarts the estimate: epochs take their own time. */
    progress_init(&watch->progress, true, watch->of->options->epochs);
    if (watch->trace != NULL || watch->progress.shown) {
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
    if (watch->trace != NULL) {
        (void)fputs("\n]}\n", watch->trace);
    }
}
