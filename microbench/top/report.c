/* The report of baton-top: a row for each rank, the latest rank first, and
   sentences about each schedule. */
#include "top/top.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_SCHEDULES = 8,
    MOST_SENTENCES = 8,
    MOST_NAMED = 16,
    SENTENCE_BYTES = 512
};

/* A rank of the job, by its process. */
typedef struct rank_row {
    /* the process's entry in its largest group */
    const top_entry_t *entry;
    baton_lateness_t sum;
    /* The entry of a schedule in which the rank is waiting now, or NULL. */
    const baton_board_entry_t *busy;
    bool late;
} rank_row_t;

/* The ranks of a schedule. */
typedef struct top_schedule {
    const char *name;
    int count, late_count;
    /* The entries of the ranks that have the schedule. */
    const baton_board_entry_t **entries;
    int *late; /* indices of the late ranks in `entries` */
    /* The mean time from one epoch to the next, and the parts of it in which
       messages moved and in which a rank waited for late ones. All three are
       averages over the ranks that are not late. */
    double step_ns, transfer_ns, waited_ns;
    /* the time that these ranks have waited in all epochs; the report lists
       schedules in this order */
    double weight;
    char hang[SENTENCE_BYTES];
} top_schedule_t;

/* What a report says. */
typedef struct content {
    rank_row_t *rows;
    size_t row_count;
    top_schedule_t *schedules;
    size_t schedule_count;
    char sentences[MOST_SENTENCES][SENTENCE_BYTES];
    size_t sentence_count;
} content_t;

static double mean_ms(uint64_t ns, const baton_lateness_t *of)
{
    return of->timed > 0 ? 1e-6 * (double)ns / (double)of->timed : 0;
}

static double percent(uint64_t part, uint64_t all)
{
    return all > 0 ? 100 * (double)part / (double)all : 0;
}

/* ---- ranks --------------------------------------------------------------- */

static int by_lateness(const void *a, const void *b)
{
    const rank_row_t *x = a, *y = b;
    double late_x = mean_ms(x->sum.late_ns, &x->sum);
    double late_y = mean_ms(y->sum.late_ns, &y->sum);
    int by_rank = x->entry->of.rank - y->entry->of.rank;
    return late_x != late_y ? (late_x < late_y) - (late_x > late_y) : by_rank;
}

/* Returns the row of the entry's process. If it has none yet, adds it. */
static rank_row_t *find_row(content_t *content, const top_entry_t *entry)
{
    rank_row_t *row = content->rows;
    rank_row_t *end = row + content->row_count;
    while (row < end && !top_same_process(&row->entry->of, &entry->of)) {
        row++;
    }
    if (row == end) {
        *row = (rank_row_t){.entry = entry};
        content->row_count++;
    }
    return row;
}

static void find_ranks(const top_reading_t *reading, content_t *content)
{
    content->rows = top_resize(NULL, reading->count, sizeof *content->rows);
    for (size_t i = 0; i < reading->count; i++) {
        const top_entry_t *entry = &reading->entries[i];
        const baton_lateness_t *counts = &entry->of.lateness;
        rank_row_t *row = find_row(content, entry);
        if (entry->of.size > row->entry->of.size) {
            row->entry = entry;
        }
        top_add(&row->sum, counts, 1);
        if (counts->started > counts->ended) {
            row->busy = &entry->of;
        }
    }
}

static const char *hosts_of(const top_report_t *report)
{
    return report->hosts != NULL ? "these hosts" : "this host";
}

/* ---- schedules ----------------------------------------------------------- */

/* Writes schedule->hang if the schedule's last epoch hangs: some ranks wait in
   it, and no rank has started or ended an epoch between the two readings. If
   all ranks of the shown hosts have come to the epoch, it waits for a message,
   or for a rank of another host. */
