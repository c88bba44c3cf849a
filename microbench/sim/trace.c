/* Times are printed in microseconds with six decimals, so that the same run
   gives the same bytes. */
#include "sim/trace.h"
#include <inttypes.h>

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

void sim_trace_begin(sim_trace_t *trace, FILE *file, int ranks, bool overlap)
{
    *trace = (sim_trace_t){.file = file, .overlap = overlap};
    if (file == NULL) {
        return;
    }
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
static bool is_async(const sim_trace_t *trace, const baton_sim_event_t *event)
{
    return trace->overlap &&
           (event->what == BATON_SIM_SEND || event->what == BATON_SIM_RECV);
}

static void write_head(const sim_trace_t *trace, const baton_sim_event_t *event,
                       const char *phase, double at_us)
{
    FILE *file = trace->file;
    (void)fprintf(file,
                  ",\n{\"ph\": \"%s\", \"pid\": %d, \"tid\": %d, \"ts\": %.6f, "
                  "\"name\": \"",
                  phase, event->rank, (int)event->what, at_us);
    write_name(file, event);
    (void)fputc('"', file);
    if (is_async(trace, event)) {
        (void)fprintf(file, ", \"cat\": \"%s\", \"id\": %" PRIu64,
                      row_name((int)event->what), trace->events);
    }
}

void sim_trace_event(sim_trace_t *trace, const baton_sim_event_t *event)
{
    FILE *file = trace->file;
    bool async = is_async(trace, event);
    write_head(trace, event, async ? "b" : "X", event->begin_us);
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
        write_head(trace, event, "e", event->end_us);
        (void)fputc('}', file);
    }
    trace->events++;
}

void sim_trace_end(sim_trace_t *trace)
{
    if (trace->file != NULL) {
        (void)fputs("\n]}\n", trace->file);
    }
}
