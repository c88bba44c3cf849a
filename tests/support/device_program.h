/* A random program on a rank with an emulated device. */
#pragma once

#include "support/emulated.h"
#include "support/program.h"

typedef struct device_program {
    /* This is the first field, so that the address of a program_part_t can be
       cast to this type. */
    program_part_t part;
    emulated_t *device;
} device_program_t;

/* Allocates the memory of bound slots, and sets all fields that program_build
   needs. Aborts if there is no memory. */
void device_program_open(device_program_t *self, const program_t *program,
                         int rank, emulated_t *device);
void device_program_close(device_program_t *self);

/* device_program_write writes a slot at once. device_program_holds returns
   whether a slot has the contents `right`. For a scratch slot
   device_program_write does nothing, and device_program_holds returns true. */
void device_program_write(const device_program_t *self, int slot,
                          const unsigned char *contents);
bool device_program_holds(const device_program_t *self, int slot,
                          const unsigned char *right);
