/* Coordinates are computed in C and written with one decimal. Axes know how to place a value and which values are
 * round; everything else is the same for linear and logarithmic ones. */
#include "planner/report/plot.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define W      PLOT_WIDTH
#define LEFT   54
#define RIGHT  14
#define TOP    12
#define FIELD  220  /* height of the field that axes span */
#define BELOW  42   /* marks and label of the x axis */
#define ROW    18   /* of the legend */
#define LETTER 6.4  /* width of a letter, about */
#define BAR    28   /* height of a lying bar's row */
#define NAMES  96   /* left of lying bars */
#define TOTALS 74   /* right of them */

const char *plot_style(void)
{
    return ":root{--fg:#1d2430;--soft:#5a6472;--bg:#fff;--grid:#dfe3e8;--k0:#0063b1;--k1:#c24e00;--k2:#007d5a;"
           "--k3:#9c3f86;--k4:#b07c00;--k5:#4aa3df;--k6:#8b5a3c;--k7:#8a929c}"
           "@media(prefers-color-scheme:dark){:root{--fg:#e6e9ee;--soft:#a4adb9;--bg:#14181d;--grid:#303842;"
           "--k0:#5cb3f5;--k1:#ff8a4c;--k2:#3ecf9e;--k3:#e08ccb;--k4:#eebf4d;--k5:#9fd3f7;--k6:#c99a7c;"
           "--k7:#7e8894}}"
           "svg.plot{font:12px system-ui,-apple-system,'Segoe UI',sans-serif;background:var(--bg)}"
           "svg.plot text{fill:var(--fg)}svg.plot .m{fill:var(--soft)}svg.plot .g{stroke:var(--grid)}"
           "svg.plot .line,svg.plot .thin,svg.plot .dash{fill:none;stroke-linejoin:round}"
           "svg.plot .line{stroke-width:2.2}svg.plot .thin{stroke-width:.8;opacity:.55}"
           "svg.plot .dash{stroke-width:1.8;stroke-dasharray:5 4}"
           "svg.plot .rule{stroke-width:1.4;stroke-dasharray:2 3}svg.plot .dot{stroke:var(--bg);stroke-width:1}"
           ".s0{stroke:var(--k0)}.s1{stroke:var(--k1)}.s2{stroke:var(--k2)}.s3{stroke:var(--k3)}"
           ".s4{stroke:var(--k4)}.s5{stroke:var(--k5)}.s6{stroke:var(--k6)}.s7{stroke:var(--k7)}"
           ".f0{fill:var(--k0)}.f1{fill:var(--k1)}.f2{fill:var(--k2)}.f3{fill:var(--k3)}"
           ".f4{fill:var(--k4)}.f5{fill:var(--k5)}.f6{fill:var(--k6)}.f7{fill:var(--k7)}";
}

/* --- axes --- */

struct axis {
    double v0, v1;  /* values at the ends */
    double p0, p1;  /* where these are */
    int log;
};

static double place(const struct axis *a, double v)
{
    double f = a->log ? log(v / a->v0) / log(a->v1 / a->v0) : (v - a->v0) / (a->v1 - a->v0);
    return a->p0 + f * (a->p1 - a->p0);
}

/* 1, 2 or 5 times a power of ten, for about n marks. */
static double round_step(double span, int n)
{
    double unit = pow(10, floor(log10(span / n))), k = span / n / unit;
    return unit * (k < 1.5 ? 1 : k < 3.5 ? 2 : k < 7.5 ? 5 : 10);
}

/* Marks of an axis; at most max of them. */
static int marks(const struct axis *a, double *out, int max, int about)
{
    int n = 0;
    if (!a->log) {
        double step = round_step(a->v1 - a->v0, about), first = ceil(a->v0 / step - 1e-9);
        for (int i = 0; n < max && (first + i) * step <= a->v1 + 1e-9 * step; i++)
            out[n++] = (first + i) * step;
        return n;
    }
    static const double in_decade[3] = { 1, 2, 5 };
    double decades = log10(a->v1 / a->v0);
    int per = decades < 2.5 ? 3 : 1, each = (int)ceil(decades / 6);
    for (int d = (int)floor(log10(a->v0)); d <= (int)ceil(log10(a->v1)) && n < max; d++)
        for (int k = 0; k < per && n < max; k++) {
            double v = in_decade[k] * pow(10, d);
            if (v >= a->v0 * (1 - 1e-9) && v <= a->v1 * (1 + 1e-9) && (each <= 1 || d % each == 0))
                out[n++] = v;
        }
    return n;
}

