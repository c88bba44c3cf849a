/* A random program on a rank with an emulated device. */
#pragma once

#include "support/emulated.h"
#include "support/program.h"

typedef struct device_program {
    program_part_t part; /* first: its functions get it */
    emulated_t *device;
} device_program_t;

/* Allocates the memory of bound slots, and sets all that program_build needs.
   Aborts when there is no memory. */
void device_program_open(device_program_t *self, const program_t *program,
                         int rank, emulated_t *device);
void device_program_close(device_program_t *self);

/* Writes a slot, at once; and whether one holds this. Of scratch nothing is
   written, and it holds anything. */
void device_program_write(const device_program_t *self, int slot,
                          const unsigned char *contents);
bool device_program_holds(const device_program_t *self, int slot,
                          const unsigned char *right);
