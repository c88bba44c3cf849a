/* lib/base: allocation and error messages. */
#include "base/alloc.h"
#include "base/config.h"
#include "base/error.h"
#include "support/cmocka.h"

#include <baton/baton.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a handler that keeps what it got ---------------------------------- */

typedef struct record {
    int messages;
    baton_log_level_t level;
    char text[2048];
} record_t;

static void keep_message(void *arg, baton_log_level_t level,
                         const char *message)
{
    record_t *record = arg;
    record->messages++;
    record->level = level;
    snprintf(record->text, sizeof record->text, "%s", message);
}

/* Each test begins without any BATON_* variable and without a handler. */
static int clean(void **state)
{
    baton_variable_t variable;
    for (size_t i = 0; baton_variable_get(i, &variable); i++) {
        unsetenv(variable.name);
    }
    baton__config_forget();
    baton__alloc_fail_nth(0);
    baton_log_set(NULL, NULL);
    return 0;
}

/* ---- alloc ------------------------------------------------------------- */

static void test_alloc_gives_aligned_zeros(void **state)
{
    for (size_t bytes = 0; bytes < 300; bytes += 7) {
        unsigned char *memory = baton__alloc(bytes, 1);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % 64, 0);
        for (size_t i = 0; i < bytes; i++) {
            assert_int_equal(memory[i], 0);
        }
        memset(memory, 0xff, bytes);
        baton__free(memory);
    }
    baton__free(NULL);
}

static void test_alloc_refuses_overflow(void **state)
{
    assert_null(baton__alloc(SIZE_MAX, 2));
    assert_null(baton__alloc(SIZE_MAX / 8 + 1, 8));
    assert_null(baton__alloc(1, SIZE_MAX));
    assert_null(baton__alloc(1, SIZE_MAX - 1));
}

static void test_alloc_fails_the_nth_alone(void **state)
{
    for (int nth = 1; nth <= 3; nth++) {
        baton__alloc_fail_nth(nth);
        for (int i = 1; i <= 5; i++) {
            void *memory = baton__alloc(1, 1);
            assert_int_equal(memory == NULL, i == nth);
            baton__free(memory);
        }
    }
    baton__alloc_fail_nth(1);
    baton__alloc_fail_nth(0);
    void *memory = baton__alloc(1, 1);
    assert_non_null(memory);
    baton__free(memory);
}

static void test_alloc_counts(void **state)
{
    int64_t before = baton__alloc_count();
    void *memory = baton__alloc(3, 4);
    char *text = baton__copy_string("four");
    assert_int_equal(baton__alloc_count() - before, 2);
    assert_string_equal(text, "four");
    baton__free(memory);
    baton__free(text);
}

static void test_alloc_grow_keeps_content(void **state)
{
    int *array = baton__grow(NULL, 0, 2, sizeof *array);
    assert_non_null(array);
    array[0] = 7;
    array[1] = 8;
    int *grown = baton__grow(array, 2, 100, sizeof *array);
    assert_non_null(grown);
    assert_int_equal(grown[0], 7);
    assert_int_equal(grown[1], 8);
    assert_int_equal(grown[99], 0);
    baton__alloc_fail_nth(1);
    assert_null(baton__grow(grown, 100, 200, sizeof *array));
    assert_int_equal(grown[1], 8);
    baton__free(grown);
}

/* ---- error ------------------------------------------------------------- */

static void test_error_every_status_has_name_and_text(void **state)
{
#define CHECK_STATUS(name, value, text)                                        \
    assert_string_equal(baton_status_name(name), #name);                       \
    assert_string_equal(baton_status_text(name), text);
    BATON_STATUS_LIST(CHECK_STATUS)
#undef CHECK_STATUS
    assert_non_null(baton_status_name((baton_status_t)-99));
    assert_non_null(baton_status_text((baton_status_t)-99));
}

static void test_error_sets_message_and_returns_status(void **state)
{
    assert_int_equal(baton__error(BATON_ERR_LIMIT, "tag %d of %s", 5, "x"),
                     BATON_ERR_LIMIT);
    assert_string_equal(baton_error_message(), "tag 5 of x");
}

static void test_error_may_wrap_its_own_message(void **state)
{
    (void)baton__error(BATON_ERR_LIMIT, "inner");
    (void)baton__error(BATON_ERR_LIMIT, "outer: %s", baton_error_message());
    assert_string_equal(baton_error_message(), "outer: inner");
    (void)baton__error_forward(BATON_ERR_LIMIT, baton_error_message() + 7);
    assert_string_equal(baton_error_message(), "inner");
}

static void test_error_cuts_long_messages(void **state)
{
    char long_text[3000];
    memset(long_text, 'a', sizeof long_text);
    long_text[sizeof long_text - 1] = '\0';
    for (int way = 0; way < 2; way++) {
        if (way == 0) {
            (void)baton__error(BATON_ERR_LIMIT, "%s", long_text);
        } else {
            (void)baton__error_forward(BATON_ERR_LIMIT, long_text);
        }
        const char *message = baton_error_message();
        assert_int_equal(strlen(message), BATON__MESSAGE_BYTES - 1);
        assert_string_equal(message + BATON__MESSAGE_BYTES - 5, "a...");
    }
}

static void test_error_text_stops_when_full(void **state)
{
    char data[12] = "";
    baton__text_t text = {data, sizeof data, 0};
    baton__text_add(&text, "%s", "12345");
    baton__text_add(&text, "%s", "678901");
    assert_string_equal(data, "12345678901"); /* exactly full, nothing is cut */
    baton__text_add(&text, "%s", "");
    assert_string_equal(data, "12345678901");
    baton__text_add(&text, "x");
    assert_string_equal(data, "12345678...");
    baton__text_add(&text, "y");
    assert_string_equal(data, "12345678...");
    char tiny[2] = "";
    baton__text_t small = {tiny, sizeof tiny, 0};
    baton__text_add(&small, "long");
    assert_string_equal(tiny, "l");
}

static void *fail_in_thread(void *arg)
{
    (void)baton__error(BATON_ERR_LIMIT, "the thread's");
    return NULL;
}

static void test_error_messages_are_per_thread(void **state)
{
    (void)baton__error(BATON_ERR_LIMIT, "mine");
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fail_in_thread, NULL), 0);
    pthread_join(thread, NULL);
    assert_string_equal(baton_error_message(), "mine");
}

static void test_error_is_logged_once(void **state)
{
    record_t record = {0};
    baton_log_set(keep_message, &record);
    (void)baton__error(BATON_ERR_LIMIT, "oops");
    (void)baton__error_forward(BATON_ERR_LIMIT, "oops");
    assert_int_equal(record.messages, 1);
    assert_int_equal(record.level, BATON_LOG_ERROR);
    assert_string_equal(record.text, "oops");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, clean)
    const struct CMUnitTest tests[] = {
        TEST(test_alloc_gives_aligned_zeros),
        TEST(test_alloc_refuses_overflow),
        TEST(test_alloc_fails_the_nth_alone),
        TEST(test_alloc_counts),
        TEST(test_alloc_grow_keeps_content),
        TEST(test_error_every_status_has_name_and_text),
        TEST(test_error_sets_message_and_returns_status),
        TEST(test_error_may_wrap_its_own_message),
        TEST(test_error_cuts_long_messages),
        TEST(test_error_text_stops_when_full),
        TEST(test_error_messages_are_per_thread),
        TEST(test_error_is_logged_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
