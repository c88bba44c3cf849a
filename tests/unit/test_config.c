/* lib/base: the log and the table of variables. */
#include "base/config.h"
#include "base/log.h"
#include "support/cmocka.h"

#include <baton/baton.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    unsetenv("BATON_SPNI");
    baton__config_forget();
    baton_log_set(NULL, NULL);
    return 0;
}

static void assert_contains(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("\"%s\" does not contain \"%s\"", text, part);
    }
}

/* ---- log --------------------------------------------------------------- */

/* What `message` at `level` writes to standard error. */
static void capture_log(baton_log_level_t level, const char *message, char *out,
                        size_t size)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    int saved = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    baton__log(level, "%s", message);
    dup2(saved, STDERR_FILENO);
    close(saved);
    ssize_t bytes = read(ends[0], out, size - 1);
    close(ends[0]);
    assert_true(bytes >= 0);
    out[bytes] = '\0';
}

static void test_log_is_silent_by_default(void **state)
{
    char out[256];
    capture_log(BATON_LOG_ERROR, "hear me", out, sizeof out);
    assert_string_equal(out, "");
}

static void test_log_goes_to_stderr_when_asked(void **state)
{
    char out[256];
    setenv("BATON_LOG", "info", 1);
    baton__config_forget();
    capture_log(BATON_LOG_INFO, "hear me", out, sizeof out);
    assert_string_equal(out, "baton: info: hear me\n");
    capture_log(BATON_LOG_DEBUG, "hear me", out, sizeof out);
    assert_string_equal(out, "");
}

static void test_log_handler_gets_warn_by_default(void **state)
{
    record_t record = {0};
    baton_log_set(keep_message, &record);
    assert_true(baton__log_wants(BATON_LOG_WARN));
    assert_false(baton__log_wants(BATON_LOG_INFO));
    baton__log(BATON_LOG_INFO, "no");
    assert_int_equal(record.messages, 0);
    baton__log(BATON_LOG_WARN, "yes %d", 1);
    assert_int_equal(record.messages, 1);
    assert_string_equal(record.text, "yes 1");
}

static void test_log_level_holds_for_handler(void **state)
{
    record_t record = {0};
    baton_log_set(keep_message, &record);
    setenv("BATON_LOG", "trace", 1);
    baton__config_forget();
    baton__log(BATON_LOG_TRACE, "yes");
    assert_int_equal(record.messages, 1);
    setenv("BATON_LOG", "none", 1);
    baton__config_forget();
    baton__log(BATON_LOG_ERROR, "no");
    assert_int_equal(record.messages, 1);
}

/* ---- config ------------------------------------------------------------ */

static void test_config_has_defaults(void **state)
{
    assert_int_equal(baton__config_load(), BATON_OK);
    assert_int_equal(baton__config_number(BATON__CONFIG_SPIN), 32);
    assert_string_equal(baton__config_text(BATON__CONFIG_PLACEMENT), "none");
    assert_string_equal(baton__config_text(BATON__CONFIG_PROGRESS), "thread");
    assert_int_equal(baton__config_number(BATON__CONFIG_PROGRESS), 0);
    assert_int_equal(baton__config_number(BATON__CONFIG_LOG), -1);
}

static void test_config_reads_values(void **state)
{
    setenv("BATON_SPIN", "0", 1);
    setenv("BATON_STALL_MS", "86400000", 1);
    setenv("BATON_PROGRESS", "manual", 1);
    setenv("BATON_PLACEMENT", "core:3", 1);
    setenv("BATON_VERIFY", "", 1);
    baton__config_forget();
    assert_int_equal(baton__config_load(), BATON_OK);
    assert_int_equal(baton__config_number(BATON__CONFIG_SPIN), 0);
    assert_int_equal(baton__config_number(BATON__CONFIG_STALL_MS), 86400000);
    assert_int_equal(baton__config_number(BATON__CONFIG_PROGRESS), 1);
    assert_string_equal(baton__config_text(BATON__CONFIG_PLACEMENT), "core:3");
    assert_int_equal(baton__config_number(BATON__CONFIG_VERIFY), 0);
    setenv("BATON_SPIN", "1", 1); /* read once */
    assert_int_equal(baton__config_number(BATON__CONFIG_SPIN), 0);
}

static void test_config_names_wrong_numbers(void **state)
{
    static const char *const wrong[] = {
        "-1", "1000001", "12x", "x", "1.5", "99999999999999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        setenv("BATON_SPIN", wrong[i], 1);
        baton__config_forget();
        for (int again = 0; again < 2; again++) {
            assert_int_equal(baton__config_load(), BATON_ERR_INVALID);
            assert_contains(baton_error_message(), "BATON_SPIN");
            assert_contains(baton_error_message(), wrong[i]);
            assert_contains(baton_error_message(), "from 0 to 1000000 polls");
        }
        assert_int_equal(baton__config_number(BATON__CONFIG_SPIN), 32);
    }
}

