#ifndef TESTS_TEST_H
#define TESTS_TEST_H

/* TAP from a C program: CHECK(condition) per point, `return test_done();` at the end of main. */
#include <stdio.h>

static int test_n, test_bad;
#define CHECK(x) test_check((x) != 0, #x, __FILE__, __LINE__)
#define CHECK_MSG(x, ...)                                                       \
    do {                                                                        \
        if (!test_check((x) != 0, #x, __FILE__, __LINE__))                      \
            printf("# " __VA_ARGS__), printf("\n");                             \
    } while (0)

static inline int test_check(int ok, const char *what, const char *file, int line)
{
    printf("%sok %d - %s\n", ok ? "" : "not ", ++test_n, what);
    if (!ok) {
        printf("# %s:%d\n", file, line);
        test_bad++;
    }
    return ok;
}

static inline int test_done(void)
{
    printf("1..%d\n", test_n);
    return test_bad != 0;
}

#endif
