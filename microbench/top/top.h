/* baton-top: finds the ranks of a job on this host, reads what they count
   (baton/lateness.h), and says who is late. */
#ifndef MICROBENCH_TOP_H
#define MICROBENCH_TOP_H

#include <baton/lateness.h>
#include <stdio.h>

/* A job: the boards of one of its processes, the first that was found. */
typedef struct top_job {
    int process;
    baton_board_t **boards;
    int count;
} top_job_t;

/* What all ranks of a job had counted at one time. */
typedef struct top_reading {
    baton_board_entry_t *entries;
    size_t count;
} top_reading_t;

/* Opens the boards of a process. BATON_ERR_INVALID: it has none. */
baton_status_t top_job_open(int process, top_job_t *out);
void top_job_close(top_job_t *job);

/* Opens all jobs of this host that this user may look at. Returns their number.
   The caller closes the jobs and frees the array. */
int top_job_list(top_job_t **out);

/* Returns false if all processes of the job on this host have ended. If only
   the one has whose boards are open, opens those of another one instead. */
bool top_job_follow(top_job_t *job);

/* Replaces in names what is not a printable character of UTF-8 by '?'. */
void top_read(const top_job_t *job, top_reading_t *out);

/* Returns whether two entries are of the same process. */
bool top_same_process(const baton_board_entry_t *a,
                      const baton_board_entry_t *b);

/* Subtracts from a reading an earlier one. */
void top_subtract(top_reading_t *from, const top_reading_t *earlier);

typedef struct top_report {
    const top_job_t *job;
    /* What to report: counts since the commits, or since the last report. */
    const top_reading_t *shown;
    /* Two readings, some time apart: what has not moved in between hangs. */
    const top_reading_t *before, *now;
    bool json;
    bool colours;
} top_report_t;

/* Prints the counts of some jobs since the commits, as Prometheus text. */
void top_print_metrics(const top_reading_t *jobs, int count, FILE *to);

void top_print(const top_report_t *report, FILE *to);

#endif
