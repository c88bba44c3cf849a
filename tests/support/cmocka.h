/* cmocka.h, with the headers that it wants before it; and tests that add
   themselves to those of their program:

       TEST(test_engine_opens)
       {
           ...                       with `state`, which is NULL
       }

       RUN_TESTS()                   at the end of the file

   They run in the order in which they are written; those of one name or pattern
   alone, if the program is given that. Of clusters: cluster.h. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define TEST(name) TEST_BETWEEN(name, NULL, NULL)

/* With a fixture of its own. */
#define TEST_BETWEEN(name, setup, teardown)                                    \
    static void name(void **state);                                            \
    SUPPORT_ADD(name, name, setup, teardown, NULL)                             \
    static void name(void **state)

#define SUPPORT_ADD(name, function, setup, teardown, initial)                  \
    __attribute__((constructor)) static void add_##name(void)                  \
    {                                                                          \
        support_add(                                                           \
            (struct CMUnitTest){#name, function, setup, teardown, initial});   \
    }
void support_add(struct CMUnitTest test);

#define RUN_TESTS() RUN_TESTS_BETWEEN(NULL, NULL)

/* With a fixture of them all. */
#define RUN_TESTS_BETWEEN(setup, teardown)                                     \
    int main(int argc, char **argv)                                            \
    {                                                                          \
        cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);                     \
        return support_run_tests(setup, teardown);                             \
    }
int support_run_tests(CMFixtureFunction setup, CMFixtureFunction teardown);

/* Memory of zeros: as calloc, but a failure fails the test. */
void *support_alloc(size_t count, size_t bytes);

/* Sets a variable, or removes it where the value is NULL, and has the library
   read its variables anew. */
void support_set_variable(const char *name, const char *value);