static void find_hang(const top_report_t *report, top_schedule_t *schedule)
{
    uint64_t last = 0;
    /* The number of ranks that wait, [0], and of those that have not come, [1];
       `names` names the first of them. */
    int counts[2] = {0};
    char names[2][120] = {"", ""};
    for (int i = 0; i < schedule->count; i++) {
        const baton_lateness_t *now = &schedule->entries[i]->lateness;
        const baton_board_entry_t *old =
            top_find(report->before, schedule->entries[i]);
        if (old == NULL || old->lateness.started != now->started ||
            old->lateness.ended != now->ended) {
            return;
        }
        last = now->started > last ? now->started : last;
    }
    for (int i = 0; i < schedule->count; i++) {
        const baton_board_entry_t *entry = schedule->entries[i];
        const int absent = entry->lateness.started != last;
        char *name = names[absent];
        const size_t used = strlen(name);
        if (entry->lateness.ended < last && counts[absent]++ <= MOST_NAMED) {
            (void)snprintf(name + used, sizeof names[absent] - used,
                           counts[absent] <= MOST_NAMED ? " %d" : " ...",
                           entry->rank);
        }
    }
    if (counts[0] > 0 && counts[1] > 0) {
        (void)snprintf(schedule->hang, sizeof schedule->hang,
                       "epoch %llu of \"%s\": %d rank%s for rank%s%s, which "
                       "%s not come to it",
                       (unsigned long long)last, schedule->name, counts[0],
                       counts[0] > 1 ? "s wait" : " waits",
                       counts[1] > 1 ? "s" : "", names[1],
                       counts[1] > 1 ? "have" : "has");
    } else if (counts[0] > 0) {
        (void)snprintf(schedule->hang, sizeof schedule->hang,
                       "epoch %llu of \"%s\": rank%s%s wait%s, and all ranks "
                       "that have it on %s have come to it",
                       (unsigned long long)last, schedule->name,
                       counts[0] > 1 ? "s" : "", names[0],
                       counts[0] > 1 ? "" : "s", hosts_of(report));
    }
}

static bool comes_late(const top_schedule_t *schedule, int index)
{
    for (int i = 0; i < schedule->late_count; i++) {
        if (schedule->late[i] == index) {
            return true;
        }
    }
    return false;
}

/* Computes the mean time of a step and its parts, over the ranks that are not
   late. The transfer can't be measured directly. Two upper limits of it are
   known: the time that the fastest tenth of the epochs took without waiting,
   and the mean of that time. The lower one is taken. */
static void split_time(top_schedule_t *schedule)
{
    baton_lateness_t sum = {0};
    uint64_t untimed = 0;
    for (int i = 0; i < schedule->count; i++) {
        const baton_lateness_t *of = &schedule->entries[i]->lateness;
        untimed += of->missed;
        if (!comes_late(schedule, i)) {
            top_add(&sum, of, 1);
        }
    }
    if (sum.timed > 0 && sum.elapsed_epochs > 0) {
        /* The two counts are not read at the same moment, so an epoch may be in
           one of them alone, and the difference may be negative. */
        const double own_ns =
            fmax((double)sum.took_ns - (double)sum.waited_ns, 0) /
            (double)sum.timed;
        const double fast_ns =
            (double)baton_lateness_quantile_ns(sum.own_bins, 0.1);
        /* Epochs that a rank has missed take time, too, but are not timed. */
        const double timed = (double)sum.elapsed_epochs;
        const double all =
            untimed > 0 ? fmax((double)sum.epochs, timed) : timed;
        schedule->step_ns = (double)sum.elapsed_ns / all;
        schedule->transfer_ns = fast_ns < own_ns ? fast_ns : own_ns;
        sum.waited_ns = (uint64_t)((double)sum.waited_ns * timed / all);
        schedule->waited_ns = (double)sum.waited_ns / (double)sum.timed;
        schedule->weight = schedule->waited_ns * (double)sum.epochs;
    }
}

static int by_weight(const void *a, const void *b)
{
    const top_schedule_t *x = a, *y = b;
    return x->weight > y->weight ? -1 : x->weight < y->weight;
}

