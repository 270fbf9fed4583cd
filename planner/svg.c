/* Drawing by hand: axes with round marks, one polyline per series, a legend. No scripts, no fonts to load. */
#include "planner/svg.h"

#include "common/file.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define W 720
#define H 420
#define LEFT 70
#define RIGHT 20
#define TOP 46
#define BOTTOM 56

static const char *const colours[SVG_MAX_LINES] = { "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00",
                                                    "#777777" };

struct out {
    struct file_out f;
    struct err *e;
    int r;
};

static void put(struct out *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put(struct out *o, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    if (o->r < 0)
        return;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    o->r = file_out_write(&o->f, text, n < (int)sizeof text ? (size_t)n : sizeof text - 1, o->e);
}

/* Text with the characters that XML owns replaced. */
static void put_text(struct out *o, const char *s)
{
    for (; *s; s++) {
        if (*s == '<' || *s == '>' || *s == '&')
            put(o, "%s", *s == '<' ? "&lt;" : *s == '>' ? "&gt;" : "&amp;");
        else if ((unsigned char)*s >= 0x20)
            put(o, "%c", *s);
    }
}

/* 1, 2 or 5 times a power of ten, for about five marks. */
static double mark_step(double span)
{
    double unit = pow(10, floor(log10(span / 5))), n = span / 5 / unit;
    return unit * (n < 1.5 ? 1 : n < 3.5 ? 2 : n < 7.5 ? 5 : 10);
}

struct axes {
    double x0, x1, y1;
};

static double px(const struct axes *a, double x)
{
    return LEFT + (x - a->x0) / (a->x1 - a->x0) * (W - LEFT - RIGHT);
}

static double py(const struct axes *a, double y)
{
    return H - BOTTOM - y / a->y1 * (H - TOP - BOTTOM);
}

static void put_axes(struct out *o, const struct axes *a, const char *x_label, const char *y_label)
{
    double sx = mark_step(a->x1 - a->x0), sy = mark_step(a->y1);
    for (double y = 0; y <= a->y1 * 1.0001; y += sy) {
        put(o, "<line class='grid' x1='%d' x2='%d' y1='%.1f' y2='%.1f'/>\n", LEFT, W - RIGHT, py(a, y), py(a, y));
        put(o, "<text x='%d' y='%.1f' text-anchor='end'>%g</text>\n", LEFT - 8, py(a, y) + 4, y);
    }
    for (double x = ceil(a->x0 / sx) * sx; x <= a->x1 * 1.0001; x += sx) {
        put(o, "<line class='grid' x1='%.1f' x2='%.1f' y1='%d' y2='%d'/>\n", px(a, x), px(a, x), TOP, H - BOTTOM);
        put(o, "<text x='%.1f' y='%d' text-anchor='middle'>%g</text>\n", px(a, x), H - BOTTOM + 18, x);
    }
    put(o, "<text x='%d' y='%d' text-anchor='middle'>", (LEFT + W - RIGHT) / 2, H - 14);
    put_text(o, x_label);
    put(o, "</text>\n<text x='16' y='%d' text-anchor='middle' transform='rotate(-90 16 %d)'>",
        (TOP + H - BOTTOM) / 2, (TOP + H - BOTTOM) / 2);
    put_text(o, y_label);
    put(o, "</text>\n");
}

static void put_lines(struct out *o, const struct axes *a, const struct svg_line *lines, int n)
{
    for (int i = 0; i < n; i++) {
        put(o, "<polyline fill='none' stroke='%s' stroke-width='2' points='", colours[i]);
        for (int k = 0; k < lines[i].n; k++)
            put(o, "%.1f,%.1f ", px(a, lines[i].x[k]), py(a, lines[i].y[k]));
        put(o, "'/>\n<text x='%d' y='%d' style='fill:%s'>", LEFT + 12, TOP + 18 + 18 * i, colours[i]);
        put_text(o, lines[i].name);
        put(o, "</text>\n");
    }
}

int svg_write(const char *path, const char *title, const char *x_label, const char *y_label,
              const struct svg_line *lines, int n, struct err *e)
{
    struct axes a = { .x0 = INFINITY, .x1 = -INFINITY, .y1 = 0 };
    for (int i = 0; i < n; i++)
        for (int k = 0; k < lines[i].n; k++) {
            a.x0 = fmin(a.x0, lines[i].x[k]);
            a.x1 = fmax(a.x1, lines[i].x[k]);
            a.y1 = fmax(a.y1, lines[i].y[k] * 1.05);
        }
    if (!(a.x1 > a.x0)) { /* one point, or none */
        a.x1 = (isfinite(a.x0) ? a.x0 : 0) + 1;
        a.x0 = a.x1 - 2;
    }
    a.y1 = a.y1 > 0 ? a.y1 : 1;
    struct out o = { .e = e };
    int r = file_out_open(&o.f, path, e);
    if (r < 0)
        return r;
    put(&o, "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' font-family='sans-serif' "
            "font-size='13'>\n", W, H);
    put(&o, "<style>svg{background:#fff}text{fill:#222}.grid{stroke:#ddd}"
            "@media(prefers-color-scheme:dark){svg{background:#111}text{fill:#ddd}.grid{stroke:#333}}</style>\n");
    put(&o, "<text x='%d' y='24' font-size='15'>", LEFT);
    put_text(&o, title);
    put(&o, "</text>\n");
    put_axes(&o, &a, x_label, y_label);
    put_lines(&o, &a, lines, n);
    put(&o, "</svg>\n");
    if (o.r < 0) {
        file_out_abort(&o.f);
        return o.r;
    }
    return file_out_commit(&o.f, e);
}
