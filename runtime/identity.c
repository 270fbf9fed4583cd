/* Mode, types, predictors and kernels; with an accelerator its driver and its heights, too. Not threads, memory, batch sizes or reads: no
 * bit depends on them (docs/ARCHITECTURE.md, rules). */
#include "runtime/identity.h"

#include "common/accel/accel.h"
#include "common/base/version.h"
#include "common/kernels/kernels.h"
#include "common/model/kv_type.h"
#include "common/pack/pack_format.h"

#include <stdio.h>

/* An accelerator's sums have an order of their own, and it computes what is hot: so the limit counts too, by what it leaves in memory. */
static void hash_engine(struct hash *h, const struct setup *s)
{
    const struct engine_accel_config *c = &s->config.accel;
    const struct layout_shapes *l = &s->pack->shapes;
    struct accel_info i = { 0 };
    c->accel->backend->describe(c->accel, &i);
    const char *const names[] = { c->accel->backend->name, i.device.platform, i.device.name, i.device.driver, i.device.version };
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
        hash_update_str(h, names[k]);
    for (int k = 0; k < c->n_heights; k++) {
        char text[128];
        snprintf(text, sizeof text, "%d %u %.17g %d %d", c->heights[k].tokens, (unsigned)c->heights[k].neurons, c->heights[k].share,
                 (int)c->heights[k].work, c->heights[k].rest);
        hash_update_str(h, text);
    }
    hash_update_u64(h, s->config.choice.area_bytes);
    hash_update(h, s->config.choice.hot, (size_t)s->pack->h.n_layers * (size_t)model_ffn_blocks(&s->pack->h) * (size_t)l->n_parts *
                sizeof s->config.choice.hot[0]);
}

int identity_of(const struct setup *s, struct hash128 *pack, struct hash128 *how, struct err *e)
{
    const struct engine_config *c = &s->config;
    uint8_t head[PACK_HEADER_BYTES];
    struct hash_room room;
    char text[256];
    int r = file_pread(&s->pack->file, head, sizeof head, 0, e); /* it has the checksums of all that follows */
    if (r < 0)
        return r;
    *pack = hash_128(head, sizeof head);
    struct hash *h = hash_new_in(&room);
    snprintf(text, sizeof text, "%s %d %s by head %d %.17g %s", THERMO_VERSION, (int)c->mode, kv_type_name(c->choice.kv_type), c->act_q8,
             c->recall, kernels->name);
    hash_update_str(h, text);
    if (model_rope_divisors(&s->pack->h, c->choice.context) == MODEL_ROPE_LONG) /* keys are turned otherwise */
        hash_update_str(h, "long");
    if (c->mode == PLAN_PREDICTED) { /* which neurons are computed depends on the plan's limit that fits */
        hash_update(h, c->predictor, (size_t)s->pack->h.n_layers);
        if (c->recalls)
            hash_update(h, c->recalls, (size_t)s->pack->h.n_layers * sizeof c->recalls[0]);
        hash_update(h, c->always, (size_t)s->pack->h.n_layers * sizeof c->always[0]);
    }
    if (c->cold_bound > 0) {
        hash_update(h, &c->cold_bound, sizeof c->cold_bound);
        hash_update(h, c->always, (size_t)s->pack->h.n_layers * sizeof c->always[0]);
    }
    if (c->accel.accel)
        hash_engine(h, s);
    *how = hash_final128(h);
    return 0;
}
