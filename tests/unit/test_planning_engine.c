/* Plans that give an accelerator products other than neurons', (M34): who gets them, what they take of the account, and that they are
 * checked. */
#include "planner/check/check.h"
#include "planner/heap.h"
#include "planner/planning/planning.h"
#include "planner/planning/planning_account.h"
#include "tests/planning_sample.h"
#include "tests/test.h"

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
    return q;
}

static int plan_of(const struct request *q, const struct inputs *in, const struct hw *hw, struct plan *p, struct err *e)
{
    struct notes notes = { 0 };
    int r = planning_make(q, in, hw, &notes, p, e);
    return r;
}

/* FFNs slow, products fast: these alone. */
int main(void)
{
    struct inputs in = sample_inputs(4, 256, 512, 1, 2);
    struct hw hw = sample_hw(1, 2, 50000), none = sample_hw(1, 2, 50000);
    struct plan p, plain;
    struct err e = { 0 };
    struct notes notes = { 0 };
    struct request q = request(64 << 20);
    heap_keep();
    sample_many_tokens(&hw), sample_many_tokens(&none);
    sample_accel(&hw, 1000, 1e6, 1e6);
    sample_products(&hw, 1);
    CHECK_MSG(plan_of(&q, &in, &none, &plain, &e) == 0, "%s", e.msg);
    CHECK_MSG(plan_of(&q, &in, &hw, &p, &e) == 0, "%s", e.msg);
    const struct plan_limit *l = &p.limits[0];
    CHECK(!strcmp(p.engine, "opencl:0") && plan_any_engine(l) == 0 && plan_any_work(l) == PLAN_WORK_ALL);
    for (int b = 0; b < 2; b++)
        CHECK(l->batches[b].engine_work == PLAN_WORK_ALL &&
              l->batches[b].predicted.tokens_per_s > 1.01 * plain.limits[0].batches[b].predicted.tokens_per_s &&
              l->batches[b].predicted.head_ns < plain.limits[0].batches[b].predicted.head_ns);
    /* The head of a prompt is one token's, and so the first batch size's. */
    int n = l->prompt.n;
    CHECK(n > 0 && l->prompt.with_engine && l->prompt.engine_work[n - 1] == PLAN_WORK_ATTENTION && l->prompt.engine_neurons[n - 1] == 0);
    CHECK(l->prompt.attention_ns[n - 1] < plain.limits[0].prompt.attention_ns[n - 1] &&
          l->prompt.ffn_ns[n - 1] == plain.limits[0].prompt.ffn_ns[n - 1] && l->prompt.head_ns < plain.limits[0].prompt.head_ns);
    CHECK_MSG(check_plan(&p, "plan", &in, &hw, &notes, &e) == 0, "%s", e.msg);

    /* Work that was taken away is noticed by its times, at a batch size and in prompts. */
    struct plan_limit *t = &p.limits[0];
    t->batches[1].engine_work = PLAN_WORK_HEAD;
    t->prompt.engine_work[1] = PLAN_WORK_HEAD;
    CHECK(check_plan(&p, "tampered", &in, &hw, &notes, &e) == ERR_FORMAT && strstr(e.msg, "batches[1]"));
    t->batches[1].engine_work = t->prompt.engine_work[1] = PLAN_WORK_ALL;
    t->prompt.engine_work[n - 1] = PLAN_WORK_FFN;
    CHECK(check_plan(&p, "tampered", &in, &hw, &notes, &e) == ERR_FORMAT);
    t->prompt.engine_work[n - 1] = PLAN_WORK_ATTENTION;

    /* Buffers of products: 64 tokens of a layer's 768 outputs, at 4 bytes on the device and in the host's memory. */
    struct budget with, without;
    struct problem pr;
    CHECK(planning_problem(&p, l, &in, &hw, &notes, &pr, &e) == 0);
    CHECK(planning_account(&pr, l, "opencl:0", &with, &e) == 0 && with.total == l->account_bytes);
    for (int b = 0; b < 2; b++)
        t->batches[b].engine_work = PLAN_WORK_FFN;
    memset(t->prompt.engine_work, 0, sizeof t->prompt.engine_work);
    CHECK(planning_account(&pr, l, "opencl:0", &without, &e) == 0);
    CHECK(with.item[BUDGET_ENGINE] - without.item[BUDGET_ENGINE] == 8 * (64 * 768 - 64 * 256));
    problem_done(&pr);
    plan_done(&p);

    /* One whose products are slower than the processor's gets nothing. */
    plan_done(&plain);
    struct hw slow = sample_hw(1, 2, 50000);
    sample_many_tokens(&slow);
    sample_accel(&slow, 1000, 1e6, 1e6);
    sample_products(&slow, 1e6);
    CHECK_MSG(plan_of(&q, &in, &slow, &p, &e) == 0 && !p.engine[0], "%s", e.msg);
    plan_done(&p);
    inputs_done(&in);
    hw_free(&hw), hw_free(&none), hw_free(&slow);
    return test_done();
}
