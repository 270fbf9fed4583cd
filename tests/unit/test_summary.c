/* The line that names what a plan and a run differ in: none within a fifth either way, else the term that makes most of it. */
#include "runtime/summary.h"
#include "common/base/log.h"
#include "tests/test.h"

#include <string.h>
#include <unistd.h>

static char text[8192];

/* What is said of a run that made so many tokens a second where so many were predicted, with what the FFN and the head took of each. */
static const char *said(double predicted, double measured, double ffn, double ffn_was, double head, double head_was)
{
    struct err e;
    char json[1024];
    snprintf(json, sizeof json,
             "{\"decode\": {\"passes\": 8}, "
             "\"predicted\": {\"valid\": true, \"tokens_per_s\": %g, \"terms_ms\": {\"ffn\": %g, \"head\": %g}}, "
             "\"measured\": {\"tokens_per_s\": %g, \"terms_ms\": {\"ffn\": %g, \"head\": %g}}, \"account\": {}, \"prompt\": {}}",
             predicted, ffn, head, measured, ffn_was, head_was);
    struct js *j = js_parse(json, strlen(json), "summary", &e);
    CHECK(j != NULL);
    FILE *f = tmpfile();
    int saved = dup(STDERR_FILENO);
    dup2(fileno(f), STDERR_FILENO);
    summary_print(j);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    js_free(j);
    return text;
}

int main(void)
{
    log_init("thermo-run", LOG_INFO);
    CHECK_MSG(!strstr(said(100, 100, 9, 9, 1, 1), "differs most") && strstr(text, "the plan predicted 100.0 tokens/s"), "%s", text);
    CHECK_MSG(!strstr(said(100, 84, 9, 10.9, 1, 1), "differs most"), "%s", text);
    CHECK_MSG(!strstr(said(100, 119, 9, 7.4, 1, 1), "differs most"), "%s", text);
    CHECK_MSG(strstr(said(100, 82, 9, 9.2, 1, 3), "the output head differs most: 3 ms a token, 1 by the plan"), "%s", text);
    CHECK_MSG(strstr(said(100, 50, 9, 18, 1, 2), "the FFN, but for waits, differs most: 18 ms a token, 9 by the plan"), "%s", text);
    CHECK_MSG(strstr(said(100, 125, 9, 8.5, 1, 0.25), "the output head differs most: 0.25 ms a token"), "%s", text);
    CHECK_MSG(!strstr(said(0, 50, 9, 18, 1, 2), "differs most"), "%s", text);
    return test_done();
}
