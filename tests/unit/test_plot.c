/* Drawings with coordinates known beforehand, text that must not become markup, and data that must not become nonsense. */
#include "planner/report/plot.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int has(const struct page *p, const char *s)
{
    return p->at && strstr(p->at, s) != NULL;
}

static void test_page(void)
{
    struct page p = { 0 };
    page_text(&p, "a<b>&\"'\n\x7f\xc3\xa9\xff\xed\xa0\x80z");
    CHECK(!strcmp(p.at, "a&#60;b&#62;&#38;&#34;&#39;\xef\xbf\xbd\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz"));
    page_done(&p);
    page_text(&p, NULL);
    CHECK(p.n == 0 && !p.failed);
    for (int i = 0; i < 3000; i++)
        page_put(&p, "%d,", i % 10);
    CHECK(p.n == 6000 && strlen(p.at) == 6000 && !strncmp(p.at + 5990, "5,6,7,8,9,", 10));
    page_done(&p);
}

/* The field is 54..406 wide and 12..232 high. */
static void test_lines(void)
{
    const double x[3] = { 0, 50, 100 }, y[3] = { 0, 50, 100 };
    const struct plot_series s[2] = { { "up <b>", x, y, 3, PLOT_LINE, 2 }, { NULL, x, y, 3, PLOT_POINTS, 1 } };
    struct plot g = { .title = "T&T", .about = "what <it> shows", .x = { .label = "x \"l\"", .max = 100 },
                      .y = { .label = "y", .max = 100 }, .series = s, .n = 2 };
    struct page p = { 0 }, again = { 0 };
    plot_draw(&p, &g);
    plot_draw(&again, &g);
    CHECK(p.n == again.n && !memcmp(p.at, again.at, p.n));
    CHECK(has(&p, "d='M54.0 232.0L230.0 122.0 406.0 12.0'"));
    CHECK(has(&p, "<circle class='dot f1' cx='230.0' cy='122.0' r='4'/>"));
    CHECK(has(&p, "<title>T&#38;T</title>") && has(&p, "<desc>what &#60;it&#62; shows</desc>"));
    CHECK(has(&p, ">up &#60;b&#62;</text>") && !has(&p, "<b>") && has(&p, ">100</text>") && has(&p, ">20</text>"));
    page_done(&p);
    page_done(&again);
    const struct plot_mark m = { "here", 25, 4 };
    g.marks = &m;
    g.n_marks = 1;
    plot_draw(&p, &g);
    CHECK(has(&p, "class='rule s4' d='M142.0 12.0V232.0'") && has(&p, ">here</text>"));
    page_done(&p);
}

static void test_log(void)
{
    const double x[4] = { 1, 10, 100, 0 }, y[4] = { 1, 2, 3, 4 };
    const struct plot_series s = { "s", x, y, 4, PLOT_LINE, 0 };
    const struct plot g = { .title = "t", .about = "a", .x = { .label = "x", .log = 1 }, .y = { .label = "y", .max = 4 },
                            .series = &s, .n = 1 };
    struct page p = { 0 };
    plot_draw(&p, &g);
    CHECK(has(&p, "d='M54.0 177.0L230.0 122.0 406.0 67.0'")); /* 0 has no place; decades are equally far */
    CHECK(has(&p, ">1</text>") && has(&p, ">10</text>") && has(&p, ">100</text>") && has(&p, ">20</text>"));
    page_done(&p);
}

/* Nothing, one point, what is not finite: a drawing without nan or inf. */
static void test_odd(void)
{
    const double one[1] = { 5 }, odd[3] = { NAN, INFINITY, 3 }, zero[2] = { 0, 0 }, low[2] = { -3, -1 };
    const struct plot_series s[] = { { "one", one, one, 1, PLOT_LINE, 0 }, { "odd", odd, odd, 3, PLOT_THIN, 1 },
                                     { "zero", zero, zero, 2, PLOT_DASHED, 2 }, { "low", low, low, 2, PLOT_LINE, 3 } };
    int all = 0, good = 0;
    for (int first = 0; first < 4; first++)
        for (int n = 0; first + n <= 4; n++)
            for (int log = 0; log < 2; log++) {
                const struct plot g = { .title = "t", .about = "a", .x = { .label = "x", .log = log, .tight = n == 1 },
                                        .y = { .label = "y", .log = log }, .series = s + first, .n = n };
                struct page p = { 0 };
                plot_draw(&p, &g);
                good += p.at && !has(&p, "nan") && !has(&p, "inf") && has(&p, "</svg>");
                all++;
                if (!p.at || has(&p, "nan") || has(&p, "inf") || !has(&p, "</svg>"))
                    printf("# series %d and %d more, log %d: %s\n", first, n, log, p.at ? p.at : "nothing");
                page_done(&p);
            }
    CHECK(all == 28 && good == all);
}

static void test_bars(void)
{
    static const char *const rows[] = { "r<1", "r2" }, *const totals[] = { "3 ms", "6 ms" }, *const parts[] = { "a", "b", "c" };
    static const int colours[] = { 0, 1, 2 };
    const double v[6] = { 1, 2, 0, 2, 4, 0 };
    struct plot_bars b = { .title = "t", .about = "a", .unit = "ms", .n_rows = 2, .n_parts = 3, .rows = rows,
                           .totals = totals, .parts = parts, .colours = colours, .values = v };
    struct page p = { 0 };
    plot_draw_bars(&p, &b);
    /* 250 wide for the longest, from 96 on. */
    CHECK(has(&p, "<rect class='f0' x='96.0' y='6.0' width='41.7' height='20'/><rect class='f1' x='137.7' y='6.0' width='83.3'"));
    CHECK(has(&p, "<rect class='f1' x='179.3' y='34.0' width='166.7'") && has(&p, "r&#60;1") && has(&p, ">6 ms<"));
    CHECK(!has(&p, ">c</text>") && has(&p, ">b</text>")); /* what is nowhere is not in the legend */
    page_done(&p);
    b.standing = 1;
    b.rows = b.totals = NULL;
    plot_draw_bars(&p, &b);
    CHECK(has(&p, "class='f0'") && has(&p, ">layer</text>") && has(&p, ">ms</text>") && !has(&p, "nan"));
    page_done(&p);
    static const char *const marks[] = { NULL, "b<" };
    b.rows = marks;
    plot_draw_bars(&p, &b);
    CHECK(has(&p, "text-anchor='middle'>b&#60;</text>"));
    page_done(&p);
    b.rows = NULL;
    const double none[6] = { 0 };
    b.values = none;
    plot_draw_bars(&p, &b);
    CHECK(!has(&p, "nan") && !has(&p, "<rect"));
    page_done(&p);
}

int main(void)
{
    test_page();
    test_lines();
    test_log();
    test_odd();
    test_bars();
    return test_done();
}
