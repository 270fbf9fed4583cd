/* Fuzz entry: any bytes as a plan. What parses must print, and print the same when parsed again. */
#include "common/plan/plan.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plan p, q;
    struct err e;
    char *a, *b;
    size_t na, nb;
    if (plan_parse((const char *)data, size, "fuzz", &p, &e) < 0)
        return 0;
    if (plan_text(&p, &a, &na, &e) < 0 || plan_parse(a, na, "again", &q, &e) < 0 || plan_text(&q, &b, &nb, &e) < 0 ||
        na != nb || memcmp(a, b, na) != 0)
        abort();
    free(a);
    free(b);
    plan_done(&p);
    plan_done(&q);
    return 0;
}
