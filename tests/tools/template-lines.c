/* template-lines: each line of standard input is {"template": TEXT, "vars": {...}}; for each a line of standard output, {"text": ...}, or
 * {"error": STATUS, "message": ...} with the exit status that a command would have. tests/template_oracle.py asks it and jinja2. */
#include "common/base/js.h"
#include "common/text/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int answer(const char *line, size_t len, struct err *e)
{
    struct js *in = js_parse(line, len, "standard input", e), *out;
    const char *text = js_str(js_get(in, "template"));
    struct template *t = NULL;
    char *made = NULL;
    size_t n;
    int r = !in ? e->code : !text ? err_set(e, ERR_FORMAT, "no template") : template_new(text, strlen(text), "template", SIZE_MAX, &t, e);
    if (r == 0)
        r = template_render(t, js_get(in, "vars"), 86400 * 365, SIZE_MAX, &made, &n, e);
    template_free(t);
    js_free(in);
    if (!(out = js_object()))
        return ERR_NOMEM;
    if (r == 0) {
        js_set_str(out, "text", made);
    } else {
        js_set_int(out, "error", err_exit_status(r));
        js_set_int(out, "unsupported", r == ERR_UNSUPPORTED || r == ERR_LIMIT);
        js_set_str(out, "message", e->msg);
    }
    free(made);
    r = js_print(stdout, out, 0, 0, e);
    js_free(out);
    return r;
}

int main(void)
{
    struct err e;
    char *line = NULL;
    size_t cap = 0;
    int r = 0;
    for (ssize_t n; r == 0 && (n = getline(&line, &cap, stdin)) > 0;)
        r = answer(line, (size_t)n, &e);
    free(line);
    return r < 0 || fflush(stdout) != 0;
}
