/* What a plan says of its device's figures: when they were measured, which are doubtful, and nothing of published ones. */
#include "planner/planning/figures.h"

#include "tests/plan_sample.h"
#include "tests/test.h"
#include "tests/layout_sample.h"

static struct err e;

static void at(struct hw *hw, const char *compute, const char *memory, const char *storage)
{
    const char *const text[HW_TABLES] = { compute, memory, storage };
    for (int t = 0; t < HW_TABLES; t++)
        snprintf(hw->conditions[t].measured_at, sizeof hw->conditions[t].measured_at, "%s", text[t]);
}

static void times(void)
{
    CHECK(hw_time_of("1970-01-01T00:00:00Z") == 0 && hw_time_of("2000-02-29T12:34:56Z") == 951827696);
    CHECK(hw_time_of("2000-03-01T00:00:00Z") == 951868800 && hw_time_of("2026-11-23T15:54:57Z") == 1795449297);
    static const char *const bad[] = { "", "2026-11-23", "2026-11-23 15:54:57Z", "2026-11-23T15:54:57", "2026-13-23T15:54:57Z",
                                       "2026-11-00T15:54:57Z", "2026-11-23T24:54:57Z", "1969-12-31T23:59:59Z", "2026-11-23T15:54:57ZZ",
                                       "2026-1 -23T15:54:57Z" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_MSG(hw_time_of(bad[i]) == -1, "%s", bad[i]);
}

static void when(void)
{
    struct hw hw = { .name = "box" };
    struct notes n = { 0 };
    figures_measured(&hw, &n);
    figures_age(&hw, 4000000000, &n);
    CHECK(n.n == 0); /* published */
    at(&hw, "", "2026-11-20T10:00:00Z", "2026-11-20T10:00:00Z");
    figures_measured(&hw, &n);
    CHECK(n.n == 1 && !strcmp(n.text[0], "box: figures measured: 2026-11-20T10:00:00Z"));
    at(&hw, "some day", "2026-11-20T10:00:00Z", "2026-11-21T10:00:01Z");
    figures_measured(&hw, &n);
    CHECK(n.n == 2 && !strcmp(n.text[1], "box: figures measured: memory 2026-11-20T10:00:00Z, storage 2026-11-21T10:00:01Z"));
    n.n = 0;
    figures_age(&hw, hw_time_of("2026-11-21T10:00:00Z"), &n);
    CHECK(n.n == 0); /* a day, not more; and one that is yet to come */
    figures_age(&hw, hw_time_of("2026-11-22T10:00:01Z"), &n);
    CHECK_MSG(n.n == 1 && strstr(n.text[0], "memory figures of 'box' are 2.0 days old"), "%d %s", n.n, n.text[0]);
}

static void doubts(void)
{
    struct plan p;
    struct hw hw = { .name = "box" };
    struct hw_storage points[2] = { { .range_bytes = 1 }, { .range_bytes = 1 } };
    struct notes n = { 0 };
    struct layout_shape s = { 0 };
    plan_sample(&p);
    hw.storage_points = points;
    hw.n_storage = 2;
    CHECK(figures_doubts(&hw, &p, &n, &e) == 0 && n.n == 0); /* published: neither marks nor a range to speak of */
    at(&hw, "", "", "2026-11-20T10:00:00Z");
    CHECK(layout_derive_one(&p.layout, p.d_model, p.n_ff, &s, &e) == 0);
    /* of 3 layers with 2 experts: of each part 2 without a hot neuron, 2 with 64 of 200, 2 whole */
    double cold = 0;
    for (int q = 0; q < 2; q++)
        cold += (2 + 2 * (1 - 64.0 / 200)) * (double)(s.part[q].n_units * s.part[q].stride_bytes);
    points[1].range_bytes = (uint64_t)cold / FIGURES_RANGE_LESS;
    CHECK(figures_doubts(&hw, &p, &n, &e) == 0 && n.n == 0);
    points[0].page_bytes = 2 << 20;
    CHECK(figures_doubts(&hw, &p, &n, &e) == 0 && n.n == 0);
    points[1].page_bytes = 4096;
    CHECK(figures_doubts(&hw, &p, &n, &e) == 0 && n.n == 1 && strstr(n.text[0], "reads were measured into pages of 4.0 KiB"));
    points[1].page_bytes = n.n = 0;
    points[1].range_bytes--;
    CHECK(figures_doubts(&hw, &p, &n, &e) == 0 && n.n == 1 && strstr(n.text[0], "storage was measured within "));
    hw.conditions[HW_MEMORY] = (struct hw_conditions){ .watched = 1, .marks = 1u << HW_OTHERS | 1u << HW_STOLEN, .others = 0.5,
                                                       .stolen = 0.04 };
    n.n = 0;
    CHECK(figures_doubts(&hw, &p, &n, &e) == 0 && n.n == 2);
    CHECK(!strcmp(n.text[0], "memory figures were measured while other programs took up to 50 % of the processors, "
                             "the hypervisor took up to 4 % of the processors"));
    plan_done(&p);
}

int main(void)
{
    times();
    when();
    doubts();
    return test_done();
}
