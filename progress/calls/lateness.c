/* Reads the counts of lateness of a host's ranks, for the application and for
   other processes; see baton/lateness.h. */
#include "progress/calls/calls.h"

#include "base/alloc.h"
#include "base/descriptor.h"
#include "base/error.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- this process ------------------------------------------------------- */

static baton__counts_t lateness_read(const baton__slot_t *slot)
{
    baton__counts_t counts;
    for (size_t i = 0; i < BATON__BOARD_COUNTS; i++) {
        counts.words[i] =
            atomic_load_explicit(&slot->counts[i], memory_order_relaxed);
    }
    return counts;
}

/* Returns a rank's row of the board, or NULL with this thread's error set. */
static baton__row_t *lateness_row(const baton_group_t *group, int rank,
                                  const char *function)
{
    if (rank < 0 || rank >= group->size) {
        (void)baton__error(BATON_ERR_INVALID,
                           "%s: rank is %d; allowed: 0 to %d", function, rank,
                           group->size - 1);
        return NULL;
    }
    baton__row_t *row = baton__member_row(group, rank);
    if (row == NULL) {
        (void)baton__error(BATON_ERR_UNSUPPORTED,
                           "%s: rank %d shares no memory with this rank",
                           function, rank);
    }
    return row;
}

baton_status_t baton_schedule_lateness(const baton_schedule_t *schedule,
                                       int rank, baton_lateness_t *out)
{
    baton_status_t status = baton__check_committed(schedule, __func__);
    if (status != BATON_OK || !baton__is_given(out, true, __func__, "out")) {
        return baton__error_status();
    }
    baton__row_t *row = lateness_row(schedule->group, rank, __func__);
    if (row == NULL) {
        return baton__error_status();
    }
    const baton__slot_t *slot =
        baton__row_find(row, baton__task_key(baton__task_of(schedule)));
    if (slot == NULL) {
        return baton__error(BATON_ERR_UNSUPPORTED,
                            "%s: rank %d has not committed \"%s\", or had %d "
                            "other schedules then, the most that are counted",
                            __func__, rank, schedule->name,
                            (int)BATON__BOARD_SLOTS);
    }
    *out = lateness_read(slot).fields;
    return BATON_OK;
}

baton_status_t baton_group_lateness(const baton_group_t *group, int rank,
                                    baton_lateness_t *out)
{
    if (!baton__is_group(group, __func__) ||
        !baton__is_given(out, true, __func__, "out")) {
        return baton__error_status();
    }
    baton__row_t *row = lateness_row(group, rank, __func__);
    if (row == NULL) {
        return baton__error_status();
    }
    baton__counts_t sum = {.words = {0}};
    for (size_t i = 0; i < BATON__BOARD_SLOTS; i++) {
        /* Pairs with the store in baton__arrivals_open. */
        if (atomic_load_explicit(&row->keys[i], memory_order_acquire) == 0 ||
            atomic_load_explicit(&row->slots[i].channel,
                                 memory_order_relaxed) != group->channel) {
            continue;
        }
        const uint64_t before_ns = sum.fields.elapsed_ns;
        const baton__counts_t one = lateness_read(&row->slots[i]);
        for (size_t k = 0; k < BATON__BOARD_COUNTS; k++) {
            sum.words[k] += one.words[k];
        }
        /* Schedules run side by side, so the time that they span together is
           not the sum of their times, but at least the longest of them. */
        sum.fields.elapsed_ns = before_ns > one.fields.elapsed_ns
                                    ? before_ns
                                    : one.fields.elapsed_ns;
    }
    sum.fields.started = sum.fields.ended = 0;
    *out = sum.fields;
    return BATON_OK;
}

/* ---- who is late -------------------------------------------------------- */