static void test_config_names_wrong_words(void **state)
{
    static const char *const wrong[] = {"avx", "avx2 avx512", "avx5122", "2"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        setenv("BATON_ISA", wrong[i], 1);
        baton__config_forget();
        assert_int_equal(baton__config_load(), BATON_ERR_INVALID);
        assert_contains(baton_error_message(), "auto baseline avx2 avx512");
        assert_string_equal(baton__config_text(BATON__CONFIG_ISA), "auto");
    }
}

static void test_config_refuses_long_texts(void **state)
{
    char text[500];
    memset(text, 'p', sizeof text);
    text[sizeof text - 1] = '\0';
    setenv("BATON_PLACEMENT", text, 1);
    baton__config_forget();
    assert_int_equal(baton__config_load(), BATON_ERR_INVALID);
    assert_contains(baton_error_message(), "BATON_PLACEMENT");
    assert_string_equal(baton__config_text(BATON__CONFIG_PLACEMENT), "none");
}

static void test_config_warns_with_nearest_name(void **state)
{
    record_t record = {0};
    baton_log_set(keep_message, &record);
    setenv("BATON_SPNI", "1", 1);
    baton__config_forget();
    assert_int_equal(baton__config_load(), BATON_OK);
    assert_int_equal(record.messages, 1);
    assert_int_equal(record.level, BATON_LOG_WARN);
    assert_contains(record.text, "BATON_SPNI");
    assert_contains(record.text, "nearest name is BATON_SPIN");
    assert_int_equal(baton__config_load(), BATON_OK);
    assert_int_equal(record.messages, 1);
}

static void test_config_survives_long_unknown_names(void **state)
{
    char name[200] = "BATON_";
    memset(name + 6, 'X', sizeof name - 7);
    record_t record = {0};
    baton_log_set(keep_message, &record);
    setenv(name, "1", 1);
    baton__config_forget();
    assert_int_equal(baton__config_load(), BATON_OK);
    unsetenv(name);
    assert_int_equal(record.messages, 1);
}

static void *load_in_thread(void *arg)
{
    *(int64_t *)arg = baton__config_number(BATON__CONFIG_SPIN);
    return NULL;
}

static void test_config_loads_from_many_threads(void **state)
{
    setenv("BATON_SPIN", "77", 1);
    baton__config_forget();
    pthread_t threads[8];
    int64_t seen[8] = {0};
    for (int i = 0; i < 8; i++) {
        assert_int_equal(
            pthread_create(&threads[i], NULL, load_in_thread, &seen[i]), 0);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(seen[i], 77);
    }
}

static void test_config_lists_variables(void **state)
{
    setenv("BATON_SLEEP_US", "20", 1);
    baton__config_forget();
    baton_variable_t variable;
    size_t count = 0;
    bool found = false;
    for (; baton_variable_get(count, &variable); count++) {
        assert_memory_equal(variable.name, "BATON_", 6);
        assert_true(strlen(variable.summary) > 0);
        if (strcmp(variable.name, "BATON_SLEEP_US") == 0) {
            found = true;
            assert_string_equal(variable.unit, "us");
            assert_string_equal(variable.default_value, "10000");
            assert_string_equal(variable.value, "20");
        }
    }
    assert_true(found);
    assert_int_equal(count, BATON__CONFIG_COUNT);
    assert_false(baton_variable_get(SIZE_MAX, &variable));
}

static void test_version_is_that_of_the_header(void **state)
{
    char expected[32];
    snprintf(expected, sizeof expected, "%d.%d.%d", BATON_VERSION_MAJOR,
             BATON_VERSION_MINOR, BATON_VERSION_PATCH);
    assert_string_equal(baton_version(), expected);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, clean)
    const struct CMUnitTest tests[] = {
        TEST(test_log_is_silent_by_default),
        TEST(test_log_goes_to_stderr_when_asked),
        TEST(test_log_handler_gets_warn_by_default),
        TEST(test_log_level_holds_for_handler),
        TEST(test_config_has_defaults),
        TEST(test_config_reads_values),
        TEST(test_config_names_wrong_numbers),
        TEST(test_config_names_wrong_words),
        TEST(test_config_refuses_long_texts),
        TEST(test_config_warns_with_nearest_name),
        TEST(test_config_survives_long_unknown_names),
        TEST(test_config_loads_from_many_threads),
        TEST(test_config_lists_variables),
        TEST(test_version_is_that_of_the_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
