/* plan-schema: prints the JSON schema of plans, from the rows that read and write them (common/plan/plan_fields.h). make schemas writes
 * schemas/plan.schema.json with it, and a test holds that to it. */
#include "common/base/version.h"
#include "common/kernels/quant.h"
#include "common/plan/plan_fields.h"

#include <inttypes.h>
#include <stdio.h>

static const char beyond[] =
    "What the planner decided and predicts for one model on one device, under one or more memory limits. Times in nanoseconds, sizes in "
    "bytes. A neuron's position is its place in the packed order, hot to cold, or in tiles the source's; 'part' is a part of the layout "
    "(split and two-phase: 0 = gate, 1 = up and down; bundle and tiles: 0 = all three). Beyond this schema a reader checks: array lengths "
    "agree with model.layers, model.blocks, the layout's parts and each other; hot is whole clusters or n_ff; cold is at most the layer's "
    "units of that part; limits ascend by memory_bytes and batches by batch, the first of which is 1 and the last max_batch; floor_bytes "
    "<= account_bytes <= memory_bytes; classes sum to threads, and a limit has the threads of the batch size with most and the queue depth "
    "of the deepest; streamed layers have predictors, and there are predictor_buffers where any layer is streamed; layout.hash belongs to "
    "the layout; with the form tiles every limit has the mode dense, and quant blocks of layout.types.down divide n_ff and the largest "
    "power of two, at most 256, that divides cluster_neurons.";

static void indent(int depth)
{
    printf("\n%*s", 2 * depth, "");
}

static void number(double v)
{
    printf("%.*g", v >= 1e15 ? 1 : 15, v);
}

static void array_of(int fewest, int longest)
{
    printf("\"type\": \"array\", \"minItems\": %d, \"maxItems\": %d, \"items\": { ", fewest, longest);
}

/* One value. */
static void value(const struct plan_field *f)
{
    switch (f->kind) {
    case PLAN_WHOLE:
        printf("\"type\": \"integer\", \"minimum\": %" PRIu64 ", \"maximum\": %" PRIu64, f->least,
               f->many == PLAN_SET ? MODEL_MAX_LAYERS - 1 : f->most);
        break;
    case PLAN_REAL:
    case PLAN_EXACT_REAL: printf("\"type\": \"number\", \"minimum\": 0, \"maximum\": "), number(f->up_to); break;
    case PLAN_BOOL: printf("\"type\": \"boolean\""); break;
    case PLAN_NAME:
        printf("\"enum\": [");
        for (int v = (int)f->least; v <= (int)f->most; v++)
            printf("%s\"%s\"", v > (int)f->least ? ", " : "", f->names(v));
        printf("]");
        break;
    case PLAN_TEXT:
        printf("\"type\": \"string\", %s\"maxLength\": %zu",
               f->when == PLAN_OPTIONAL ? "\"minLength\": 1, \"pattern\": \"^[!-~]+$\", " : "", f->size - 1);
        break;
    case PLAN_HASH: printf("\"type\": \"string\", \"pattern\": \"^[0-9a-f]{32}$\""); break;
    default: break;
    }
}

static void values(const struct plan_field *f)
{
    int fewest = f->fewest ? f->fewest : 1, longest = f->longest ? f->longest : PLAN_PROMPT_POINTS;
    switch (f->many) {
    case PLAN_ONE: value(f); return;
    case PLAN_ACCEPTANCE: array_of(PLAN_ACCEPTANCES, PLAN_ACCEPTANCES); break;
    case PLAN_BY_LAYER:
    case PLAN_SET: array_of(1, MODEL_MAX_LAYERS); break;
    case PLAN_BY_ALWAYS_LAYER:
    case PLAN_BY_PREDICTED_LAYER: array_of(0, MODEL_MAX_LAYERS); break;
    case PLAN_COLD: array_of(1, MODEL_MAX_LAYERS), array_of(1, LAYOUT_MAX_PARTS); break;
    case PLAN_HOT: array_of(1, MODEL_MAX_LAYERS), array_of(1, MODEL_MAX_EXPERTS), array_of(1, LAYOUT_MAX_PARTS); break;
    default: array_of(fewest, longest);
    }
    value(f);
    printf(f->many == PLAN_HOT ? " } } }" : f->many == PLAN_COLD ? " } }" : " }");
    if (f->many == PLAN_SET)
        printf(", \"uniqueItems\": true");
}

static void object(const struct plan_object *of, int depth);

