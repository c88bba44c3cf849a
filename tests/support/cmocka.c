#include "support/cmocka.h"
#include "base/config.h"

enum { MOST = 100 };

static struct CMUnitTest tests[MOST];
static size_t test_count;

void support_add(struct CMUnitTest test)
{
    if (test_count < MOST) {
        tests[test_count] = test;
    }
    test_count++;
}

int support_run_tests(int argc, char **argv, CMFixtureFunction setup,
                      CMFixtureFunction teardown)
{
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    if (test_count > MOST) {
        print_error("%d tests, and room for %d\n", (int)test_count, MOST);
        return 1;
    }
    return _cmocka_run_group_tests("tests", tests, test_count, setup, teardown);
}

/* This main is weak: in a program that defines its own main, that one is
   used. */
__attribute__((weak)) int main(int argc, char **argv)
{
    return support_run_tests(argc, argv, NULL, NULL);
}

void *support_alloc(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);
    assert_non_null(memory);
    return memory;
}

void support_write_file(const char *path, const char *mode, const char *text)
{
    FILE *file = fopen(path, mode);
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

void support_set_variable(const char *name, const char *value)
{
    assert_int_equal(value != NULL ? setenv(name, value, 1) : unsetenv(name),
                     0);
    baton__config_forget();
}
