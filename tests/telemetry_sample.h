#ifndef TESTS_TELEMETRY_SAMPLE_H
#define TESTS_TELEMETRY_SAMPLE_H

/* A summary line as thermo-run generate --json prints it, with figures of one's choice. Times in ms, of all tokens. */
#include <stdio.h>

struct sample_summary {
    const char *model;
    unsigned long long memory_bytes;
    int threads, tokens, prompt, valid;
    double predicted_tokens_per_s, ms, attention_ms, ffn_ms, stall_ms, head_ms, predict_ms;
    long long read_bytes, reads, lookups;
    double hit_rate;
};

static inline void sample_summary_print(FILE *f, const struct sample_summary *s)
{
    fprintf(f, "{\"type\":\"token\",\"n\":1,\"id\":5,\"text\":\"a\"}\n\n{\"type\":\"summary\",\"version\":\"0.1.0\","
               "\"model\":\"%s\",\"mode\":\"exact\",\"threads\":%d,\"context\":256,\"kv\":\"f16\",\"act\":\"q8\","
               "\"memory_bytes\":%llu,\"prompt\":{\"tokens\":%d},\"decode\":{\"tokens\":%d,\"ms\":%.9g,"
               "\"reads\":%lld,\"read_bytes\":%lld,\"stall_ms\":%.9g,\"attention_ms\":%.9g,\"ffn_ms\":%.9g,"
               "\"head_ms\":%.9g,\"cold_lookups\":%lld,\"cold_hit_rate\":%.6f",
            s->model, s->threads, s->memory_bytes, s->prompt, s->tokens, s->ms, s->reads, s->read_bytes, s->stall_ms,
            s->attention_ms, s->ffn_ms, s->head_ms, s->lookups, s->hit_rate);
    if (s->predict_ms > 0)
        fprintf(f, ",\"predict_ms\":%.9g", s->predict_ms);
    fprintf(f, "},\"predicted\":{\"tokens_per_s\":%.6g,\"read_bytes\":1,\"hit_rate\":0,\"valid\":%s},"
               "\"measured\":{\"tokens_per_s\":1}}\n", s->predicted_tokens_per_s, s->valid ? "true" : "false");
}

#endif
