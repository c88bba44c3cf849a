#include "support/cmocka.h"
#include "base/config.h"

#include <stdlib.h>

enum { MOST = 100 };

static struct CMUnitTest tests[MOST];
static size_t count;

void support_add(struct CMUnitTest test)
{
    if (count < MOST) {
        tests[count] = test;
    }
    count++;
}

int support_run_tests(CMFixtureFunction setup, CMFixtureFunction teardown)
{
    if (count > MOST) {
        print_error("%d tests, and room for %d\n", (int)count, MOST);
        return 1;
    }
    return _cmocka_run_group_tests("tests", tests, count, setup, teardown);
}

void support_set_variable(const char *name, const char *value)
{
    assert_int_equal(value != NULL ? setenv(name, value, 1) : unsetenv(name),
                     0);
    baton__config_forget();
}
