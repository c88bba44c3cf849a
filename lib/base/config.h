/* The table of BATON_* variables, read once per process. */
#pragma once

#include <baton/memory.h>

#define BATON__CONFIG_PREFIX "BATON_"
/* The library ignores variables with this prefix. */
#define BATON__CONFIG_EXTENSION "BATON_X_"
/* Variables with this prefix are read by libbaton_mpi alone. */
#define BATON__CONFIG_MPI "BATON_MPI_"

/* Every variable, by its name without BATON_:
     NUMBER(name, default, smallest, largest, unit, sentence)
     TEXT(name, default, sentence)
     WORD(name, default, the words allowed, sentence) */
#define BATON__CONFIG_LIST(NUMBER, TEXT, WORD)                                 \
    WORD(PROGRESS, "thread", "thread manual",                                  \
         "What makes progress: a thread of the library, or the application's " \
         "calls (manual)")                                                     \
    TEXT(PLACEMENT, "none",                                                    \
         "Where the progress thread runs: anywhere (none), or an hwloc "       \
         "type:index")                                                         \
    NUMBER(SPIN, 32, 0, 1000000, "polls",                                      \
           "Polls without a pause while something is in flight")               \
    NUMBER(YIELD_US, 1000, 0, 1000000, "us",                                   \
           "How long a wait then yields between polls before it "              \
           "sleeps; 0: not at all. With 256 KiB of messages or more, "         \
           "at least 2 ns a byte, up to 100 ms. The progress thread, "         \
           "and a start where ranks share processors, yield for a "            \
           "fifth of that")                                                    \
    NUMBER(SLEEP_US, 10000, 20, 1000000, "us",                                 \
           "Longest sleep while waiting for a rank that can't wake this one")  \
    NUMBER(WINDOW, 32, 2, 256, "messages",                                     \
           "Messages to a peer that may be in flight without an answer")       \
    NUMBER(FAR_PART, 61440, 1024, 1073741824, "bytes",                         \
           "Size of the MPI messages that carry long data between "            \
           "hosts, 8 at a time; over TCP, sizes that MPI sends "               \
           "eagerly are fastest")                                              \
    NUMBER(SHM, 1, 0, 1, "",                                                   \
           "0: ranks of one host send all messages over MPI, too")             \
    NUMBER(SHM_BUFFERS, 8, 0, 8, "buffers",                                    \
           "Shared memory of a rank for messages of up to 68 KiB on its host") \
    NUMBER(SHM_MEMORY, 1048576, 0, 1048576, "MiB",                             \
           "Limit of a rank's memory that ranks of its host read in place: "   \
           "scratch, and what baton_memory_alloc returns")                     \
    NUMBER(CMA, 1, 0, 1, "",                                                   \
           "0: ranks do not read each other's memory, even where they may")    \
    NUMBER(PEER_TIMEOUT_MS, 30000, 0, 86400000, "ms",                          \
           "A rank that others wait for counts as lost if it does not "        \
           "answer for this long, since it is stopped or its host can't "      \
           "be reached; 0: never")                                             \
    NUMBER(MINORITY, 0, 0, 1, "",                                              \
           "1: after a partition each side goes on, with results of its own, " \
           "instead of the larger one alone")                                  \
    NUMBER(STALL_MS, 5000, 1, 86400000, "ms",                                  \
           "An epoch that makes no progress for this long is logged")          \
    NUMBER(DESTROY_MS, 10000, 0, 86400000, "ms",                               \
           "How long destroy waits for a running epoch before it cancels it")  \
    NUMBER(VERIFY, 0, 0, 1, "",                                                \
           "1: commit fails on all ranks if sends and receives do not match "  \
           "or would deadlock")                                                \
    WORD(TUNE, "model", "model measure",                                       \
         "measure: time the algorithms for each size when it is first used")   \
    TEXT(LIBRARY, "",                                                          \
         "File of this library that the Python package loads; if unset, "      \
         "the package searches for one")                                       \
    TEXT(CALIBRATION, "",                                                      \
         "File that baton-info --calibrate wrote; if unset, "                  \
         "costs are estimates")                                                \
    NUMBER(DEVICE_BLOCK, 0, 0, 1073741824, "bytes",                            \
           "Size of the blocks in which device memory passes "                 \
           "through the host, at least 4096; 0: chosen for each "              \
           "message")                                                          \
    NUMBER(DEVICE_BUFFERS, 8, 2, 1024, "blocks",                               \
           "Host memory of a group for such blocks, in each direction")        \
    NUMBER(DEVICE_DIRECT, 1, 0, 1, "",                                         \
           "0: devices do not copy from each other's memory, even where they " \
           "can")                                                              \
    WORD(GPU_AWARE_MPI, "auto", "0 1 auto",                                    \
         "Whether MPI accepts device memory in messages between hosts; auto: " \
         "what MPI reports")                                                   \
    TEXT(STORE, "",                                                            \
         "Folder that all hosts see, where the ranks of "                      \
         "baton_group_create_world meet; if unset, one of this host")          \
    TEXT(BROADCAST, "", "Algorithm of broadcasts; if unset, the cheapest")     \
    TEXT(REDUCE, "", "Algorithm of reduces; if unset, the cheapest")           \
    TEXT(ALLREDUCE, "", "Algorithm of all-reduces; if unset, the cheapest")    \
    TEXT(REDUCE_SCATTER, "",                                                   \
         "Algorithm of reduce-scatters; if unset, the cheapest")               \
    TEXT(ALLGATHER, "", "Algorithm of all-gathers; if unset, the cheapest")    \
    TEXT(ALLTOALL, "", "Algorithm of all-to-alls; if unset, the cheapest")     \
    TEXT(TRACE, "",                                                            \
         "Folder in which each process keeps a trace of what it does; if "     \
         "unset, there is none")                                               \
    NUMBER(TRACE_RECORDS, 65536, 1024, 268435456, "records",                   \
           "How many of the last records a process keeps there, of 40 bytes "  \
           "each; a power of two")                                             \
    WORD(LOG, "warn", "none error warn info debug trace",                      \
         "Log level; info: also the errors that calls return")                 \
    WORD(ISA, "auto", "auto baseline avx2 avx512",                             \
         "Instruction set of the reduction kernels")                           \
    TEXT(SEED, "", "Seed of randomised tests and benchmarks")

