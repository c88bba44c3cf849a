/* lib/base: the log, the table of variables, allocation and error messages. */
#include "base/alloc.h"
#include "base/available.h"
#include "base/config.h"
#include "base/error.h"
#include "base/log.h"
#include "support/cmocka.h"

#include <baton/engine.h>
#include <errno.h>
#include <pthread.h>
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
    support_set_variable("BATON_SPNI", NULL);
    baton__alloc_fail_nth(0);
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

/* Logs `message` at `level`, and stores the text that is written to standard
   error. */
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

TEST_BETWEEN(test_log_warns_on_stderr_by_default, clean, NULL)
{
    char out[256];
    capture_log(BATON_LOG_WARN, "hear me", out, sizeof out);
    assert_string_equal(out, "baton: warn: hear me\n");
    capture_log(BATON_LOG_INFO, "hear me", out, sizeof out);
    assert_string_equal(out, "");
}

TEST_BETWEEN(test_log_level_holds_for_handler, clean, NULL)
{
    static const struct {
        const char *variable; /* the value of BATON_LOG; NULL: not set */
        baton_log_level_t most;
    } levels[] = {{NULL, BATON_LOG_WARN},
                  {"trace", BATON_LOG_TRACE},
                  {"none", BATON_LOG_NONE}};
    record_t record = {0};
    baton_log_set(keep_message, &record);
    for (int i = 0; i < 3; i++) {
        support_set_variable("BATON_LOG", levels[i].variable);
        for (int level = BATON_LOG_ERROR; level <= BATON_LOG_TRACE; level++) {
            record.messages = 0;
            baton__log((baton_log_level_t)level, "yes %d", level);
            assert_int_equal(record.messages, level <= (int)levels[i].most);
        }
    }
    assert_string_equal(record.text, "yes 5");
}

/* ---- config ------------------------------------------------------------ */

TEST_BETWEEN(test_config_has_defaults, clean, NULL)
{
    assert_int_equal(baton__config_check(), BATON_OK);
    assert_int_equal(baton__config_number(BATON__CONFIG_SPIN), 32);
    assert_string_equal(baton__config_text(BATON__CONFIG_PLACEMENT), "none");
    assert_string_equal(baton__config_text(BATON__CONFIG_PROGRESS), "thread");
    assert_int_equal(baton__config_number(BATON__CONFIG_PROGRESS), 0);
    assert_int_equal(baton__config_number(BATON__CONFIG_LOG), BATON_LOG_WARN);
}

TEST_BETWEEN(test_config_reads_values, clean, NULL)
{
    support_set_variable("BATON_SPIN", "0");
    support_set_variable("BATON_STALL_MS", "86400000");
    support_set_variable("BATON_PROGRESS", "manual");
    support_set_variable("BATON_PLACEMENT", "core:3");
    support_set_variable("BATON_VERIFY", "");
    assert_int_equal(baton__config_check(), BATON_OK);
    assert_int_equal(baton__config_number(BATON__CONFIG_SPIN), 0);
    assert_int_equal(baton__config_number(BATON__CONFIG_STALL_MS), 86400000);
    assert_int_equal(baton__config_number(BATON__CONFIG_PROGRESS), 1);
    assert_string_equal(baton__config_text(BATON__CONFIG_PLACEMENT), "core:3");
    assert_int_equal(baton__config_number(BATON__CONFIG_VERIFY), 0);
    setenv("BATON_SPIN", "1", 1); /* variables are read only once */
    assert_int_equal(baton__config_number(BATON__CONFIG_SPIN), 0);
}

