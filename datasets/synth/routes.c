/* Recorded routes: which experts a real mixture of experts chose, step by step. A table of them is read here, and a
 * design gets the recorded step of every place of its text (places.c). weights.c makes the rows. */
#include "datasets/synth/synth.h"

#include "common/base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE_BYTES (64u << 20)
#define FIXED_COLUMNS  3 /* phase, step, layer */
#define NO_RECORD      UINT16_MAX

struct reader {
    const char *path;
    char *at, *end;
    long line;
    int columns;
    char *field[FIXED_COLUMNS + MODEL_MAX_EXPERTS];
    struct err *e;
};

/* --- lines and fields ---------------------------------------------------------------------- */

/* The fields of the next line; 0 at the end of the file. */
static int next_line(struct reader *r)
{
    if (r->at == r->end)
        return 0;
    char *stop = memchr(r->at, '\n', (size_t)(r->end - r->at)), *p = r->at;
    char *next = stop ? stop + 1 : r->end;
    stop = stop ? stop : r->end;
    if (stop > p && stop[-1] == '\r')
        stop--;
    r->line++;
    if (memchr(p, '\0', (size_t)(stop - p)))
        return err_set(r->e, ERR_FORMAT, "'%s' line %ld: a NUL byte", r->path, r->line);
    *stop = '\0';
    for (r->columns = 0; p; r->columns++) {
        if (r->columns == FIXED_COLUMNS + MODEL_MAX_EXPERTS)
            return err_set(r->e, ERR_FORMAT, "'%s' line %ld: more than %d columns", r->path, r->line, r->columns);
        r->field[r->columns] = p;
        if ((p = strchr(p, ',')))
            *p++ = '\0';
    }
    r->at = next;
    return 1;
}

/* A field as a number from 0 to most. */
static int number(const struct reader *r, int column, const char *name, int most, int *out)
{
    const char *p = r->field[column];
    int value = 0, digits = 0;
    for (; *p >= '0' && *p <= '9' && value <= most; p++, digits++)
        value = value * 10 + (*p - '0');
    if (digits == 0 || *p != '\0' || value > most)
        return err_set(r->e, ERR_FORMAT, "'%s' line %ld, column '%s': '%.20s' is no number from 0 to %d", r->path, r->line,
                       name, r->field[column], most);
    *out = value;
    return 0;
}

static int header(struct reader *r, struct synth_route *out)
{
    static const char *const fixed[FIXED_COLUMNS] = { "phase", "step", "layer" };
    char name[16];
    int k = next_line(r);
    if (k < 0)
        return k;
    if (k == 0)
        return err_set(r->e, ERR_FORMAT, "'%s' is empty: a route begins with 'phase,step,layer,e0'", r->path);
    for (int i = 0; i < r->columns; i++) {
        snprintf(name, sizeof name, "e%d", i - FIXED_COLUMNS);
        const char *want = i < FIXED_COLUMNS ? fixed[i] : name;
        if (strcmp(r->field[i], want))
            return err_set(r->e, ERR_FORMAT, "'%s' line 1: column %d is '%.20s', where a route has '%s'", r->path, i + 1,
                           r->field[i], want);
    }
    out->n_used = r->columns - FIXED_COLUMNS;
    if (out->n_used < 1)
        return err_set(r->e, ERR_FORMAT, "'%s' line 1: there is no column 'e0'", r->path);
    return 0;
}

/* --- rows ---------------------------------------------------------------------------------- */

static int phase(const struct reader *r, struct synth_route *out, int step)
{
    int decode = !strcmp(r->field[0], "decode");
    if (!decode && strcmp(r->field[0], "prompt"))
        return err_set(r->e, ERR_FORMAT, "'%s' line %ld, column 'phase': '%.20s' is neither 'prompt' nor 'decode'", r->path,
                       r->line, r->field[0]);
    if (!decode && out->n_prompt < step)
        return err_set(r->e, ERR_FORMAT, "'%s' line %ld, column 'phase': 'prompt' at step %d, after 'decode'", r->path, r->line,
                       step);
    if (!decode)
        out->n_prompt = step + 1;
    return 0;
}

