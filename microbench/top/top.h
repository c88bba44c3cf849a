/* baton-top: finds the ranks of a job on this host, and on others if asked,
   reads their counts of lateness (baton/lateness.h), and names the late
   ranks. */
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

/* The counts of a rank in a schedule. */
typedef struct top_entry {
    baton_board_entry_t of;
    /* The number of the rank's host. 0 is this host, and k the k-th of the
       other hosts. */
    int host;
    /* The least process number of the job's ranks on their host. It identifies
       the job. */
    int job;
} top_entry_t;

/* The counts of all ranks of a job, read at one time. */
typedef struct top_reading {
    top_entry_t *entries; /* to be freed by the caller */
    size_t count;
    /* The largest error of the offset of another host's clock. */
    uint64_t error_ns;
} top_reading_t;

/* Changes the size of an array, which may be NULL. If there is no memory, ends
   the program. */
void *top_resize(void *array, size_t count, size_t size);

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

/* Reads the counts of this host, and adds them to the reading. In names,
   characters that are not printable UTF-8 are replaced by '?'. In all
   entries of a process, the process has the rank that it has in the largest of
   its groups: in smaller groups it may have other ranks. */
void top_read(const top_job_t *job, top_reading_t *to);
void top_add_entry(top_reading_t *to, const top_entry_t *entry);

/* ---- hosts.c: several hosts ---------------------------------------------- */

typedef struct top_host top_host_t;

/* Serves the baton-top that has started this one: sends it the counts of all
   jobs of this host, until that program ends. Returns the exit status. */
int top_serve(void);

/* Starts a baton-top on each of the hosts in `names`, a list with commas, which
   the caller keeps. `via HOST COMMAND...` runs a command on a host, as ssh
   does. A host that does not reply is reported, and ignored from then on. */
top_host_t *top_hosts_open(char *names, const char *via, int *count_out);

/* Asks all hosts for their counts. */
void top_hosts_ask(top_host_t *hosts, int count);

/* Receives the counts of the other hosts, which were asked. Adds those of the
   job's ranks to the reading, with times by this host's clock. */
void top_hosts_read(top_host_t *hosts, int count, top_reading_t *to);

const char *top_hosts_name(const top_host_t *hosts, int number);

/* Compares ranks of several hosts. In `shown` each rank is compared with the
   ranks of its own host. For schedules with ranks on several hosts this
   replaces their lateness by a comparison of all ranks, in the last timed
   epochs of this reading and the one before, if there are enough of these. */
void top_hosts_compare(top_reading_t *shown, const top_reading_t *before);

/* ---- reports ------------------------------------------------------------ */

/* Returns whether two entries belong to the same process. */
bool top_same_process(const baton_board_entry_t *a,
                      const baton_board_entry_t *b);

/* Returns the entry of the same process and schedule, or NULL. */
const baton_board_entry_t *top_find(const top_reading_t *reading,
                                    const baton_board_entry_t *like);

/* Returns whether no earlier entry of the reading is of the same schedule. */
bool top_is_first(const top_reading_t *reading, size_t index);

/* Adds each count of `more`, multiplied by `times`. UINT64_MAX, which is -1,
   subtracts the counts. */
void top_add(baton_lateness_t *to, const baton_lateness_t *more,
             uint64_t times);

/* Returns a copy of a reading with only the counts since an earlier one. */
top_reading_t top_since(const top_reading_t *now, const top_reading_t *earlier);

typedef struct top_report {
    const top_job_t *job;
    const top_host_t *hosts; /* the other hosts, or NULL */
    /* The counts to report: those since the commits, or since the last
       report. */
    const top_reading_t *shown;
    /* An earlier reading. An epoch that runs in both is reported as hanging. */
    const top_reading_t *before;
    bool json;
    bool colours;
} top_report_t;

/* Prints a text as JSON and Prometheus quote it. */
void top_print_quoted(FILE *to, const char *text);

/* Prints the counts of a reading, as Prometheus text. */
void top_print_metrics(const top_reading_t *reading, FILE *to);

/* Prints a report on the standard output. */
void top_print(const top_report_t *report);
