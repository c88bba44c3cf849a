/* What messages, reductions and copies to a device cost on this machine: alpha
   for each and beta for each byte. What is compiled in are rough figures;
   `mpirun ... baton-info --calibrate FILE` measures, and BATON_CALIBRATION=FILE
   has them read. (The costs of a device are not measured: edit the file's line
   `device ALPHA_US BETA_NS`.) Any thread. */
#ifndef BATON_COSTS_H
#define BATON_COSTS_H

#include <baton/baton.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct baton_costs {
    size_t size;               /* set by BATON_COSTS */
    baton_link_cost_t inside;  /* a host */
    baton_link_cost_t between; /* hosts */
    double gamma_ns;           /* a reduced byte */
    baton_link_cost_t device;  /* a copy between a host and its device */
    double turn_us; /* that a rank which waits keeps a processor it shares */
} baton_costs_t;

#define BATON_COSTS BATON_INITIALIZER(baton_costs_t)

/* The costs in force: of the file that BATON_CALIBRATION names, else those
   compiled in. Fills the fields that `out`, initialised with BATON_COSTS, has
   by its size. BATON_ERR_INVALID: out is NULL or was not initialised; and
   otherwise, as _UNSUPPORTED and _SYSTEM: see read. */
BATON_CHECKED baton_status_t baton_costs_get(baton_costs_t *out);

/* Writes a file of costs, which names this machine and the version of its form;
   reads one into `out`, as get does. Costs are finite and not negative.
   BATON_ERR_SYSTEM: the file can't be opened or written. BATON_ERR_INVALID: a
   pointer is NULL or a size impossible; or names the cost or the line that is
   wrong, and what it must be. BATON_ERR_UNSUPPORTED: the file is of another
   version, or of another machine, which is named beside this one. Nothing is
   stored, and no file is written, then. */
BATON_CHECKED baton_status_t baton_costs_write(const char *path,
                                               const baton_costs_t *costs);
BATON_CHECKED baton_status_t baton_costs_read(const char *path,
                                              baton_costs_t *out);

/* What a calibration is of: the processor's name and how many there are. */
const char *baton_machine_name(void);

#ifdef __cplusplus
}
#endif
#endif
