/* Any text as lines of chat --json: each becomes a message or an error, and a user's message tokens, within the bounds of a
 * conversation. */
#include "tests/fuzz/lines.h"

#include <string.h>

static void take(const char *line, size_t len)
{
    struct chat *c = lines_chat();
    struct err e;
    int32_t *ids;
    struct chat_begins begins;
    int n, before = chat_messages(c)->n;
    struct js *j = js_parse_within(line, len, messages_json_bytes(LINES_CONTEXT), "a line", &e);
    int r = j ? messages_add_object(chat_messages(c), j, "a line", "user", &e) : e.code;
    js_free(j);
    if (r < 0 ? chat_messages(c)->n != before || !e.msg[0] : chat_messages(c)->n != before + 1)
        abort();
    if (r == 0 && chat_tokens(c, 0, NULL, &ids, &n, &begins, &e) == 0)
        free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lines_each(data, size, take);
    messages_drop(chat_messages(lines_chat()), 0);
    return 0;
}
