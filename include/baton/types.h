/* Statuses, element types and reductions, for all other headers. */
#ifndef BATON_TYPES_H
#define BATON_TYPES_H

#include <baton/dtypes.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define BATON_CHECKED __attribute__((warn_unused_result))
#else
#define BATON_CHECKED
#endif

/* Initialises a struct that begins with its size; all other fields are zero,
   which means default. So a program may use an older header than its library,
   or a newer one if the fields that the library does not know are zero. */
#ifdef __cplusplus
#define BATON_INITIALIZER(type)                                                \
    ([](type o) { return o.size = sizeof o, o; }(type()))
#else
#define BATON_INITIALIZER(type)                                                \
    {                                                                          \
        .size = sizeof(type)                                                   \
    }
#endif

/* Every status: name, value, text. Zero is success, negative values are
   failures; SKIP, DONE and AGAIN are for programs that include build.h. */
#define BATON_STATUS_LIST(X)                                                   \
    X(BATON_OK, 0, "success")                                                  \
    X(BATON_SKIP, 1, "the branch after this call node is not taken")           \
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
    X(BATON_ERR_DEADLOCK, -16, "ranks wait for each other")                    \
    X(BATON_ERR_INTERRUPTED, -17, "the wait was interrupted, and may go on")

typedef enum baton_status {
#define BATON_STATUS_ENUM(name, value, text) name = (value),
    BATON_STATUS_LIST(BATON_STATUS_ENUM)
#undef BATON_STATUS_ENUM
} baton_status_t;

/* Return the identifier ("BATON_ERR_BUSY") and the text of any status. */
const char *baton_status_name(baton_status_t status);
const char *baton_status_text(baton_status_t status);

/* The message of the last failed call of THIS thread: it names the object, the
   actual and the allowed value, and the remedy. Valid until this thread's next
   failed call; "" if none has failed. Never blocks. */
const char *baton_error_message(void);

/* Return the bytes of an element (0 if `dtype` is no type), and the type's
   name, such as "i8". baton_dtype_find finds the type of a name. The types are
   in dtypes.h. */
size_t baton_dtype_size(baton_dtype_t dtype);
const char *baton_dtype_name(baton_dtype_t dtype);
BATON_CHECKED baton_status_t baton_dtype_find(const char *name,
                                              baton_dtype_t *out);

/* Reductions: SUM, PROD of integers (which wrap), floats and complex; MIN, MAX
   of integers and floats (a NaN gives a NaN); BAND to LXOR of integers and
   bool; MINLOC, MAXLOC of pairs; AVG of floats and complex, but not in scans.
   AVG adds and then divides: if the sum overflows (f16 above 65504), the mean
   is infinite (build.h). An error of baton_op_find lists the names. */
typedef struct baton_op baton_op_t;
BATON_CHECKED baton_status_t baton_op_find(const char *name,
                                           const baton_op_t **out);
extern const baton_op_t baton_op_sum, baton_op_prod, baton_op_min, baton_op_max,
    baton_op_band, baton_op_bor, baton_op_bxor, baton_op_land, baton_op_lor,
    baton_op_lxor, baton_op_minloc, baton_op_maxloc, baton_op_avg;
#define BATON_SUM    (&baton_op_sum)
#define BATON_PROD   (&baton_op_prod)
#define BATON_MIN    (&baton_op_min)
#define BATON_MAX    (&baton_op_max)
#define BATON_BAND   (&baton_op_band)
#define BATON_BOR    (&baton_op_bor)
#define BATON_BXOR   (&baton_op_bxor)
#define BATON_LAND   (&baton_op_land)
#define BATON_LOR    (&baton_op_lor)
#define BATON_LXOR   (&baton_op_lxor)
#define BATON_MINLOC (&baton_op_minloc)
#define BATON_MAXLOC (&baton_op_maxloc)
#define BATON_AVG    (&baton_op_avg)

/* Where a buffer's bytes are: main memory, or an accelerator's (device.h). */
typedef enum baton_memory {
    BATON_MEMORY_HOST,
    BATON_MEMORY_DEVICE
} baton_memory_t;

#ifdef __cplusplus
}
#endif
#endif