static void types(int depth)
{
    static const char roles[] = "\"down\": { \"$ref\": \"#/definitions/type\" }, \"gate\": { \"$ref\": \"#/definitions/type\" }, "
                                "\"up\": { \"$ref\": \"#/definitions/type\" }";
    printf("\"type\": \"object\", \"additionalProperties\": false, \"required\": [\"down\", \"gate\", \"up\"],");
    indent(depth);
    printf("\"properties\": {");
    indent(depth + 1);
    printf("%s,", roles);
    indent(depth + 1);
    printf("\"exceptions\": { \"description\": \"Layers that have other types than most, of which the other keys speak; absent where there "
           "are none. No layer is in two of them. All together have at most %d combinations of types.\",", LAYOUT_MAX_KINDS);
    indent(depth + 2);
    array_of(1, LAYOUT_MAX_KINDS - 1);
    printf("\"type\": \"object\", \"additionalProperties\": false, \"required\": [\"layers\"], \"minProperties\": 2,");
    indent(depth + 2);
    printf("\"properties\": { \"layers\": { ");
    array_of(1, MODEL_MAX_LAYERS);
    printf("\"type\": \"integer\", \"minimum\": 0, \"maximum\": %d }, \"uniqueItems\": true, \"description\": \"Ascending.\" },",
           MODEL_MAX_LAYERS - 1);
    indent(depth + 3);
    printf("%s } } }", roles);
    indent(depth);
    printf("}");
}

static void columns(int depth)
{
    const struct plan_batch without = { .engine_neurons = 0 };
    printf("\"type\": \"object\", \"additionalProperties\": false,");
    indent(depth);
    printf("\"required\": [");
    for (int c = 0, n = 0; c < PLAN_COLUMNS; c++)
        if (plan_has_column(&without, c))
            printf("%s\"%s\"", n++ ? ", " : "", plan_columns[c].key);
    printf("],");
    indent(depth);
    printf("\"properties\": {");
    for (int c = 0; c < PLAN_COLUMNS; c++) {
        indent(depth + 1);
        printf("\"%s\": { ", plan_columns[c].key);
        array_of(1, MODEL_MAX_LAYERS);
        printf("\"type\": \"number\", \"minimum\": 0, \"maximum\": 1e+18 } }%s", c < PLAN_COLUMNS - 1 ? "," : "");
    }
    indent(depth);
    printf("}");
}

static void property(const struct plan_field *f, int depth)
{
    printf("\"%s\": { ", f->key);
    if (f->text)
        printf("\"description\": \"%s\", ", f->text);
    switch (f->kind) {
    case PLAN_FORMAT_NAME: printf("\"const\": \"%s\"", PLAN_FORMAT); break;
    case PLAN_FORMAT_REVISION: printf("\"const\": %d", PLAN_REVISION); break;
    case PLAN_FEATURES:
        printf("\"type\": \"object\", \"additionalProperties\": false, \"properties\": { \"ignore\": { \"type\": \"array\", \"items\": { "
               "\"type\": \"string\" } }, \"refuse\": { \"type\": \"array\", \"maxItems\": 0 } }");
        break;
    case PLAN_NOTES: array_of(0, PLAN_MAX_NOTES), printf("\"type\": \"string\", \"maxLength\": 400 }, \"uniqueItems\": true"); break;
    case PLAN_TYPES: types(depth + 1); break;
    case PLAN_LAYER_COLUMNS: columns(depth + 1); break;
    case PLAN_OBJECT: object(f->of, depth + 1); break;
    case PLAN_OBJECTS:
        array_of(f->fewest, f->longest);
        object(f->of, depth + 1);
        printf(" }");
        break;
    default: values(f);
    }
    printf(" }");
}

static void object(const struct plan_object *of, int depth)
{
    int n = 0;
    printf("\"type\": \"object\", \"additionalProperties\": false,");
    indent(depth);
    printf("\"required\": [");
    for (int i = 0; i < of->n; i++)
        if (of->field[i].when == PLAN_ALWAYS)
            printf("%s\"%s\"", n++ ? ", " : "", of->field[i].key);
    printf("],");
    indent(depth);
    printf("\"properties\": {");
    for (int i = 0; i < of->n; i++) {
        indent(depth + 1);
        property(&of->field[i], depth + 1);
        printf(i < of->n - 1 ? "," : "");
    }
    indent(depth);
    printf("}");
}

int main(void)
{
    printf("{\n  \"$schema\": \"http://json-schema.org/draft-07/schema#\",\n"
           "  \"$id\": \"https://thermocline.invalid/schemas/plan-%d.schema.json\",\n  \"title\": \"Thermocline plan, revision %d\",\n"
           "  \"description\": \"%s\",\n  ", PLAN_REVISION, PLAN_REVISION, beyond);
    object(&plan_root, 1);
    printf(",\n  \"definitions\": {\n    \"type\": { \"enum\": [");
    for (int t = 0, n = 0; t < QUANT_LIMIT; t++)
        if (quant_traits((uint32_t)t) && quant_traits((uint32_t)t)->dequant)
            printf("%s\"%s\"", n++ ? ", " : "", quant_traits((uint32_t)t)->name);
    printf("] }\n  }\n}\n");
    return 0;
}
