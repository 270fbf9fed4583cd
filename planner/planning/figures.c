/* Figures were true when and where they were measured; this says when that was, and where it may differ from where a plan
 * runs. */
#include "planner/planning/figures.h"

#include "common/base/size.h"

#include <stdio.h>
#include <string.h>

/* Only a time that can be understood counts. */
static const char *measured_at(const struct hw *hw, int t)
{
    const char *at = hw->conditions[t].measured_at;
    return hw_time_of(at) >= 0 ? at : "";
}

void figures_measured(const struct hw *hw, struct notes *notes)
{
    char text[HW_TABLES * 40] = "";
    const char *first = "";
    int n = 0, same = 1;
    for (int t = 0; t < HW_TABLES; t++) {
        const char *at = measured_at(hw, t);
        if (!*at)
            continue;
        same &= !*first || strcmp(first, at) == 0;
        first = at;
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%s %s", n ? ", " : "", hw_table_name((enum hw_table)t), at);
    }
    if (*first)
        notes_add(notes, "%s: figures measured: %s", hw->name, same ? first : text);
}

/* Bytes of FFN weights that a limit leaves to storage, at batch 1. */
static uint64_t cold_bytes(const struct plan *p, const struct layout_shapes *s, const struct plan_limit *l)
{
    double bytes = 0;
    for (int k = 0; k < p->n_layers; k++)
        for (int j = 0; j < p->n_blocks; j++)
            for (int q = 0; q < p->n_parts; q++) {
                const struct layout_part *lp = &layout_of(s, k)->part[q];
                double part = (double)lp->n_units * (double)lp->stride_bytes;
                bytes += part * (1 - (double)plan_hot(p, &l->batches[0], k, j, q) / layout_of(s, k)->n_ff);
            }
    return (uint64_t)bytes;
}

static void doubt_range(const struct hw *hw, const struct plan *p, const struct layout_shapes *s, struct notes *notes)
{
    uint64_t range = 0, cold = 0;
    char a[32], b[32];
    for (int i = 0; i < hw->n_storage; i++)
        range = hw->storage_points[i].range_bytes > range ? hw->storage_points[i].range_bytes : range;
    for (int i = 0; i < p->n_limits; i++) {
        uint64_t bytes = cold_bytes(p, s, &p->limits[i]);
        cold = bytes > cold ? bytes : cold;
    }
    if (range > 0 && cold / FIGURES_RANGE_LESS > range)
        notes_add(notes, "storage was measured within %s, but up to %s are read from: over more a drive may be slower "
                         "(thermo-profile hardware --range)", size_format(range, a, sizeof a), size_format(cold, b, sizeof b));
}

int figures_doubts(const struct hw *hw, const struct plan *p, struct notes *notes, struct err *e)
{
    struct layout_shapes s;
    char small[32];
    for (int t = 0; t < HW_TABLES; t++) {
        char words[140];
        hw_marks_words(&hw->conditions[t], words, sizeof words);
        if (words[0])
            notes_add(notes, "%s figures were measured while %s", hw_table_name((enum hw_table)t), words);
    }
    if (!*measured_at(hw, HW_STORAGE))
        return 0;
    uint64_t page = hw_storage_page_bytes(hw);
    if (page && page < FIGURES_SMALL_PAGES)
        notes_add(notes, "reads were measured into pages of %s, for the system gave no huge ones, and some drives are slower into these: "
                         "/sys/kernel/mm/transparent_hugepage/enabled", size_format(page, small, sizeof small));
    int r = layout_derive(&p->layout, p->d_model, p->n_ff, &s, e);
    if (r == 0)
        doubt_range(hw, p, &s, notes);
    return r;
}

void figures_age(const struct hw *hw, int64_t now, struct notes *notes)
{
    for (int t = 0; t < HW_TABLES; t++) {
        int64_t at = hw_time_of(hw->conditions[t].measured_at);
        double days = (double)(now - at) / 86400;
        if (at >= 0 && now - at > FIGURES_OLD_S)
            notes_add(notes, "%s figures of '%s' are %.*f days old: thermo-profile hardware measures again",
                      hw_table_name((enum hw_table)t), hw->name, days < 10, days);
    }
}