uint64_t baton_lateness_quantile_ns(const uint64_t bins[BATON_LATENESS_BINS],
                                    double share)
{
    /* number of epochs below the quantile that are in bins from `bin` on */
    double left = 0;
    for (size_t i = 0; i < BATON_LATENESS_BINS; i++) {
        left += share * (double)bins[i];
    }
    size_t bin = 0;
    while (bin < BATON_LATENESS_BINS - 1 &&
           (bins[bin] == 0 || left > (double)bins[bin])) {
        left -= (double)bins[bin++];
    }
    const uint64_t end_ns = UINT64_C(1000) << bin;
    const uint64_t begin_ns = bin > 0 ? end_ns / 2 : 0;
    return bin == BATON_LATENESS_BINS - 1
               ? UINT64_MAX
               : begin_ns + (uint64_t)((double)(end_ns - begin_ns) * left /
                                       (double)bins[bin]);
}

/* True if the first rank's mean lateness is above the second one's. Of ranks
   with equal means the one with the lower index counts as later. */
static bool is_later(const baton_lateness_t *of, int first, int second)
{
    double a = (double)of[first].late_ns * (double)of[second].timed;
    double b = (double)of[second].late_ns * (double)of[first].timed;
    return a > b || (!(a < b) && first < second);
}

int baton_lateness_find(const baton_lateness_t *of, int count, int *late_out)
{
    uint64_t own_bins[BATON_LATENESS_BINS] = {0};
    int known = 0;
    for (int i = 0; i < count; i++) {
        if (of[i].timed < BATON_LATENESS_LEAST) {
            continue;
        }
        for (size_t k = 0; k < BATON_LATENESS_BINS; k++) {
            own_bins[k] += of[i].own_bins[k];
        }
        int at = known++;
        for (; at > 0 && is_later(of, i, late_out[at - 1]); at--) {
            late_out[at] = late_out[at - 1];
        }
        late_out[at] = i;
    }
    if (known < 2) {
        return 0;
    }
    /* late_out is sorted, the latest rank first. So the middle one of 2 ranks
       is the one that comes first, and the middle one of 4 ranks is the one
       that comes second. */
    const baton_lateness_t *middle = &of[late_out[known / 2]];
    if (middle->elapsed_ns == 0 ||
        100.0 * (double)middle->waited_ns / (double)middle->timed <
            (double)middle->elapsed_ns / (double)middle->elapsed_epochs) {
        return 0;
    }
    double most = (double)baton_lateness_quantile_ns(middle->late_bins, 0.75) +
                  2 * (double)baton_lateness_quantile_ns(own_bins, 0.1) + 32000;
    int found = 0;
    for (int i = 0; i < known / 2; i++) {
        const uint64_t *bins = of[late_out[i]].late_bins;
        if ((double)baton_lateness_quantile_ns(bins, 0.25) > most) {
            late_out[found++] = late_out[i];
        }
    }
    return found;
}

/* ---- another process ----------------------------------------------------- */

struct baton_board {
    /* the mapped file, which begins with the rows of the ranks */
    const char *memory;
    size_t bytes;
    uint64_t id;
};

static const baton__row_t *board_row(const baton_board_t *board, size_t row)
{
    return (const void *)(board->memory + row * BATON_BOARD_BYTES);
}

static bool is_ready(const baton__row_t *row)
{
    /* Pairs with the store in make_row, arrivals.c. */
    return atomic_load_explicit(&row->magic, memory_order_acquire) ==
           BATON__BOARD_MAGIC;
}

static void board_unmap(baton_board_t *board)
{
    if (board->memory != NULL) {
        (void)munmap((void *)(uintptr_t)board->memory, board->bytes);
    }
    board->memory = NULL;
}

