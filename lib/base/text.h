/* Text under construction in memory of a fixed size. */
#pragma once

#include <baton/build.h>
#include <stdarg.h>

/* The longest error or log message, with its final zero. */
#define BATON__MESSAGE_BYTES 1024

/* The message about an invalid dtype; its argument is the number. */
#define BATON__WRONG_DTYPE                                                     \
    "dtype is %d, which is no element type; set BATON_F32 "                    \
    "or another of baton_dtype_t"

typedef struct baton__text {
    char *data;
    size_t size; /* size of the memory in bytes */
    size_t used; /* length of the text in bytes, without the final zero */
} baton__text_t;

/* Returns an empty text with memory of its own, which lasts as long as the
   block where this is called. */
#define BATON__TEXT(bytes) ((baton__text_t){(char[bytes]){0}, (bytes), 0})

/* Appends text that is formatted in the C locale, whatever the program's locale
   is. If the text does not fit, it is cut and ends with "...". Names in
   messages come from outside of the library: a quoted string, "%s", is cut to
   BATON__QUOTED_BYTES, and control characters become '?'. */
enum { BATON__QUOTED_BYTES = 200 };
void baton__text_add(baton__text_t *text, const char *format, ...)
    BATON_PRINTF(2, 3);
void baton__text_add_list(baton__text_t *text, const char *format,
                          va_list values) BATON_PRINTF(2, 0);

/* Appends to `text` what the function that uses this macro was given to format:
   the last parameters of that function are `format, ...`. */
#define BATON__TEXT_ADD_ARGUMENTS(text, format)                                \
    do {                                                                       \
        va_list arguments;                                                     \
        va_start(arguments, format);                                           \
        baton__text_add_list(text, format, arguments);                         \
        va_end(arguments);                                                     \
    } while (0)

/* Returns a time as text, "2.5 s" or "30 ms". The text is valid until this
   thread's next call. */
const char *baton__time_text(uint64_t ns);

/* Replaces the last characters of a cut message by "...". */
void baton__text_mark_cut(char *data, size_t size);

/* Reads a decimal number in the C locale, whatever the program's locale is.
   Returns a pointer to the text after the number, or NULL if there is no
   number. */
const char *baton__read_number(const char *text, double *out);

/* Returns the number of insertions, deletions and replacements of one letter
   that turn a into b. Of b only the first 47 letters count. */
size_t baton__edit_distance(const char *a, const char *b);
