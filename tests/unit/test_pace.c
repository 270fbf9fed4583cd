/* Tokens of a pass by what passes took: under machines of several speeds passes come to use the time that they have and no more, one slow
 * pass is forgotten, and one token is always read. */
#include "runtime/session/pace.h"
#include "tests/test.h"

static double took_ns(double fixed_ms, double each_ms, int tokens)
{
    return 1e6 * (fixed_ms + each_ms * tokens);
}

/* After passes of one token, as of a text that is decoded: how many tokens the last of so many passes has; *over: of those that took too
 * long. */
static int settles(struct pace *p, double fixed_ms, double each_ms, int most, int passes, int *over)
{
    int n = 1;
    *over = 0;
    pace_took(p, 1, took_ns(fixed_ms, each_ms, 1));
    for (int i = 0; i < passes; i++) {
        n = pace_tokens(p, most);
        CHECK(n >= 1 && n <= most);
        *over += took_ns(fixed_ms, each_ms, n) > p->most_ns && n > 1;
        pace_took(p, n, took_ns(fixed_ms, each_ms, n));
    }
    return n;
}

int main(void)
{
    int over;
    struct pace p = { .most_ns = 0 };
    CHECK(pace_tokens(&p, 512) == 512 && pace_tokens(&p, 1) == 1);
    pace_took(&p, 512, 1e15);
    CHECK(pace_tokens(&p, 512) == 512); /* any time */
    p = (struct pace){ .most_ns = 200e6 };
    CHECK(pace_tokens(&p, 512) == 1); /* nothing is known */
    int n = settles(&p, 50, 2, 512, 20, &over);
    CHECK_MSG(n >= 70 && n <= 75 && over == 0, "%d tokens, %d passes too long", n, over);
    p = (struct pace){ .most_ns = 200e6 };
    pace_took(&p, 512, took_ns(50, 2, 512)); /* a prompt that was alone */
    n = settles(&p, 50, 2, 512, 20, &over);
    CHECK_MSG(n >= 70 && n <= 75 && over == 0, "%d tokens, %d passes too long", n, over);
    p = (struct pace){ .most_ns = 200e6 };
    CHECK(settles(&p, 0, 1, 64, 20, &over) == 64 && over == 0);
    p = (struct pace){ .most_ns = 200e6 };
    CHECK(settles(&p, 300, 1, 512, 20, &over) == 1 && over == 0); /* no pass is short enough */
    p = (struct pace){ .most_ns = 200e6 };
    settles(&p, 50, 2, 512, 20, &over);
    pace_took(&p, 2, 1e9); /* something else ran */
    CHECK(pace_tokens(&p, 512) == 1);
    n = settles(&p, 50, 2, 512, 2 * PACE_KEPT, &over);
    CHECK_MSG(n >= 70 && n <= 75 && over == 0, "%d tokens, %d passes too long", n, over);
    return test_done();
}
