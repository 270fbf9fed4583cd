/* Each field is looked at before anything is done by the body. */
#include "server/bodies.h"

#include "common/base/size.h"

#define TAKEN(name) { name, FIELDS_TAKEN, NULL }
#define LAST { NULL, FIELDS_TAKEN, NULL }

const struct fields bodies_text_rows[] = { TAKEN("content"), TAKEN("add_special"), TAKEN("parse_special"), TAKEN("with_pieces"),
                                           TAKEN("model"), LAST };
const struct fields bodies_tokens_rows[] = { TAKEN("tokens"), TAKEN("model"), LAST };
const struct fields bodies_memory_rows[] = { TAKEN("memory"), LAST };

static int flag(const struct js *body, const char *name, int *out, struct err *e)
{
    const struct js *v = js_get(body, name);
    *out = js_bool(v) == 1;
    return fields_given(v) && js_bool(v) < 0 ? err_set(e, ERR_FORMAT, "\"%s\" is not true or false", name) : 0;
}

int bodies_text(const struct js *body, struct bodies_text *out, struct err *e)
{
    struct bodies_text t = { .content = js_str(js_get(body, "content")) };
    int r;
    if ((r = flag(body, "add_special", &t.add_special, e)) < 0 || (r = flag(body, "parse_special", &t.parse_special, e)) < 0 ||
        (r = flag(body, "with_pieces", &t.with_pieces, e)) < 0)
        return r;
    if (!t.content)
        return err_set(e, ERR_FORMAT, "\"content\" is not a string");
    *out = t;
    return 0;
}

int bodies_tokens(const struct js *body, struct err *e)
{
    const struct js *tokens = js_get(body, "tokens");
    int fits = js_is_array(tokens);
    for (size_t i = 0; fits && i < js_len(tokens); i++) {
        int64_t id;
        fits = js_int(js_at(tokens, i), &id) && id >= 0 && id <= INT32_MAX;
    }
    return fits ? 0 : err_set(e, ERR_FORMAT, "\"tokens\" is not an array of token ids");
}

int bodies_memory(const struct js *body, uint64_t *bytes, struct err *e)
{
    const char *text = js_str(js_get(body, "memory"));
    int64_t n = 0;
    int r = text ? size_parse(text, bytes, e) : 0;
    if (r < 0)
        return r;
    if (text ? !*bytes : !js_int(js_get(body, "memory"), &n) || n <= 0)
        return err_set(e, ERR_FORMAT, "\"memory\" is a size, as \"18MiB\", or a number of bytes");
    *bytes = text ? *bytes : (uint64_t)n;
    return 0;
}
