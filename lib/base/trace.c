/* The trace of a process is a file (trace.h). It is created once and then stays
   mapped, so that a thread that adds a record while another thread stops the
   trace writes into memory that is still mapped. (Only a forked child unmaps
   it.) Its blocks are reserved when it is created: a store into a page for
   which a file system has no room would raise SIGBUS.

   A thread takes the next record by an atomic addition. After the last record
   the first one is used again: a new lap begins. While a thread that fills a
   record in is suspended, the other threads may use up a whole lap, and then
   two threads write the same record. The record stays readable, but may mix the
   contents of both. */
#include "base/trace.h"

#include "base/clock.h"
#include "base/config.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    /* The number of file names that are tried, if earlier processes with the
       same host and PID have left their files. */
    FILES = 100,
    /* The number of ticks for which the time is computed before the clock is
       read again: from 0.2 ms to 50 ms. */
    TRUSTED = 1 << 20,
    /* The rate is measured over at least LEAST_NS, and at most MOST_NS, since
       the kernel adjusts the clock's rate. */
    LEAST_NS = 1000000,
    MOST_NS = 1000000000,
    /* Clock and counter were read at the same time if it took no longer to
       read the clock twice. */
    CLOSE_NS = 250
};
/* A counter that each thread can read: the kernel's name for it, its value, and
   what makes the processor complete all loads before it reads the value. */
#if defined __x86_64__
#define COUNTER          "tsc"
#define TICKS()          __builtin_ia32_rdtsc()
#define COMPLETE_LOADS() __builtin_ia32_lfence()
#elif defined __aarch64__
#define COUNTER          "arch_sys_counter"
#define TICKS()          trace_ticks()
#define COMPLETE_LOADS() __asm__ volatile("isb" ::: "memory")
static uint64_t trace_ticks(void)
{
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
}
#else
#define COUNTER ""
#define TICKS() UINT64_C(0)
#define COMPLETE_LOADS()
#endif

struct baton__trace_switch baton__trace;

/* Held while the file is created, and while its tables get entries. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* the file in memory; NULL: no file was created */
static baton__trace_t *mapped;
static size_t mapped_bytes;      /* size of the file in bytes */
static char folder_of[PATH_MAX]; /* the folder of the file */
static _Atomic uint32_t name_count;
static uint16_t schedule_count;
/* the kernel's number of this thread; 0: not read yet */
static _Thread_local uint32_t thread_number;

/* How the time is computed from the counter: a tick takes rate / 2^32 ns; 0: it
   is not known yet. */
static struct {
    _Alignas(64) _Atomic uint64_t turn; /* odd while a thread writes the rest */
    /* The values of counter and clock when both were read last. */
    _Atomic uint64_t ticks, ns, rate;
    uint64_t first_ticks, first_ns; /* the rate is measured since then */
} timer;
/* The kernel computes CLOCK_MONOTONIC from the counter. */
static bool counts;

/* ---- the file ------------------------------------------------------------ */

/* Called in a forked child, which has its parent's file mapped and must not
   write into it. At the fork a thread that the child does not have may have
   held the lock, so the child initialises the lock anew. */
static void trace_forget(void)
{
    baton_trace_stop();
    (void)pthread_mutex_init(&lock, NULL);
    if (mapped != NULL) {
        (void)munmap(mapped, mapped_bytes);
    }
    mapped = NULL;
    schedule_count = 0;
    atomic_store_explicit(&name_count, 0, memory_order_relaxed);
    thread_number = 0;
}

static void trace_handle_forks(void)
{
    (void)pthread_atfork(NULL, NULL, trace_forget);
}

/* Creates a file that nobody else has, and stores its path. Returns its
   descriptor; -1 with errno. */
static int trace_create(const char *folder, const char *host, char *path,
                        size_t bytes)
{
    int fd = -1;
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        return -1;
    }
    errno = EEXIST;
    for (int i = 1; i <= FILES && fd < 0 && errno == EEXIST; i++) {
        char suffix[16] = "";
        if (i > 1) {
            (void)snprintf(suffix, sizeof suffix, "-%d", i);
        }
        if ((size_t)snprintf(path, bytes, "%s/%s.%ld%s.trace", folder, host,
                             (long)getpid(), suffix) >= bytes) {
            errno = ENAMETOOLONG;
            return -1;
        }
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    }
    return baton__descriptor_move(fd);
}

/* Gives the file its size and blocks, and maps it. Returns 0 or an error
   number. A size above RLIMIT_FSIZE would raise SIGXFSZ, so it is an error
   here. */
