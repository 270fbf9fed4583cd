/* Plans that leave an accelerator what is not in memory, in prompts, (M36): who gets it and what for, the area in the account, and that it
 * is checked. */
#include "planner/check/check.h"
#include "planner/cost/cost_rest.h"
#include "planner/heap.h"
#include "planner/planning/planning.h"
#include "planner/planning/planning_account.h"
#include "tests/planning_sample.h"
#include "tests/test.h"

enum { LAYERS = 4, N_FF = 2048 };

static struct request request(uint64_t memory)
{
    struct request q;
    request_init(&q);
    q.memory[0] = memory;
    q.n_memory = 1;
    q.context = 256;
    q.max_batch = 2;
    q.form = LAYOUT_SPLIT;
    q.chunk = 64;
    q.prompt_weight = 8;
    return q;
}

static int plan_of(const struct request *q, const struct inputs *in, const struct hw *hw, struct plan *p, struct err *e)
{
    struct notes notes = { 0 };
    return planning_make(q, in, hw, &notes, p, e);
}

/* (M36), by hand. */
static void equations(void)
{
    const struct cost_rest x = { .bytes = 4e6, .pieces = 4, .engine_ns = 8e6, .launch_ns = 4e5, .last_ns = 2e6 };
    CHECK(cost_rest_ns(&x, 1e6, 0) == 8e6 + 1e6 / 4);            /* verification beside all pieces but the first */
    CHECK(cost_rest_ns(&x, 1e6, 0.5) == 8e6 + 0.5 * 1e6 + 1e6 / 4);
    CHECK(cost_rest_ns(&x, 0, 0) == 8e6 && cost_rest_ns(&(struct cost_rest){ 0 }, 0, 1) == 0);
    CHECK(cost_rest_wait_ns(&x, 1e9, 1e6, 1e9, 8e6) == 0);       /* 4 ms of reads behind 8 of the accelerator */
    CHECK(cost_rest_wait_ns(&x, 1e8, 1e6, 0, 8e6) == 40e6 + 2e6 - 8e6);
    CHECK(cost_rest_wait_ns(&x, 1e8, 1e6, 1e9, 8e6) == 40e6 - 10e6 + 2e6 - 8e6); /* what the area holds came before */
    CHECK(cost_rest_wait_ns(&x, 1e8, 1e6, 3e6, 8e6) == 40e6 - 3e6 + 2e6 - 8e6);
    CHECK(cost_rest_wait_ns(&x, 0, 1e6, 0, 0) == 0);
}

/* Pieces: every byte that is not in memory once, each piece an FFN. */
static void pieces(const struct inputs *in, const struct plan *p)
{
    struct layout_shapes s;
    struct err e;
    struct cost_rates r = { .launch_ns = 100 };
    CHECK(layout_derive(&p->layout, in->h.d_model, in->h.n_ff, &s, &e) == 0);
    const struct layout_shape *one = &s.kind[0];
    for (int i = 0; i <= COST_HEIGHTS; i++)
        r.engine_ns[i] = 100 + 16 * i;
    const uint32_t half[] = { 1024, 1024 }, gates[] = { 1536, 1024 }, all[] = { N_FF, N_FF };
    const struct cost_rest x = cost_rest_of(one, half, rest_least_area(&s), &r, 0);
    const struct cost_rest g = cost_rest_of(one, gates, rest_least_area(&s), &r, 0);
    const struct cost_rest n = cost_rest_of(one, all, rest_least_area(&s), &r, 0), c = cost_rest_of(one, half, rest_least_area(&s), &r, 2);
    double unit0 = (double)one->part[0].stride_bytes / one->part[0].neurons_per_unit;
    double unit1 = (double)one->part[1].stride_bytes / one->part[1].neurons_per_unit;
    CHECK_MSG(fabs(x.bytes - 1024 * (unit0 + unit1)) < 1 && fabs(g.bytes - 512 * unit0 - 1024 * unit1) < 1, "%g and %g bytes", x.bytes,
              g.bytes);
    CHECK_MSG(x.pieces == 16 && fabs(x.engine_ns - (16 * 100 + 16 * 8)) < 1e-6 && x.launch_ns == 1600, "%g pieces, %g ns", x.pieces,
              x.engine_ns);
    CHECK(n.pieces == 0 && n.bytes == 0 && fabs(c.engine_ns - x.engine_ns - 2 * x.bytes) < 1e-6);
}