/* Finds the schedule's ranks, and those of them that are late. `first` is the
   index of the schedule's first entry in the reading. */
static void find_late(const top_reading_t *reading, size_t first,
                      top_schedule_t *out)
{
    const baton_board_entry_t *like = &reading->entries[first].of;
    const size_t most = reading->count - first;
    baton_lateness_t *counts = top_resize(NULL, most, sizeof *counts);
    *out = (top_schedule_t){.name = like->name,
                            .entries =
                                top_resize(NULL, most, sizeof *out->entries),
                            .late = top_resize(NULL, most, sizeof *out->late)};
    for (size_t i = first; i < reading->count; i++) {
        const baton_board_entry_t *entry = &reading->entries[i].of;
        if (entry->key == like->key) {
            counts[out->count] = entry->lateness;
            out->entries[out->count++] = entry;
        }
    }
    out->late_count = baton_lateness_find(counts, out->count, out->late);
    free(counts);
}

static void find_schedules(const top_report_t *report, content_t *content)
{
    const top_reading_t *reading = report->shown;
    content->schedules =
        top_resize(NULL, reading->count, sizeof *content->schedules);
    for (size_t i = 0; i < reading->count; i++) {
        if (top_is_first(reading, i)) {
            top_schedule_t *schedule =
                &content->schedules[content->schedule_count++];
            find_late(reading, i, schedule);
            split_time(schedule);
            find_hang(report, schedule);
        }
    }
    qsort(content->schedules, content->schedule_count,
          sizeof *content->schedules, by_weight);
}

/* ---- sentences ----------------------------------------------------------- */

/* Returns the percentage of epochs to which a rank came later than half of its
   mean lateness. The histogram's bins make this an estimate. */
static double share_late(const baton_lateness_t *of)
{
    const double half_us = 1e3 * mean_ms(of->late_ns, of) / 2;
    uint64_t late = 0;
    for (int bin = 0; bin < BATON_LATENESS_BINS; bin++) {
        late += ldexp(1, bin) > half_us ? of->late_bins[bin] : 0;
    }
    return percent(late * (of->epochs - of->missed), of->timed * of->epochs);
}

/* Writes "rank 5 is late by 4.8 ms in 97 % of epochs of ...", and the time that
   the other ranks lose by that. */
static void describe(const top_schedule_t *schedule, char *out)
{
    size_t used = 0;
    const bool many = schedule->late_count > 1;
    for (int i = 0; i < schedule->late_count && used <= SENTENCE_BYTES / 2;
         i++) {
        const baton_board_entry_t *entry = schedule->entries[schedule->late[i]];
        const baton_lateness_t *of = &entry->lateness;
        const char *next = i < schedule->late_count - 1 ? ", " : " and ";
        used += (size_t)snprintf(
            out + used, SENTENCE_BYTES - used,
            "%srank %d is late by %.3g ms in %.0f %% of epochs",
            i > 0 ? next : "", entry->rank, mean_ms(of->late_ns, of),
            share_late(of));
    }
    (void)snprintf(out + used, SENTENCE_BYTES - used,
                   " of \"%s\"; the others wait %.3g ms an epoch for %s, "
                   "%.0f %% of the time",
                   schedule->name, 1e-6 * schedule->waited_ns,
                   many ? "them" : "it",
                   100 * schedule->waited_ns / schedule->step_ns);
}

