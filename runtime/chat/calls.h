#ifndef RUNTIME_CHAT_CALLS_H
#define RUNTIME_CHAT_CALLS_H

/* Calls of tools that a model writes into its answer, in the form that it learned: found in the parts that chat/reader.h tells apart, as
 * they come. What is not a call, whole and of a tool that there is, stays what it was: no byte of it is lost, and none is invented.
 * A call comes out when its last byte has come, or, where its closing mark is all that is missing, when the answer ends.
 *
 * White space before a call, behind it and between two belongs to none. Text that may become a call is held back; more of it than `most`
 * bytes is text. Allocates in calls_new alone. Single-threaded. */
#include "common/base/js.h"
#include "runtime/chat/reader.h"

enum calls_form {
    CALLS_NONE,
    CALLS_HERMES,   /* <tool_call>{"name", "arguments"}</tool_call>: Hermes, Qwen 2.5 and 3, Granite 4, SmolLM3 */
    CALLS_XML,      /* <tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>: Qwen3-Coder, Qwen 3.5 */
    CALLS_GLM,      /* <tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>: GLM 4.5 and later */
    CALLS_LLAMA,    /* {"name", "parameters"} as the whole answer, <|python_tag|> before it or not: Llama 3 */
    CALLS_MISTRAL,  /* [TOOL_CALLS][{"name", "arguments"}, ...], [TOOL_CALLS]NAME[ARGS]{...}: Mistral */
    CALLS_DEEPSEEK, /* <｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{...}<｜tool▁call▁end｜>, or function<｜tool▁sep｜>NAME and a block of ```json */
    CALLS_LIST,     /* <|tool_call|>[{"name", "arguments"}, ...]: Granite 3, Phi 4 */
    CALLS_HARMONY   /* a message to=functions.NAME: gpt-oss */
};
extern const char *const calls_form_names[]; /* "none" "hermes" ..., NULL */

/* The form of a model: by what its template's text has in it, else by its architecture. Either may be NULL. */
enum calls_form calls_form_of(const char *template, const char *architecture);

/* Of a form that is written in two ways, which one: 1 where the template has in it what tells the second. */
int calls_variant_of(enum calls_form form, const char *template);

#define CALLS_NAME 256 /* bytes of a name, an id or a key of a pair, at most: less than this */

/* What a parameter's schema says of its value in the forms of pairs, of which CALLS_STRING alone is a string whatever it looks like. */
enum calls_type { CALLS_STRING = 1, CALLS_NUMBER = 2, CALLS_BOOLEAN = 4, CALLS_NULL = 8, CALLS_OBJECT = 16, CALLS_ARRAY = 32 };
int calls_types(const struct js *schema); /* bits; 0: it does not say */

struct calls;

/* Borrowed during the call of a sink. */
struct calls_out {
    enum chat_part part;     /* of text; of a call CHAT_ANSWER */
    int silent;              /* text of a control token */
    const char *text;        /* [n]; of a call its arguments, a JSON object as the model wrote it, or as it was made of pairs */
    size_t n;
    const char *name, *id;   /* of a call; of text NULL */
    int index;               /* of the answer's calls, from 0 */
};
typedef int calls_sink(void *ctx, const struct calls_out *out); /* not 0: enough, nothing more is given */

/* tools: of a request, [{"type": "function", "function": {"name", "parameters"}}, ...] or [{"name", "parameters"}, ...], whose names
 * alone are called; copied; NULL: any name is. salt: ids are made of it, the place of a call, its name and its arguments, nine letters and
 * digits, but where the model gave one. ERR_FORMAT: a tool has no name. */
int calls_new(enum calls_form form, const struct js *tools, size_t most, uint64_t salt, struct calls **out, struct err *e);
int calls_copy(const struct calls *of, uint64_t salt, struct calls **out, struct err *e); /* for another answer to the same request */
void calls_free(struct calls *c); /* accepts NULL */
size_t calls_bytes(size_t most);  /* that it allocates, but for the copy of tools, which is no longer than their text */

/* Text as it comes, in pieces of any size; part: of the answer where the reader is; silent: it is a control token's, not printed. Gives
 * what the sink gave. */
int calls_put(struct calls *c, enum chat_part part, int silent, const char *s, size_t n, calls_sink *sink, void *ctx);
int calls_end(struct calls *c, calls_sink *sink, void *ctx); /* the answer's end: what is held comes out */
int calls_count(const struct calls *c); /* calls so far */

#endif
