/* A reader of JSON data files: enough for numbers, strings without escapes,
   arrays and objects. Whatever is wrong with the text fails the test. */
#ifndef TESTS_SUPPORT_JSON_H
#define TESTS_SUPPORT_JSON_H

#include <stdbool.h>
#include <stddef.h>

typedef enum support_json_kind {
    SUPPORT_JSON_NULL,
    SUPPORT_JSON_BOOL,
    SUPPORT_JSON_NUMBER,
    SUPPORT_JSON_STRING,
    SUPPORT_JSON_ARRAY,
    SUPPORT_JSON_OBJECT
} support_json_kind_t;

typedef struct support_json {
    support_json_kind_t kind;
    double number; /* of a bool: 0, 1 */
    char *text;    /* of a string */
    char *name;    /* in an object */
    size_t count;  /* of an array, an object */
    struct support_json *items;
} support_json_t;

support_json_t *support_json_read(const char *path);
void support_json_free(support_json_t *json);

/* A member of an object; NULL: there is none. */
const support_json_t *support_json_find(const support_json_t *object,
                                        const char *name);
/* One that must be there. */
const support_json_t *support_json_get(const support_json_t *object,
                                       const char *name);
double support_json_number(const support_json_t *object, const char *name);
const char *support_json_text(const support_json_t *object, const char *name);

#endif
