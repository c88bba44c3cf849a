/* The export of baton-top: the counts of baton/lateness.h in the text format of
   Prometheus, version 0.0.4. The histograms are left out, since they would make
   some fifty series of each rank and schedule. */
#include "top/top.h"

#include <string.h>

typedef enum unit { UNIT_COUNT, UNIT_SECONDS, UNIT_GAUGE } unit_t;

static const struct metric {
    const char *name;
    unit_t unit;
    size_t offset; /* offset of the count in baton_lateness_t */
    const char *help;
} metrics[] = {
#define COUNT(name, unit, field, help)                                         \
    {                                                                          \
        (name), UNIT_##unit, offsetof(baton_lateness_t, field), (help)         \
    }
    COUNT("epochs_total", COUNT, epochs, "Epochs that have ended."),
    COUNT("failed_epochs_total", COUNT, failed, "Epochs that have failed."),
    COUNT("missed_epochs_total", COUNT, missed,
          "Epochs that had ended before the rank came."),
    COUNT("started_epoch", GAUGE, started,
          "The last epoch that the rank has come to."),
    COUNT("ended_epoch", GAUGE, ended, "The last epoch that has ended."),
    COUNT("sent_bytes_total", COUNT, bytes, "Bytes that the rank has sent."),
    COUNT("timed_epochs_total", COUNT, timed,
          "Epochs that were timed; the times below are sums over these."),
    COUNT("took_seconds_total", SECONDS, took_ns,
          "From the rank's coming to its end of the epoch."),
    COUNT("late_seconds_total", SECONDS, late_ns,
          "How long after the first rank this one came."),
    COUNT("last_epochs_total", COUNT, last,
          "Timed epochs that the rank came last to."),
    COUNT("behind_seconds_total", SECONDS, behind_ns,
          "In these, how long after the last but one the rank came."),
    COUNT("waited_seconds_total", SECONDS, waited_ns,
          "How long the rank waited for the last one."),
    COUNT("elapsed_seconds_total", SECONDS, elapsed_ns,
          "From the end of the first timed epoch to that of the last."),
    COUNT("elapsed_epochs_total", COUNT, elapsed_epochs,
          "All epochs in the elapsed time."),
#undef COUNT
};

void top_print_quoted(FILE *to, const char *text)
{
    (void)fputc('"', to);
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\') {
            (void)fputc('\\', to);
        }
        (void)fputc(*c, to);
    }
    (void)fputc('"', to);
}

static void print_sample(const struct metric *metric, const top_entry_t *sample,
                         FILE *to)
{
    const baton_board_entry_t *entry = &sample->of;
    uint64_t count;
    memcpy(&count, (const char *)&entry->lateness + metric->offset,
           sizeof count);
    (void)fprintf(to, "baton_%s{job_process=\"%d\",schedule=", metric->name,
                  sample->job);
    top_print_quoted(to, entry->name);
    /* Schedules may have the same name, and processes of containers the same
       number: a series needs labels of its own. */
    (void)fprintf(to,
                  ",key=\"%llx\",rank=\"%d\",ranks=\"%d\",process=\"%d\","
                  "container=\"%u\"} ",
                  (unsigned long long)entry->key, entry->rank, entry->size,
                  entry->process, entry->container);
    if (metric->unit == UNIT_SECONDS) {
        (void)fprintf(to, "%llu.%09llu\n",
                      (unsigned long long)(count / 1000000000),
                      (unsigned long long)(count % 1000000000));
    } else {
        (void)fprintf(to, "%llu\n", (unsigned long long)count);
    }
}

void top_print_metrics(const top_reading_t *reading, FILE *to)
{
    for (size_t m = 0; m < sizeof metrics / sizeof metrics[0]; m++) {
        const struct metric *metric = &metrics[m];
        (void)fprintf(to, "# HELP baton_%s %s\n# TYPE baton_%s %s\n",
                      metric->name, metric->help, metric->name,
                      metric->unit == UNIT_GAUGE ? "gauge" : "counter");
        for (size_t i = 0; i < reading->count; i++) {
            print_sample(metric, &reading->entries[i], to);
        }
    }
}
