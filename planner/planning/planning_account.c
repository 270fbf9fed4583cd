#include "planner/planning/planning_account.h"

#include "common/plan/plan_fit.h"
#include "common/plan/room.h"

int planning_account(const struct problem *p, const struct plan_limit *l, const char *engine, struct budget *out, struct err *e)
{
    struct budget worst = { .total = 0 };
    const struct plan_most most = plan_most(l);
    for (int i = 0; i < l->n_batches; i++) {
        struct budget b;
        struct budget_choice c = { .context = l->context, .kv_type = l->kv_type, .max_batch = l->max_batch,
                                   .prefill_chunk = l->prefill_chunk, .threads = most.threads, .io_lanes = most.lanes,
                                   .queue_depth = most.depth, .read_bytes = plan_read_bytes(l), .area_bytes = l->prompt.area_bytes,
                                   .stream_tables = l->stream_tables,
                                   .room_bytes = room_bytes(l->purpose, l->context, l->max_batch, &p->space.budget),
                                   .hot = l->batches[i].hot, .cold = l->batches[i].cold };
        plan_fit_widen(&c, &l->elastic);
        c.engine = account_engine(p->space.hw, p->space.in, engine, plan_any_work(l));
        if (l->mode == PLAN_PREDICTED) {
            predicted_account(p->space.in, &p->space.shapes, l->predictor, &c.predictors);
            for (int k = 0; k < p->space.in->n_layers; k++)
                c.predictor_bytes +=
                    l->batches[i].streamed[k] ? 0 : predicted_layer_bytes(p->space.in, l->predictor, k);
            c.predictor_buffers = (uint32_t)l->predictor_buffers;
        }
        int r = budget_compute(&p->space.budget, &c, &b, e);
        if (r < 0)
            return r;
        if (b.total > worst.total)
            worst = b;
    }
    *out = worst;
    return 0;
}
