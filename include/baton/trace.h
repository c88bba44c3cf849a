/* The trace: what this process has done last, and when: starts, epochs,
   messages, waits, sleeps, failures, and the application's own spans. The trace
   is off unless the variable BATON_TRACE=FOLDER or baton_trace_start turns it
   on.

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

/* Begins to record, or goes on after a stop. The first call in a process
   creates the file in `folder`, unless an engine that was opened with
   BATON_TRACE has created it. A later call must name the same folder, by the
   same text, or pass NULL. Any thread may call this, at any time.
   BATON_ERR_INVALID: `folder` is not that of the file, or is NULL and there is
   no file yet. BATON_ERR_SYSTEM: the file can't be created, or has no room; the
   message says why. */
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
    /* Changes with each change of the layout, or of the meaning. Format 1 was
       the same without BATON_TRACE_STARTED. */
    BATON_TRACE_FORMAT = 2,
    BATON_TRACE_SCHEDULES = 4096,
    BATON_TRACE_NAMES = 256,
    BATON_TRACE_NAME = 48
};
#define BATON_TRACE_MAGIC 0x6563617274617462 /* "btatrace" */

typedef struct baton_trace_head {
    uint64_t magic;
    uint32_t format;
    /* the numbers of entries of the three tables */
    uint32_t schedules, names, records;
    /* The process's number, as the process itself sees it: in a container this
       is its number in the container. */
    int32_t process;
    uint32_t reserved;
    /* The number of records that were made so far. Record i is at index i %
       records. */
    uint64_t written;
    /* The values of CLOCK_MONOTONIC and CLOCK_REALTIME when the file was
       created. Records have times of CLOCK_MONOTONIC, which all processes of a
       host share. */
    uint64_t monotonic_ns, realtime_ns;
    char host[64];
    /* the kernel's boot id; files with equal ids have times of the same
       clock */
    char boot[40];
    char pad[40];
} baton_trace_head_t;

/* A schedule of which something was recorded. Its number is its place in the
   table, counted from 1. After a recovery a schedule counts its epochs from 1
   again, and gets another entry. If the table is full, further schedules are
   not recorded. */
typedef struct baton_trace_schedule {
    /* Identifies the schedule: the same on all ranks. Schedules of other groups
       have other keys, unless ranks are threads of one process. 0: the entry is
       free. */
    uint64_t key;
    /* The number of the schedule's group among groups that were made of one
       group; 0: the group was made of no other. */
    uint64_t channel;
    int32_t rank, size;
    /* number of recoveries of the group before the entry was made */
    uint32_t incarnation;
    uint32_t nodes;
    char name[64]; /* the schedule's name, cut off if it is longer */
    char pad[32];
} baton_trace_schedule_t;

typedef struct baton_trace_name {
    /* empty: the entry is free; the last entry is "other" */
    char name[BATON_TRACE_NAME];
} baton_trace_name_t;

typedef enum baton_trace_what {
    BATON_TRACE_NONE,  /* the record is being written */
    BATON_TRACE_START, /* the application has started the epoch */
    BATON_TRACE_BEGIN, /* the epoch begins on this rank, perhaps because a
                          peer has activated it */
    /* this rank's part in the epoch begins: the application has started it, and
       the epoch before has ended */
    BATON_TRACE_COME,
    BATON_TRACE_SEND, /* a message goes to `peer`; `value`: its bytes; 0 if
                         it is an activation */
    /* the send is complete; not recorded if it was complete at once */
    BATON_TRACE_SENT,
    /* the receive of a message from `peer` is complete; `value`: its bytes */
    BATON_TRACE_RECEIVED,
    /* a call, a reduction or a copy, or a part of a long one, has ended; it
       took `value` ns. Not recorded: reductions and copies of less than 4 KiB,
       and work of a device */
    BATON_TRACE_WORK,
    BATON_TRACE_END,      /* the epoch has ended; `peer`: its status */
    BATON_TRACE_WAIT,     /* a wait, or a call that waits, has returned; it took
                             `value` ns; `peer`: its status */
    BATON_TRACE_SLEEP,    /* the thread has slept for `value` ns */
    BATON_TRACE_LOST,     /* `peer`, a rank of the schedule's group, is lost;
                             recorded for each schedule of the group */
    BATON_TRACE_SPAN,     /* the application begins a span; `value`: its name's
                             place in the table of names, from 0 */
    BATON_TRACE_SPAN_END, /* the application ends the thread's innermost span */
    BATON_TRACE_STARTED   /* START, BEGIN and COME at the same time */
} baton_trace_what_t;

typedef struct baton_trace_record {
    /* The time by CLOCK_MONOTONIC. If the kernel computes it from a counter of
       the processor that is quicker to read (clock source tsc or
       arch_sys_counter), most times are computed from that, too. Of 12 million,
       half differed from the clock's by at most 16 ns, and all by at most 0.13
       us; while the kernel changes the clock's rate, 2^20 ticks may add 500 ppm
       of their time. */
    uint64_t time_ns;
    uint64_t value; /* see baton_trace_what_t; 0 if nothing is said there */
    /* the epoch's number, modulo 2^32; 0: the record is of no epoch */
    uint32_t epoch;
    /* the kernel's number of the thread that made the record */
    uint32_t thread;
    uint32_t node; /* of SEND, SENT, RECEIVED and WORK; else 0 */
    /* Of SEND, SENT and RECEIVED: the message's number among those from its
       sender to its receiver in an epoch. Activations have numbers of their
       own, with bit 31 set. 0 in all other records. */
    uint32_t tag;
    /* a rank of the group, or a status: see baton_trace_what_t; else -1 */
    int32_t peer;
    /* the schedule's number; 0: the record is of no schedule */
    uint16_t schedule;
    /* (i / records) % 256 for record i, by which a reader recognises a record
       of an earlier lap around the ring */
    uint8_t lap;
    uint8_t what; /* baton_trace_what_t; written last */
} baton_trace_record_t;

#ifdef __cplusplus
}
#endif
#endif
