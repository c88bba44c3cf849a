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
    const baton_board_entry_t *entry;
    baton_lateness_t sum;
    /* The entry of a schedule in which the rank is waiting now, or NULL. */
    const baton_board_entry_t *busy;
    bool late;
} rank_row_t;

/* The ranks of a schedule. */
typedef struct top_schedule {
    const char *name;
    int count, late_count;
    /* The entries of the ranks that have the schedule, and their counts of
       lateness. */
    const baton_board_entry_t **entries;
    baton_lateness_t *of;
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

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count > 0 ? count : 1, size);
    if (memory == NULL) {
        (void)fputs("baton-top: no memory\n", stderr);
        exit(EXIT_FAILURE);
    }
    return memory;
}

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
    return late_x > late_y   ? -1
           : late_x < late_y ? 1
                             : x->entry->rank - y->entry->rank;
}

static rank_row_t *find_ranks(const top_reading_t *reading, size_t *count_out)
{
    rank_row_t *rows = allocate(reading->count, sizeof *rows);
    size_t count = 0;
    for (size_t i = 0; i < reading->count; i++) {
        const baton_board_entry_t *entry = &reading->entries[i];
        size_t at = 0;
        while (at < count && !top_same_process(rows[at].entry, entry)) {
            at++;
        }
        count += at == count;
        rank_row_t *row = &rows[at];
        if (row->entry == NULL || entry->size > row->entry->size) {
            row->entry = entry;
        }
        top_add(&row->sum, &entry->lateness, 1);
        if (entry->lateness.started > entry->lateness.ended) {
            row->busy = entry;
        }
    }
    *count_out = count;
    return rows;
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
static void find_hang(const top_report_t *report, uint64_t key,
                      top_schedule_t *schedule)
{
    uint64_t last = 0;
    bool moved = false;
    /* The number of ranks that wait, [0], and of those that have not come, [1];
       `names` names the first of them. */
    int counts[2] = {0};
    char names[2][120] = {"", ""};
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < report->now->count; i++) {
            const baton_board_entry_t *entry = &report->now->entries[i];
            const baton_lateness_t *of = &entry->lateness;
            const baton_board_entry_t *old = top_find(report->before, entry);
            if (entry->key != key) {
                continue;
            }
            if (pass == 0) {
                last = of->started > last ? of->started : last;
                moved |= old == NULL || old->lateness.started != of->started ||
                         old->lateness.ended != of->ended;
            } else if (of->ended < last) {
                const int absent = of->started != last;
                const size_t used = strlen(names[absent]);
                if (counts[absent]++ <= MOST_NAMED) {
                    (void)snprintf(
                        names[absent] + used, sizeof names[absent] - used,
                        counts[absent] <= MOST_NAMED ? " %d" : " ...",
                        entry->rank);
                }
            }
        }
    }
    if (!moved && counts[0] > 0 && counts[1] > 0) {
        (void)snprintf(schedule->hang, sizeof schedule->hang,
                       "epoch %llu of \"%s\": %d rank%s for rank%s%s, which "
                       "%s not come to it",
                       (unsigned long long)last, schedule->name, counts[0],
                       counts[0] > 1 ? "s wait" : " waits",
                       counts[1] > 1 ? "s" : "", names[1],
                       counts[1] > 1 ? "have" : "has");
    } else if (!moved && counts[0] > 0) {
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
    uint64_t missed = 0;
    for (int i = 0; i < schedule->count; i++) {
        missed += schedule->of[i].missed;
        if (!comes_late(schedule, i)) {
            top_add(&sum, &schedule->of[i], 1);
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
        const double all = missed > 0 ? fmax((double)sum.epochs, timed) : timed;
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

static top_schedule_t *find_schedules(const top_report_t *report,
                                      size_t *count_out)
{
    const top_reading_t *reading = report->shown;
    top_schedule_t *all = allocate(reading->count, sizeof *all);
    size_t count = 0;
    for (size_t i = 0; i < reading->count; i++) {
        const baton_board_entry_t *first = &reading->entries[i];
        bool known = false;
        for (size_t k = 0; k < i && !known; k++) {
            known = reading->entries[k].key == first->key;
        }
        if (known) {
            continue;
        }
        top_schedule_t *schedule = &all[count++];
        schedule->name = first->name;
        schedule->entries = allocate(reading->count, sizeof *schedule->entries);
        schedule->late = allocate(reading->count, sizeof *schedule->late);
        schedule->of = allocate(reading->count, sizeof *schedule->of);
        for (size_t k = i; k < reading->count; k++) {
            if (reading->entries[k].key == first->key) {
                schedule->entries[schedule->count] = &reading->entries[k];
                schedule->of[schedule->count++] = reading->entries[k].lateness;
            }
        }
        schedule->late_count =
            baton_lateness_find(schedule->of, schedule->count, schedule->late);
        split_time(schedule);
        find_hang(report, first->key, schedule);
    }
    qsort(all, count, sizeof *all, by_weight);
    *count_out = count;
    return all;
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
    for (int i = 0; i < schedule->late_count; i++) {
        const int index = schedule->late[i];
        const baton_lateness_t *of = &schedule->of[index];
        used += (size_t)snprintf(
            out + used, SENTENCE_BYTES - used,
            "%srank %d is late by %.3g ms in %.0f %% of epochs",
            i == 0                          ? ""
            : i == schedule->late_count - 1 ? " and "
                                            : ", ",
            schedule->entries[index]->rank, mean_ms(of->late_ns, of),
            share_late(of));
        if (used > SENTENCE_BYTES / 2) {
            break;
        }
    }
    (void)snprintf(out + used, SENTENCE_BYTES - used,
                   " of \"%s\"; the others wait %.3g ms an epoch for %s, "
                   "%.0f %% of the time",
                   schedule->name, 1e-6 * schedule->waited_ns,
                   many ? "them" : "it",
                   100 * schedule->waited_ns / schedule->step_ns);
}

/* Stores the sentences about all schedules, and returns their number. */
static size_t write_sentences(const top_schedule_t *all, size_t count,
                              char (*out)[SENTENCE_BYTES])
{
    size_t lines = 0;
    for (size_t i = 0; i < count && lines < MOST_SENTENCES; i++) {
        if (all[i].hang[0] != '\0') {
            memcpy(out[lines++], all[i].hang, SENTENCE_BYTES);
        }
    }
    for (size_t i = 0; i < count && lines < MOST_SENTENCES; i++) {
        if (all[i].late_count > 0) {
            describe(&all[i], out[lines++]);
        }
        for (int k = 0; k < all[i].count && lines < MOST_SENTENCES; k++) {
            const baton_lateness_t *of = &all[i].of[k];
            if (2 * of->missed > of->epochs) {
                (void)snprintf(out[lines++], SENTENCE_BYTES,
                               "rank %d comes too late to %.0f %% of epochs of "
                               "\"%s\"",
                               all[i].entries[k]->rank,
                               percent(of->missed, of->epochs), all[i].name);
            }
        }
    }
    return lines;
}

/* ---- output -------------------------------------------------------------- */

static const char *row_host(const top_report_t *report, const rank_row_t *row)
{
    const top_reading_t *shown = report->shown;
    return top_hosts_name(report->hosts,
                          shown->hosts[row->entry - shown->entries]);
}

/* The part of a step that is neither transfer nor waiting, such as the
   application's computation. */
static double other_ns(const top_schedule_t *schedule)
{
    return fmax(schedule->step_ns - schedule->transfer_ns - schedule->waited_ns,
                0);
}

static void print_json_schedules(const top_schedule_t *all, size_t count,
                                 FILE *to)
{
    (void)fputs("],\n \"schedules\": [", to);
    for (size_t i = 0; i < count; i++) {
        (void)fprintf(to, "%s\n  {\"schedule\": ", i > 0 ? "," : "");
        top_print_quoted(to, all[i].name);
        (void)fprintf(to,
                      ", \"step_ms\": %.6f, \"transfer_ms\": %.6f, "
                      "\"skew_ms\": %.6f, \"other_ms\": %.6f}",
                      1e-6 * all[i].step_ns, 1e-6 * all[i].transfer_ns,
                      1e-6 * all[i].waited_ns, 1e-6 * other_ns(&all[i]));
    }
}

static void print_json(const top_report_t *report, const rank_row_t *rows,
                       size_t count, const top_schedule_t *all,
                       size_t all_count, char (*lines)[SENTENCE_BYTES],
                       size_t line_count, FILE *to)
{
    const char *comma = "";
    (void)fprintf(to, "{\"job\": %d, \"ranks\": [", report->job->process);
    for (size_t i = 0; i < count; i++) {
        const rank_row_t *row = &rows[i];
        const baton_lateness_t *of = &row->sum;
        (void)fprintf(
            to,
            "%s\n  {\"rank\": %d, \"process\": %d, \"late\": %s, "
            "\"epochs\": %llu, \"missed\": %llu, \"timed\": %llu, "
            "\"late_ms\": %.6f, \"last\": %.4f, \"behind_ms\": %.6f, "
            "\"waited_ms\": %.6f, \"epoch\": %llu, \"host\": ",
            i > 0 ? "," : "", row->entry->rank, row->entry->process,
            row->late ? "true" : "false", (unsigned long long)of->epochs,
            (unsigned long long)of->missed, (unsigned long long)of->timed,
            mean_ms(of->late_ns, of), 0.01 * percent(of->last, of->timed),
            mean_ms(of->behind_ns, of), mean_ms(of->waited_ns, of),
            row->busy != NULL ? (unsigned long long)row->busy->lateness.started
                              : 0);
        top_print_quoted(to, row_host(report, row));
        (void)fputs(", \"schedule\": ", to);
        top_print_quoted(to, row->busy != NULL ? row->busy->name : "");
        (void)fputc('}', to);
    }
    print_json_schedules(all, all_count, to);
    (void)fputs("],\n \"verdict\": [", to);
    for (size_t i = 0; i < line_count; i++, comma = ", ") {
        (void)fputs(comma, to);
        top_print_quoted(to, lines[i]);
    }
    (void)fprintf(to, "], \"clock_error_ms\": %.6f}\n",
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

static void top_print_table(const top_report_t *report, const rank_row_t *rows,
                            size_t count, FILE *to)
{
    (void)fprintf(to,
                  "job of process %d: %zu ranks on %s\n\n"
                  "%6s %8s %10s %9s %9s %7s %10s %10s  %s%s\n",
                  report->job->process, count, hosts_of(report), "rank",
                  "process", "epochs", "missed", "late ms", "last %",
                  "behind ms", "waits ms",
                  report->hosts != NULL ? "host        " : "", "is in");
    for (size_t i = 0; i < count; i++) {
        const rank_row_t *row = &rows[i];
        const baton_lateness_t *of = &row->sum;
        bool red = row->late && report->colours;
        (void)fprintf(to, "%s%6d %8d %10llu %9llu %9.3f %7.1f %10.3f %10.3f",
                      red ? "\033[31m" : "", row->entry->rank,
                      row->entry->process, (unsigned long long)of->epochs,
                      (unsigned long long)of->missed, mean_ms(of->late_ns, of),
                      percent(of->last, of->timed), mean_ms(of->behind_ns, of),
                      mean_ms(of->waited_ns, of));
        if (report->hosts != NULL) {
            (void)fprintf(to, row->busy != NULL ? "  %-10s" : "  %s",
                          row_host(report, row));
        }
        if (row->busy != NULL) {
            (void)fprintf(to, "  epoch %llu of \"%.*s\"",
                          (unsigned long long)row->busy->lateness.started,
                          whole_characters(row->busy->name, 20),
                          row->busy->name);
        }
        (void)fprintf(to, "%s\n", red ? "\033[0m" : "");
    }
    (void)fputc('\n', to);
}

/* The schedules that cost the most waiting. */
static void print_schedules(const top_schedule_t *all, size_t count, FILE *to)
{
    (void)fprintf(to, "%12s %12s %10s %10s  %s\n", "step ms", "transfer ms",
                  "skew ms", "other ms", "schedule");
    for (size_t i = 0; i < count && i < MOST_SCHEDULES; i++) {
        (void)fprintf(to, "%12.3f %12.3f %10.3f %10.3f  \"%.*s\"\n",
                      1e-6 * all[i].step_ns, 1e-6 * all[i].transfer_ns,
                      1e-6 * all[i].waited_ns, 1e-6 * other_ns(&all[i]),
                      whole_characters(all[i].name, 30), all[i].name);
    }
    (void)fputc('\n', to);
}

void top_print(const top_report_t *report, FILE *to)
{
    size_t row_count;
    size_t count;
    char lines[MOST_SENTENCES][SENTENCE_BYTES];
    rank_row_t *rows = find_ranks(report->shown, &row_count);
    top_schedule_t *all = find_schedules(report, &count);
    for (size_t i = 0; i < count; i++) {
        for (int k = 0; k < all[i].late_count; k++) {
            for (size_t r = 0; r < row_count; r++) {
                rows[r].late |= top_same_process(
                    rows[r].entry, all[i].entries[all[i].late[k]]);
            }
        }
    }
    qsort(rows, row_count, sizeof *rows, by_lateness);
    size_t line_count = write_sentences(all, count, lines);
    if (report->json) {
        print_json(report, rows, row_count, all, count, lines, line_count, to);
    } else {
        top_print_table(report, rows, row_count, to);
        print_schedules(all, count, to);
        for (size_t i = 0; i < line_count; i++) {
            (void)fprintf(to, "%s\n", lines[i]);
        }
        (void)fputs(line_count > 0  ? ""
                    : row_count > 0 ? "no rank is late\n"
                                    : "no rank has committed a schedule\n",
                    to);
        if (report->hosts != NULL) {
            (void)fprintf(to,
                          "differences that the hosts' clocks could explain "
                          "(up to %.3f ms) do not count as lateness\n",
                          1e-6 * (double)report->shown->error_ns);
        }
    }
    for (size_t i = 0; i < count; i++) {
        free(all[i].entries);
        free(all[i].late);
        free(all[i].of);
    }
    free(all);
    free(rows);
}
