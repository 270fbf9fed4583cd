/* thermo-plan report: a plan as one HTML page. */
#include "planner/cmd.h"

#include "common/base/file.h"
#include "common/base/print.h"
#include "common/cli/opt.h"
#include "planner/args.h"
#include "planner/check/check.h"
#include "planner/report/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct opt_usage usage = {
    "thermo-plan report", "PLAN.json [MORE.jsonl...]",
    "Write a plan as one self-contained HTML page, for any browser and without a network: speed over memory, where the "
    "time goes, hotness and miss-rate curves, the memory account, what binds and what more would buy, for each memory "
    "limit, with tables behind every drawing. With --telemetry, what thermo-run measured stands beside what was "
    "predicted. The plan is checked first; the same inputs give the same bytes.",
    "  thermo-plan report plan.json --traces t.h5 --hardware hw.sqlite --out report.html\n"
    "  thermo-plan report plan.json --traces t.h5 --hardware hw.sqlite --out report.html --telemetry runs/*.jsonl\n", "r"
};

struct options {
    const char *plan, *out;
    struct args_origin from;
    struct opt_list telemetry;
    int no_gains;
    char **more;        /* further telemetry */
    int n_more;
};

static int load(const struct options *w, struct plan *p, struct inputs *in, struct hw *hw, struct telemetry *t,
                struct notes *notes, struct err *e)
{
    int r = 0;
    for (int i = 0; i < w->telemetry.n + w->n_more && r == 0; i++)
        r = telemetry_read(i < w->telemetry.n ? w->telemetry.items[i] : w->more[i - w->telemetry.n], t, e);
    if (r < 0 || (r = plan_read(w->plan, p, e)) < 0 || (r = args_load_hw_of(w->from.hardware, w->from.device, p, hw, e)) < 0)
        return r;
    if ((r = args_load_model_of(w->from.traces, w->from.description, p, in, e)) < 0)
        return r;
    return check_plan(p, w->plan, in, hw, notes, e);
}

static int run(const struct options *w, struct err *e)
{
    struct plan p = { 0 };
    struct inputs in = { 0 };
    struct hw hw = { 0 };
    struct telemetry t = { 0 };
    struct calibrate c = { 0 };
    struct notes notes = { 0 };
    struct page page = { 0 };
    struct report report = { .p = &p, .in = &in, .hw = &hw, .no_gains = w->no_gains };
    int r = load(w, &p, &in, &hw, &t, &notes, e);
    if (r == 0 && w->telemetry.n) {
        report.telemetry = &t;
        if ((r = calibrate_compare(&p, w->plan, &hw, &in, &t, NULL, &c, e)) == 0)
            report.measured = &c;
    }
    if (r == 0 && (r = file_enough_space(w->out, 1, e)) == 0 && (r = report_collect(&report, &notes, e)) == 0) {
        report_page(&page, &report);
        r = page_write(&page, w->out, e);
        report_done(&report);
    }
    if (r == 0)
        print("wrote %s\n", w->out);
    page_done(&page);
    calibrate_done(&c);
    telemetry_done(&t);
    inputs_done(&in);
    hw_free(&hw);
    plan_done(&p);
    return r;
}

int cmd_report(int argc, char **argv)
{
    struct options w = { 0 };
    int n_pos, r;
    struct err e = { 0 };
    struct opt opts[ARGS_ORIGIN_ROWS + 4] = { 0 };
    const struct opt own[] = {
        { .name = "telemetry", .type = OPT_LIST, .dest = &w.telemetry, .arg = "RUN.jsonl", .file = OPT_READ,
          .help = "What thermo-run generate --json or bench --json printed; repeatable." },
        { .name = "out", .short_name = 'o', .type = OPT_STRING, .dest = &w.out, .arg = "FILE", .required = 1, .file = OPT_WRITE,
          .help = "Page to write." },
        { .name = "no-gains", .type = OPT_FLAG, .dest = &w.no_gains,
          .help = "Leave out what more would buy. For each such figure the plan is made again, which takes as long as solve." },
        { 0 },
    };
    args_origin_rows(&w.from, 1, opts);
    memcpy(opts + ARGS_ORIGIN_ROWS, own, sizeof own);
    if ((r = opt_parse(opts, &usage, argc, argv, &n_pos, &e)) == 0) {
        w.plan = argv[1];
        w.more = argv + 2;
        w.n_more = n_pos - 1;
        if (n_pos < 1 || (n_pos > 1 && !w.telemetry.n))
            r = err_set(&e, ERR_USAGE, "report takes one plan; %d were given (further files are telemetry, after "
                                       "--telemetry)", n_pos);
        else
            r = run(&w, &e);
    }
    free(w.telemetry.items);
    return r < 0 ? opt_fail(&e) : 0;
}
