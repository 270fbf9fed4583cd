/* Any text as a chat template, rendered for a short conversation. */
#include "common/text/template.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char vars_text[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \" Be kind. \"}, {\"role\": \"user\", \"content\": \"Hi <x>\"},"
    " {\"role\": \"assistant\", \"content\": \"<think>a</think>b\", \"tool_calls\": [{\"function\": {\"name\": \"f\","
    " \"arguments\": {\"n\": 1, \"x\": 1.5, \"l\": [true, null]}}}]}, {\"role\": \"user\", \"content\": \"\\u00e9\"}],"
    " \"add_generation_prompt\": true, \"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"tools\": null, \"n\": 3}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct js *vars;
    struct err e;
    struct template *t;
    char *out;
    size_t len;
    if (!vars && !(vars = js_parse(vars_text, sizeof vars_text - 1, "variables", &e))) {
        fprintf(stderr, "%s\n", e.msg);
        abort();
    }
    if (template_new((const char *)data, size, "template", SIZE_MAX, &t, &e) < 0)
        return 0;
    if (template_render(t, vars, 0, SIZE_MAX, &out, &len, &e) == 0) {
        if (strlen(out) > len) /* the zero behind it */
            abort();
        free(out);
    }
    template_free(t);
    return 0;
}
