/* One file, made of server/page at build time. It may run its own program and style, known by their hashes, ask this server, and nothing
 * else: a text of a model that became HTML by a mistake of ours would load and run nothing. */
#include "server/page.h"

#include "server_page.inc"

#define POLICY "default-src 'none'; script-src " PAGE_SCRIPT "; style-src " PAGE_STYLE "; connect-src 'self'; img-src data:; " \
               "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
_Static_assert(sizeof POLICY <= 320, "a header of an answer has 320 bytes");

void page_answer(struct server *s, struct call *c)
{
    struct buffer b = { .pool = &s->pool };
    if (buffer_put(&b, page_text, sizeof page_text - 1, 0) < 0) {
        server_error(s, c, 503, NULL, NULL, "there is no memory for the page just now; try again later");
        return;
    }
    call_set(c, "Content-Security-Policy", POLICY);
    call_set(c, "X-Content-Type-Options", "nosniff");
    call_set(c, "Referrer-Policy", "no-referrer");
    call_set(c, "Cache-Control", "no-cache");
    call_reply_buffer(c, 200, "text/html; charset=utf-8", &b);
}
