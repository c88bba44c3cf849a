#include "support/json.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct reader {
    const char *begin;
    const char *at;
} reader_t;

static void skip_space(reader_t *reader)
{
    while (isspace((unsigned char)*reader->at)) {
        reader->at++;
    }
}

static void expect(reader_t *reader, char character)
{
    skip_space(reader);
    if (*reader->at != character) {
        fail_msg("JSON: '%c' expected at byte %td, not '%c'", character,
                 reader->at - reader->begin, *reader->at);
    }
    reader->at++;
}

static char *read_string(reader_t *reader)
{
    expect(reader, '"');
    size_t length = strcspn(reader->at, "\"\\");
    char *text = malloc(length + 1);
    memcpy(text, reader->at, length);
    text[length] = 0;
    reader->at += length;
    expect(reader, '"');
    return text;
}

static void read_value(reader_t *reader, support_json_t *out);

static void read_items(reader_t *reader, support_json_t *out, bool named,
                       char end)
{
    size_t room = 0;
    reader->at++;
    skip_space(reader);
    while (*reader->at != end) {
        if (out->count > 0) {
            expect(reader, ',');
        }
        if (out->count == room) {
            room = 2 * room + 8;
            out->items = realloc(out->items, room * sizeof *out->items);
        }
        support_json_t item = {0};
        if (named) {
            item.name = read_string(reader);
            expect(reader, ':');
        }
        read_value(reader, &item);
        out->items[out->count++] = item;
        skip_space(reader);
    }
    reader->at++;
}

static bool read_word(reader_t *reader, const char *word)
{
    size_t length = strlen(word);
    if (strncmp(reader->at, word, length) != 0) {
        return false;
    }
    reader->at += length;
    return true;
}

static void read_value(reader_t *reader, support_json_t *out)
{
    skip_space(reader);
    if (*reader->at == '{') {
        out->kind = SUPPORT_JSON_OBJECT;
        read_items(reader, out, true, '}');
    } else if (*reader->at == '[') {
        out->kind = SUPPORT_JSON_ARRAY;
        read_items(reader, out, false, ']');
    } else if (*reader->at == '"') {
        out->kind = SUPPORT_JSON_STRING;
        out->text = read_string(reader);
    } else if (read_word(reader, "null")) {
        out->kind = SUPPORT_JSON_NULL;
    } else if (read_word(reader, "true")) {
        out->kind = SUPPORT_JSON_BOOL;
        out->number = 1;
    } else if (read_word(reader, "false")) {
        out->kind = SUPPORT_JSON_BOOL;
    } else {
        char *end;
        out->kind = SUPPORT_JSON_NUMBER;
        out->number = strtod(reader->at, &end);
        if (end == reader->at) {
            fail_msg("JSON: no value at byte %td", reader->at - reader->begin);
        }
        reader->at = end;
    }
}

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        fail_msg("%s cannot be read", path);
    }
    (void)fseek(file, 0, SEEK_END);
    size_t bytes = (size_t)ftell(file);
    rewind(file);
    char *text = malloc(bytes + 1);
    assert_int_equal(fread(text, 1, bytes, file), bytes);
    text[bytes] = 0;
    (void)fclose(file);
    return text;
}

support_json_t *support_json_read(const char *path)
{
    char *text = read_file(path);
    reader_t reader = {text, text};
    support_json_t *json = calloc(1, sizeof *json);
    read_value(&reader, json);
    skip_space(&reader);
    assert_int_equal(*reader.at, 0);
    free(text);
    return json;
}

static void free_content(support_json_t *json)
{
    for (size_t i = 0; i < json->count; i++) {
        free_content(&json->items[i]);
    }
    free(json->items);
    free(json->text);
    free(json->name);
}

void support_json_free(support_json_t *json)
{
    free_content(json);
    free(json);
}

const support_json_t *support_json_find(const support_json_t *object,
                                        const char *name)
{
    for (size_t i = 0; i < object->count; i++) {
        if (object->items[i].name != NULL &&
            strcmp(object->items[i].name, name) == 0) {
            return &object->items[i];
        }
    }
    return NULL;
}

const support_json_t *support_json_get(const support_json_t *object,
                                       const char *name)
{
    const support_json_t *found = support_json_find(object, name);
    if (found == NULL) {
        fail_msg("JSON: there is no \"%s\"", name);
    }
    return found;
}

double support_json_number(const support_json_t *object, const char *name)
{
    return support_json_get(object, name)->number;
}

const char *support_json_text(const support_json_t *object, const char *name)
{
    return support_json_get(object, name)->text;
}
