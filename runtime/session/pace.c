#include "runtime/session/pace.h"

void pace_took(struct pace *p, int tokens, double ns)
{
    int i = 0;
    while (i + 1 < PACE_SIZES && tokens >> (i + 1))
        i++;
    p->of[i].tokens = tokens;
    p->of[i].ns = ns > 1 ? ns : 1;
    p->of[i].at = ++p->passes;
}

int pace_tokens(const struct pace *p, int most)
{
    int n = 1;
    for (int i = 0; i < PACE_SIZES && p->most_ns > 0; i++) {
        double can = p->of[i].tokens * (p->most_ns / (p->of[i].ns > 0 ? p->of[i].ns : 1));
        int counts = p->of[i].tokens && p->passes - p->of[i].at < PACE_KEPT;
        if (counts && p->of[i].ns > p->most_ns) /* so many take too long, whatever fewer promise */
            most = most < p->of[i].tokens ? most : p->of[i].tokens - 1;
        else if (counts && can > n)
            n = can < most ? (int)can : most;
    }
    n = p->most_ns > 0 && n < most ? n : most;
    return n > 1 ? n : 1;
}
