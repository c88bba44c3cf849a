/* The conformance suite of transports with messages of device memory: the
   staged transport around another one, over emulated devices. */
#ifndef TESTS_SUPPORT_CONFORMANCE_DEVICE_H
#define TESTS_SUPPORT_CONFORMANCE_DEVICE_H

#include "support/conformance.h"
#include "support/emulated.h"

/* Of `share` ends of messages in four are in device memory. */
typedef struct conformance_staging {
    const char *name;
    const char *block, *buffers; /* of BATON_DEVICE_BLOCK and _BUFFERS */
    uint32_t share;
    bool direct, no_handles;
} conformance_staging_t;

enum {
    CONFORMANCE_STAGED_BLOCKS,
    CONFORMANCE_STAGED_NO_HANDLES,
    CONFORMANCE_STAGED_MIXED,
    CONFORMANCE_STAGINGS
};
extern const conformance_staging_t conformance_stagings[CONFORMANCE_STAGINGS];

/* Gives the rank a device, and puts the staged transport around its own; sets
   variables of this process. False: an error, with its message. close_device
   comes after the endpoint's close; it returns NULL, or what was wrong with the
   use of the device. */
bool conformance_stage(conformance_rank_t *rank,
                       const conformance_staging_t *staging);
const char *conformance_close_device(conformance_rank_t *rank);

#endif