static int usable(const struct plot_axis *a, double v)
{
    return isfinite(v) && (!a->log || v > 0);
}

/* Ends of an axis over the data. */
static struct axis span(const struct plot *g, const struct plot_axis *a, int y, double p0, double p1)
{
    struct axis o = { INFINITY, -INFINITY, p0, p1, a->log };
    for (int i = 0; i < g->n; i++)
        for (int k = 0; k < g->series[i].n; k++) {
            const struct plot_series *s = &g->series[i];
            double v = y ? s->y[k] : s->x[k];
            if (!usable(&g->x, s->x[k]) || !usable(&g->y, s->y[k]))
                continue;
            o.v0 = fmin(o.v0, v);
            o.v1 = fmax(o.v1, v);
        }
    for (int i = 0; !y && i < g->n_marks; i++)
        if (usable(a, g->marks[i].x)) {
            o.v0 = fmin(o.v0, g->marks[i].x);
            o.v1 = fmax(o.v1, g->marks[i].x);
        }
    if (!isfinite(o.v0))
        o.v0 = o.v1 = 1;
    o.v1 = fmax(o.v1, a->max);
    if (!a->log && !a->tight && o.v0 >= 0)
        o.v0 = 0;
    if (y && !a->log && o.v1 > a->max)
        o.v1 += 0.05 * (o.v1 - o.v0);
    if (!(o.v1 > o.v0)) {
        o.v1 = o.v0 > 0 ? o.v0 * 1.5 : o.v0 + 1;
        o.v0 = a->log ? o.v0 / 1.5 : a->tight ? o.v0 - (o.v1 - o.v0) : fmin(0, o.v0);
    }
    return o;
}

static void put_axes(struct page *p, const struct plot *g, const struct axis *x, const struct axis *y)
{
    double at[32];
    int n = marks(y, at, 32, 5);
    page_put(p, "<g class='g'>");
    for (int i = 0; i < n; i++)
        page_put(p, "<path d='M%d %.1fH%d'/>", LEFT, place(y, at[i]), W - RIGHT);
    page_put(p, "</g><g class='m' text-anchor='end'>");
    for (int i = 0; i < n; i++)
        page_put(p, "<text class='m' x='%d' y='%.1f'>%.6g</text>", LEFT - 6, place(y, at[i]) + 4, at[i]);
    n = marks(x, at, 32, 6);
    page_put(p, "</g><g class='g'>");
    for (int i = 0; i < n; i++)
        page_put(p, "<path d='M%.1f %.1fV%.1f'/>", place(x, at[i]), y->p1, y->p0);
    page_put(p, "</g><g text-anchor='middle'>");
    double free_from = 0;
    for (int i = 0; i < n; i++) {
        char label[32];
        double half = snprintf(label, sizeof label, "%.6g", at[i]) * LETTER / 2, c = place(x, at[i]);
        if (c - half < free_from || c + half > W)
            continue;
        page_put(p, "<text class='m' x='%.1f' y='%.1f'>%s</text>", c, y->p0 + 16, label);
        free_from = c + half + 4;
    }
    page_put(p, "<text x='%d' y='%.1f'>", (LEFT + W - RIGHT) / 2, y->p0 + 34);
    page_text(p, g->x.label);
    page_put(p, "</text><text transform='rotate(-90)' x='%.1f' y='12'>", -(y->p0 + y->p1) / 2);
    page_text(p, g->y.label);
    page_put(p, "</text></g>\n");
}

/* --- legends --- */

struct entry {
    const char *name;
    enum { SWATCH_LINE, SWATCH_DASH, SWATCH_DOT, SWATCH_RULE, SWATCH_BOX } swatch;
    int colour;
};

static double letters(const char *s)
{
    int n = 0;
    for (; *s; s++)
        n += (*s & 0xc0) != 0x80;
    return n;
}

