/* Pages of 32 positions: small, for half a page per sequence is unused on average and the page in which sequences part is copied
 * for each of them (8 MiB and 16 MiB of a 7B model's float16 cache), and large enough that products over one page's rows take far longer
 * than the call. A page has the same number in every layer, so one table serves all of them. */
#include "runtime/engine/kv_pages.h"

#include <string.h>

void kv_pages_init(struct kv_pages *k, const struct budget_kv *b, int sequences, void *memory)
{
    *k = (struct kv_pages){ .sequences = sequences, .per_sequence = b->per_sequence, .n_pages = b->n_pages, .n_free = b->n_pages };
    if (!b->table_bytes)
        return;
    size_t entries = (size_t)sequences * (size_t)b->per_sequence;
    k->table = memory;
    k->users = (uint16_t *)(k->table + entries);
    memset(k->table, 0xff, entries * sizeof *k->table);
    memset(k->users, 0, (size_t)b->n_pages * sizeof *k->users);
}

static int32_t *entries_of(struct kv_pages *k, int seq)
{
    return k->table + (size_t)seq * (size_t)k->per_sequence;
}

static int is_known(const struct kv_pages *k, int page)
{
    return k->known && k->known[page];
}

/* A free page, the one at `near` or the next after it; one that holds what may be found again only where there is no other. */
static int take_free(struct kv_pages *k, int near, struct err *e)
{
    int page = -1;
    for (int i = 0; i < k->n_pages && k->n_free && page < 0; i++) {
        int at = (near + i) % k->n_pages;
        page = k->users[at] || is_known(k, at) ? -1 : at;
    }
    page = page < 0 && k->n_free && k->give_way ? k->give_way(k) : page;
    if (page >= 0) {
        k->users[page] = 1;
        k->n_free--;
        return page;
    }
    return err_set(e, ERR_LIMIT, "the KV cache is full: its %d pages of %d positions are in use", k->n_pages, SCHEDULE_KV_PAGE);
}

static void give_up(struct kv_pages *k, int32_t *entry)
{
    if (*entry >= 0 && --k->users[*entry] == 0)
        k->n_free++;
    *entry = -1;
}

int kv_pages_own(struct kv_pages *k, int seq, int pos, int *from, int *to, struct err *e)
{
    if (!k->table)
        return 0;
    int32_t *pages = entries_of(k, seq);
    int i = pos / SCHEDULE_KV_PAGE, had = pages[i];
    if (had >= 0 && k->users[had] == 1 && !is_known(k, had))
        return 0;
    int near = i > 0 && pages[i - 1] >= 0 ? pages[i - 1] + 1 : (int)((int64_t)seq * k->n_pages / k->sequences);
    int page = take_free(k, near, e);
    if (page < 0)
        return page;
    give_up(k, &pages[i]);
    pages[i] = page;
    *from = had;
    *to = page;
    return had >= 0 && pos % SCHEDULE_KV_PAGE > 0;
}

int kv_pages_need(const struct kv_pages *k, int seq, int from, int n)
{
    const int32_t *pages = kv_pages_of(k, seq);
    int need = 0;
    for (int i = from / SCHEDULE_KV_PAGE; pages && i * SCHEDULE_KV_PAGE < from + n; i++)
        need += pages[i] < 0 || k->users[pages[i]] > 1 || is_known(k, pages[i]);
    return need;
}

void kv_pages_share(struct kv_pages *k, int to, int from, int n_pos)
{
    kv_pages_keep(k, to, 0);
    for (int i = 0; i * SCHEDULE_KV_PAGE < n_pos; i++) {
        int32_t page = entries_of(k, from)[i];
        entries_of(k, to)[i] = page;
        k->users[page]++;
    }
}

void kv_pages_use(struct kv_pages *k, int seq, int i, int page)
{
    int32_t *entry = &entries_of(k, seq)[i];
    if (*entry == page)
        return;
    k->n_free -= k->users[page]++ == 0;
    give_up(k, entry);
    *entry = page;
}

void kv_pages_keep(struct kv_pages *k, int seq, int n_pos)
{
    for (int i = (n_pos + SCHEDULE_KV_PAGE - 1) / SCHEDULE_KV_PAGE; k->table && i < k->per_sequence; i++)
        give_up(k, &entries_of(k, seq)[i]);
}
