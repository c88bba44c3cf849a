/* Errors carry a sentence, kept for the thread that gets the status. */
#ifndef BATON_BASE_ERROR_H
#define BATON_BASE_ERROR_H

#include <baton/status.h>
#include <stdarg.h>
#include <stddef.h>

#define BATON__MESSAGE_BYTES 1024

/* Sets this thread's error message, logs it at level error, returns status. The
   one that detects a failure calls it. */
baton_status_t baton__error(baton_status_t status, const char *format, ...)
    BATON_PRINTF(2, 3);

/* Sets this thread's message without logging: for one logged already, on its
   way to the thread that waits. */
baton_status_t baton__error_forward(baton_status_t status, const char *message);

/* The failure that `code` stands for, which a callback returned or a peer sent:
   BATON_ERR_INVALID where that is none. */
baton_status_t baton__failure_of(int code);

/* Appends to a message under construction; never overflows, ends with "..."
   when cut. */
typedef struct baton__text {
    char *data;
    size_t size; /* of the memory */
    size_t used; /* without the final zero */
} baton__text_t;

void baton__text_add(baton__text_t *text, const char *format, ...)
    BATON_PRINTF(2, 3);
void baton__text_add_list(baton__text_t *text, const char *format,
                          va_list values) BATON_PRINTF(2, 0);

#endif