/* Entries side by side, broken into rows; draws them when p is not NULL. Returns how many rows there are. */
static int legend(struct page *p, const struct entry *e, int n, double top)
{
    double x = 8;
    int row = 0;
    for (int i = 0; i < n; i++) {
        double wide = 26 + letters(e[i].name) * LETTER + 12;
        if (i && x + wide > W) {
            x = 8;
            row++;
        }
        double y = top + ROW * row + 9;
        if (p && e[i].swatch == SWATCH_BOX)
            page_put(p, "<rect class='f%d' x='%.1f' y='%.1f' width='12' height='12'/>", e[i].colour, x + 4, y - 6);
        else if (p && e[i].swatch == SWATCH_DOT)
            page_put(p, "<circle class='dot f%d' cx='%.1f' cy='%.1f' r='4'/>", e[i].colour, x + 10, y);
        else if (p)
            page_put(p, "<path class='%s s%d' d='M%.1f %.1fh18'/>",
                     e[i].swatch == SWATCH_LINE ? "line" : e[i].swatch == SWATCH_DASH ? "dash" : "rule", e[i].colour, x,
                     y);
        if (p) {
            page_put(p, "<text x='%.1f' y='%.1f'>", x + 23, y + 4);
            page_text(p, e[i].name);
            page_put(p, "</text>");
        }
        x += wide;
    }
    return n ? row + 1 : 0;
}

#define ENTRIES 32
static int entries_of(const struct plot *g, struct entry *out)
{
    int n = 0;
    for (int i = 0; i < g->n && n < ENTRIES; i++) {
        const struct plot_series *s = &g->series[i];
        if (s->name)
            out[n++] = (struct entry){ s->name, s->look == PLOT_POINTS ? SWATCH_DOT :
                                       s->look == PLOT_DASHED ? SWATCH_DASH : SWATCH_LINE, s->colour };
    }
    for (int i = 0; i < g->n_marks && n < ENTRIES; i++)
        out[n++] = (struct entry){ g->marks[i].name, SWATCH_RULE, g->marks[i].colour };
    return n;
}

/* --- drawings --- */

static void begin(struct page *p, const char *title, const char *about, double height, const char *style)
{
    page_put(p, "<svg xmlns='http://www.w3.org/2000/svg' class='plot' role='img' viewBox='0 0 %d %.0f' "
                "preserveAspectRatio='xMidYMid meet'>\n<title>", W, height);
    page_text(p, title);
    page_put(p, "</title>\n<desc>");
    page_text(p, about);
    page_put(p, "</desc>\n");
    if (style)
        page_put(p, "<style>%s</style>\n", style);
}

static void put_series(struct page *p, const struct plot *g, const struct plot_series *s, const struct axis *x,
                       const struct axis *y)
{
    static const char *const look[] = { "line", "thin", "dash", "" };
    int open = 0;
    for (int i = 0; i < s->n; i++) {
        if (!usable(&g->x, s->x[i]) || !usable(&g->y, s->y[i]))
            continue;
        double px = place(x, s->x[i]), py = place(y, s->y[i]);
        if (s->look == PLOT_POINTS) {
            page_put(p, "<circle class='dot f%d' cx='%.1f' cy='%.1f' r='4'/>", s->colour, px, py);
            continue;
        }
        if (!open++)
            page_put(p, "<path class='%s s%d' d='M", look[s->look], s->colour);
        else
            page_put(p, open++ == 2 ? "L" : " ");
        page_put(p, "%.1f %.1f", px, py);
    }
    page_put(p, open ? "'/>\n" : "\n");
}

static void draw(struct page *p, const struct plot *g, int alone)
{
    struct entry e[ENTRIES];
    double top = alone ? TOP + 22 : TOP, bottom = top + FIELD;
    struct axis x = span(g, &g->x, 0, LEFT, W - RIGHT), y = span(g, &g->y, 1, bottom, top);
    int n = entries_of(g, e), rows = legend(NULL, e, n, 0);
    begin(p, g->title, g->about, bottom + BELOW + ROW * rows + 4, alone ? plot_style() : NULL);
    if (alone) {
        page_put(p, "<text x='%d' y='20' text-anchor='middle'>", W / 2);
        page_text(p, g->title);
        page_put(p, "</text>\n");
    }
    put_axes(p, g, &x, &y);
    for (int i = 0; i < g->n_marks; i++)
        if (usable(&g->x, g->marks[i].x))
            page_put(p, "<path class='rule s%d' d='M%.1f %.1fV%.1f'/>\n", g->marks[i].colour, place(&x, g->marks[i].x),
                     top, bottom);
    for (int points = 0; points < 2; points++) /* points lie on lines */
        for (int i = 0; i < g->n; i++)
            if ((g->series[i].look == PLOT_POINTS) == points)
                put_series(p, g, &g->series[i], &x, &y);
    legend(p, e, n, bottom + BELOW);
    page_put(p, "</svg>\n");
}

