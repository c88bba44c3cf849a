/* Lateness: which rank comes late to collectives, and what that costs the
   others. Baton always counts it; there is no switch. Any rank can read the
   counts of all ranks of its host at any time, and so can another process, as
   baton-top does.

       baton_lateness_t of[RANKS];
       int late[RANKS];
       for (int rank = 0; rank < size; rank++) {
           baton_schedule_lateness(gradients, rank, &of[rank]);
       }
       int count = baton_lateness_find(of, size, late);
       if (count > 0) {
           printf("rank %d is late by %.1f ms\n", late[0],
                  1e-6 * of[late[0]].late_ns / of[late[0]].timed);
       }

   A rank comes to an epoch when its application has started the epoch and the
   epoch before it has ended. If the epoch was started in the order of a stream,
   the rank comes when the stream reaches the start. Each rank writes the time
   into memory that the ranks of its host share, and compares it with the times
   of the other ranks. All of them read the same clock. No message is sent, and
   no lock is taken.

   Not every epoch is timed, because reading the clock takes longer than a small
   collective may be delayed. If several epochs end within BATON_LATENESS_NS
   times the number of the host's ranks, only some of them are timed: the same
   ones on all ranks, in no regular pattern. If epochs are slower, all of them
   are timed. So counting takes less than 10 ns an epoch.

   Limits:

   - Ranks are compared only with ranks of their own host. If all ranks of a
     host are late, none of them is found to be late. (baton-top --hosts
     compares the ranks of several hosts.)
   - With a transport that has no `board` (baton/transport.h), with BATON_SHM=0
     and in the simulator nothing is counted, since ranks share no memory.
   - In a partial collective an epoch may end before a rank comes to it. On that
     rank the epoch is counted as `missed`, and is not timed.
   - A rank counts in at most 128 schedules at a time. A schedule that is
     committed while 128 others exist is not counted. */
#ifndef BATON_LATENESS_H
#define BATON_LATENESS_H

#include <baton/baton.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    /* Number of bins of a histogram. Bin 0 counts times below 1 us, and bin k
       times from 2^(k-1) us to below 2^k us. The last bin also counts all
       longer times. */
    BATON_LATENESS_BINS = 24,
    /* If epochs are short, one is timed about every BATON_LATENESS_NS times the
       number of the host's ranks. */
    BATON_LATENESS_NS = 128000,
    /* A rank is not found to be late before so many of its epochs are timed. */
    BATON_LATENESS_LEAST = 8,
    /* Number of epochs of which a board has the times at which ranks came. */
    BATON_LATENESS_CAME = 8,
    /* The number of bits in which a time at which a rank came is stored, in ns.
       Differences of up to 2.4 hours can be computed from them. */
    BATON_LATENESS_TIME_BITS = 44
};

/* The lateness of a rank in one schedule, or in all schedules of a group. A
   schedule is counted from its commit on. No field ever decreases, so the
   difference between two readings covers the time between them. */
typedef struct baton_lateness {
    /* Number of epochs that have ended on this rank, including failed ones. */
    uint64_t epochs;
    uint64_t failed; /* number of these epochs that have failed */
    /* Number of these epochs that ended before this rank came to them. Only
       epochs of partial collectives do so. */
    uint64_t missed;
    /* The number of the last epoch to which this rank has come. */
    uint64_t started;
    /* The number of the last epoch that has ended on this rank. If it is less
       than `started`, the rank is waiting in epoch `started`. */
    uint64_t ended;
    /* Number of bytes that this rank had sent by the end of its last timed
       epoch. */
    uint64_t bytes;

    /* Number of timed epochs to which all ranks of the host have come. The
       fields from here on count these epochs alone, and times are sums over
       them. */
    uint64_t timed;
    /* Time from the end of the first timed epoch to the end of the last. */
    uint64_t elapsed_ns;
    /* Number of epochs for which the timed epochs stand: each timed epoch
       stands for itself, and for those since the timed epoch before it. */
    uint64_t elapsed_epochs;
    /* Time from this rank's coming to the end of the epoch on this rank. */
    uint64_t took_ns;
    /* Time from the coming of the first rank to the coming of this rank. */
    uint64_t late_ns;
    uint64_t last; /* number of epochs to which this rank came last */
    /* In these `last` epochs: the time from the coming of the last but one to
       the coming of this rank. If this rank had come as early as the last but
       one, the other ranks could have gone on earlier by this time. */
    uint64_t behind_ns;
    /* Time from the coming of this rank to the coming of the last rank, or to
       the end of the epoch on this rank if that is sooner. */
    uint64_t waited_ns;

    /* Histogram of the times that late_ns sums. */
    uint64_t late_bins[BATON_LATENESS_BINS];
    /* Histogram of the times from the coming of the last rank to the end of the
       epoch on this rank. This is the collective's own time. */
    uint64_t own_bins[BATON_LATENESS_BINS];
} baton_lateness_t;

