/* What a call reports: a status, and a sentence about the last failure. */
#ifndef BATON_STATUS_H
#define BATON_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define BATON_CHECKED             __attribute__((warn_unused_result))
#define BATON_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define BATON_CHECKED
#define BATON_PRINTF(text, first)
#endif

/* Initialises a struct of options, in C and in C++: its size, by which the
   library knows the fields that the program was compiled with, and zero for the
   rest. The library accepts a smaller struct, of an older header, and takes the
   missing fields for zero; a larger one only when what it doesn't know is
   zero. */
#ifdef __cplusplus
#define BATON_INITIALIZER(type)                                                \
    ([] {                                                                      \
        type initial = {};                                                     \
        initial.size = sizeof initial;                                         \
        return initial;                                                        \
    }())
#else
#define BATON_INITIALIZER(type)                                                \
    {                                                                          \
        .size = sizeof(type)                                                   \
    }
#endif

/* Every status: name, value, text. Zero is success; BATON_SKIP is a call node's
   "do not go on from here"; BATON_DONE says that nothing more will come, where
   something could, BATON_AGAIN that it is not time yet; the negative ones are
   failures. */
#define BATON_STATUS_LIST(X)                                                   \
    X(BATON_OK, 0, "success")                                                  \
    X(BATON_SKIP, 1, "the branch behind this call node is not taken")          \
    X(BATON_DONE, 2, "done at once")                                           \
    X(BATON_AGAIN, 3, "not now: try again later")                              \
    X(BATON_ERR_INVALID, -1, "invalid argument")                               \
    X(BATON_ERR_STATE, -2, "the object is not in a state that allows this")    \
    X(BATON_ERR_BUSY, -3, "an epoch is still running")                         \
    X(BATON_ERR_NO_MEMORY, -4, "out of memory")                                \
    X(BATON_ERR_LIMIT, -5, "a limit of the transport or the type is exceeded") \
    X(BATON_ERR_UNSUPPORTED, -6, "not supported by this build or machine")     \
    X(BATON_ERR_CYCLE, -7, "dependency cycle")                                 \
    X(BATON_ERR_HAZARD, -8, "unordered conflicting accesses")                  \
    X(BATON_ERR_UNREACHABLE, -9, "a node can never fire")                      \
    X(BATON_ERR_MISMATCH, -10, "ranks disagree on a schedule or a message")    \
    X(BATON_ERR_TIMEOUT, -11, "timed out")                                     \
    X(BATON_ERR_CANCELLED, -12, "cancelled")                                   \
    X(BATON_ERR_FAILED, -13, "a node of the epoch failed")                     \
    X(BATON_ERR_TRANSPORT, -14, "the transport failed")                        \
    X(BATON_ERR_SYSTEM, -15, "a system call failed")                           \
    X(BATON_ERR_DEADLOCK, -16, "ranks wait for each other")

typedef enum baton_status {
#define BATON_STATUS_ENUM(name, value, text) name = (value),
    BATON_STATUS_LIST(BATON_STATUS_ENUM)
#undef BATON_STATUS_ENUM
} baton_status_t;

/* The status's identifier ("BATON_ERR_BUSY") and its text. Static strings, for
   any value; any thread. */
const char *baton_status_name(baton_status_t status);
const char *baton_status_text(baton_status_t status);

/* The full sentence about the last failed call of THIS thread: the object's
   name, actual against allowed, what to do. Owned by the library, valid until
   this thread's next failing call; "" when none failed yet. Never blocks. */
const char *baton_error_message(void);

/* For transports, devices and builders of your own: makes a sentence this
   thread's error message, and returns `status`. The library says around it
   which object met the error. */
baton_status_t baton_error_set(baton_status_t status, const char *format, ...)
    BATON_PRINTF(2, 3);

/* Log levels. A message is logged when its level is at most the one in force
   (BATON_LOG, default warn). error and warn are what no call returns: a stalled
   epoch, an unknown BATON_* variable, MPI_Finalize before the end of a group.
   info has the errors that calls return, too. */
typedef enum baton_log_level {
    BATON_LOG_NONE,
    BATON_LOG_ERROR,
    BATON_LOG_WARN,
    BATON_LOG_INFO,
    BATON_LOG_DEBUG,
    BATON_LOG_TRACE
} baton_log_level_t;

/* Receives one message without a trailing newline. May be called from the
   progress thread; no lock of the library is held. */
typedef void (*baton_log_fn)(void *arg, baton_log_level_t level,
                             const char *message);

/* Installs the process's log handler (NULL removes it). Without one, messages
   go to standard error. Call before engines are opened; not thread-safe. */
void baton_log_set(baton_log_fn handler, void *arg);

#ifdef __cplusplus
}
#endif
#endif