/* Maps a file, if it begins with a board. */
static bool board_map(baton_board_t *board, int file)
{
    struct stat of;
    if (fstat(file, &of) != 0 || of.st_size < BATON_BOARD_BYTES) {
        return false;
    }
    void *memory =
        mmap(NULL, (size_t)of.st_size, PROT_READ, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) {
        return false;
    }
    /* Each container has a file system of its own, so files of two containers
       may have the same inode number: the device number tells them apart. */
    *board =
        (baton_board_t){memory, (size_t)of.st_size,
                        of.st_dev * UINT64_C(0x9e3779b97f4a7c15) ^ of.st_ino};
    if (!is_ready(board_row(board, 0))) {
        board_unmap(board);
    }
    return board->memory != NULL;
}

/* Finds the process's index-th board among its files in shared memory. Returns
   0 or an errno. */
static int board_find(int process, int index, baton_board_t *out)
{
    char path[80];
    char name[80];
    int seen = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/fd", process);
    DIR *folder = opendir(path);
    if (folder == NULL) {
        return errno;
    }
    const struct dirent *each;
    while (out->memory == NULL && (each = readdir(folder)) != NULL) {
        (void)snprintf(path, sizeof path, "/proc/%d/fd/%.12s", process,
                       each->d_name);
        if (readlink(path, name, sizeof name) < 9 ||
            memcmp(name, "/dev/shm/", 9) != 0) {
            continue;
        }
        /* O_NONBLOCK: the process may have a FIFO there, on which open would
           block. */
        int file = baton__descriptor_move(
            open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
        if (file >= 0 && board_map(out, file) && seen++ != index) {
            board_unmap(out);
        }
        baton__descriptor_close(&file);
    }
    (void)closedir(folder);
    return out->memory != NULL ? 0 : ENODATA;
}

baton_status_t baton_board_open(int process, int index, baton_board_t **out)
{
    if (!baton__is_given(out, true, __func__, "out")) {
        return baton__error_status();
    }
    baton_board_t *board = baton__alloc(1, sizeof *board);
    if (board == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for a board");
    }
    int error = board_find(process, index, board);
    if (error == 0 && board_row(board, 0)->format == BATON__BOARD_FORMAT) {
        *out = board;
        return BATON_OK;
    }
    baton_board_close(board);
    if (error == 0) {
        return baton__error(BATON_ERR_MISMATCH,
                            "process %d runs another version of Baton",
                            process);
    }
    if (error == ENODATA) {
        return baton__error(BATON_ERR_INVALID,
                            "process %d has no group of several processes%s",
                            process, index == 0 ? "" : " with this index");
    }
    return baton__error(BATON_ERR_SYSTEM, "process %d: %s", process,
                        error == ENOENT ? "there is none"
                                        : baton__errno_text(error));
}

void baton_board_close(baton_board_t *board)
{
    if (board != NULL) {
        board_unmap(board);
    }
    baton__free(board);
}

uint64_t baton_board_id(const baton_board_t *board)
{
    return board->id;
}

bool baton_board_next(const baton_board_t *board, size_t *at,
                      baton_board_entry_t *out)
{
    const size_t end = (size_t)board_row(board, 0)->rows * BATON__BOARD_SLOTS;
    while (*at < end &&
           (*at / BATON__BOARD_SLOTS + 1) * BATON_BOARD_BYTES <= board->bytes) {
        const baton__row_t *row = board_row(board, *at / BATON__BOARD_SLOTS);
        const size_t place = (*at)++ % BATON__BOARD_SLOTS;
        const baton__slot_t *slot = &row->slots[place];
        uint64_t key =
            atomic_load_explicit(&row->keys[place], memory_order_acquire);
        if (key != 0 && is_ready(row)) {
            *out =
                (baton_board_entry_t){.rank = slot->rank,
                                      .size = slot->size,
                                      .process = row->process,
                                      .container = row->container,
                                      .key = key,
                                      .lateness = lateness_read(slot).fields};
            memcpy(out->name, slot->name, sizeof out->name - 1);
            for (size_t i = 0; i < BATON_LATENESS_CAME; i++) {
                out->came[i] = atomic_load_explicit(&slot->starts[i],
                                                    memory_order_relaxed);
            }
            return true;
        }
    }
    return false;
}
