/* The costs, on this machine, of a message and of a copy to a device (alpha,
   plus beta per byte), and of reductions. The compiled-in costs are rough.
   `mpirun ... baton-info --calibrate FILE` measures them; with
   BATON_CALIBRATION=FILE the library reads the file, once. (Device costs are
   not measured: edit the line `device ALPHA_US BETA_NS`.) Threads: any. */
#ifndef BATON_COSTS_H
#define BATON_COSTS_H

#include <baton/baton.h>

#ifdef __cplusplus
extern "C" {
#endif

/* All costs are 0 or more. */
typedef struct baton_costs {
    size_t size;              /* set by BATON_COSTS */
    baton_link_cost_t inside; /* a message inside a host */
    /* a message between hosts, while messages go both ways */
    baton_link_cost_t between;
    double gamma_ns;          /* cost of reducing a byte */
    baton_link_cost_t device; /* a copy between a host and its device */
    double turn_us; /* how long a waiting rank keeps a shared processor */
} baton_costs_t;

#define BATON_COSTS BATON_INITIALIZER(baton_costs_t)

/* Gets the costs in force: those of the file that BATON_CALIBRATION names, or,
   without such a file, the compiled-in ones. Initialise `out` with BATON_COSTS;
   its size says which fields are filled. BATON_ERR_INVALID: out is NULL or not
   initialised. Other errors as for baton_costs_read; but with
   BATON_TUNE=measure a file that can't be read is warned of, once, and the
   compiled-in costs are in force. */
BATON_CHECKED baton_status_t baton_costs_get(baton_costs_t *out);

/* baton_costs_write writes a calibration file, which names this machine and the
   version of the file format. baton_costs_read reads such a file into `out`,
   and fills `out` as baton_costs_get does. Costs are finite and not negative.
   BATON_ERR_SYSTEM: the file can't be opened or written. BATON_ERR_INVALID: a
   pointer is NULL, a size is impossible, or a cost or a line of the file is
   wrong; the message says how it must be. BATON_ERR_UNSUPPORTED: the file is of
   another version or machine, which the message names. On an error `out` is
   unchanged; but a failed write may leave a broken file. A file may name more
   machines, in lines `machine NAME` at its end: all use the same costs, so that
   a cluster of several models chooses the same algorithms. */
BATON_CHECKED baton_status_t baton_costs_write(const char *path,
                                               const baton_costs_t *costs);
BATON_CHECKED baton_status_t baton_costs_read(const char *path,
                                              baton_costs_t *out);

/* This machine's name in calibration files: the model and number of its
   processors; a static string. */
const char *baton_machine_name(void);

#ifdef __cplusplus
}
#endif
#endif