/* One row: the experts of (step, layer), which must come next. n_layers is known once a second step begins. */
static int row(struct reader *r, struct synth_route *out, int *step, int *layer)
{
    char name[16];
    int s, l, k, nothing = r->columns > FIXED_COLUMNS && r->columns <= FIXED_COLUMNS + out->n_used;
    for (int i = FIXED_COLUMNS; i < r->columns; i++)
        nothing &= r->field[i][0] == '\0';
    if (!nothing && r->columns != FIXED_COLUMNS + out->n_used)
        return err_set(r->e, ERR_FORMAT, "'%s' line %ld: %d fields, where the header has %d", r->path, r->line, r->columns,
                       FIXED_COLUMNS + out->n_used);
    if ((k = number(r, 1, "step", SYNTH_MAX_RECORDED - 1, &s)) < 0 ||
        (k = number(r, 2, "layer", MODEL_MAX_LAYERS - 1, &l)) < 0)
        return k;
    if (s == *step + 1 && l == 0 && *layer > 0 && (out->n_layers == 0 || out->n_layers == *layer)) {
        out->n_layers = *layer;
        (*step)++;
        *layer = 0;
    }
    if (s != *step || l != *layer || (out->n_layers > 0 && l >= out->n_layers))
        return err_set(r->e, ERR_FORMAT, "'%s' line %ld: step %d, layer %d, where step %d, layer %d comes next (layers ascend "
                       "within a step, and every step has as many)", r->path, r->line, s, l, *step, *layer);
    if ((k = phase(r, out, s)) < 0)
        return k;
    uint16_t *to = out->experts + (size_t)(r->line - 2) * (size_t)out->n_used;
    to[0] = NO_RECORD;
    for (int i = 0; i < out->n_used && !nothing; i++) {
        int expert = 0;
        snprintf(name, sizeof name, "e%d", i);
        if ((k = number(r, FIXED_COLUMNS + i, name, MODEL_MAX_EXPERTS - 1, &expert)) < 0)
            return k;
        for (int j = 0; j < i; j++)
            if (to[j] == expert)
                return err_set(r->e, ERR_FORMAT, "'%s' line %ld, column '%s': expert %d twice", r->path, r->line, name, expert);
        to[i] = (uint16_t)expert;
        out->n_experts = expert >= out->n_experts ? expert + 1 : out->n_experts;
    }
    (*layer)++;
    return 0;
}

static int rows(struct reader *r, struct synth_route *out)
{
    int step = 0, layer = 0, k;
    size_t lines = 1;
    for (const char *p = r->at; p < r->end; p++)
        lines += *p == '\n';
    if (!(out->experts = malloc(lines * (size_t)out->n_used * sizeof *out->experts)))
        return err_set(r->e, ERR_NOMEM, "'%s': %zu rows", r->path, lines);
    while ((k = next_line(r)) > 0)
        if ((k = row(r, out, &step, &layer)) < 0)
            return k;
    if (k < 0)
        return k;
    if (layer == 0 || (step > 0 && layer != out->n_layers))
        return err_set(r->e, ERR_FORMAT, "'%s' ends after line %ld, within step %d: %d layers of %d", r->path, r->line, step, layer,
                       out->n_layers);
    out->n_layers = layer;
    out->n_steps = step + 1;
    return 0;
}

/* Engines leave out the last layer's FFN for tokens of a prompt whose logits nobody asks for: where a row has no experts, the
 * step gets those that another one has there. */
static int complete(const char *path, struct synth_route *r, struct err *e)
{
    size_t used = (size_t)r->n_used, step = used * (size_t)r->n_layers, n = (size_t)r->n_steps;
    for (size_t s = 0; s < n; s++)
        for (size_t l = 0; l < (size_t)r->n_layers; l++) {
            uint16_t *to = r->experts + s * step + l * used;
            if (to[0] != NO_RECORD)
                continue;
            size_t other = synth_mix(s, l) % n, tried = 0;
            for (; tried < n && r->experts[other * step + l * used] == NO_RECORD; tried++)
                other = (other + 1) % n;
            if (tried == n)
                return err_set(e, ERR_FORMAT, "'%s': no step has experts in layer %zu", path, l);
            memcpy(to, r->experts + other * step + l * used, used * sizeof *to);
        }
    return 0;
}

