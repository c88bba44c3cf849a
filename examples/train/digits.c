#include "task.h"
#include "train.h"

#include <stdlib.h>
#include <zlib.h>

#define PACKAGED                                                               \
    "/usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz"

enum { LARGEST_PIXEL = 16, LINE_BYTES = 512 };

/* Reads 64 pixels and a label: numbers with commas between them. */
static bool read_line(const char *line, float *pixels, float *label)
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
            *label = (float)value;
        }
        line = end + 1;
    }
    return true;
}

/* zlib reads a file that is not compressed as it is. */
static bool read_file(const char *name, float *pixels, float *labels)
{
    char line[LINE_BYTES];
    gzFile file = gzopen(name, "rb");
    bool read = file != NULL;
    for (size_t i = 0; read && i < DIGITS_COUNT; i++) {
        read = gzgets(file, line, sizeof line) != NULL &&
               read_line(line, &pixels[i * DIGITS_PIXELS], &labels[i]);
    }
    if (file != NULL) {
        read = read && gzgets(file, line, sizeof line) == NULL;
        (void)gzclose(file);
    }
    return read;
}

static void generate(float *pixels, float *labels)
{
    for (size_t i = 0; i < DIGITS_COUNT; i++) {
        size_t label = (size_t)(uniform(LABELS, i) * DIGITS_CLASSES);
        labels[i] = (float)label;
        for (size_t p = 0; p < DIGITS_PIXELS; p++) {
            size_t k = i * DIGITS_PIXELS + p;
            double value = uniform(PROTOTYPES, label * DIGITS_PIXELS + p) +
                           1.5 * (uniform(NOISE, k) - 0.5);
            pixels[k] = (float)(value < 0 ? 0 : value > 1 ? 1 : value);
        }
    }
}

/* Fisher and Yates's; the file has the images in the order of their writers. */
static void shuffle(float *pixels, float *labels)
{
    for (size_t i = DIGITS_COUNT - 1; i > 0; i--) {
        size_t other = (size_t)(uniform(ORDER, i) * (double)(i + 1));
        float label = labels[i];
        labels[i] = labels[other];
        labels[other] = label;
        for (size_t p = 0; p < DIGITS_PIXELS; p++) {
            float *own = &pixels[i * DIGITS_PIXELS + p], pixel = *own;
            *own = pixels[other * DIGITS_PIXELS + p];
            pixels[other * DIGITS_PIXELS + p] = pixel;
        }
    }
}

const char *digits_load(const char *file, float *pixels, float *labels)
{
    const char *const names[] = {DIGITS_FILE, PACKAGED};
    const char *source = file;
    if (file != NULL && !read_file(file, pixels, labels)) {
        die("--digits: the file is not of 1797 digits");
    }
    for (int i = 0; source == NULL && i < 2; i++) {
        source = read_file(names[i], pixels, labels) ? names[i] : NULL;
    }
    if (source == NULL) {
        generate(pixels, labels);
        source = "made up (scripts/digits.sh fetches real ones)";
    }
    shuffle(pixels, labels);
    return source;
}
