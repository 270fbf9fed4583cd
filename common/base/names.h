#ifndef COMMON_BASE_NAMES_H
#define COMMON_BASE_NAMES_H

/* A function that has the names of an enum's values, in their order; "?" beyond them: NAMES(fruit_name, enum fruit, "apple", "pear") */
#include <stddef.h>

#define NAMES(function, type, ...)                                       \
    const char *function(type v)                                         \
    {                                                                    \
        static const char *const names[] = { __VA_ARGS__ };              \
        return (size_t)v < sizeof names / sizeof *names ? names[v] : "?"; \
    }

#endif
