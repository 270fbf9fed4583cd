#ifndef SERVER_ASK_PARTS_H
#define SERVER_ASK_PARTS_H

/* Tables of fields, one for each endpoint: a field's name, who reads it, the library's name of it, its range. Private to ask*.c. */
#include "common/base/fields.h"

#include "server/ask.h"

struct field;
/* A field that is given: v, of the body. What it says is added to a->fields or kept in *a. */
typedef int ask_reader(struct ask *a, const struct field *f, const struct js *body, const struct js *v, struct err *e);

struct field {
    struct fields row;
    ask_reader *read;      /* NULL: there is nothing to read */
    const char *to;        /* the library's name; of two rows with one name the first that is given is read */
    double min, max;
    const char *only;      /* of ask_only */
};

#define ASK_TOKENS (1 << 24)
#define TAKEN(name) { name, FIELDS_TAKEN, NULL }
#define READ(name, reader, to) { TAKEN(name), reader, to, 0, 0, NULL }
#define RANGE(name, reader, to, min, max) { TAKEN(name), reader, to, min, max, NULL }
#define NO_EFFECT(name) { { name, FIELDS_NO_EFFECT, NULL }, NULL, NULL, 0, 0, NULL }
#define IF_EMPTY(name, why) { { name, FIELDS_IF_EMPTY, why }, NULL, NULL, 0, 0, NULL }
#define REFUSED(name, why) { { name, FIELDS_REFUSED, why }, NULL, NULL, 0, 0, NULL }
#define DEFAULT(name, texts, why) { { name, FIELDS_TAKEN, why }, ask_only, NULL, 0, 0, texts } /* taken as one of these texts alone */
#define LAST { { NULL, FIELDS_TAKEN, NULL }, NULL, NULL, 0, 0, NULL }

/* What all have. */
#define SAMPLING \
    READ("model", NULL, NULL), /* one is loaded: any name is its */ \
    READ("stream", ask_stream, NULL), \
    RANGE("temperature", ask_real, "temp", 0, 100), \
    RANGE("top_p", ask_real, "top_p", 0, 1), \
    RANGE("top_k", ask_int, "top_k", 0, ASK_TOKENS), \
    RANGE("min_p", ask_real, "min_p", 0, 1), \
    RANGE("repeat_penalty", ask_real, "repeat_penalty", 0.01, 100), \
    RANGE("repeat_last_n", ask_int, "repeat_last_n", -1, ASK_TOKENS), \
    RANGE("frequency_penalty", ask_real, "frequency_penalty", -2, 2), \
    RANGE("presence_penalty", ask_real, "presence_penalty", -2, 2), \
    RANGE("seed", ask_seed, "seed", -0x1p63, 0x1p63), \
    READ("ignore_eos", ask_flag, "ignore_eos"), \
    READ("logit_bias", ask_bias, "logit_bias"), \
    REFUSED("repetition_penalty", "its name here is \"repeat_penalty\""), \
    NO_EFFECT("user"), NO_EFFECT("safety_identifier"), NO_EFFECT("prompt_cache_key"), NO_EFFECT("prompt_cache_retention"), \
    NO_EFFECT("prompt_cache_options"), \
    NO_EFFECT("metadata"), NO_EFFECT("client_metadata"), NO_EFFECT("service_tier")

/* LAST ends each; the first field that must be there. */
extern const struct field ask_chat_fields[], ask_text_fields[], ask_messages_fields[], ask_responses_fields[];

int ask_no_memory(struct err *e);
/* "name":text of the library's fields; text is JSON. */
int ask_add(struct ask *a, const char *to, const char *text, struct err *e);
int ask_add_json(struct ask *a, const char *to, const struct js *v, struct err *e);
/* What a template is told of effort beside its other variables (an object, or NULL). "none": the model shall not think. */
int ask_effort(struct ask *a, const struct js *args, const char *how, struct err *e);
/* {"type": "text" "json_object" "json_schema"}; of the last one what has the schema; *name is the field's, for messages. */
int ask_add_format(struct ask *a, const char *name, const struct js *format, const struct js *of, struct err *e);

ask_reader ask_real, ask_int, ask_seed, ask_length, ask_flag, ask_bool, ask_stream, ask_stop, ask_copy, ask_bias, ask_only, ask_tools,
           ask_tool_choice;

#endif
