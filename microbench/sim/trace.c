/* Writes traces. Times are printed in microseconds with six decimals, so that
   equal runs give equal bytes. */
#include "sim/sim.h"
#include <inttypes.h>

static const char *const row_names[] = {
    [BATON_SIM_SEND] = "send port",
    [BATON_SIM_RECV] = "receive port",
    [BATON_SIM_REDUCE] = "processor",
    [BATON_SIM_EPOCH] = "epochs",
};

static void write_rows(FILE *file, int ranks)
{
    (void)fputs("{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n", file);
    for (int rank = 0; rank < ranks; rank++) {
        (void)fprintf(file,
                      "%s{\"ph\": \"M\", \"pid\": %d, \"name\": "
                      "\"process_name\", \"args\": {\"name\": \"rank %d\"}}",
                      rank > 0 ? ",\n" : "", rank, rank);
        for (int row = BATON_SIM_SEND; row <= BATON_SIM_EPOCH; row++) {
            (void)fprintf(file,
                          ",\n{\"ph\": \"M\", \"pid\": %d, \"tid\": %d, "
                          "\"name\": \"thread_name\", \"args\": {\"name\": "
                          "\"%s\"}}",
                          rank, row, row_names[row]);
        }
    }
}

static void trace_event(void *arg, const baton_sim_event_t *event)
{
    static const char *const names[] = {[BATON_SIM_SEND] = "to %d",
                                        [BATON_SIM_RECV] = "from %d",
                                        [BATON_SIM_REDUCE] = "reduce"};
    FILE *file = arg;
    (void)fprintf(file,
                  ",\n{\"ph\": \"X\", \"pid\": %d, \"tid\": %d, \"ts\": %.6f, "
                  "\"dur\": %.6f, \"name\": \"",
                  event->rank, (int)event->what, event->begin_us,
                  event->end_us - event->begin_us);
    if (event->what == BATON_SIM_EPOCH) {
        (void)fprintf(file, "%s %" PRIu64, event->schedule, event->epoch);
    } else {
        (void)fprintf(file, names[event->what], event->peer);
    }
    (void)fprintf(file, "\", \"args\": {\"epoch\": %" PRIu64, event->epoch);
    if (event->what != BATON_SIM_EPOCH) {
        (void)fprintf(file,
                      ", \"schedule\": \"%s\", \"node\": %" PRIu32
                      ", \"bytes\": %zu",
                      event->schedule, event->node, event->bytes);
    }
    (void)fputs("}}", file);
}

void sim_trace_begin(const sim_case_t *c)
{
    if (c->trace != NULL) {
        write_rows(c->trace, c->ranks);
        baton_sim_trace(c->sim, trace_event, c->trace);
    }
}

void sim_trace_end(const sim_case_t *c)
{
    if (c->trace != NULL) {
        baton_sim_trace(c->sim, NULL, NULL);
        (void)fputs("\n]}\n", c->trace);
    }
}