int main(void)
{
    struct inputs in = sample_inputs(LAYERS, 256, N_FF, 1, 2), experts = sample_inputs(4, 256, 512, 4, 2);
    struct hw hw = sample_hw(1, 2, 2e6), slow = sample_hw(1, 2, 2e6);
    struct plan p, plain, other;
    struct err e = { 0 };
    struct notes notes = { 0 };
    heap_keep();
    in.head.rows = 4000000; /* so much of a step that a few neurons less in memory are nothing to it */
    equations();
    sample_many_tokens(&hw), sample_many_tokens(&slow);
    sample_accel(&hw, 1000, 1, 1);
    sample_accel(&slow, 1000, 1e6, 1e6);
    hw.accels[0].shares_memory = slow.accels[0].shares_memory = 1;
    hw.accels[0].driver_bytes = slow.accels[0].driver_bytes = 0;

    /* Of FFNs of 12 MiB 3 are not in memory. */
    struct request q = request(512 << 20);
    CHECK_MSG(plan_of(&q, &in, &hw, &plain, &e) == 0, "%s", e.msg);
    CHECK_MSG(plain.limits[0].prompt.rest_from == 0, "all is in memory: there is no rest");
    pieces(&in, &plain);
    q.memory[0] = plain.limits[0].account_bytes - (3 << 20);
    plan_done(&plain);
    snprintf(q.engine, sizeof q.engine, "none");
    CHECK_MSG(plan_of(&q, &in, &hw, &plain, &e) == 0, "%s", e.msg);
    q.engine[0] = 0;
    CHECK_MSG(plan_of(&q, &in, &hw, &p, &e) == 0, "%s", e.msg);
    struct plan_limit *l = &p.limits[0];
    int n = l->prompt.n;
    CHECK_MSG(!strcmp(p.engine, "opencl:0") && l->prompt.rest_from == 64,
              "engine '%s', from %d tokens", p.engine, l->prompt.rest_from);
    CHECK_MSG(plan_prompt_tokens_per_s(&l->prompt) > 1.5 * plan_prompt_tokens_per_s(&plain.limits[0].prompt), "%g tokens/s against %g",
              plan_prompt_tokens_per_s(&l->prompt), plan_prompt_tokens_per_s(&plain.limits[0].prompt));
    CHECK(plan_pass_share(l, 64).rest && !plan_pass_share(l, 32).rest && !plan_pass_share(l, 1).rest && l->prompt.read_bytes[n - 1] > 0);
    CHECK(l->account_bytes <= l->memory_bytes);
    CHECK_MSG(check_plan(&p, "plan", &in, &hw, &notes, &e) == 0, "%s", e.msg);

    /* The area is an item of the account, to the byte; another one, and passes that do not have the rest, are noticed. */
    struct budget with, without;
    struct problem pr;
    uint64_t area = l->prompt.area_bytes;
    CHECK(planning_problem(&p, l, &in, &hw, &notes, &pr, &e) == 0);
    CHECK(planning_account(&pr, l, "opencl:0", &with, &e) == 0 && with.total == l->account_bytes);
    l->prompt.area_bytes = 0;
    CHECK(planning_account(&pr, l, "opencl:0", &without, &e) == 0 && with.item[BUDGET_STAGING] - without.item[BUDGET_STAGING] == area);
    problem_done(&pr);
    l->prompt.area_bytes = area + REST_SLOTS * REST_PAGE;
    CHECK(check_plan(&p, "tampered", &in, &hw, &notes, &e) == ERR_FORMAT);
    l->prompt.area_bytes = area;
    int from = l->prompt.rest_from;
    l->prompt.rest_from = 32;
    CHECK(check_plan(&p, "tampered", &in, &hw, &notes, &e) == ERR_FORMAT && strstr(e.msg, "prompt."));
    l->prompt.rest_from = from;
    CHECK(check_plan(&p, "plan", &in, &hw, &notes, &e) == 0);

    /* Not without prompts, by a slow one, of experts, or where nothing tells what copies take. */
    q.prompt_weight = 0;
    CHECK(plan_of(&q, &in, &hw, &other, &e) == 0 && !other.limits[0].prompt.rest_from);
    plan_done(&other);
    q.prompt_weight = 8;
    CHECK(plan_of(&q, &in, &slow, &other, &e) == 0 && !other.engine[0]);
    plan_done(&other);
    hw.accels[0].shares_memory = 0;
    CHECK(plan_of(&q, &in, &hw, &other, &e) == 0 && !other.limits[0].prompt.rest_from);
    plan_done(&other);
    hw.accels[0].shares_memory = 1;
    CHECK(!cost_rest_known(&hw, &experts, "opencl:0") && cost_rest_known(&hw, &in, "opencl:0") && !cost_rest_known(&hw, &in, "npu"));
    plan_done(&p), plan_done(&plain);
    inputs_done(&in), inputs_done(&experts);
    hw_free(&hw), hw_free(&slow);
    return test_done();
}