static int trace_map(int fd, size_t bytes, baton__trace_t **out)
{
    struct rlimit most;
    int error = EINTR;
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && bytes > most.rlim_cur) {
        return EFBIG;
    }
    while (error == EINTR) {
        error = posix_fallocate(fd, 0, (off_t)bytes);
    }
    if (error != 0) {
        return error;
    }
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        return errno;
    }
    /* The first store into each page takes 3 us on a disk's file system, even
       if the page is in memory (MAP_POPULATE only reads it). */
    memset(memory, 0, bytes);
    *out = memory;
    return 0;
}

static void trace_fill(baton__trace_t *trace, const char *host,
                       uint32_t records)
{
    baton_trace_head_t *head = &trace->head;
    *head = (baton_trace_head_t){.format = BATON_TRACE_FORMAT,
                                 .schedules = BATON_TRACE_SCHEDULES,
                                 .names = BATON_TRACE_NAMES,
                                 .records = records,
                                 .process = (int32_t)getpid(),
                                 .monotonic_ns = baton__clock_ns(),
                                 .realtime_ns =
                                     baton__clock_read_ns(CLOCK_REALTIME)};
    (void)snprintf(head->host, sizeof head->host, "%s", host);
    (void)baton__descriptor_read("/proc/sys/kernel/random/boot_id", head->boot,
                                 sizeof head->boot);
    head->boot[strcspn(head->boot, "\n")] = '\0';
    memcpy(trace->names[BATON_TRACE_NAMES - 1].name, "other", sizeof "other");
    /* Stored last: a reader that sees the magic number also sees the other
       fields of the head. */
    atomic_store_explicit((_Atomic uint64_t *)&head->magic, BATON_TRACE_MAGIC,
                          memory_order_release);
}

/* Creates the file and maps it. The caller holds the lock. */
static baton_status_t trace_open(const char *folder)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const int64_t records = baton__config_number(BATON__CONFIG_TRACE_RECORDS);
    const size_t bytes =
        sizeof *mapped + (size_t)records * sizeof *mapped->records;
    char host[sizeof mapped->head.host] = "";
    char path[PATH_MAX] = "";
    baton__trace_t *trace = NULL;
    if ((records & (records - 1)) != 0) {
        return baton__error(BATON_ERR_INVALID,
                            "BATON_TRACE_RECORDS is %lld; it must be a power "
                            "of two",
                            (long long)records);
    }
    char clock[32] = "";
    (void)baton__descriptor_read("/sys/devices/system/clocksource/clocksource0/"
                                 "current_clocksource",
                                 clock, sizeof clock);
    counts = strcmp(clock, COUNTER "\n") == 0;
    (void)gethostname(host, sizeof host - 1);
    (void)pthread_once(&once, trace_handle_forks);
    int fd = trace_create(folder, host, path, sizeof path);
    int error = fd < 0 ? errno : trace_map(fd, bytes, &trace);
    if (fd >= 0 && trace == NULL) {
        (void)unlink(path);
    }
    baton__descriptor_close(&fd);
    if (trace == NULL) {
        return baton__error(BATON_ERR_SYSTEM,
                            "no trace can be written in \"%s\", where it needs "
                            "a file of %zu bytes: %s",
                            folder, bytes, baton__errno_text(error));
    }
    trace_fill(trace, host, (uint32_t)records);
    mapped = trace;
    mapped_bytes = bytes;
    baton__trace.lap_bits = __builtin_ctzll((uint64_t)records);
    (void)snprintf(folder_of, sizeof folder_of, "%s", folder);
    return BATON_OK;
}

baton_status_t baton_trace_start(const char *folder)
{
    baton_status_t status = BATON_OK;
    (void)pthread_mutex_lock(&lock);
    if (mapped == NULL && folder != NULL) {
        status = trace_open(folder);
    } else if (mapped == NULL) {
        status = baton__error(BATON_ERR_INVALID,
                              "%s: folder is NULL, and there is no trace yet",
                              __func__);
    } else if (folder != NULL && strcmp(folder, folder_of) != 0) {
        status = baton__error(BATON_ERR_INVALID,
                              "%s: folder is \"%s\", and this process has its "
                              "trace in \"%s\"",
                              __func__, folder, folder_of);
    }
    if (status == BATON_OK) {
        /* Pairs with the acquire loads in baton__trace_add and
           baton_trace_begin. */
        atomic_store_explicit(&baton__trace.file, mapped, memory_order_release);
    }
    (void)pthread_mutex_unlock(&lock);
    return status;
}

void baton_trace_stop(void)
{
    atomic_store_explicit(&baton__trace.file, NULL, memory_order_relaxed);
}

void baton__trace_begin_if_asked(void)
{
    /* The PID of the process that called this function last. A forked child has
       another PID, so it begins a trace of its own. */
    static atomic_int asked;
    const char *folder = baton__config_text(BATON__CONFIG_TRACE);
    if (folder[0] != '\0' && atomic_exchange(&asked, getpid()) != getpid() &&
        baton_trace_start(folder) != BATON_OK) {
        baton__log(BATON_LOG_WARN, "BATON_TRACE: %s", baton_error_message());
    }
}