typedef enum baton__config_id {
#define BATON__CONFIG_ID(id, ...) BATON__CONFIG_##id,
    BATON__CONFIG_LIST(BATON__CONFIG_ID, BATON__CONFIG_ID, BATON__CONFIG_ID)
#undef BATON__CONFIG_ID
        BATON__CONFIG_COUNT
} baton__config_id_t;

/* Both functions return the value in use. The first call of either of them
   reads the environment; an empty variable counts as unset, and an invalid one
   has its default. The number of a WORD is its index among the words allowed.
   Any thread may call these functions. */
int64_t baton__config_number(baton__config_id_t id);
const char *baton__config_text(baton__config_id_t id);

/* Returns a message that names the first invalid variable and its allowed
   values; "" if all variables are valid. */
const char *baton__config_error(void);

/* Returns true only to the first caller after the environment was read. That
   caller must report errors in the environment. */
bool baton__config_is_unchecked(void);

/* Returns BATON_ERR_INVALID if a variable is invalid; the message names the
   first one and its allowed values. The first call also logs this error, and a
   warning for each unknown BATON_* variable, with the nearest name. This
   function is in config_check.c. Any thread may call it. */
baton_status_t baton__config_check(void);

/* Called when the file of BATON_CALIBRATION could not be read; `status` is the
   error. Adds the variable's name to this thread's error message, and returns
   the status. With BATON_TUNE=measure, which needs no file, it warns once and
   returns BATON_OK instead, unless the error is a lack of memory. */
baton_status_t baton__calibration_failed(baton_status_t status);

/* For tests: makes the next use read the environment again. Must not be called
   while another thread uses the library. */
void baton__config_forget(void);