TEST_BETWEEN(test_config_names_what_is_wrong, clean, NULL)
{
    static const char number[] = "from 0 to 1000000 polls";
    static const char word[] = "one of: auto baseline avx2 avx512";
    static char long_text[500];
    const struct {
        const char *name, *value, *says;
    } wrong[] = {{"BATON_SPIN", "-1", number},
                 {"BATON_SPIN", "1000001", number},
                 {"BATON_SPIN", "12x", number},
                 {"BATON_SPIN", "x", number},
                 {"BATON_SPIN", "1.5", number},
                 {"BATON_SPIN", "99999999999999999999999", number},
                 {"BATON_ISA", "avx", word},
                 {"BATON_ISA", "avx2 avx512", word},
                 {"BATON_ISA", "avx5122", word},
                 {"BATON_ISA", "2", word},
                 {"BATON_PLACEMENT", long_text, "shorter than 256 bytes"}};
    record_t record = {0};
    baton_log_set(keep_message, &record);
    support_set_variable("BATON_LOG", "info");
    memset(long_text, 'p', sizeof long_text - 1);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        support_set_variable(wrong[i].name, wrong[i].value);
        for (int again = 0; again < 2; again++) {
            char says[300];
            (void)snprintf(says, sizeof says, "%s is \"%.200s\"", wrong[i].name,
                           wrong[i].value);
            assert_int_equal(baton__config_check(), BATON_ERR_INVALID);
            assert_contains(baton_error_message(), says);
            assert_contains(baton_error_message(), wrong[i].says);
            assert_contains(baton_error_message(), "; unset it for \"");
        }
        /* The message is logged once, not in each call. */
        assert_int_equal(record.messages, i + 1);
        assert_int_equal(record.level, BATON_LOG_INFO);
        assert_int_equal(baton__config_number(BATON__CONFIG_SPIN), 32);
        assert_string_equal(baton__config_text(BATON__CONFIG_ISA), "auto");
        assert_string_equal(baton__config_text(BATON__CONFIG_PLACEMENT),
                            "none");
        unsetenv(wrong[i].name);
    }
}

TEST_BETWEEN(test_config_warns_with_nearest_name, clean, NULL)
{
    record_t record = {0};
    char name[200] = "BATON_";
    memset(name + 6, 'X', sizeof name - 7);
    baton_log_set(keep_message, &record);
    support_set_variable("BATON_SPNI", "1");
    /* Variables of extensions begin with BATON_X_. */
    support_set_variable("BATON_X_SPIN", "1");
    assert_int_equal(baton__config_check(), BATON_OK);
    assert_int_equal(record.messages, 1);
    assert_int_equal(record.level, BATON_LOG_WARN);
    assert_contains(record.text, "BATON_SPNI");
    assert_contains(record.text, "nearest name is BATON_SPIN");
    assert_int_equal(baton__config_check(), BATON_OK);
    assert_int_equal(record.messages, 1);
    unsetenv("BATON_X_SPIN");
    setenv(name, "1", 1); /* longer than the names with which it is compared */
    support_set_variable("BATON_SPNI", NULL);
    assert_int_equal(baton__config_check(), BATON_OK);
    unsetenv(name);
    assert_int_equal(record.messages, 2);
    /* If several names are equally near, the first of them is suggested. */
    baton_variable_t each, first = {0};
    for (size_t i = 0; baton_variable_get(i, &each); i++) {
        size_t least = SIZE_MAX;
        char says[300];
        (void)snprintf(name, sizeof name, "%.7s", each.name);
        for (size_t k = 0; baton_variable_get(k, &each); k++) {
            size_t distance = baton__edit_distance(name, each.name);
            first = distance < least ? each : first;
            least = distance < least ? distance : least;
        }
        support_set_variable(name, "");
        assert_int_equal(baton__config_check(), BATON_OK);
        support_set_variable(name, NULL);
        (void)snprintf(says, sizeof says,
                       "unknown variable %s has no effect; the nearest name "
                       "is %s",
                       name, first.name);
        assert_string_equal(record.text, says);
    }
}

static void *load_in_thread(void *arg)
{
    *(int64_t *)arg = baton__config_number(BATON__CONFIG_SPIN);
    return NULL;
}