/* ---- the time ------------------------------------------------------------ */

/* Reads the clock, and the counter, so that the next times can be computed. */
static uint64_t trace_read_clock(void)
{
    const uint64_t ns = baton__clock_ns();
    const uint64_t ticks = TICKS();
    uint64_t turn = timer.turn;
    if (counts && turn % 2 == 0 && baton__clock_ns() - ns <= CLOSE_NS &&
        atomic_compare_exchange_strong(&timer.turn, &turn, turn + 1)) {
        const uint64_t spent_ns = ns - timer.first_ns;
        if (spent_ns > MOST_NS) {
            timer.first_ticks = ticks;
            timer.first_ns = ns;
        } else if (spent_ns > LEAST_NS) {
            timer.rate = (spent_ns << 32) / (ticks - timer.first_ticks);
        }
        timer.ticks = ticks;
        timer.ns = ns;
        timer.turn = turn + 2;
    }
    return ns;
}

/* Reading the clock takes 20 ns, most of which it waits until all instructions
   before it have ended. Reading the counter does not wait. */
uint64_t baton__trace_now(bool after_loads)
{
    if (after_loads) {
        COMPLETE_LOADS();
    }
    const uint64_t turn = timer.turn;
    const uint64_t since = TICKS() - timer.ticks;
    const uint64_t rate = timer.rate;
    const uint64_t ns = timer.ns + (since * rate >> 32);
    return since < TRUSTED && rate != 0 && turn % 2 == 0 && timer.turn == turn
               ? ns
               : trace_read_clock();
}

/* ---- entries ------------------------------------------------------------- */

uint32_t baton__trace_thread(void)
{
    uint32_t *number = &thread_number;
    if (*number == 0) {
        *number = (uint32_t)syscall(SYS_gettid);
    }
    return *number;
}

uint16_t baton__trace_enter(const baton_trace_schedule_t *schedule)
{
    uint16_t number = 0;
    (void)pthread_mutex_lock(&lock);
    if (mapped != NULL && schedule_count < BATON_TRACE_SCHEDULES) {
        baton_trace_schedule_t *entry = &mapped->schedules[schedule_count];
        number = ++schedule_count;
        *entry = *schedule;
        entry->key = 0;
        atomic_store_explicit((_Atomic uint64_t *)&entry->key, schedule->key,
                              memory_order_release);
    }
    (void)pthread_mutex_unlock(&lock);
    return number;
}

/* ---- spans --------------------------------------------------------------- */

/* Searches the table of names from the place `first` on. Returns the place of
   the name, or the number of names if the name is not found. */
static uint32_t trace_find(const baton__trace_t *trace, const char *name,
                           uint32_t first)
{
    /* Pairs with the store in trace_name. */
    const uint32_t count =
        atomic_load_explicit(&name_count, memory_order_acquire);
    while (first < count &&
           strncmp(trace->names[first].name, name, BATON_TRACE_NAME - 1) != 0) {
        first++;
    }
    return first;
}

/* Returns the place of a name in the table. Adds the name if it is new. If the
   table is full, returns the place of the name "other". */
static uint32_t trace_name(baton__trace_t *trace, const char *name)
{
    uint32_t at = trace_find(trace, name, 0);
    if (at < atomic_load_explicit(&name_count, memory_order_relaxed) ||
        at == BATON_TRACE_NAMES - 1) {
        return at;
    }
    (void)pthread_mutex_lock(&lock);
    at = trace_find(trace, name, at);
    if (at == atomic_load_explicit(&name_count, memory_order_relaxed) &&
        at < BATON_TRACE_NAMES - 1) {
        (void)snprintf(trace->names[at].name, BATON_TRACE_NAME, "%s", name);
        atomic_store_explicit(&name_count, at + 1, memory_order_release);
    }
    (void)pthread_mutex_unlock(&lock);
    return at;
}

void baton_trace_begin(const char *name)
{
    baton__trace_t *trace =
        atomic_load_explicit(&baton__trace.file, memory_order_acquire);
    if (trace != NULL) {
        const bool named = name != NULL && *name != '\0';
        baton__trace_add(&(baton_trace_record_t){
            .time_ns = baton__trace_now(false),
            .value = trace_name(trace, named ? name : "?"),
            .peer = -1,
            .what = BATON_TRACE_SPAN});
    }
}

void baton_trace_end(void)
{
    if (baton__trace_is_on()) {
        baton__trace_add(
            &(baton_trace_record_t){.time_ns = baton__trace_now(false),
                                    .peer = -1,
                                    .what = BATON_TRACE_SPAN_END});
    }
}
