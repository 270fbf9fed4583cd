#include "runtime/kept.h"

#include "common/base/file.h"
#include "common/base/hash.h"
#include "common/base/js.h"
#include "common/base/print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int kept_add(struct kept *k, const char *text, size_t len, struct err *e)
{
    if (k->len + len + 1 > k->cap) {
        size_t cap = k->cap + k->cap / 2 > k->len + len + 64 ? k->cap + k->cap / 2 : k->len + len + 64;
        char *grown = realloc(k->s, cap);
        if (!grown)
            return err_set(e, ERR_NOMEM, "out of memory for a text");
        k->s = grown;
        k->cap = cap;
    }
    memcpy(k->s + k->len, text, len);
    k->len += len;
    k->s[k->len] = '\0';
    return 0;
}

void kept_free(struct kept *k)
{
    free(k->s);
    *k = (struct kept){ 0 };
}


/* ---- tokens ---- */

#define FILE_BYTES ((uint64_t)64 << 20)

int kept_tokens_add(struct kept_tokens *k, int32_t id, struct err *e)
{
    if (k->n == k->cap) {
        int cap = k->cap + k->cap / 2 + 64;
        int32_t *grown = realloc(k->ids, (size_t)cap * sizeof *grown);
        if (!grown)
            return err_set(e, ERR_NOMEM, "out of memory for %d tokens", cap);
        k->ids = grown;
        k->cap = cap;
    }
    k->ids[k->n++] = id;
    return 0;
}

void kept_tokens_free(struct kept_tokens *k)
{
    free(k->ids);
    *k = (struct kept_tokens){ 0 };
}

static void hash_pieces(const struct kept_tokens *k, kept_piece *piece, void *ctx, char text[HASH_TEXT])
{
    struct hash_room room;
    struct hash *h = hash_new_in(&room);
    for (int i = 0; i < k->n; i++) {
        size_t bytes;
        const char *s = piece(ctx, k->ids[i], &bytes);
        hash_update_u64(h, bytes);
        if (bytes)
            hash_update(h, s, bytes);
    }
    hash_text(hash_final128(h), text);
}

int kept_tokens_load(struct kept_tokens *k, const char *path, size_t room, kept_piece *piece, void *ctx, struct err *e)
{
    char pieces[HASH_TEXT];
    struct js *j = js_read(path, FILE_BYTES, room, e);
    const struct js *tokens = js_get(j, "tokens");
    const char *there = js_str(js_get(j, "pieces"));
    int r = j ? 0 : e->code;
    if (j && (!js_is_array(tokens) || !there))
        r = err_set(e, ERR_FORMAT, "'%s' is no session: it has no \"tokens\" or no \"pieces\"", path);
    for (size_t i = 0; r == 0 && i < js_len(tokens); i++) {
        int64_t id;
        if (!js_int(js_at(tokens, i), &id) || id < 0 || id > INT32_MAX)
            r = err_set(e, ERR_FORMAT, "'%s': tokens[%zu] is no token", path, i);
        else
            r = kept_tokens_add(k, (int32_t)id, e);
    }
    if (r == 0) {
        hash_pieces(k, piece, ctx, pieces);
        if (strcmp(pieces, there))
            r = err_set(e, ERR_MISMATCH, "'%s' is the session of a model with other tokens, or was changed: begin anew with another file",
                        path);
    }
    js_free(j);
    return r;
}

int kept_tokens_save(const struct kept_tokens *k, const char *path, kept_piece *piece, void *ctx, struct err *e)
{
    char *text = NULL, pieces[HASH_TEXT];
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    if (!f)
        return err_set(e, ERR_NOMEM, "out of memory for a session");
    hash_pieces(k, piece, ctx, pieces);
    fputs("{\"tokens\": [", f);
    for (int i = 0; i < k->n; i++)
        print_to(f, "%s%d", i ? ", " : "", (int)k->ids[i]);
    print_to(f, "], \"pieces\": \"%s\"}\n", pieces);
    int bad = ferror(f) | fclose(f), r = bad ? err_set(e, ERR_NOMEM, "out of memory for a session") : file_replace(path, text, len, e);
    free(text);
    return r;
}

int kept_pages(const char *session, const char **more, char **pages, struct err *e)
{
    size_t len = strlen(session) + sizeof ".kv";
    int n = 0;
    if (!(*pages = malloc(len)))
        return err_set(e, ERR_NOMEM, "out of memory for options");
    snprintf(*pages, len, "%s.kv", session);
    while (more[n])
        n++;
    more[n] = "--prefix-cache";
    more[n + 1] = *pages;
    more[n + 2] = NULL;
    return 0;
}