/* Stores the sentences about all schedules. */
static void write_sentences(content_t *content)
{
    size_t *count = &content->sentence_count;
    const top_schedule_t *end = content->schedules + content->schedule_count;
    for (const top_schedule_t *of = content->schedules;
         of < end && *count < MOST_SENTENCES; of++) {
        if (of->hang[0] != '\0') {
            memcpy(content->sentences[(*count)++], of->hang, SENTENCE_BYTES);
        }
    }
    for (const top_schedule_t *of = content->schedules;
         of < end && *count < MOST_SENTENCES; of++) {
        if (of->late_count > 0) {
            describe(of, content->sentences[(*count)++]);
        }
        for (int k = 0; k < of->count && *count < MOST_SENTENCES; k++) {
            const baton_lateness_t *counts = &of->entries[k]->lateness;
            if (2 * counts->missed > counts->epochs) {
                (void)snprintf(content->sentences[(*count)++], SENTENCE_BYTES,
                               "rank %d comes too late to %.0f %% of epochs of "
                               "\"%s\"",
                               of->entries[k]->rank,
                               percent(counts->missed, counts->epochs),
                               of->name);
            }
        }
    }
}

/* ---- output -------------------------------------------------------------- */

/* The part of a step that is neither transfer nor waiting, such as the
   application's computation. */
static double other_ns(const top_schedule_t *schedule)
{
    return fmax(schedule->step_ns - schedule->transfer_ns - schedule->waited_ns,
                0);
}

static void print_json_ranks(const top_report_t *report,
                             const content_t *content)
{
    for (size_t i = 0; i < content->row_count; i++) {
        const rank_row_t *row = &content->rows[i];
        const baton_lateness_t *of = &row->sum;
        (void)printf(
            "%s\n  {\"rank\": %d, \"process\": %d, \"late\": %s, "
            "\"epochs\": %llu, \"missed\": %llu, \"timed\": %llu, "
            "\"late_ms\": %.6f, \"last\": %.4f, \"behind_ms\": %.6f, "
            "\"waited_ms\": %.6f, \"epoch\": %llu, \"host\": ",
            i > 0 ? "," : "", row->entry->of.rank, row->entry->of.process,
            row->late ? "true" : "false", (unsigned long long)of->epochs,
            (unsigned long long)of->missed, (unsigned long long)of->timed,
            mean_ms(of->late_ns, of), 0.01 * percent(of->last, of->timed),
            mean_ms(of->behind_ns, of), mean_ms(of->waited_ns, of),
            row->busy != NULL ? (unsigned long long)row->busy->lateness.started
                              : 0);
        top_print_quoted(stdout,
                         top_hosts_name(report->hosts, row->entry->host));
        (void)fputs(", \"schedule\": ", stdout);
        top_print_quoted(stdout, row->busy != NULL ? row->busy->name : "");
        (void)putchar('}');
    }
}

static void print_json(const top_report_t *report, const content_t *content)
{
    (void)printf("{\"job\": %d, \"ranks\": [", report->job->process);
    print_json_ranks(report, content);
    (void)fputs("],\n \"schedules\": [", stdout);
    for (size_t i = 0; i < content->schedule_count; i++) {
        const top_schedule_t *of = &content->schedules[i];
        (void)printf("%s\n  {\"schedule\": ", i > 0 ? "," : "");
        top_print_quoted(stdout, of->name);
        (void)printf(", \"step_ms\": %.6f, \"transfer_ms\": %.6f, "
                     "\"skew_ms\": %.6f, \"other_ms\": %.6f}",
                     1e-6 * of->step_ns, 1e-6 * of->transfer_ns,
                     1e-6 * of->waited_ns, 1e-6 * other_ns(of));
    }
    (void)fputs("],\n \"verdict\": [", stdout);
    for (size_t i = 0; i < content->sentence_count; i++) {
        (void)fputs(i > 0 ? ", " : "", stdout);
        top_print_quoted(stdout, content->sentences[i]);
    }
    (void)printf("], \"clock_error_ms\": %.6f}\n",
                 1e-6 * (double)report->shown->error_ns);
}

/* Returns the bytes of the whole characters among the first `most` bytes. */
static int whole_characters(const char *name, int most)
{
    int bytes = (int)strnlen(name, (size_t)most);
    while (((unsigned char)name[bytes] & 0xc0) == 0x80) {
        bytes--;
    }
    return bytes;
}

