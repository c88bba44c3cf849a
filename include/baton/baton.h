/* Baton: collective communication as persistent schedules. The library's map:

     status.h     what calls report; error messages; the log handler
     types.h      element types, reductions, kinds of memory
     engine.h     what runs schedules: its progress thread, or manual progress
     group.h      P ranks that can send each other messages; recovery
     schedule.h   build a DAG of nodes for this rank, commit it, run it
     coll.h       builders: every dense collective, by algorithm; activation
     costs.h      what messages and copies cost on this machine
     tuning.h     the costs of algorithms, and the choice between them
     partial.h    solo, majority and full all-reduce over any inner builder
     select.h     the largest elements of a vector; sparse lists of entries
     sparse.h     sparse all-reduce with a residual: SparDL and others
     memory.h     buffers that peers on the same host read in place
     inproc.h     groups inside one process
     sim.h        all ranks in virtual time: costs, faults, traces
     proof.h      whose data is in a result, symbolically
     device.h     buffers on an accelerator, epochs in stream order; its port
     transport.h  the port, to bring a transport of your own
     mpi.h        groups over MPI: include it yourself, it needs mpi.h

   Examples are in examples/, the architecture is in lib/README.md. */
#ifndef BATON_BATON_H
#define BATON_BATON_H

#include <baton/coll.h>
#include <baton/costs.h>
#include <baton/device.h>
#include <baton/engine.h>
#include <baton/group.h>
#include <baton/inproc.h>
#include <baton/memory.h>
#include <baton/partial.h>
#include <baton/proof.h>
#include <baton/schedule.h>
#include <baton/select.h>
#include <baton/sim.h>
#include <baton/sparse.h>
#include <baton/status.h>
#include <baton/tensors.h>
#include <baton/transport.h>
#include <baton/tuning.h>
#include <baton/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BATON_VERSION_MAJOR 0
#define BATON_VERSION_MINOR 1
#define BATON_VERSION_PATCH 0

/* "0.1.0", of the library that is linked. */
const char *baton_version(void);

/* ---- what baton-info prints ------------------------------------------- */

/* One BATON_* variable: static strings, and the value in force. */
typedef struct baton_variable {
    const char *name;
    const char *unit;
    const char *summary;
    const char *default_value;
    const char *value;
} baton_variable_t;

/* The i-th variable of the table; false past its end. */
bool baton_variable_get(size_t i, baton_variable_t *out);

/* The instruction set that the reduction kernels use here: "avx512", "avx2",
   "baseline". */
const char *baton_kernels_name(void);

#ifdef __cplusplus
}
#endif
#endif
