/* Text under construction in memory of a fixed size. */
#pragma once

#include <baton/build.h>
#include <stdarg.h>
#include <stddef.h>

/* The longest error or log message, with its final zero. */
#define BATON__MESSAGE_BYTES 1024

/* What is said where a type is needed and there is none: takes its number. */
#define BATON__WRONG_DTYPE                                                     \
    "dtype is %d, which is no element type; set BATON_F32 "                    \
    "or another of baton_dtype_t"

typedef struct baton__text {
    char *data;
    size_t size; /* of the memory */
    size_t used; /* without the final zero */
} baton__text_t;

/* Appends, in the C locale whatever the program's is. The text never overflows;
   one that was cut ends with "...". Names come from outside: what stands in
   quotes, "%s", is cut to so many bytes, and control characters become '?'. */
enum { BATON__QUOTED_BYTES = 200 };
void baton__text_add(baton__text_t *text, const char *format, ...)
    BATON_PRINTF(2, 3);
void baton__text_add_list(baton__text_t *text, const char *format,
                          va_list values) BATON_PRINTF(2, 0);

/* A time, as "2.5 s" or "30 ms", for one message of this thread. */
const char *baton__time_text(uint64_t ns);

/* Replaces the last characters of a message that was cut by "...". */
void baton__text_mark_cut(char *data, size_t size);

/* Reads a decimal number, in the C locale whatever the program's is. Returns
   what comes behind it, or NULL where there is none. */
const char *baton__read_number(const char *text, double *out);

/* The number of single-letter edits from a to b, of which the first 47 letters
   count: the smallest finds the name that was meant. */
size_t baton__edit_distance(const char *a, const char *b);