int synth_route_read(const char *path, struct synth_route *out, struct err *e)
{
    struct synth_route route = { 0 };
    struct reader r = { .path = path, .e = e };
    char *text;
    size_t len;
    int k = file_slurp(path, MAX_FILE_BYTES, &text, &len, e);
    if (k < 0)
        return k;
    r.at = text;
    r.end = text + len;
    if ((k = header(&r, &route)) == 0 && (k = rows(&r, &route)) == 0 && (k = complete(path, &route, e)) == 0)
        *out = route;
    else
        synth_route_done(&route);
    free(text);
    return k;
}

void synth_route_done(struct synth_route *r)
{
    free(r->experts);
    r->experts = NULL;
}

/* --- a design's steps ---------------------------------------------------------------------- */

static int check(const struct synth_request *q, struct err *e)
{
    const struct synth_route *r = q->route;
    const struct synth_shape *s = &q->shape;
    if (s->n_layers > r->n_layers)
        return err_set(e, ERR_USAGE, "--layers %d: the route has %d", s->n_layers, r->n_layers);
    if (s->n_experts < r->n_experts)
        return err_set(e, ERR_USAGE, "--experts %d: the route chooses expert %d", s->n_experts, r->n_experts - 1);
    if (s->n_experts_used != r->n_used)
        return err_set(e, ERR_USAGE, "--experts-used %d: the route has %d of every layer", s->n_experts_used, r->n_used);
    if (q->splice > 0 && q->segment > r->n_steps)
        return err_set(e, ERR_USAGE, "--route-segment %d: the route has %d steps", q->segment, r->n_steps);
    if (q->splice == 0 && r->n_steps < 2)
        return err_set(e, ERR_USAGE, "a route of one step: 2 are the least, or --route-splice");
    return 0;
}

int synth_route_width(int channels)
{
    return ((channels + 2) / 3 * 4 + SYNTH_BLOCK - 1) / SYNTH_BLOCK * SYNTH_BLOCK;
}

int synth_route_channels(struct synth_design *d, struct err *e)
{
    int r = check(&d->ask, e), room = d->ask.shape.d_model * 3 / 4 - SYNTH_PLACE - 2 * SYNTH_BLOCK;
    if (r < 0)
        return r;
    d->n_route = SYNTH_BLOCK;
    while (d->n_route < d->ask.route->n_steps)
        d->n_route *= 2;
    if (d->n_route > room)
        return err_set(e, ERR_USAGE, "--d-model %d: a route of %d steps needs %d", d->ask.shape.d_model, d->ask.route->n_steps,
                       synth_route_width(d->n_route + SYNTH_PLACE + 2 * SYNTH_BLOCK));
    return 0;
}

int synth_route_steps(struct synth_design *d, struct err *e)
{
    const struct synth_request *q = &d->ask;
    uint64_t key = synth_mix(q->seed, 0x73706c696365u);
    if (!(d->recorded = malloc((size_t)d->n_places * sizeof *d->recorded)))
        return err_set(e, ERR_NOMEM, "a route of %d steps", d->n_places);
    for (int i = 0, first = 0; i < d->n_places; i++) {
        if (q->splice > 0 && i % q->segment == 0)
            first = (int)(synth_mix(key, (uint64_t)(i / q->segment)) % (uint64_t)(q->route->n_steps - q->segment + 1)) - i;
        d->recorded[i] = first + i;
    }
    return 0;
}

int synth_recorded_step(const struct synth_design *d, uint32_t token)
{
    int place = d->place[token];
    if (place >= 0)
        return d->recorded[place];
    return (int)(synth_mix(synth_mix(d->ask.seed, 0x6f7468657273u), token) % (uint64_t)d->ask.route->n_steps);
}