TEST_BETWEEN(test_config_loads_from_many_threads, clean, NULL)
{
    support_set_variable("BATON_SPIN", "77");
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

TEST_BETWEEN(test_config_lists_variables, clean, NULL)
{
    support_set_variable("BATON_SLEEP_US", "20");
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

TEST_BETWEEN(test_version_is_that_of_the_header, clean, NULL)
{
    char expected[32];
    snprintf(expected, sizeof expected, "%d.%d.%d", BATON_VERSION_MAJOR,
             BATON_VERSION_MINOR, BATON_VERSION_PATCH);
    assert_string_equal(baton_version(), expected);
}

/* ---- alloc ------------------------------------------------------------- */

TEST_BETWEEN(test_alloc_gives_aligned_zeros, clean, NULL)
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

TEST_BETWEEN(test_alloc_refuses_overflow, clean, NULL)
{
    assert_null(baton__alloc(SIZE_MAX, 2));
    assert_null(baton__alloc(SIZE_MAX / 8 + 1, 8));
    assert_null(baton__alloc(1, SIZE_MAX));
    assert_null(baton__alloc(1, SIZE_MAX - 1));
}

TEST_BETWEEN(test_alloc_fails_the_nth_alone, clean, NULL)
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
    int64_t before = baton__alloc_count();
    char *text = baton__copy_string("four");
    assert_string_equal(text, "four");
    assert_int_equal(baton__alloc_count() - before, 1);
    baton__free(text);
}

TEST_BETWEEN(test_alloc_grow_keeps_content, clean, NULL)
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

/* ---- available memory --------------------------------------------------- */

static char root[] = "/tmp/baton-test-XXXXXX";

static void write_below_root(const char *folder, const char *name,
                             const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "mkdir -p %s%s", root, folder);
    assert_int_equal(system(path), 0);
    snprintf(path, sizeof path, "%s%s/%s", root, folder, name);
    support_write_file(path, "w", text);
}

TEST_BETWEEN(test_available_memory_is_the_least_of_host_and_groups, clean, NULL)
{
#define V1 "/sys/fs/cgroup/memory"
    assert_non_null(mkdtemp(root));
    assert_true(baton__available_memory(root) == SIZE_MAX);
    write_below_root("/proc", "meminfo",
                     "MemFree: 1 kB\nMemAvailable:   900 kB\nSwapFree: 100 kB");
    assert_int_equal(baton__available_memory(root), 1000 * 1024);
    /* Version 2 of cgroups: limits of the process's group, and of the group
       that contains it. "max" means no limit. */
    write_below_root("/proc/self", "cgroup", "0::/job/step\n");
    write_below_root("/sys/fs/cgroup/job/step", "memory.max", "max\n");
    write_below_root("/sys/fs/cgroup/job/step", "memory.current", "5\n");
    assert_int_equal(baton__available_memory(root), 1000 * 1024);
    write_below_root("/sys/fs/cgroup/job", "memory.max", "7000\n");
    write_below_root("/sys/fs/cgroup/job", "memory.current", "6000\n");
    assert_int_equal(baton__available_memory(root), 1000);
    write_below_root("/sys/fs/cgroup/job", "memory.stat",
                     "file 3000\ninactive_file 20\nactive_file 300\n");
    assert_int_equal(baton__available_memory(root), 1320);
    /* Version 1 of cgroups, in a container: the process's group is mounted as
       the root. */
    write_below_root("/proc/self", "cgroup",
                     "5:cpu:/x\n4:hugetlb,memory:/docker/4711\n0::/\n");
    write_below_root(V1, "memory.limit_in_bytes", "9223372036854771712\n");
    write_below_root(V1, "memory.usage_in_bytes", "400\n");
    assert_int_equal(baton__available_memory(root), 1000 * 1024);
    write_below_root(V1, "memory.limit_in_bytes", "500\n");
    assert_int_equal(baton__available_memory(root), 100);
    write_below_root(V1, "memory.usage_in_bytes", "600\n");
    assert_int_equal(baton__available_memory(root), 0);
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
}

TEST_BETWEEN(test_alloc_takes_no_more_than_is_available, clean, NULL)
{
    enum { MANY = 64 << 20 };
    baton__memory_override(MANY);
    assert_null(baton__alloc(MANY, 1));
    assert_null(baton__alloc_raw(MANY));
    baton__memory_override(2 * (size_t)MANY);
    void *memory = baton__alloc_raw(MANY);
    assert_non_null(memory);
    baton__free(memory);
    baton__memory_override(SIZE_MAX);
}

/* ---- error ------------------------------------------------------------- */

TEST_BETWEEN(test_error_names_the_limit, clean, NULL)
{
    assert_string_equal(baton__errno_text(EPERM), strerror(EPERM));
    assert_non_null(strstr(baton__errno_text(EMFILE), "RLIMIT_NOFILE"));
    assert_non_null(strstr(baton__errno_text(EFBIG), "RLIMIT_FSIZE"));
}

