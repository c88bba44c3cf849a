/* Handwritten digits to train with: 1,797 images of 8 x 8 pixels and the digit
   that each shows (Alpaydin, Kaynak 1998). Debian's package python3-sklearn has
   them in a file, and scripts/digits.sh takes that file alone out of the
   package. Where there is none, the images are made up: ten random prototypes
   with noise, the same on every machine. */
#ifndef EXAMPLES_DIGITS_H
#define EXAMPLES_DIGITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DIGITS_COUNT = 1797, DIGITS_PIXELS = 64, DIGITS_CLASSES = 10 };

typedef struct digits {
    size_t count;       /* DIGITS_COUNT */
    float *pixels;      /* [count][DIGITS_PIXELS], from 0 to 1 */
    uint8_t *label;     /* [count], from 0 to 9 */
    bool generated;     /* the images are made up: programs say so */
    const char *source; /* where they come from, in words */
} digits_t;

/* Loads the images in a random order that is always the same, so that any part
   of them has all digits. Looks for `file` (.csv or .csv.gz), or if it is NULL
   for what scripts/digits.sh has written and for the package's file. False when
   `file` can't be read as digits, or there is no memory; the reason is in
   `source`. */
bool digits_load(const char *file, digits_t *out);

void digits_free(digits_t *digits);

#endif
