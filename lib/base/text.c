/* Text under construction; see text.h. */
#include "base/text.h"

#include <assert.h>
#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void baton__text_mark_cut(char *data, size_t size)
{
    static const char dots[] = "...";
    if (size >= sizeof dots) {
        memcpy(data + size - sizeof dots, dots, sizeof dots);
    }
}

/* The C locale. Other ranks and programs read the texts, so numbers must have a
   decimal point, whatever the program's locale is. In glibc this locale object
   is static, so nothing frees it. */
static locale_t text_locale;

static void text_make_locale(void)
{
    text_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

static locale_t text_find_locale(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, text_make_locale);
    return text_locale;
}

/* Copies a format, and adds a precision to each quoted string, "%s", so that
   long names are cut. Returns the original format if it has no quoted string,
   or if `out` is too short. */
static const char *limit_quoted(const char *format, char *out, size_t size)
{
    static const char quoted[] = "\"%s\"";
    size_t used = 0;
    const char *from = format;
    const char *found = strstr(from, quoted);
    for (; found != NULL; found = strstr(from, quoted)) {
        used +=
            (size_t)snprintf(out + used, size - used, "%.*s\"%%.%ds\"",
                             (int)(found - from), from, BATON__QUOTED_BYTES);
        from = found + sizeof quoted - 1;
        if (used >= size) {
            return format;
        }
    }
    const size_t rest = strlen(from) + 1;
    if (used == 0 || rest > size - used) {
        return format;
    }
    memcpy(out + used, from, rest);
    return out;
}

/* Replaces control characters by '?', from `from` on. Newlines outside of
   quotes stay. */
static void replace_control(char *text, const char *from)
{
    bool quoted = false;
    for (; *text != '\0'; text++) {
        quoted ^= *text == '"';
        if (text >= from && ((unsigned char)*text < ' ' || *text == 127) &&
            (*text != '\n' || quoted)) {
            *text = '?';
        }
    }
}

void baton__text_add_list(baton__text_t *text, const char *format,
                          va_list values)
{
    assert(text->used < text->size);
    char limited[BATON__MESSAGE_BYTES];
    size_t left = text->size - text->used;
    char *added = text->data + text->used;
    locale_t before = uselocale(text_find_locale());
    int length = vsnprintf(
        added, left, limit_quoted(format, limited, sizeof limited), values);
    (void)uselocale(before);
    if (length < 0) {
        /* The C library could not format the addition: the text stays as it
           was. */
        added[0] = '\0';
    } else if ((size_t)length < left) {
        text->used += (size_t)length;
    } else {
        text->used = text->size - 1;
        baton__text_mark_cut(text->data, text->size);
    }
    replace_control(text->data, added);
}

const char *baton__time_text(uint64_t ns)
{
    static _Thread_local char memory[32];
    baton__text_t text = {memory, sizeof memory, 0};
    baton__text_add(&text, ns < 1000000000 ? "%.0f ms" : "%.1f s",
                    (double)ns / (ns < 1000000000 ? 1e6 : 1e9));
    return memory;
}

void baton__text_add(baton__text_t *text, const char *format, ...)
{
    BATON__TEXT_ADD_ARGUMENTS(text, format);
}

const char *baton__read_number(const char *text, double *out)
{
    /* strtod also accepts blanks, names such as "inf", and hexadecimal numbers.
       So the characters are checked first. */
    size_t length = strspn(text, "0123456789.+-eE");
    locale_t c = text_find_locale();
    if (c == (locale_t)0) {
        return NULL;
    }
    char *end = NULL;
    *out = strtod_l(text, &end, c);
    return length > 0 && end == text + length ? end : NULL;
}

enum { NAME_BYTES = 48 };

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Computes Levenshtein's distance, with only one row of the matrix in
   memory. */
size_t baton__edit_distance(const char *a, const char *b)
{
    size_t row[NAME_BYTES];
    size_t b_length = smaller(strlen(b), NAME_BYTES - 1);
    for (size_t j = 0; j <= b_length; j++) {
        row[j] = j;
    }
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = smaller(replaced, smaller(row[j], row[j - 1]) + 1);
        }
    }
    return row[b_length];
}