TEST_BETWEEN(test_error_every_status_has_name_and_text, clean, NULL)
{
#define CHECK_STATUS(name, value, text)                                        \
    assert_string_equal(baton_status_name(name), #name);                       \
    assert_string_equal(baton_status_text(name), text);
    BATON_STATUS_LIST(CHECK_STATUS)
#undef CHECK_STATUS
    assert_non_null(baton_status_name((baton_status_t)-99));
    assert_non_null(baton_status_text((baton_status_t)-99));
}

TEST_BETWEEN(test_error_may_wrap_its_own_message, clean, NULL)
{
    (void)baton__error(BATON_ERR_LIMIT, "inner");
    assert_int_equal(
        baton__error(BATON_ERR_LIMIT, "outer: %s", baton_error_message()),
        BATON_ERR_LIMIT);
    assert_string_equal(baton_error_message(), "outer: inner");
    (void)baton__error_forward(BATON_ERR_LIMIT, baton_error_message() + 7);
    assert_string_equal(baton_error_message(), "inner");
}

TEST_BETWEEN(test_error_cuts_long_messages, clean, NULL)
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

TEST_BETWEEN(test_error_text_stops_when_full, clean, NULL)
{
    char data[12] = "";
    baton__text_t text = {data, sizeof data, 0};
    baton__text_add(&text, "%s", "12345");
    baton__text_add(&text, "%s", "678901");
    /* The text fits exactly, and nothing is cut. */
    assert_string_equal(data, "12345678901");
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

TEST_BETWEEN(test_error_finds_the_nearest_name, clean, NULL)
{
    static const char *const names[] = {"all", "ring", "rings", "tree"};
    static const char *const pairs[][2] = {
        {"", "abc"}, {"abc", ""},        {"kitten", "sitting"},
        {"a", "a"},  {"lower", "below"}, {"xabc", "abcx"}};
    static const size_t apart[] = {3, 3, 3, 0, 4, 2};
    for (int i = 0; i < 6; i++) {
        assert_int_equal(baton__edit_distance(pairs[i][0], pairs[i][1]),
                         apart[i]);
    }
    (void)baton__error_unknown("way", "sing", names, 4);
    assert_string_equal(baton_error_message(),
                        "no way is called \"sing\"; there are: all ring rings "
                        "tree; the nearest is ring");
    (void)baton__error_unknown("way", "rin", names, 3);
    assert_string_equal(baton_error_message(),
                        "no way is called \"rin\"; there are: all ring rings; "
                        "the nearest is ring");
}

/* Names in messages come from outside of the library. */
TEST_BETWEEN(test_error_shortens_names_and_replaces_control, clean, NULL)
{
    static char name[1 << 20];
    memset(name, 'x', sizeof name - 1);
    (void)baton__error(BATON_ERR_LIMIT, "\"%s\" is on rank %d", name, 3);
    assert_int_equal(strlen(baton_error_message()),
                     BATON__QUOTED_BYTES + strlen("\"\" is on rank 3"));
    assert_non_null(strstr(baton_error_message(), "x\" is on rank 3"));
    (void)baton__error(BATON_ERR_LIMIT, "\"%s\"\n    rank %d", "a\nb\033[2J",
                       1);
    assert_string_equal(baton_error_message(), "\"a?b?[2J\"\n    rank 1");
    assert_string_equal(baton__time_text(30 * 1000000), "30 ms");
    assert_string_equal(baton__time_text(2540000000), "2.5 s");
}

static void *fail_in_thread(void *arg)
{
    (void)baton__error(BATON_ERR_LIMIT, "the thread's");
    return NULL;
}

TEST_BETWEEN(test_error_messages_are_per_thread, clean, NULL)
{
    (void)baton__error(BATON_ERR_LIMIT, "mine");
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fail_in_thread, NULL), 0);
    pthread_join(thread, NULL);
    assert_string_equal(baton_error_message(), "mine");
}

TEST_BETWEEN(test_error_is_logged_once, clean, NULL)
{
    record_t record = {0};
    baton_log_set(keep_message, &record);
    (void)baton__error(BATON_ERR_LIMIT, "returned");
    assert_int_equal(record.messages, 0);
    support_set_variable("BATON_LOG", "info");
    (void)baton__error(BATON_ERR_LIMIT, "oops");
    (void)baton__error_forward(BATON_ERR_LIMIT, "oops");
    assert_int_equal(record.messages, 1);
    assert_int_equal(record.level, BATON_LOG_INFO);
    assert_string_equal(record.text, "oops");
}
