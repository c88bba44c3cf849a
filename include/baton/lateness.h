/* Lateness: which rank comes late to collectives, and what that costs the
   others. Counted always, without a switch; and read at any time, by any rank,
   about all ranks of its host, or by another process (baton-top does so).

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

   A rank comes to an epoch when its application has started it and the epoch
   before has ended, or when the stream gets there in whose order it was
   started. Each rank writes that time into memory that the ranks of its host
   share, and compares it with the times of the others. All of them have the
   same clock. Nothing is sent, and nothing locked.

   Not every epoch is timed, because a look at the clock takes longer than a
   small collective may be delayed: where epochs follow each other so fast that
   BATON_LATENESS_NS for each rank of the host hold several, only some of them
   are timed, the same ones on all ranks, in no regular pattern. Slower epochs
   are all timed. So counting takes less than 10 ns an epoch.

   What is not covered:

   - Ranks of different hosts are not compared with each other. Each host's are,
     and a host all of whose ranks are late looks as if nobody was.
   - A transport without a `board` (baton/transport.h), BATON_SHM=0, and the
     simulator: there is nothing to compare with.
   - In a partial collective: an epoch that has ended before a rank came is
     counted there as `missed`; it is not timed.
   - The first 128 schedules of a rank that exist at a time are counted. */
#ifndef BATON_LATENESS_H
#define BATON_LATENESS_H

#include <baton/baton.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    /* Bins of a histogram. Bin 0 counts times below 1 us, bin k those from
       2^(k-1) us to below 2^k us, the last one also all that are longer. */
    BATON_LATENESS_BINS = 24,
    /* see above */
    BATON_LATENESS_NS = 128000,
    BATON_LATENESS_LEAST = 8 /* the fewest epochs that say who is late */
};

/* The lateness of a rank in one schedule, or in all of a group: counts since
   the schedule's commit. Each field grows only, so that the difference of two
   readings says what has happened in between. */
typedef struct baton_lateness {
    uint64_t epochs;  /* epochs that have ended on this rank, failed ones too */
    uint64_t failed;  /* of these, epochs that have failed */
    uint64_t missed;  /* of these, epochs to which this rank had not come when
                         they ended: of partial collectives */
    uint64_t started; /* the number of the last epoch to which it has come */
    uint64_t ended;   /* the number of the last one that has ended; less than
                         `started`: the rank waits in epoch `started` */
    uint64_t bytes;   /* bytes that it has sent, up to the last timed epoch */

    /* Epochs that were timed, and that all ranks of the host have come to. The
       fields below count in these alone, and times are sums over them. */
    uint64_t timed;
    uint64_t elapsed_ns; /* from the end of the first one to that of the last */
    uint64_t elapsed_epochs; /* the epochs in this time for which those stand
                                that were timed */
    uint64_t took_ns;   /* from this rank's coming to its end of the epoch */
    uint64_t late_ns;   /* how long after the first rank this one came */
    uint64_t last;      /* epochs to which this rank came last */
    uint64_t behind_ns; /* in these: how long after the last but one it came. So
                           much earlier could the others have gone on */
    uint64_t waited_ns; /* how long it waited for the last rank to come */

    /* Epochs by how long after the first rank this one came. */
    uint64_t late_bins[BATON_LATENESS_BINS];
    /* Epochs by the time from the coming of the last rank to the end of the
       epoch on this one: the collective's own time. */
    uint64_t own_bins[BATON_LATENESS_BINS];
} baton_lateness_t;

/* Tells how late a rank of this host comes to the schedule's epochs; `rank` may
   be the caller's own. Any thread may call this at any time after the commit.
   BATON_ERR_INVALID: no such rank. BATON_ERR_STATE: the schedule is not
   committed. BATON_ERR_UNSUPPORTED: the rank is on another host, has not
   committed the schedule, or this is not counted (above). */
BATON_CHECKED baton_status_t baton_schedule_lateness(
    const baton_schedule_t *schedule, int rank, baton_lateness_t *out);

/* The same, summed over all schedules of the group that the rank has committed
   and not destroyed. `started` and `ended` are 0. A group of some ranks of
   another one has its own sum. */
BATON_CHECKED baton_status_t baton_group_lateness(const baton_group_t *group,
                                                  int rank,
                                                  baton_lateness_t *out);

/* ---- who is late -------------------------------------------------------- */

/* Finds the ranks that are late, given the lateness of `count` ranks: stores
   their indices, the latest first, and returns their number. A rank is late if

   - in three of four epochs it comes later than the middle rank does in three
     of four (the ranks are put in the order of their mean lateness, and the
     middle one is that of the earlier half that comes last),
   - by more than twice the collective's own time, which is the fastest tenth
     of those seen, and
   - the middle rank has waited for others for at least 1 % of the time.

   So a rank that is late now and then is not named, nor any where the late one
   is another each time, nor the others where one comes early; and times that
   differ by less than what the bins tell apart don't count. A rank
   of fewer than BATON_LATENESS_LEAST timed epochs is left out. `late_out` has
   room for `count` numbers. */
int baton_lateness_find(const baton_lateness_t *of, int count, int *late_out);

/* Returns a time that the share `share` (0 to 1) of the epochs that a histogram
   has counted did not exceed: the upper limit of a bin. */
uint64_t baton_lateness_quantile_ns(const uint64_t bins[BATON_LATENESS_BINS],
                                    double share);

/* ---- another process ----------------------------------------------------- */

/* The counts of the ranks that share a host, seen from another process of the
   same user. Reading them stops nobody, and goes on when the ranks hang. */
typedef struct baton_board baton_board_t;

/* What a rank has counted of one schedule. */
typedef struct baton_board_entry {
    int rank;    /* in the group of the schedule */
    int size;    /* the ranks of that group, on all hosts */
    int process; /* as the rank itself knows its number (in its container) */
    unsigned container; /* differs where processes of containers have the same
                           number */
    uint64_t key;       /* the same for the same schedule on all ranks */
    char name[64];      /* of the schedule; a longer one is cut off */
    baton_lateness_t lateness;
} baton_board_entry_t;

/* Opens the `index`-th board (from 0) of a process: one for each group that was
   made of processes of this host, without those made of other groups. The board
   stays readable after the process has ended. BATON_ERR_INVALID: the process
   has no such board. BATON_ERR_SYSTEM: it does not exist, or belongs to another
   user; BATON_ERR_MISMATCH: its version of Baton counts otherwise.
   BATON_ERR_NO_MEMORY. */
BATON_CHECKED baton_status_t baton_board_open(int process, int index,
                                              baton_board_t **out);
/* NULL is allowed. */
void baton_board_close(baton_board_t *board);

/* A number that is the same for all processes that share the board. */
uint64_t baton_board_id(const baton_board_t *board);

/* Goes through the board's entries, rank by rank. *at is 0 at first. Returns
   false after the last entry. */
bool baton_board_next(const baton_board_t *board, size_t *at,
                      baton_board_entry_t *out);

#ifdef __cplusplus
}
#endif
#endif