/* Stores in *out how late a rank of this host comes to the schedule's epochs.
   `rank` may be the caller's own. Any thread may call this at any time after
   the commit. BATON_ERR_INVALID: there is no such rank. BATON_ERR_STATE: the
   schedule is not committed. BATON_ERR_UNSUPPORTED: the rank is on another
   host, has not committed the schedule, or does not count it (see the limits
   above). */
BATON_CHECKED baton_status_t baton_schedule_lateness(
    const baton_schedule_t *schedule, int rank, baton_lateness_t *out);

/* Stores in *out the sum over all schedules of the group that the rank has
   committed and not destroyed. In this sum `started` and `ended` are 0. The
   schedules of a group that was made of some ranks of this group are not
   included. Threads and errors are those of baton_schedule_lateness. */
BATON_CHECKED baton_status_t baton_group_lateness(const baton_group_t *group,
                                                  int rank,
                                                  baton_lateness_t *out);

/* ---- who is late -------------------------------------------------------- */

/* Finds the ranks that are late, given the lateness of `count` ranks: stores
   their indices, the latest first, and returns their number. Each rank is
   compared with the middle rank: the median in the order of mean lateness, or
   of two medians the one that comes earlier. A rank is late if

   - the lateness that it exceeds in three of four epochs is greater than the
     lateness that the middle rank exceeds in one of four epochs,
   - the difference between the two is more than twice the collective's own
     time (that of the fastest tenth of epochs) and 32 us more, since ranks that
     take turns on a processor are late by about as much, and
   - the middle rank has waited for others for at least 1 % of the time.

   So a rank that is late only now and then is not found. No rank is found if
   another one is late each time, or if one rank comes early and all others come
   together. The times are quantiles of histograms, so they are only as exact as
   the bins. A rank with fewer than BATON_LATENESS_LEAST timed epochs is left
   out. `late_out` has space for `count` numbers. */
int baton_lateness_find(const baton_lateness_t *of, int count, int *late_out);

/* Returns a quantile of a histogram: the time that a share `share` (0 to 1) of
   the counted epochs did not exceed, as if the times in each bin were evenly
   spread. It is off by less than the width of a bin. In the last bin, and
   without epochs, it is UINT64_MAX. */
uint64_t baton_lateness_quantile_ns(const uint64_t bins[BATON_LATENESS_BINS],
                                    double share);

/* ---- another process ----------------------------------------------------- */

/* The counts of the ranks of one host, as another process of the same user
   reads them. Reading delays no rank, and works even if the ranks hang. */
typedef struct baton_board baton_board_t;

/* The counts of one rank in one schedule. */
typedef struct baton_board_entry {
    int rank; /* the rank's number in the schedule's group */
    int size; /* number of ranks of that group, on all hosts */
    /* The number of the rank's process, as the process itself sees it: in a
       container this is its number in the container. */
    int process;
    /* Identifies the container, since processes of two containers may have the
       same number. */
    unsigned container;
    uint64_t key;  /* identifies the schedule; the same on all ranks */
    char name[64]; /* the schedule's name, truncated if it is longer */
    baton_lateness_t lateness;
    /* For each of the last timed epochs to which the rank came, in any order, a
       word; 0: there are fewer. Its lower BATON_LATENESS_TIME_BITS bits are the
       time at which the rank came, in ns by the host's CLOCK_MONOTONIC. Its
       upper bits identify the epoch: they are the same on all ranks. */
    uint64_t came[BATON_LATENESS_CAME];
} baton_board_entry_t;

/* Opens the `index`-th board (from 0) of a process. A process has one board for
   each of its groups, except that a group which was made of another group uses
   that group's board. The board stays readable after the process has ended.
   BATON_ERR_INVALID: the process has no such board. It has none with
   BATON_SHM=0, or if each of its groups has one rank. BATON_ERR_SYSTEM: there
   is no such process, or it belongs to another user. BATON_ERR_MISMATCH: the
   process uses a version of Baton with another layout of boards.
   BATON_ERR_NO_MEMORY. */
BATON_CHECKED baton_status_t baton_board_open(int process, int index,
                                              baton_board_t **out);
/* NULL is allowed. */
void baton_board_close(baton_board_t *board);

/* Returns a number that identifies the board; it is the same in all processes
   that share the board. */
uint64_t baton_board_id(const baton_board_t *board);

/* Stores the board's next entry in *out, rank by rank. *at must be 0 before the
   first call, and each call advances it. Returns false after the last entry. */
bool baton_board_next(const baton_board_t *board, size_t *at,
                      baton_board_entry_t *out);

#ifdef __cplusplus
}
#endif
#endif
