/* baton-top: finds the ranks of a job on this host, reads their counts of
   lateness (baton/lateness.h), and names the late ranks. */
#pragma once

#include <baton/lateness.h>
#include <stdio.h>

/* A job, as one of its processes on this host shows it. `boards` has the boards
   of that process, one for each of its groups; they show the counts of all
   ranks of the host. */
typedef struct top_job {
    int process;
    baton_board_t **boards;
    int count;
} top_job_t;

/* The counts of all ranks of a job on this host, read at one time: an entry for
   each rank and schedule. */
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

/* Keeps the job open while one of its processes lives. If the process whose
   boards are open has ended, opens the boards of another process of the job.
   Returns false if no process of the job on this host lives. */
bool top_job_follow(top_job_t *job);

/* Reads the counts. In names, characters that are not printable UTF-8 are
   replaced by '?'. All entries of a process get its number in the largest of
   its groups, by which it is known in the job: in a group of some of the ranks
   it has another one. */
void top_read(const top_job_t *job, top_reading_t *out);

/* Returns whether two entries are of the same process. */
bool top_same_process(const baton_board_entry_t *a,
                      const baton_board_entry_t *b);

/* Returns the counts of the same process and schedule, or NULL. */
const baton_lateness_t *top_find(const top_reading_t *reading,
                                 const baton_board_entry_t *like);

/* Adds each count of `more`, `times` times; UINT64_MAX times subtracts it. */
void top_add(baton_lateness_t *to, const baton_lateness_t *more,
             uint64_t times);

/* Subtracts an earlier reading, so that the counts are those of the time since
   then. */
void top_subtract(top_reading_t *from, const top_reading_t *earlier);

typedef struct top_report {
    const top_job_t *job;
    /* The counts to report: those since the commits, or since the last
       report. */
    const top_reading_t *shown;
    /* Two readings, some time apart. An epoch that runs in both is reported as
       hanging. */
    const top_reading_t *before, *now;
    bool json;
    bool colours;
} top_report_t;

/* Prints a text as JSON and Prometheus quote it. */
void top_print_quoted(FILE *to, const char *text);

/* Prints the counts of some jobs since the commits, as Prometheus text. */
void top_print_metrics(const top_reading_t *jobs, int count, FILE *to);

void top_print(const top_report_t *report, FILE *to);
