/* What the header tells (floor.h), as inputs. */
#include "planner/inputs/inputs_model.h"

#include "common/offline/floor/floor.h"

#include <stdlib.h>
#include <string.h>

int inputs_from_model(const char *path, const struct inputs_stated *stated, int max_batch, struct inputs *out, struct err *e)
{
    const struct model_given given = { .act = stated->act, .router = stated->router };
    struct inputs in = { .n_batches = inputs_count_batches(max_batch) };
    struct floor_model *m = malloc(sizeof *m);
    struct gguf *g = NULL;
    int r = m ? gguf_open(path, &g, e) : err_set(e, ERR_NOMEM, "out of memory for a model's facts");
    if (r == 0 && (r = floor_model_of(g, &given, stated->silenced, m, e)) == 0) {
        in.h = m->budget.h;
        in.budget = m->budget;
        in.n_layers = m->source.n_layers;
        in.n_blocks = m->source.n_blocks;
        in.n_used = in.h.n_experts > 0 ? in.h.n_experts_used : 1;
        memcpy(in.name, in.h.name, sizeof in.name);
        if (!(in.layers = calloc((size_t)model_depth(&in.h), sizeof *in.layers)))
            r = err_set(e, ERR_NOMEM, "out of memory for %d layers", in.n_layers);
        for (int l = 0; r == 0 && l < in.n_layers; l++)
            memcpy(in.layers[l].ffn_type, m->source.type[l], sizeof in.layers[l].ffn_type);
    }
    gguf_close(g);
    free(m);
    if (r < 0) {
        inputs_done(&in);
        return r;
    }
    *out = in;
    return 0;
}
