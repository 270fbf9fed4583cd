#ifndef TESTS_DESCRIBE_SAMPLE_H
#define TESTS_DESCRIBE_SAMPLE_H

/* A description with every member, to be broken or changed by tests. */
static const char describe_sample[] =
    "{\"format\": \"thermo-model-description\", \"revision\": 1, \"name\": \"sample\",\n"
    " \"shape\": {\"layers\": 2, \"d_model\": 64, \"heads\": 4, \"kv_heads\": 2, \"head_dim\": 16, \"n_ff\": 512,\n"
    "  \"vocab\": 100, \"context\": 128, \"experts\": 4, \"experts_used\": 2, \"tied_output\": false,\n"
    "  \"activation\": \"drelu\"},\n"
    " \"types\": {\"embedding\": \"F16\", \"output\": \"Q8_0\", \"attention\": \"Q4_0\", \"router\": \"F32\",\n"
    "  \"gate\": \"Q4_0\", \"up\": \"Q4_0\", \"down\": \"Q8_0\"},\n"
    " \"activation\": {\"rate\": [{\"batch\": 1, \"share\": 0.15}, {\"batch\": 4, \"share\": 0.3}],\n"
    "  \"skew\": {\"spread\": 0.65}, \"open_per_firing\": 1.25, \"expert_again\": 0.6,\n"
    "  \"persistence\": [{\"share\": 0.24, \"period\": 8}, {\"share\": 0.56, \"period\": 32}],\n"
    "  \"misses\": [{\"cached\": 0.5, \"missed\": 0.05}]},\n"
    " \"predictors\": {\"bytes\": 4096, \"input\": \"ffn\", \"rank\": 32, \"type\": \"Q4_0\",\n"
    "  \"predicted_per_firing\": 1.2, \"recall\": 0.99},\n"
    " \"resident_bytes\": 1000,\n"
    " \"sources\": {\"shape.layers\": \"a paper\", \"activation\": \"another\"}}\n";

#endif