void plot_draw(struct page *p, const struct plot *g)
{
    draw(p, g, 0);
}

static double row_sum(const struct plot_bars *b, int row)
{
    double sum = 0;
    for (int k = 0; k < b->n_parts; k++)
        sum += b->values[(size_t)row * (size_t)b->n_parts + (size_t)k];
    return sum;
}

static int bar_entries(const struct plot_bars *b, struct entry *out)
{
    int n = 0;
    for (int k = 0; k < b->n_parts && n < ENTRIES; k++) {
        double any = 0;
        for (int i = 0; i < b->n_rows; i++)
            any += b->values[(size_t)i * (size_t)b->n_parts + (size_t)k];
        if (any > 0)
            out[n++] = (struct entry){ b->parts[k], SWATCH_BOX, b->colours[k] };
    }
    return n;
}

static void lying(struct page *p, const struct plot_bars *b, double longest)
{
    double wide = W - NAMES - TOTALS;
    for (int i = 0; i < b->n_rows; i++) {
        double x = NAMES, y = 4 + BAR * i;
        page_put(p, "<text x='%d' y='%.1f' text-anchor='end'>", NAMES - 6, y + 16);
        page_text(p, b->rows[i]);
        page_put(p, "</text>");
        for (int k = 0; k < b->n_parts; k++) {
            double w = wide * b->values[(size_t)i * (size_t)b->n_parts + (size_t)k] / longest;
            if (w > 0.04)
                page_put(p, "<rect class='f%d' x='%.1f' y='%.1f' width='%.1f' height='%d'/>", b->colours[k], x, y + 2,
                         w, BAR - 8);
            x += w;
        }
        page_put(p, "<text class='m' x='%.1f' y='%.1f'>", x + 5, y + 16);
        page_text(p, b->totals[i]);
        page_put(p, "</text>\n");
    }
}

static void standing(struct page *p, const struct plot_bars *b, double highest)
{
    const double ends[2] = { 0, b->n_rows - 1 }, heights[2] = { 0, highest };
    const struct plot_series s = { NULL, ends, heights, 2, PLOT_LINE, 0 };
    const struct plot g = { .x = { .label = "layer" }, .y = { .label = b->unit }, .series = &s, .n = 1 };
    struct axis y = span(&g, &g.y, 1, TOP + FIELD, TOP);
    double step = (double)(W - LEFT - RIGHT) / b->n_rows, gap = step > 6 ? step * 0.15 : step > 3 ? 0.6 : 0;
    struct axis x = { -0.5, b->n_rows - 0.5, LEFT, W - RIGHT, 0 };
    put_axes(p, &g, &x, &y);
    for (int i = 0; i < b->n_rows; i++) {
        double sum = 0;
        for (int k = 0; k < b->n_parts; k++) {
            double v = b->values[(size_t)i * (size_t)b->n_parts + (size_t)k];
            double low = place(&y, sum), high = place(&y, sum + v);
            sum += v;
            if (low - high > 0.04)
                page_put(p, "<rect class='f%d' x='%.1f' y='%.1f' width='%.1f' height='%.1f'/>", b->colours[k],
                         LEFT + step * i + gap / 2, high, step - gap, low - high);
        }
        if (b->rows && b->rows[i]) {
            page_put(p, "<text x='%.1f' y='%.1f' text-anchor='middle'>", LEFT + step * (i + 0.5), place(&y, sum) - 3);
            page_text(p, b->rows[i]);
            page_put(p, "</text>");
        }
        page_put(p, "\n");
    }
}

void plot_draw_bars(struct page *p, const struct plot_bars *b)
{
    struct entry e[ENTRIES];
    int n = bar_entries(b, e), rows = legend(NULL, e, n, 0);
    double longest = 0, end = b->standing ? TOP + FIELD + BELOW : 8 + BAR * b->n_rows;
    for (int i = 0; i < b->n_rows; i++)
        longest = fmax(longest, row_sum(b, i));
    begin(p, b->title, b->about, end + ROW * rows + 4, NULL);
    if (b->standing)
        standing(p, b, longest > 0 ? longest : 1);
    else
        lying(p, b, longest > 0 ? longest : 1);
    legend(p, e, n, end);
    page_put(p, "</svg>\n");
}

int plot_write(const char *path, const struct plot *g, struct err *e)
{
    struct page p = { 0 };
    draw(&p, g, 1);
    int r = page_write(&p, path, e);
    page_done(&p);
    return r;
}
