#include "digits.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define PACKAGED                                                               \
    "/usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz"

enum { LARGEST_PIXEL = 16, LINE_BYTES = 512 };

/* ---- random numbers --------------------------------------------------- */

/* The k-th of a stream (splitmix64), from 0 to 1. */
static double uniform(uint64_t stream, uint64_t k)
{
    uint64_t x = (stream << 40) + (k + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((x ^ (x >> 31)) >> 11) / 9007199254740992.0;
}

enum { ORDER, LABELS, NOISE, PROTOTYPES };

/* ---- a file ----------------------------------------------------------- */

/* Reads 64 pixels and a label: numbers with commas between them. */
static bool read_line(const char *line, float *pixels, uint8_t *label)
{
    for (int i = 0; i <= DIGITS_PIXELS; i++) {
        char *end = NULL;
        double most = i < DIGITS_PIXELS ? LARGEST_PIXEL : DIGITS_CLASSES - 1;
        double value = strtod(line, &end);
        if (end == line || !(value >= 0 && value <= most) ||
            *end != (i < DIGITS_PIXELS ? ',' : '\n')) {
            return false;
        }
        if (i < DIGITS_PIXELS) {
            pixels[i] = (float)(value / LARGEST_PIXEL);
        } else {
            *label = (uint8_t)value;
        }
        line = end + 1;
    }
    return true;
}

static bool read_lines(gzFile file, digits_t *out)
{
    char line[LINE_BYTES];
    for (size_t i = 0; i < out->count; i++) {
        if (gzgets(file, line, sizeof line) == NULL ||
            !read_line(line, &out->pixels[i * DIGITS_PIXELS], &out->label[i])) {
            return false;
        }
    }
    return gzgets(file, line, sizeof line) == NULL;
}

/* zlib reads a file that is not compressed as it is. */
static bool read_file(const char *name, digits_t *out)
{
    gzFile file = gzopen(name, "rb");
    bool read = file != NULL && read_lines(file, out);
    if (file != NULL) {
        (void)gzclose(file);
    }
    return read;
}

/* ---- a substitute ----------------------------------------------------- */

static float made_up(size_t image, uint8_t label, size_t pixel)
{
    size_t k = image * DIGITS_PIXELS + pixel;
    double value = uniform(PROTOTYPES, (size_t)label * DIGITS_PIXELS + pixel) +
                   1.5 * (uniform(NOISE, k) - 0.5);
    return (float)(value < 0 ? 0 : value > 1 ? 1 : value);
}

static void generate(digits_t *out)
{
    for (size_t i = 0; i < out->count; i++) {
        out->label[i] = (uint8_t)(uniform(LABELS, i) * DIGITS_CLASSES);
        for (size_t k = 0; k < DIGITS_PIXELS; k++) {
            out->pixels[i * DIGITS_PIXELS + k] = made_up(i, out->label[i], k);
        }
    }
    out->generated = true;
    out->source = "made up (scripts/digits.sh fetches real ones)";
}

/* ---- both ------------------------------------------------------------- */

static void swap(digits_t *digits, size_t a, size_t b)
{
    float image[DIGITS_PIXELS];
    float *left = &digits->pixels[a * DIGITS_PIXELS];
    float *right = &digits->pixels[b * DIGITS_PIXELS];
    uint8_t label = digits->label[a];
    memcpy(image, left, sizeof image);
    memmove(left, right, sizeof image);
    memcpy(right, image, sizeof image);
    digits->label[a] = digits->label[b];
    digits->label[b] = label;
}

/* Fisher and Yates's; the file has the images in the order of their writers. */
static void shuffle(digits_t *digits)
{
    for (size_t i = digits->count - 1; i > 0; i--) {
        swap(digits, i, (size_t)(uniform(ORDER, i) * (double)(i + 1)));
    }
}

/* Uses the first file that is there; what is named by the user has to be. */
static bool fill(const char *file, digits_t *out)
{
    const char *const names[] = {DIGITS_FILE, PACKAGED};
    if (file != NULL) {
        bool read = read_file(file, out);
        out->source = read ? file : "the file is not of 1797 digits";
        return read;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (read_file(names[i], out)) {
            out->source = names[i];
            return true;
        }
    }
    generate(out);
    return true;
}

bool digits_load(const char *file, digits_t *out)
{
    *out = (digits_t){
        .count = DIGITS_COUNT,
        .pixels =
            calloc((size_t)DIGITS_COUNT * DIGITS_PIXELS, sizeof *out->pixels),
        .label = calloc(DIGITS_COUNT, sizeof *out->label),
        .source = "there is no memory",
    };
    if (out->pixels == NULL || out->label == NULL || !fill(file, out)) {
        const char *reason = out->source;
        digits_free(out);
        out->source = reason;
        return false;
    }
    shuffle(out);
    return true;
}

void digits_free(digits_t *digits)
{
    free(digits->pixels);
    free(digits->label);
    *digits = (digits_t){0};
}
