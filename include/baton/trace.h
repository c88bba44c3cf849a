/* The trace: what this process has done last, and when: starts, epochs,
   messages, waits, sleeps, failures, and the application's own spans. Off
   unless asked for, by BATON_TRACE=FOLDER or baton_trace_start.

       baton_trace_start("/tmp/trace");
       for (int step = 0; step < STEPS; step++) {
           baton_trace_begin("compute");
           compute();
           baton_trace_end();
           baton_schedule_start(gradients);
           baton_schedule_wait(gradients, -1);
       }

   `python3 -m baton.trace FOLDER` says who waited for whom, or makes a timeline
   of all ranks (docs/observe.md).

   A process writes into one file, FOLDER/HOST.PID.trace (HOST.PID-2.trace if
   there is such a file), which it maps into its memory: a ring of the last
   BATON_TRACE_RECORDS records, so that its size never changes. The file can be
   read at any time, while the process runs, hangs, or after it was killed: what
   was recorded is in it. So nothing needs to be written when an epoch fails,
   and nothing is lost when a rank dies. FOLDER should be on a local file
   system, and is created if it does not exist; to look at ranks of several
   hosts, copy their files into one folder.

   Recording allocates nothing, and takes no lock, except once for each schedule
   and each name of a span. A process that is forked records nothing until it
   starts to do so, in a file of its own. Ranks that are threads of one process
   share its file. A simulator's ranks are not recorded. */
#ifndef BATON_TRACE_H
#define BATON_TRACE_H

#include <baton/baton.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Begins to record, or goes on after a stop. `folder`: NULL, or where the file
   lies; it is created by the first call in a process, or by the first engine
   that is opened with BATON_TRACE. A later call must name the same folder, by
   the same text, or NULL. Any thread may call this, at any time.
   BATON_ERR_INVALID: another folder, or none so far. BATON_ERR_SYSTEM: the file
   can't be created, or has no room; the message says why. */
BATON_CHECKED baton_status_t baton_trace_start(const char *folder);

/* Ends recording until the next start. The file stays as it is. */
void baton_trace_stop(void);

/* A span of the application: the calling thread begins and ends something, such
   as the computation of a step. Spans nest. `name` is copied, and cut off after
   47 bytes; there may be 255 different ones, and later ones count as "other".
   Does nothing unless this process records. */
void baton_trace_begin(const char *name);
void baton_trace_end(void);

/* ---- the file ------------------------------------------------------------ */

/* All numbers are in the byte order of the machine. The file is a
   baton_trace_head_t, then `schedules` of baton_trace_schedule_t, then `names`
   of baton_trace_name_t, then `records` of baton_trace_record_t. */
enum {
    BATON_TRACE_FORMAT = 1, /* changes with each change of the layout */
    BATON_TRACE_SCHEDULES = 4096,
    BATON_TRACE_NAMES = 256,
    BATON_TRACE_NAME = 48
};
#define BATON_TRACE_MAGIC 0x6563617274617462 /* "btatrace" */

typedef struct baton_trace_head {
    uint64_t magic;
    uint32_t format;
    uint32_t schedules, names, records; /* the lengths of the tables */
    int32_t process;                    /* its number, in its container */
    uint32_t reserved;
    /* The number of records so far: record i is at i % records. */
    uint64_t written;
    /* Both clocks when the file was created. Records have the first one's
       time, which on one host is the same for all processes. */
    uint64_t monotonic_ns, realtime_ns;
    char host[64];
    char boot[40]; /* the kernel's boot id: the same for the same clock */
    char pad[40];
} baton_trace_head_t;

/* A schedule that has recorded something; its number is its place in the table,
   from 1. A schedule that goes on after a recovery, and counts its epochs from
   1 again, has another one. If there are more, later ones are not recorded. */
typedef struct baton_trace_schedule {
    uint64_t key;     /* the same for the same schedule on all ranks; 0: free */
    uint64_t channel; /* of its group */
    int32_t rank, size;
    uint32_t incarnation; /* recoveries of the group when it was entered */
    uint32_t nodes;
    char name[64]; /* cut off if longer */
    char pad[32];
} baton_trace_schedule_t;

typedef struct baton_trace_name {
    char name[BATON_TRACE_NAME]; /* empty: free; the last is "other" */
} baton_trace_name_t;

typedef enum baton_trace_what {
    BATON_TRACE_NONE,     /* the record is being written */
    BATON_TRACE_START,    /* the application has started the epoch */
    BATON_TRACE_BEGIN,    /* the epoch begins on this rank, perhaps because a
                             peer has activated it */
    BATON_TRACE_COME,     /* this rank's part in it begins: it was started, and
                             the epoch before has ended */
    BATON_TRACE_SEND,     /* a message goes to `peer`; `value`: its bytes; 0 if
                             it is an activation */
    BATON_TRACE_SENT,     /* the transport has done with it; not recorded if
                             that was so at once */
    BATON_TRACE_RECEIVED, /* a message of `peer` is here; `value`: its bytes */
    BATON_TRACE_WORK,     /* a call, or a reduction or copy, or a part of a long
                             one, has ended that took `value` ns. Those below
                             4 KiB, and those of a device, are not recorded */
    BATON_TRACE_END,      /* the epoch has ended; `peer`: its status */
    BATON_TRACE_WAIT,     /* a wait, or a call that waits, has returned; it took
                             `value` ns; `peer`: its status */
    BATON_TRACE_SLEEP,    /* the thread has slept for `value` ns */
    BATON_TRACE_LOST,     /* `peer`, a rank of the schedule's group, is lost;
                             recorded for each schedule of the group */
    BATON_TRACE_SPAN,     /* the application begins a span; `value`: its name's
                             place in the table of names, from 0 */
    BATON_TRACE_SPAN_END  /* it ends the last span of the thread */
} baton_trace_what_t;

typedef struct baton_trace_record {
    uint64_t time_ns; /* CLOCK_MONOTONIC */
    uint64_t value;   /* see baton_trace_what_t; else 0 */
    /* the epoch's number, modulo 2^32; 0: the record is of no epoch */
    uint32_t epoch;
    uint32_t thread; /* the number of the thread that recorded it */
    uint32_t node;   /* of SEND, SENT, RECEIVED and WORK; else 0 */
    /* Of SEND, SENT and RECEIVED: the message's number among those from its
       sender to its receiver in an epoch. Activations have numbers of their
       own, with bit 31 set. 0 in all other records. */
    uint32_t tag;
    int32_t peer; /* a rank of the group, or a status; else -1 */
    /* the schedule's number; 0: the record is of no schedule */
    uint16_t schedule;
    uint8_t lap;  /* record i has (i / records) % 256 here: a reader sees
                     by it that a record is of an earlier lap */
    uint8_t what; /* baton_trace_what_t; written last */
} baton_trace_record_t;

#ifdef __cplusplus
}
#endif
#endif