static void print_ranks(const top_report_t *report, const content_t *content)
{
    (void)printf("job of process %d: %zu ranks on %s\n\n"
                 "%6s %8s %10s %9s %9s %7s %10s %10s  %s%s\n",
                 report->job->process, content->row_count, hosts_of(report),
                 "rank", "process", "epochs", "missed", "late ms", "last %",
                 "behind ms", "waits ms",
                 report->hosts != NULL ? "host        " : "", "is in");
    for (size_t i = 0; i < content->row_count; i++) {
        const rank_row_t *row = &content->rows[i];
        const baton_lateness_t *of = &row->sum;
        bool red = row->late && report->colours;
        (void)printf("%s%6d %8d %10llu %9llu %9.3f %7.1f %10.3f %10.3f",
                     red ? "\033[31m" : "", row->entry->of.rank,
                     row->entry->of.process, (unsigned long long)of->epochs,
                     (unsigned long long)of->missed, mean_ms(of->late_ns, of),
                     percent(of->last, of->timed), mean_ms(of->behind_ns, of),
                     mean_ms(of->waited_ns, of));
        if (report->hosts != NULL) {
            (void)printf(row->busy != NULL ? "  %-10s" : "  %s",
                         top_hosts_name(report->hosts, row->entry->host));
        }
        if (row->busy != NULL) {
            (void)printf("  epoch %llu of \"%.*s\"",
                         (unsigned long long)row->busy->lateness.started,
                         whole_characters(row->busy->name, 20),
                         row->busy->name);
        }
        (void)printf("%s\n", red ? "\033[0m" : "");
    }
}

static void print_text(const top_report_t *report, const content_t *content)
{
    print_ranks(report, content);
    /* The schedules that cost the most waiting. */
    (void)printf("\n%12s %12s %10s %10s  %s\n", "step ms", "transfer ms",
                 "skew ms", "other ms", "schedule");
    for (size_t i = 0; i < content->schedule_count && i < MOST_SCHEDULES; i++) {
        const top_schedule_t *of = &content->schedules[i];
        (void)printf("%12.3f %12.3f %10.3f %10.3f  \"%.*s\"\n",
                     1e-6 * of->step_ns, 1e-6 * of->transfer_ns,
                     1e-6 * of->waited_ns, 1e-6 * other_ns(of),
                     whole_characters(of->name, 30), of->name);
    }
    (void)putchar('\n');
    for (size_t i = 0; i < content->sentence_count; i++) {
        (void)puts(content->sentences[i]);
    }
    if (content->row_count == 0) {
        (void)puts("no rank has committed a schedule");
    } else if (content->sentence_count == 0) {
        (void)puts("no rank is late");
    }
    if (report->hosts != NULL) {
        (void)printf("differences that the hosts' clocks could explain "
                     "(up to %.3f ms) do not count as lateness\n",
                     1e-6 * (double)report->shown->error_ns);
    }
}

/* Marks the rows of the ranks that come late to a schedule. */
static void mark_late(content_t *content, const top_schedule_t *schedule)
{
    for (int k = 0; k < schedule->late_count; k++) {
        for (size_t i = 0; i < content->row_count; i++) {
            content->rows[i].late |=
                top_same_process(&content->rows[i].entry->of,
                                 schedule->entries[schedule->late[k]]);
        }
    }
}

void top_print(const top_report_t *report)
{
    content_t content = {.rows = NULL};
    find_ranks(report->shown, &content);
    find_schedules(report, &content);
    for (size_t i = 0; i < content.schedule_count; i++) {
        mark_late(&content, &content.schedules[i]);
    }
    qsort(content.rows, content.row_count, sizeof *content.rows, by_lateness);
    write_sentences(&content);
    (report->json ? print_json : print_text)(report, &content);
    for (size_t i = 0; i < content.schedule_count; i++) {
        free(content.schedules[i].entries);
        free(content.schedules[i].late);
    }
    free(content.schedules);
    free(content.rows);
}
