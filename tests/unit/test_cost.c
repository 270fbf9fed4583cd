/* The equations against numbers worked out by hand, and the tables behind them. */
#include "common/kernels/kernels.h"
#include "planner/cost/cost.h"
#include "planner/cost/cost_prompt.h"
#include "planner/search/problem.h"
#include "tests/planning_sample.h"
#include "tests/test.h"
#include "tests/layout_sample.h"

static int near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b)) + 1e-12;
}

/* The paper's example figures: 7B on the phone, from its own tables (4-bit weights, 43.9 GB/s). */
static void test_paper(void)
{
    const int n_k[3] = { 1, 3, 0 };
    const double f_k[3] = { 40e9, 30e9, 10e9 };
    double f = cost_f_cpu(n_k, f_k, 3);
    CHECK(near(f, 130e9));
    CHECK(near(cost_dense_ns(2.6e9, 0.65e9, f), 25e6));
    CHECK(near(cost_ffn_ns(0.1, 13e9, f), 10e6));
    CHECK(near(cost_v_io(0.1, 0.05, 4e9), 20e6));
    CHECK(near(cost_io_ns(20e6, 1e9), 20e6));
    CHECK(near(cost_compute_ns(25e6, 10e6, 20e6), 45e6)); /* 10 ms of FFN hide 10 of 20 ms of reads */
    CHECK(near(cost_compute_ns(25e6, 10e6, 5e6), 35e6));
    CHECK(near(cost_decode_ns(45e6), 45e6) && near(cost_speed(50e6), 20));
    CHECK(near(cost_mem_ns(1e9, 0.2e9, 0.1, 4e9, 40e9), 40e6));
    CHECK(cost_cores_ok(3, 3) && !cost_cores_ok(4, 3));
    CHECK(cost_memory_ok(100, 100) && !cost_memory_ok(101, 100));
    CHECK(cost_speed_ok(5, 5) && !cost_speed_ok(4.9, 5));
    CHECK(cost_io_ns(0, 0) == 0 && cost_io_ns(1, 0) > 1e9); /* no storage figures: reads are ruled out */
}

static void test_measured(void)
{
    CHECK(near(cost_rows_ns(100, 2.5), 250));
    CHECK(near(cost_memory_ns(1e6, 1e10, 1e5, 1e9), 1e5 + 1e5));
    CHECK(near(cost_stream_ns(1e6, 1e9), 1e6));
    const struct cost_reads c = { 4, { 0, 1, 2, 4 }, { 0, 100, 120, 160 }, 15 };
    CHECK(near(cost_reads_ns(&c, 0.5), 50) && near(cost_reads_ns(&c, 1), 100) && near(cost_reads_ns(&c, 3), 140));
    CHECK(near(cost_reads_ns(&c, 4), 160) && near(cost_reads_ns(&c, 40), 160 + 36 * 15) && cost_reads_ns(&c, 0) == 0);
    CHECK(cost_row_ns(3, 5) == 5 && cost_row_ns(5, 3) == 5);
    CHECK(near(cost_verify_ns(8192, 0.25, 2), 1024)); /* (M22) */
    CHECK(near(cost_cache_overhead_ns(100, 20, 10, 500, 2), 3500) && near(cost_start_ns(4, 700), 2800)); /* (M14), (M15) */
    /* (M7) attention of 30 hides 30 of 100, or the 20 that fit the buffers; not more than there is. */
    CHECK(near(cost_first_ns(100, 5, 1024, 2), 2 * 5 * 50) && near(cost_first_ns(1e6, 5, 1024, 2), 2 * 5 * 1024.0) &&
          cost_first_ns(100, 5, 0, 2) == 0); /* the first of two halves; a job of 1 MiB; no gates to wait for */
    CHECK(cost_ahead_ns(100, 90, 30) == 70 && cost_ahead_ns(100, 20, 30) == 80 && cost_ahead_ns(10, 10, 30) == 0);
    /* (M29) 30 of neurons in memory, 20 of them beside the first buffers; a quarter of what is read is the last; two threads through eight
     * buffers of many, through one: all of it, and a third that is Down both sum. */
    CHECK(cost_full_ns(30, 20) == 10 && cost_full_ns(30, 40) == 0);
    CHECK(near(cost_drain_ns(100, 4, 1, 8, 0), 25) && near(cost_drain_ns(100, 400, 2, 8, 0), 25) &&
          near(cost_drain_ns(300, 400, 2, 1, 1 / 3.0), 500) && near(cost_drain_ns(100, 0.5, 1, 8, 0), 100));
    /* (M16) two tokens, two norms of 5 and 40 heads of 0.5; (M17) 10 positions of 32 heads of 2 ns by one thread, by the
     * three that get a piece of 64 KiB, by all eight; (M18), (M19) */
    CHECK(near(cost_serial_ns(2, 2, 5, 40, 0.5), 60));
    CHECK(near(cost_attend_ns(10, 32, 2, 65535, 8, 1), 640) && near(cost_attend_ns(10, 32, 2, 3 * 65536.0, 8, 1), 640 / 3.0) &&
          near(cost_attend_ns(10, 32, 2, 1e9, 8, 2), 160));
    CHECK(cost_tile_row_ns(100, 60, 2) == 120 && cost_tile_row_ns(100, 40, 2) == 100 && cost_tile_row_ns(100, 100, 4) == 100);
    CHECK(schedule_row_parts(1) == 1 && schedule_row_parts(2) == 1 && schedule_row_parts(3) == 2 && schedule_row_parts(6) == 3);
    CHECK(near(cost_jobs(1024, 2048, 1, 2), 2 + 2 + 4) && near(cost_jobs(1024, 2048, 2, 4), 2 + 2 * 2 + 8) &&
          near(cost_contention_ns(10, 300, 2), 3000));
    CHECK(near(cost_copied_share(64, 100, 80), 0.55) && near(cost_copied_share(200, 100, 80), 1) && cost_copied_share(10, 100, 80) <= 0 &&
          cost_copied_share(10, 100, 0) <= 0);
    CHECK(near(cost_exposed_ns(0.25, 80), 20) && near(cost_exposed_ns(7, 80), 80));
    /* Of reads that end one by one the last waits, of those that end together as many as are in flight. */
    CHECK(near(cost_tail_share(0.5, 24, 8, 0), 0.5 / 24) && near(cost_tail_share(3, 24, 8, 0), 1 / 24.) &&
          cost_tail_share(3, 0, 8, 1) <= 0);
    CHECK(near(cost_tail_share(3, 24, 8, 1), 3 / 24.) && near(cost_tail_share(12, 24, 8, 1), 8 / 24.) &&
          near(cost_tail_share(12, 24, 8, 0.25), (0.25 * 8 + 0.75) / 24) && near(cost_tail_share(0.5, 24, 8, 1), 0.5 / 24));
    struct plan_layer_figures f = { .attention_ns = 10, .predict_ns = 1, .ffn_compute_ns = 20, .ffn_memory_ns = 30,
                                    .io_ns = 25, .exposed_ns = 4 };
    CHECK(near(cost_layer_ns(&f), 45));
    f.total_ns = 45;
    CHECK(near(cost_step_ns(7, &f, 1), 52));
    /* (M11): 10 rows of 3 ns and 100 of 2 ns; or 600 bytes at 1 byte/ns. */
    CHECK(near(cost_predict_ns(10, 3, 100, 2, 100, 1e9), 230) && near(cost_predict_ns(10, 3, 100, 2, 600, 1e9), 600));
    /* (M12) */
    CHECK(near(cost_predicted_ns(1, 10, 2, 20, 3, 30, 4, 40), 10 + 40 + 90 + 160));
    /* (M13): reads of 50 ns behind attention and FFN of 10 + 12, or of 20 hidden by them */
    struct plan_layer_figures ahead = { .attention_ns = 10, .predict_ns = 3, .ffn_compute_ns = 12, .ffn_memory_ns = 11,
                                        .io_ns = 50, .exposed_ns = 2 };
    CHECK(near(cost_lookahead_ns(&ahead), 3 + 50 + 2));
    ahead.io_ns = 20;
    CHECK(near(cost_lookahead_ns(&ahead), 3 + 22 + 2) && near(cost_layer_ns(&ahead), 10 + 3 + 20 + 2));
    struct op_need kv = { .planes = 2, .row = 128, .heads = 8, .head_dim = 32 }, state = { .states = 1, .state = 640, .state_flops = 70 };
    CHECK(near(cost_kv_bytes(&kv, 2, 100, 1), 2 * 2 * 100 * 128 * 2.0) && near(cost_kv_flops(&kv, 1, 100), 4 * 100 * 256.0));
    CHECK(near(cost_kv_bytes(&state, 2, 100, 1), 2 * 8 * 640) && near(cost_kv_flops(&state, 2, 100), 140));
}

/* (M25), (M26): half of 512 neurons on an accelerator that takes 1 us for a launch and 5 us for these. */
static void beside(const struct hw *hw, const struct inputs *in, const struct layout_shape *s, const struct cost_choice *choice,
                   const struct cost_layer *base)
{
    struct hw_accel accel = { .engine = "opencl:0", .launch_ns = 1000 };
    struct hw_accel_point points[] = { { .op = "ffn/f16", .rows = 256, .cols = 256, .batch = 1, .ns = { 6000, 6000, 6000 } },
                                       { .op = "ffn/f16", .rows = 512, .cols = 256, .batch = 1, .ns = { 11000, 11000, 11000 } } };
    struct hw_memory memory[8];
    struct hw with = *hw;
    struct cost_choice c = *choice;
    struct cost_rates r;
    struct cost_layer l = *base;
    struct notes notes = { 0 };
    struct err e = { 0 };
    const struct cost_residency all = { .hot = { 512, 512 } }, half = { .hot = { 512, 128 } }, none = { .hot = { 512, 0 } };
    with.accels = &accel, with.n_accels = 1, with.accel_points = points, with.n_accel_points = 2;
    c.engine = "opencl:1", c.height = 256;
    CHECK(cost_rates_of(&with, in, s, &c, 1, &r, &notes, &e) == ERR_UNSUPPORTED && strstr(e.msg, "opencl:1"));
    c.engine = "opencl:0";
    CHECK(cost_rates_of(&with, in, s, &c, 1, &r, &notes, &e) == 0 && r.sigma == 0 && notes.n == 1);
    CHECK(near(r.engine_ns[8], 6000) && near(r.engine_ns[16], 11000) && near(r.launch_ns, 1000));
    CHECK(cost_height(s, &c, &all) == 256 && cost_height(s, &c, &half) == 128 && cost_height(s, &c, &none) == 0);
    cost_layer_beside(&with, in, s, &c, &r, 0, 1, 256, &l);
    double active = inputs_active(in, 0, 1, 256), total = inputs_active(in, 0, 1, 0);
    CHECK(near(l.compute_ns, 256 * 30 + active * 75) && near(l.active, total) && near(l.engine_ns, 6000) && near(l.launch_ns, 1000));
    struct cost_flow nothing = { .reads = 0 };
    struct plan_layer_figures f = cost_figures(&c, &r, &l, &nothing);
    double cpu = fmax(f.ffn_compute_ns, f.ffn_memory_ns);
    CHECK(near(r.engine_ns[0], 1000) && near(l.queue_ns, 1000)); /* of launches alone: sixteenths are in proportion */
    double busy = cpu + 1000.0 / c.threads;
    CHECK(near(f.ffn_engine_ns, fmax(busy, 6000)) && near(f.total_ns, f.attention_ns + fmax(busy, 6000)));
    /* 20 GB/s each, 25 together: each is slower by 1.6 while both work. */
    int n = hw->n_memory;
    CHECK(n > 0 && n <= 6);
    memcpy(memory, hw->memory, (size_t)n * sizeof *memory);
    double own = hw_memory_bytes_per_s(hw, "cpu", HW_SEQ, 64 << 10, c.threads, HW_TYPICAL);
    memory[n] = (struct hw_memory){ .engines = "opencl:0", .row_bytes = 64 << 10, .bytes_per_s = { own, own, own } };
    memory[n + 1] = (struct hw_memory){ .engines = "cpu+opencl:0", .row_bytes = 64 << 10, .threads = c.threads,
                                        .bytes_per_s = { own, own * 1.25, own } };
    with.memory = memory, with.n_memory = n + 2;
    CHECK(cost_rates_of(&with, in, s, &c, 1, &r, NULL, &e) == 0 && near(r.sigma, 0.6));
    f = cost_figures(&c, &r, &l, &nothing);
    CHECK(near(f.ffn_engine_ns, fmax(busy, 6000) + 0.6 * fmin(cpu, 5000)));
    CHECK(near(cost_both_ns(10, 0, 1, 4, 5, 0.5), 10) && near(cost_engine_ns(1000, 2, 6000), 11000));
    /* Calls are one thread's: hidden from none where there is one, less where there are many. */
    CHECK(near(cost_both_ns(100, 80, 1, 90, 20, 0), 180) && near(cost_both_ns(100, 80, 16, 90, 20, 0), 105) &&
          near(cost_both_ns(0, 80, 16, 90, 20, 0), 90));
    /* A call that costs as much with few neurons as with many is its own, not its neurons'. */
    points[0].ns.p50 = 8000, points[1].ns.p50 = 8500;
    with.accel_points[0].rows = 32;
    CHECK(cost_rates_of(&with, in, s, &c, 1, &r, NULL, &e) == 0 && r.engine_ns[0] > 7500 && r.engine_ns[0] <= r.engine_ns[1]);
    l = *base;
    cost_layer_beside(&with, in, s, &c, &r, 0, 1, 256, &l);
    CHECK(near(l.queue_ns, r.engine_ns[0]) && l.engine_ns > l.queue_ns);
    c.height = 0;
    CHECK(cost_height(s, &c, &all) == 0);
}


/* (M5) at its ends: no reads, no computing, reads that keep all of their rate; what is lost grows with what goes on, and never is more. */
static void test_slowed(void)
{
    int bad = 0;
    CHECK(cost_lost_ns(0, 500) == 0 && near(cost_lost_ns(10, 500), 5000));
    for (double work = 0; work < 1000; work += 130)
        for (double waited = 0; waited < 2000; waited += 170)
            for (double kappa = 0.125; kappa <= 1; kappa += 0.125) {
                double slowed = cost_slowed_ns(work, waited, kappa);
                bad += (work <= 0 || waited <= 0 || kappa >= 1) && slowed > 0;
                bad += slowed < 0 || slowed > work || slowed > waited / kappa - waited + 1e-9;
                bad += cost_slowed_ns(work + 10, waited, kappa) < slowed || cost_slowed_ns(work, waited + 10, kappa) < slowed;
                bad += cost_slowed_ns(work, waited, kappa / 2) < slowed - 1e-9;
            }
    CHECK_MSG(bad == 0, "%d", bad);
    /* Half of the rate beside 300 of computing: 150 of 400 are read meanwhile. All of 100 are read meanwhile, in twice the time. */
    CHECK(near(cost_slowed_ns(300, 400, 0.5), 150) && near(cost_slowed_ns(300, 100, 0.5), 100));
}

/* Computing that is lost to each read of so many bytes a second, and what reads keep of their rate, whatever the depth and threads. */
static void measured_together(struct hw *hw, struct hw_joint *row, double lost, double kept)
{
    const enum hw_backend both[] = { HW_URING, HW_PREAD };
    for (int i = 0; i < 2; i++)
        row[i] = (struct hw_joint){ .backend = both[i], .block_bytes = 4096, .queue_depth = 8, .threads = 1, .load_percent = 100,
                                    .bytes_per_s = { 1, 1, 1 }, .read_rate_ratio = kept, .row_rate_ratio = 1 - lost };
    hw->joint = row;
    hw->n_joint = 2;
}

/* (M5) of a layer: assumed where nothing was measured together, else what was seen, and nothing of the CPU time of reads besides. */
static void beside_each_other(const struct hw *hw, const struct inputs *in, const struct layout_shape *s, const struct cost_choice *given,
                              const struct cost_flow *f)
{
    struct hw with = *hw;
    struct hw_joint row[2];
    struct hw_storage points[64];
    struct cost_choice c = *given;
    struct cost_rates r;
    struct cost_layer l;
    double v[TERM_VALUES], was = 0, slower = 0;
    struct err e;
    with.storage_points = points;
    /* Not known: the CPU time of reads, shared by the threads; a core to spare is of use to threads that read alone. */
    for (c.threads = 1; c.threads <= 2; c.threads++)
        for (int b = 0; b < 2; b++) {
            c.n[0] = c.threads, c.backend = b ? HW_PREAD : HW_URING;
            for (int i = 0; i < hw->n_storage && i < 64; i++)
                points[i] = hw->storage_points[i], points[i].backend = c.backend;
            CHECK(cost_rates_of(&with, in, s, &c, 1, &r, NULL, &e) == 0);
            cost_layer_of(&with, in, s, &c, &r, 0, 1, &l, NULL);
            cost_figures_of(&c, &r, &l, f, v);
            const int spare = b && c.threads == 1;
            const double lost_ns = spare ? 0 : 4 * r.stream_beside.lost_ns + f->reads * 5000 / c.threads;
            CHECK(near(v[V_t_lost], lost_ns) && (r.stream_beside.lost_ns > 0) == !spare && near(v[V_t_slowed], 0) && near(v[V_kappa], 1));
        }
    c = *given;
    with.storage_points = hw->storage_points;
    for (double lost = 0; lost < 1; lost += 0.1) { /* the more computing loses the longer it takes, */
        measured_together(&with, row, lost, 1);
        CHECK(cost_rates_of(&with, in, s, &c, 1, &r, NULL, &e) == 0);
        const struct plan_layer_figures o = cost_figures_of(&c, &r, &l, f, v);
        double reading = v[V_t_stream] + f->reads * r.cold.each_ns;
        CHECK(near(v[V_t_slowed], 0) && near(v[V_t_lost], lost * reading) && v[V_t_lost] >= was);
        CHECK(o.ffn_compute_ns >= l.compute_ns + v[V_t_lost]);
        was = v[V_t_lost];
        struct cost_flow fewer = *f, none = { .reads = 0 };
        fewer.reads /= 2;
        cost_figures_of(&c, &r, &l, &fewer, v);
        CHECK(v[V_t_lost] <= was);
        const struct plan_layer_figures idle = cost_figures_of(&c, &r, &l, &none, v);
        CHECK(v[V_t_lost] == 0 && idle.io_ns == 0 && near(idle.ffn_compute_ns, l.compute_ns));
    }
    for (double kept = 1; kept > 0.05; kept -= 0.1) { /* and the less reads keep the longer these */
        measured_together(&with, row, 0, kept);
        CHECK(cost_rates_of(&with, in, s, &c, 1, &r, NULL, &e) == 0);
        const struct plan_layer_figures o = cost_figures_of(&c, &r, &l, f, v);
        CHECK(near(v[V_kappa], kept) && v[V_t_slowed] >= slower && v[V_t_slowed] <= v[V_t_work] && near(v[V_t_lost], 0));
        CHECK(near(o.io_ns, v[V_t_stream] - v[V_t_hidden] + v[V_t_first] + v[V_t_reads] - v[V_t_last] + v[V_t_slowed]));
        slower = v[V_t_slowed];
    }
    CHECK(was > 0 && slower > 0);
}

/* One layer of a synthetic model, priced by hand. */
static void test_layer(void)
{
    struct inputs in = sample_inputs(2, 256, 512, 1, 4);
    struct hw hw = sample_hw(1, 2, 50000);
    struct layout l;
    struct layout_shape s;
    struct err e = { 0 };
    struct notes notes = { 0 };
    CHECK(inputs_layout(&in, LAYOUT_SPLIT, 64, -1, &l, &e) == 0 && layout_derive_one(&l, 256, 512, &s, &e) == 0);
    struct cost_choice c = { .mode = PLAN_EXACT, .n_classes = 1, .n = { 1 }, .threads = 1, .backend = HW_URING,
                             .depth = 8, .lanes = 1, .context = 200 };
    struct cost_rates r;
    struct cost_layer cl;
    CHECK(cost_rates_of(&hw, &in, &s, &c, 1, &r, &notes, &e) == 0);
    CHECK_MSG(notes.n == 0, "%s", notes.text[0]);
    CHECK(near(r.gate_ns, 30) && near(r.up_ns, 30) && near(r.down_ns, 45) && near(r.seq_bw, 20e9));
    CHECK(r.cold.n == 5 && r.cold.count[4] == 8 && r.cold_bytes == 4096);
    /* (M4) A burst: each read at the depth that is left when it ends, so the sum over depths 8 to 1, then all at 8. */
    double burst = 0, at[9] = { 0 };
    for (int k = 1; k <= 8; k *= 2) {
        struct hw_read q = { .backend = HW_URING, .pattern = HW_RANDOM, .block_bytes = 4096, .lanes = 1, .core_class = -1,
                             .queue_depth = k };
        at[k] = 4096e9 / hw_storage_bytes_per_s(&hw, &q, HW_TYPICAL);
    }
    burst = at[1] + (at[1] + at[2]) / 2 + 2 * (at[2] + at[4]) / 2 + 4 * (at[4] + at[8]) / 2;
    CHECK(near(cost_reads_ns(&r.cold, 8), burst) && near(cost_reads_ns(&r.cold, 20), burst + 12 * at[8]));
    CHECK(at[8] < at[1] && burst > 8 * at[8]);
    cost_layer_of(&hw, &in, &s, &c, &r, 0, 1, &cl, &notes);
    double active = inputs_active(&in, 0, 1, 0);
    CHECK(near(cl.compute_ns, 512 * 30 + active * 75) && near(cl.active, active));
    CHECK(near(cl.memory_ns, 512 * 512 / 20.0 + active * 1024 / 8.0));
    /* Q, K, V, O: 256 + 128 + 128 + 256 rows of 30 ns; K and V at position 100. */
    struct op_need need;
    ops_mixer(&in.h, 1, &need);
    double compute = 768 * 30 + 1e9 * cost_kv_flops(&need, 1, 100) / r.f_cpu;
    double memory = (768 * 512 + cost_kv_bytes(&need, 1, 100, 0)) / 20.0;
    CHECK(near(cl.attention_ns, fmax(compute, memory)));
    beside(&hw, &in, &s, &c, &cl);
    /* Half of the gates resident, nothing else: the rest streams, every firing neuron beyond the prefix is read. */
    struct cost_residency k = { .hot = { 256, 0 } };
    struct cost_flow f = cost_flow_of(&in, &s, &c, 0, 1, NULL, &k);
    CHECK(near(f.stream_bytes, 4 * 32768) && near(f.reads, active) && near(f.mu, 1));
    struct plan_layer_figures g = cost_figures(&c, &r, &cl, &f);
    /* Four of eight buffers are asked for before attention, which hides as much of them. */
    double stream_ns = 4 * 32768 * 1e9 / r.stream_bw, reads_ns = cost_reads_ns(&r.cold, active) - cost_reads_ns(&r.cold, 1);
    CHECK(cl.attention_ns < stream_ns && near(g.io_ns, stream_ns - cl.attention_ns + reads_ns));
    /* Nothing streams: the first gates tell what to read, those of all 512 neurons beyond a prefix of none. */
    struct cost_flow resident = f;
    resident.stream_bytes = 0;
    CHECK(f.beyond == 512 && near(cost_figures(&c, &r, &cl, &resident).io_ns, 512 * 30 + reads_ns));
    f.ahead = 0; /* as in predicted mode */
    CHECK(near(cost_figures(&c, &r, &cl, &f).io_ns, stream_ns + reads_ns));
    f.ahead = 1;
    CHECK(near(g.total_ns, cl.attention_ns + fmax(g.io_ns, g.ffn_compute_ns) + g.exposed_ns));
    CHECK(near(g.read_bytes, 4 * 32768 + active * 4096));
    beside_each_other(&hw, &in, &s, &c, &f);
    c.n[0] = c.threads = 2;
    CHECK(cost_rates_of(&hw, &in, &s, &c, 1, &r, &notes, &e) == 0);
    /* A calibration multiplies times, each term by its own factor, and nothing else. */
    struct cost_layer cl2;
    struct cost_rates r2;
    double head = cost_head_ns(&hw, &in, &c, &r, 1, &notes);
    /* (M37) a row of 5000 bytes lies in two blocks or three, of two tokens two at once; nothing of a small table, or of one in memory. */
    struct inputs rows = in;
    struct cost_choice by_row = c;
    struct hw_read row = { .backend = c.backend, .pattern = HW_RANDOM, .block_bytes = 9088, .range_bytes = 100000 * 5000ull,
                           .queue_depth = 2, .lanes = 1, .core_class = -1 };
    rows.budget.table[0] = (struct budget_table){ MODEL_LAYER_EMBD, 100000, 5000 };
    rows.budget.table[1] = (struct budget_table){ MODEL_TOKEN_EMBD, 10, 5000 };
    rows.budget.n_tables = 2;
    CHECK(near(cost_lookup_ns(3, 80), 240) && near(cost_head_ns(&hw, &rows, &c, &r, 1, &notes), head));
    by_row.stream_tables = 1;
    CHECK(near(cost_head_ns(&hw, &rows, &by_row, &r, 2, &notes), cost_head_ns(&hw, &in, &c, &r, 2, &notes) +
               2 * 9088e9 / hw_storage_bytes_per_s(&hw, &row, HW_TYPICAL)));
    uint64_t whole = 0;
    for (uint64_t i = 0; i < 4096; i++)
        whole += (i * 5000 + 5000 + 4095) / 4096 - i * 5000 / 4096;
    CHECK(whole * 4096 == 4096 * 9088ull && near(cost_row_bytes(4096, 4096, 4096), 4096) && near(cost_row_bytes(6144, 4096, 2048), 8192));
    const struct cost_lookups found = cost_lookups_of(&hw, &rows, &by_row, 2), none = cost_lookups_of(&hw, &rows, &c, 2);
    CHECK(found.reads == 2 && near(found.bytes, 2 * 9088) && none.reads == 0 && none.bytes == 0 && none.ns == 0);
    /* (M30) Four tokens that follow each other in a recurrent layer. Its state, in float32, is read and written once, once more to be kept
     * apart and put back, and once for the three before, which are kept and read. */
    struct inputs states = in;
    states.h.full_period = 4, states.h.conv_width = 4, states.h.delta_dim = 128, states.h.delta_k_heads = 4, states.h.delta_v_heads = 8;
    const double floats = 3 * 2048 + 8 * 128 * 128, state_bytes = 4 * (6 * floats + 3 * 2 * (2048 + 2 * 8));
    struct cost_rates r4;
    by_row.tokens = COST_DRAFTS;
    CHECK(cost_rates_of(&hw, &in, &s, &by_row, 4, &r4, &notes, &e) == 0 && r4.f_cpu > 0);
    double f_cpu = r4.f_cpu;
    r4.f_cpu = f_cpu / 1000; /* the arithmetic alone counts: of four tokens, and of the three before */
    cost_layer_of(&hw, &states, &s, &by_row, &r4, 2, 0, &cl, &notes);
    double slow = cl.products_ns;
    r4.f_cpu = f_cpu / 2000;
    cost_layer_of(&hw, &states, &s, &by_row, &r4, 2, 0, &cl, &notes);
    CHECK_MSG(near(cl.products_ns - slow, 7 * 7 * 1024 * 128 * 1e12 / f_cpu), "%g", cl.products_ns - slow);
    r4.f_cpu = f_cpu * 1000; /* and now the bytes */
    r4.seq_bw = 1e9;
    cost_layer_of(&hw, &states, &s, &by_row, &r4, 2, 0, &cl, &notes);
    CHECK_MSG(near(cl.products_ns, 768 * 512 + state_bytes), "%g", cl.products_ns);
    by_row.tokens = COST_PROMPT; /* of a prompt's all tokens */
    cost_layer_of(&hw, &states, &s, &by_row, &r4, 2, 0, &cl, &notes);
    CHECK(near(cl.products_ns, 768 * 512 + 2 * 4 * floats));
    by_row.tokens = COST_SEQUENCES; /* of four sequences each has its own */
    cost_layer_of(&hw, &states, &s, &by_row, &r4, 2, 0, &cl, &notes);
    CHECK(near(cl.products_ns, 768 * 512 + 4 * 2 * 4 * floats));
    cost_layer_of(&hw, &in, &s, &c, &r, 0, 1, &cl, &notes);
    f.ahead = 0; /* what attention hides does not shrink with storage's times */
    g = cost_figures(&c, &r, &cl, &f);
    hw.correction[HW_ATTENTION] = 3, hw.correction[HW_FFN] = 1.5, hw.correction[HW_IO] = 0.5,
    hw.correction[HW_HEAD] = 7;
    CHECK(cost_rates_of(&hw, &in, &s, &c, 1, &r2, &notes, &e) == 0);
    cost_layer_of(&hw, &in, &s, &c, &r2, 0, 1, &cl2, &notes);
    struct plan_layer_figures g2 = cost_figures(&c, &r2, &cl2, &f);
    CHECK(near(g2.attention_ns, 3 * g.attention_ns) && near(g2.ffn_compute_ns, 1.5 * g.ffn_compute_ns) &&
          near(g2.ffn_memory_ns, 1.5 * g.ffn_memory_ns) && near(g2.io_ns, 0.5 * g.io_ns) &&
          near(g2.exposed_ns, 0.5 * g.exposed_ns) && near(g2.read_bytes, g.read_bytes));
    CHECK(near(g2.total_ns, cost_layer_ns(&g2)) && near(cost_head_ns(&hw, &in, &c, &r2, 1, &notes), 7 * head));
    memset(hw.correction, 0, sizeof hw.correction);
    k = (struct cost_residency){ .hot = { 512, 512 } };
    f = cost_flow_of(&in, &s, &c, 0, 1, NULL, &k);
    g = cost_figures(&c, &r, &cl, &f);
    CHECK(g.io_ns == 0 && g.read_bytes == 0 && g.exposed_ns == 0 && f.mu == 0);
    /* Dense mode needs everything. */
    struct cost_choice dense = { .mode = PLAN_DENSE };
    k = (struct cost_residency){ .hot = { 256, 256 } };
    f = cost_flow_of(&in, &s, &dense, 0, 1, NULL, &k);
    CHECK(near(f.stream_bytes, 4 * 32768 + 64 * 4096) && near(f.mu, 0.5) && f.reads == 0);

    /* What a device lacks is replaced and noted; what cannot be replaced is refused. */
    struct cost_choice q8 = c;
    strcpy(hw.compute[1 * 2].kernel, "axpy/f32");
    strcpy(hw.compute[1 * 2 + 1].kernel, "axpy/f32");
    CHECK(cost_rates_of(&hw, &in, &s, &q8, 1, &r, &notes, &e) == 0 && near(r.down_ns, r.up_ns));
    CHECK(notes.n == 1 && strstr(notes.text[0], "axpy/f16"));
    hw.n_storage = 0;
    CHECK(cost_rates_of(&hw, &in, &s, &c, 1, &r, &notes, &e) == 0 && notes.n == 2 && strstr(notes.text[1],
                                                                                            "storage"));
    hw.n_compute = hw.n_memory = 0;
    CHECK(cost_rates_of(&hw, &in, &s, &c, 1, &r, &notes, &e) == ERR_UNSUPPORTED && strstr(e.msg, "bench"));
    inputs_done(&in);
    hw_free(&hw);
}

static void add_row(struct hw *hw, const char *kernel, enum hw_pattern pattern, int threads, int size, double ns)
{
    struct hw_compute *c = &hw->compute[hw->n_compute++];
    *c = (struct hw_compute){ .pattern = pattern, .dram = 1, .threads = threads, .row_len = size, .rows = 1, .batch = 1,
                              .ns_per_row = { ns, ns, ns }, .flops_per_s = 1 };
    strcpy(c->kernel, kernel);
}

/* Rows that come from memory, and the engine's own work, where a device was measured for them. */
static void test_work(void)
{
    struct inputs in = sample_inputs(2, 256, 512, 1, 4);
    struct hw hw = sample_hw(1, 2, 50000);
    struct layout l;
    struct layout_shape s;
    struct err e = { 0 };
    CHECK(inputs_layout(&in, LAYOUT_SPLIT, 64, -1, &l, &e) == 0 && layout_derive_one(&l, 256, 512, &s, &e) == 0);
    struct cost_choice c = { .mode = PLAN_EXACT, .n_classes = 1, .n = { 2 }, .threads = 2, .backend = HW_URING,
                             .depth = 8, .lanes = 1, .context = 200 };
    struct cost_rates r;
    struct cost_layer cl, cl2;
    struct cost_residency k = { .hot = { 512, 128 }, .slots = 64 };
    CHECK(cost_rates_of(&hw, &in, &s, &c, 1, &r, NULL, &e) == 0 && r.start_ns == 0 && r.lookup_ns == 0 &&
          r.admit_ns == 0);
    cost_layer_of(&hw, &in, &s, &c, &r, 0, 1, &cl, NULL);
    double head = cost_head_ns(&hw, &in, &c, &r, 1, NULL);
    struct cost_flow f = cost_flow_of(&in, &s, &c, 0, 1, NULL, &k);
    struct plan_layer_figures g = cost_figures(&c, &r, &cl, &f);
    add_row(&hw, "work/start", HW_RANDOM, 2, 1, 900);
    add_row(&hw, "work/turn", HW_RANDOM, 2, 1, 200);
    add_row(&hw, "work/norm", HW_RANDOM, 1, 128, 1000); /* of half as many elements: 2000 */
    add_row(&hw, "work/rope", HW_RANDOM, 1, 64, 30);
    add_row(&hw, "work/attend", HW_RANDOM, 1, 64, 8);
    add_row(&hw, "work/lookup", HW_RANDOM, 1, 512, 40);
    add_row(&hw, "work/admit", HW_RANDOM, 1, 4096, 600);
    add_row(&hw, "work/verify", HW_RANDOM, 1, 4096, 1024);
    CHECK(cost_rates_of(&hw, &in, &s, &c, 1, &r, NULL, &e) == 0 && near(r.start_ns, 900) && near(r.lookup_ns, 40) &&
          near(r.admit_ns, 600));
    cost_layer_of(&hw, &in, &s, &c, &r, 0, 1, &cl2, NULL);
    /* Four heads at position 100: 102,400 bytes of K and V are one piece. */
    struct op_need need;
    ops_mixer(&in.h, 1, &need);
    double rows_ns = 768 * 30, kv_ns = 1e9 * cost_kv_flops(&need, 1, 100) / r.f_cpu;
    CHECK(near(cl.attention_ns, rows_ns / 2 + kv_ns));
    CHECK(near(cl2.attention_ns, rows_ns / 2 + 100 * 4 * 8 + 3 * 900 + 2 * 2000 + 6 * 30));
    double contention_ns = 2 * (512 * 1536.0 / SCHEDULE_JOB_BYTES + 1 + 2 * 2) * 200 / 2;
    CHECK(near(cl2.compute_ns, cl.compute_ns + 900 + contention_ns));
    CHECK(near(cost_head_ns(&hw, &in, &c, &r, 1, NULL), head + 900 + 2000));
    struct plan_layer_figures g2 = cost_figures(&c, &r, &cl2, &f);
    double verify_ns = f.reads * s.part[1].unit_bytes * 0.25 / 2; /* gates are resident: nothing is streamed */
    CHECK(near(r.verify_ns_per_byte, 0.25) && f.stream_bytes == 0);
    CHECK(f.reads > 0 && near(g2.ffn_compute_ns, g.ffn_compute_ns + 900 + contention_ns +
                                                     (f.lookups * 40 + f.reads * 600) / 2 + verify_ns));
    CHECK(near(hw_work_ns(&hw, "work/admit", 0, 1, 16384, HW_TYPICAL), 2400)); /* a larger unit: in proportion */
    CHECK(near(hw_work_ns(&hw, "work/lookup", 0, 1, 1 << 20, HW_TYPICAL), 40) &&
          hw_work_ns(&hw, "work/lookup", 1, 1, 512, HW_TYPICAL) == 0 &&
          hw_work_ns(&hw, "work/none", 0, 1, 1, HW_TYPICAL) == 0);
    /* One thread wakes nobody; the paper knows no such work. */
    c.n[0] = c.threads = 1;
    CHECK(cost_rates_of(&hw, &in, &s, &c, 1, &r, NULL, &e) == 0 && r.start_ns == 0 && r.lookup_ns == 40);
    c.model = PLAN_COST_PAPER;
    CHECK(cost_rates_of(&hw, &in, &s, &c, 1, &r, NULL, &e) == 0 && r.lookup_ns == 0 && near(r.gate_ns, 30));
    /* 30 ns in cache; 50 from memory, for one token as for few. */
    c.model = PLAN_COST_MEASURED;
    add_row(&hw, "rows/f16/f32", HW_SEQ, 1, 256, 50);
    CHECK(cost_rates_of(&hw, &in, &s, &c, 1, &r, NULL, &e) == 0 && near(r.gate_ns, 50));
    CHECK(cost_rates_of(&hw, &in, &s, &c, 4, &r, NULL, &e) == 0 && near(r.gate_ns, 120)); /* 4 x 30 by then */
    /* A loop that reads had 20 GB/s in order, and 8 scattered, where the kernel now has 512 bytes in 40 ns: that is the bound. */
    add_row(&hw, "rows/f16/f32", HW_RANDOM, 1, 256, 40);
    CHECK(cost_rates_of(&hw, &in, &s, &c, 1, &r, NULL, &e) == 0 && near(r.seq_bw, 20e9) && near(r.rand_bw, 512 / 40e-9));
    c.model = PLAN_COST_PAPER;
    CHECK(cost_rates_of(&hw, &in, &s, &c, 1, &r, NULL, &e) == 0 && near(r.gate_ns, 30) && near(r.rand_bw, 8e9));
    inputs_done(&in);
    hw_free(&hw);
}

/* Activations: int8 where the plan wants them and the type's rows have that form. */
static void test_forms(void)
{
    struct inputs in = sample_inputs(2, 256, 512, 1, 1);
    struct hw hw = sample_hw(1, 1, 50000);
    struct layout l;
    struct layout_shape s;
    struct cost_rates r;
    struct err e = { 0 };
    struct cost_choice c = { .mode = PLAN_EXACT, .n_classes = 1, .n = { 1 }, .threads = 1, .backend = HW_URING,
                             .depth = 8, .lanes = 1, .context = 200 };
    for (int i = 0; i < in.n_layers * LAYOUT_ROLES; i++)
        in.layers[i / LAYOUT_ROLES].ffn_type[i % LAYOUT_ROLES] = QUANT_Q8_0;
    CHECK(inputs_layout(&in, LAYOUT_SPLIT, 64, -1, &l, &e) == 0 && layout_derive_one(&l, 256, 512, &s, &e) == 0);
    add_row(&hw, "rows/q8_0/f32", HW_SEQ, 1, 256, 70);
    CHECK(cost_rates_of(&hw, &in, &s, &c, 1, &r, NULL, &e) == 0 && near(r.gate_ns, 70));
    c.act_q8 = 1;
    CHECK(cost_rates_of(&hw, &in, &s, &c, 1, &r, NULL, &e) == 0 && near(r.gate_ns, 30));
    inputs_done(&in);
    hw_free(&hw);
}

/* (M27) and (M28) by hand. */
static void test_prompt(void)
{
    CHECK(cost_any(0.5, 2) == 0.75 && cost_any(1, 5) == 1 && cost_any(0, 5) == 0 && near(cost_any(0.01, 1), 0.01));
    CHECK(near(cost_sift_ns(10, 64, 2, 1, 2), 640 * 2.0) && near(cost_sharing(150, 100, 60, 10), 1) && cost_sharing(90, 100, 60, 10) == 0);
    /* 100 bytes at 1 a ns through one buffer of 10: the first 10 are read beforehand; 90 more, and each of ten buffers is one of two
     * threads' while nothing else can be computed: 90 + 2 * 50 in place of 50. */
    CHECK(near(cost_prompt_wait_ns(50, 50, 0, 100, 1e9, 10, 1, 2, 0), 140));
    CHECK(near(cost_prompt_wait_ns(50, 50, 0, 100, 1e9, 10, 4, 2, 0), 60 + 25 - 50));
    CHECK(near(cost_prompt_wait_ns(0, 50, 0, 100, 1e9, 10, 4, 2, 0), 100 + 25 - 50)); /* nothing hides the first */
    CHECK(near(cost_prompt_wait_ns(0, 50, 20, 100, 1e9, 10, 4, 2, 0), 80 + 25 - 50)); /* but attention */
    CHECK(cost_prompt_wait_ns(100, 50, 0, 100, 1e9, 10, 10, 2, 0) == 0 && cost_prompt_wait_ns(9, 9, 9, 0, 1e9, 10, 1, 1, 0) == 0);
    /* where all threads sum Down, a third of it: 90 + (2 * 2 / 3 + 1 / 3) * 50 */
    CHECK(near(cost_prompt_wait_ns(50, 50, 0, 100, 1e9, 10, 1, 2, 1 / 3.0), 90 + 250 / 3.0 - 50));
    CHECK(near(cost_prompt_wait_ns(0, 1000, 0, 100, 1e9, 10, 100, 2, 0), 0));
    struct hw hw = sample_hw(1, 2, 100000);
    CHECK(!cost_prompt_known(&hw));
    add_row(&hw, "rows/f16/f32", HW_SEQ, 1, 64, 10);
    hw.compute[hw.n_compute - 1].batch = COST_PROMPT_BATCH;
    CHECK(cost_prompt_known(&hw));
    hw_free(&hw);
}

static struct cost_prompt prompt_at(const struct hw *hw, const struct inputs *in, const struct layout_shapes *s,
                                    const struct cost_choice *c, uint32_t hot, int tokens, uint32_t height)
{
    struct cost_residency residencies[2] = { { .hot = { hot, hot } }, { .hot = { hot, hot } } };
    struct cost_prompt t = { 0 };
    struct err e = { 0 };
    const struct cost_prompt_heights heights = { { height, PLAN_WORK_FFN, 0 }, { 0 } };
    CHECK_MSG(cost_prompt_of(hw, in, s, c, residencies, 64, tokens, heights, &t, &e) == 0, "%s", e.msg);
    CHECK(near(t.ffn_ns, t.processor_ns + t.beyond_ns + t.shared_ns));
    return t;
}

/* Prompts with the first neurons of each FFN on an accelerator that takes 1 us and 10 ns for each neuron with 64 tokens. */
static void test_prompt_heights(void)
{
    struct inputs in = sample_inputs(2, 256, 512, 1, 1), experts = sample_inputs(2, 256, 512, 4, 1);
    struct hw hw = sample_hw(1, 2, 50000), slow = sample_hw(1, 2, 50000), few = sample_hw(1, 2, 50000), work = sample_hw(1, 2, 50000);
    struct layout l;
    struct layout_shapes s;
    struct err e = { 0 };
    struct cost_choice c = { .mode = PLAN_DENSE, .n_classes = 1, .n = { 2 }, .threads = 2, .backend = HW_URING, .depth = 8, .lanes = 1,
                             .context = 200, .engine = "opencl:0" };
    sample_many_tokens(&hw), sample_many_tokens(&slow), sample_many_tokens(&few), sample_many_tokens(&work);
    sample_accel(&hw, 1000, 10, 10), sample_accel(&slow, 1000, 10, 1e6), sample_accel(&few, 1000, 10, 0);
    CHECK(inputs_layout(&in, LAYOUT_SPLIT, 64, -1, &l, &e) == 0 && layout_derive(&l, 256, 512, &s, &e) == 0);
    CHECK(cost_prompt_engine_known(&hw, "opencl:0", &s, 256) && !cost_prompt_engine_known(&hw, "opencl:1", &s, 256));
    CHECK(!cost_prompt_engine_known(&few, "opencl:0", &s, 256) && !cost_prompt_engine_known(&hw, NULL, &s, 256));
    /* Half of the neurons: the processor's half takes half as long, and the accelerator's is done before. */
    struct cost_prompt none = prompt_at(&hw, &in, &s, &c, 512, 64, 0), half = prompt_at(&hw, &in, &s, &c, 512, 64, 256);
    CHECK(none.engine_ns == 0 && near(none.processor_ns, none.ffn_ns) && near(half.processor_ns, none.processor_ns / 2));
    CHECK(near(half.engine_ns, 2 * 3560) && half.processor_ns > half.engine_ns && near(half.ffn_ns, half.processor_ns));
    CHECK(near(half.attention_ns, none.attention_ns) && half.wait_ns == 0);
    /* All of them: the accelerator alone. No more than are in memory, whose rest is read. */
    struct cost_prompt all = prompt_at(&hw, &in, &s, &c, 512, 64, 512), some = prompt_at(&hw, &in, &s, &c, 128, 64, 512);
    CHECK(all.processor_ns == 0 && near(all.ffn_ns, 2 * 6120) && near(all.beyond_ns, all.ffn_ns));
    CHECK(near(some.engine_ns, 2 * 2280) && some.read_bytes > 0 && some.wait_ns > 0);
    /* Two passes have twice that; a height of decoding does not count. */
    c.height = 64;
    struct cost_prompt twice = prompt_at(&hw, &in, &s, &c, 512, 128, 256);
    CHECK(near(twice.engine_ns, 2 * half.engine_ns) && near(twice.processor_ns, 2 * half.processor_ns));
    /* What a slow one takes longer hides as much of a wait. */
    struct cost_prompt late = prompt_at(&slow, &in, &s, &c, 128, 64, 64);
    struct cost_prompt soon = prompt_at(&hw, &in, &s, &c, 128, 64, 64);
    CHECK(near(late.engine_ns, 2 * (1000 + 64e6)) && near(late.ffn_ns, late.engine_ns) && soon.wait_ns > 0 && late.wait_ns == 0);
    CHECK(near(soon.processor_ns, late.processor_ns));
    /* In exact mode Down is the hot neurons' for the most part: less than their share of rows is left. */
    c.mode = PLAN_EXACT;
    none = prompt_at(&hw, &in, &s, &c, 512, 64, 0), half = prompt_at(&hw, &in, &s, &c, 512, 64, 256);
    CHECK(half.processor_ns < none.processor_ns / 2 && half.processor_ns > none.processor_ns / 4);
    /* Bandwidth: 40 GB/s each, 50 together; both lose 0.6 of what they work at the same time. */
    double bw = hw_memory_bytes_per_s(&hw, "cpu", HW_SEQ, 64 << 10, 2, HW_TYPICAL);
    hw.memory[hw.n_memory++] = (struct hw_memory){ .engines = "opencl:0", .row_bytes = 64 << 10, .bytes_per_s = { bw, bw, bw } };
    hw.memory[hw.n_memory++] = (struct hw_memory){ .engines = "cpu+opencl:0", .row_bytes = 64 << 10, .threads = 2,
                                                   .bytes_per_s = { bw, bw * 1.25, bw } };
    CHECK(near(prompt_at(&hw, &in, &s, &c, 512, 64, 256).shared_ns, 0.6 * fmin(half.processor_ns, half.engine_ns - 2000)));
    /* Measured together: 256 rows of 30 us beside an FFN of 3560 ns took 5 us longer than the rows alone. Few tokens go by bandwidth. */
    hw.accel_points[hw.n_accel_points++] = (struct hw_accel_point){ .op = "cpu/f16", .rows = 128, .cols = 256, .batch = 64,
                                                                    .ns = { 15000, 15000, 15000 } };
    hw.accel_points[hw.n_accel_points++] = (struct hw_accel_point){ .op = "own/f16", .rows = 256, .cols = 256, .batch = 64,
                                                                    .ns = { 3560, 3560, 3560 } };
    hw.accel_points[hw.n_accel_points++] = (struct hw_accel_point){ .op = "both/f16", .rows = 256, .cols = 256, .batch = 64,
                                                                    .ns = { 31280, 31280, 31280 } };
    CHECK(near(prompt_at(&hw, &in, &s, &c, 512, 64, 256).shared_ns, 0.5 * fmin(half.processor_ns, half.engine_ns - 2000)));
    /* No slower than one after the other. */
    struct hw_accel_point *both = &hw.accel_points[hw.n_accel_points - 1];
    both->ns = (struct hw_dist){ 37680, 37680, 37680 };
    CHECK(near(prompt_at(&hw, &in, &s, &c, 512, 64, 256).shared_ns, fmin(half.processor_ns, half.engine_ns - 2000)));
    both->ns = (struct hw_dist){ 31280, 31280, 31280 };
    c.height = 256;
    struct cost_rates rates;
    CHECK(cost_rates_of(&hw, &in, &s.kind[0], &c, 1, &rates, NULL, &e) == 0 && near(rates.sigma, 0.6));
    /* Of neurons that fire for any of 64 tokens h is made for all of them, by both threads, and each of these looks at all of it. */
    add_row(&work, "work/act", HW_RANDOM, 1, 512, 2), add_row(&work, "work/sift", HW_RANDOM, 1, 512, 1);
    struct cost_prompt with = prompt_at(&work, &in, &s, &c, 512, 64, 0);
    double more = with.processor_ns - none.processor_ns, most = 2 * 512 * 64 * 2.0;
    CHECK(more > 0.3 * most && more < most);
    c.mode = PLAN_DENSE;
    CHECK(near(prompt_at(&work, &in, &s, &c, 512, 64, 0).processor_ns, prompt_at(&few, &in, &s, &c, 512, 64, 0).processor_ns));
    /* Attention of several tokens at a time: 64 tokens at position 32 in the mean, four heads; a shorter pass has one at a time. */
    add_row(&work, "work/attend", HW_RANDOM, 1, 64, 16000), add_row(&work, "work/attend_many", HW_RANDOM, 1, 64, 8000);
    double many = prompt_at(&work, &in, &s, &c, 512, 64, 0).attention_ns, one = prompt_at(&work, &in, &s, &c, 512, 4, 0).attention_ns;
    CHECK(many > 2 * 64 * 32 * 4 * 8000.0 / 2 && many < 2 * 64 * 32 * 4 * 12000.0 && one > 2 * 4 * 2 * 4 * 16000.0 / 2);
    /* Two of four experts for each token: 32 tokens each, and a launch for each group of two. */
    CHECK(inputs_layout(&experts, LAYOUT_SPLIT, 64, -1, &l, &e) == 0 && layout_derive(&l, 256, 512, &s, &e) == 0);
    c.mode = PLAN_DENSE;
    double blocks = 4 * cost_any(0.5, 64);
    all = prompt_at(&hw, &experts, &s, &c, 512, 64, 512);
    CHECK(near(all.engine_ns, 2 * (blocks / 2 * 1000 + blocks * 5120)) && all.processor_ns == 0);
    /* (M37) Rows of embeddings: 100 tokens in passes of 64 and 36, 32 reads in flight; nothing hides them. */
    struct inputs rows = in;
    struct hw_read row = { .backend = c.backend, .pattern = HW_RANDOM, .block_bytes = 9088, .range_bytes = 100000 * 5000ull,
                           .queue_depth = 32, .lanes = 1, .core_class = -1 };
    rows.budget.table[0] = (struct budget_table){ MODEL_LAYER_EMBD, 100000, 5000 };
    rows.budget.n_tables = 1;
    CHECK(inputs_layout(&in, LAYOUT_SPLIT, 64, -1, &l, &e) == 0 && layout_derive(&l, 256, 512, &s, &e) == 0);
    none = prompt_at(&hw, &rows, &s, &c, 128, 100, 0);
    c.stream_tables = 1;
    some = prompt_at(&hw, &rows, &s, &c, 128, 100, 0);
    CHECK(near(some.read_bytes - none.read_bytes, 100 * 9088));
    CHECK(near(some.wait_ns - none.wait_ns, 100 * 9088e9 / hw_storage_bytes_per_s(&hw, &row, HW_TYPICAL)));
    CHECK(near(some.ffn_ns, none.ffn_ns) && near(some.attention_ns, none.attention_ns));
    inputs_done(&in), inputs_done(&experts);
    hw_free(&hw), hw_free(&slow), hw_free(&few), hw_free(&work);
}

/* (M34): products of the same input are one call, 128 tokens at a time; the accelerator has what it does faster. */
static void test_products(void)
{
    struct inputs in = sample_inputs(2, 256, 512, 1, 1);
    struct hw hw = sample_hw(1, 2, 50000), slow = sample_hw(1, 2, 50000), none = sample_hw(1, 2, 50000);
    struct layout l;
    struct layout_shapes s;
    struct err e = { 0 };
    struct cost_rates rates;
    struct cost_choice c = { .mode = PLAN_DENSE, .n_classes = 1, .n = { 2 }, .threads = 2, .backend = HW_URING, .depth = 8, .lanes = 1,
                             .context = 200 }, with = c;
    enum plan_work work;
    sample_accel(&hw, 1000, 10, 10), sample_accel(&slow, 1000, 10, 10), sample_accel(&none, 1000, 10, 10);
    sample_products(&hw, 1), sample_products(&slow, 1e5);
    CHECK(inputs_layout(&in, LAYOUT_SPLIT, 64, -1, &l, &e) == 0 && layout_derive(&l, 256, 512, &s, &e) == 0);
    CHECK(cost_work_known(&hw, &in, "opencl:0", 64) == PLAN_WORK_ALL && cost_work_known(&none, &in, "opencl:0", 1) == PLAN_WORK_FFN &&
          cost_work_known(&hw, &in, "opencl:1", 1) == PLAN_WORK_FFN && cost_work_known(&hw, &in, NULL, 1) == PLAN_WORK_FFN);
    with.engine = "opencl:0";
    with.work = PLAN_WORK_ATTENTION;
    const struct inputs_matrix *const a[] = { &in.layers[0].product[0], &in.layers[0].product[1], &in.layers[0].product[2] };
    CHECK(near(cost_engine_products_ns(&hw, &with, a, 3, 1), 1000 + 512) && near(cost_engine_products_ns(&hw, &with, a, 3, 270), 3 * 1512));
    /* A layer's are two calls, Q, K and V, and output, and as many jobs less; what is left of products is K and V. */
    CHECK(cost_rates_of(&hw, &in, &s.kind[0], &c, 1, &rates, NULL, &e) == 0);
    rates.start_ns = 7;
    struct cost_layer cpu = { 0 }, accel = { 0 };
    cost_resident_of(&hw, &in, &c, &rates, 1, 0, &cpu, NULL);
    cost_resident_of(&hw, &in, &with, &rates, 1, 0, &accel, NULL);
    struct inputs bare = in;
    struct inputs_layer empty[2] = { { .n = 0 }, { .n = 0 } };
    bare.layers = empty;
    struct cost_layer kv = { 0 };
    cost_resident_of(&hw, &bare, &c, &rates, 1, 0, &kv, NULL);
    CHECK(near(accel.products_ns, kv.products_ns + 1000 + 512 + 1000 + 256) && near(accel.jobs_ns, cpu.jobs_ns - 14) &&
          near(accel.serial_ns, cpu.serial_ns));
    double head = cost_head_ns(&hw, &in, &with, &rates, 1, NULL);
    CHECK(near(head, cost_head_ns(&hw, &in, &c, &rates, 1, NULL)));
    with.work = PLAN_WORK_HEAD;
    struct inputs headless = in;
    headless.head.rows = 0;
    headless.head.bytes = 0;
    CHECK(near(cost_head_ns(&hw, &in, &with, &rates, 1, NULL), cost_head_ns(&hw, &headless, &c, &rates, 1, NULL) - 7 +
                                                                             hw_accel_ns(&hw, 0, "matmul/f16", 500, 256, 1, HW_TYPICAL)));
    CHECK(cost_best_work(&hw, &in, &s, &c, "opencl:0", 1, &work, &e) == 0 && work == PLAN_WORK_ALL);
    CHECK(cost_best_work(&slow, &in, &s, &c, "opencl:0", 1, &work, &e) == 0 && work == PLAN_WORK_FFN);
    CHECK(cost_best_work(&none, &in, &s, &c, "opencl:0", 1, &work, &e) == 0 && work == PLAN_WORK_FFN);
    inputs_done(&in);
    hw_free(&hw), hw_free(&slow), hw_free(&none);
}

/* (M32) at its ends. A layer of one expert that every step misses; a read of it takes read_ns. */
static struct plan_layer_figures one_expert(int ahead, double foreseen, double wasted, double read_ns, double *v)
{
    const struct cost_choice c = { .mode = PLAN_DENSE, .threads = 2, .backend = HW_URING, .depth = 8, .lanes = 1, .ahead = ahead };
    struct cost_rates r = { .threads = 2, .depth = 8, .ffn_factor = 1, .io_factor = 1, .stream_bw = 1e9,
                            .stream_block = 1e6, .cold_bytes = 4096, .single_bytes = 4096, .unit_bytes = 4000, .n_lengths = 1,
                            .beside[0] = { 50, 1 } };
    const struct cost_layer l = { .attention_ns = 1000, .compute_ns = 5000, .active = 64, .guess_ns = 30 };
    struct cost_flow f = { .reads = 1, .lookups = 1, .at_once = 1, .foresees = 1, .mu = 1 };
    r.cold = (struct cost_reads){ .n = 2, .count = { 0, 1 }, .ns = { 0, read_ns }, .each_ns = read_ns };
    f.early[REPLAY_AHEAD_MISSES] = 1, f.early[REPLAY_AHEAD_FORESEEN] = foreseen, f.early[REPLAY_AHEAD_WASTED] = wasted;
    f.early[REPLAY_AHEAD_STEPS] = foreseen + wasted > 0;
    return cost_figures_of(&c, &r, &l, &f, v);
}

static void test_ahead(void)
{
    double v[TERM_VALUES];
    const struct plan_layer_figures off = one_expert(0, 1, 1, 4000, v), none = one_expert(1, 0, 0, 4000, v);
    CHECK(!memcmp(&off, &none, sizeof off) && v[V_t_early] == 0 && v[V_t_guess] == 0); /* nothing is foreseen: as without */
    CHECK(near(off.io_ns, 4000) && near(off.ffn_compute_ns, 5000 + 50));
    /* All is foreseen and nothing else: reads are hidden where attention is as long, */
    struct plan_layer_figures f = one_expert(1, 1, 0, 1000, v);
    CHECK(near(f.io_ns, 0) && near(f.total_ns, 1000 + 5000 + 50 + 30) && near(v[V_t_early], 1000) && near(v[V_t_hidden], 1000) &&
          near(v[V_t_guess], 30));
    /* beside computing where it is not, */
    f = one_expert(1, 1, 0, 6000, v);
    CHECK(near(f.io_ns, 5000) && near(f.total_ns, 1000 + 5000 + 80) && near(off.total_ns, 1000 + 5000 + 50) &&
          one_expert(0, 1, 0, 6000, v).total_ns > 1000 + 5999);
    /* and no further: in the end the layer takes as long as its reads, not as long as reads and attention. */
    f = one_expert(1, 1, 0, 20000, v);
    CHECK(near(f.total_ns, 20000) && near(one_expert(0, 1, 0, 20000, v).total_ns, 21000) && near(f.read_bytes, 4096));
    /* Reads in vain take as long as others, and CPU time. */
    f = one_expert(1, 1, 1, 20000, v);
    CHECK(near(f.total_ns, 40000) && near(f.read_bytes, 2 * 4096) && near(f.ffn_compute_ns, 5000 + 30 + 100));
    f = one_expert(1, 0, 1, 20000, v);
    CHECK(near(f.total_ns, 40000) && f.total_ns > one_expert(0, 0, 1, 20000, v).total_ns);
    /* Half of the time the storage idles while the layer before computes; none of it where reads take all of the time. */
    CHECK(near(cost_window_ns(1000, 5000, 2000, 1000), 1000 + 0.5 * 4000) && near(cost_window_ns(1000, 5000, 6000, 0), 1000));
    CHECK(near(cost_window_ns(1000, 5000, 0, 0), 6000) && near(cost_window_ns(0, 0, 0, 0), 0));
    CHECK(near(cost_left_ns(900, 1000), 0) && near(cost_left_ns(1500, 1000), 500));
    CHECK(near(cost_late_reads(4, 3, 0, 100, 0), 1) && near(cost_late_reads(4, 3, 100, 100, 0), 4) &&
          near(cost_late_reads(4, 0, 0, 0, 0), 4));
    /* Ended together, those that are left over come with all others. */
    CHECK(near(cost_late_reads(4, 3, 0, 100, 1), 1) && near(cost_late_reads(4, 3, 10, 100, 1), 4) &&
          near(cost_late_reads(4, 3, 50, 100, 0.5), 1 + 3 * 0.75));
}

/* (M6) A layer of eight units a step, of which two are missing in the mean; a read takes 1000, computing 3000, of which each unit is an
 * eighth. */
static double eight_units(const struct replay_point_steps *steps, double together, int depth)
{
    const struct cost_choice c = { .mode = PLAN_DENSE, .threads = 2, .backend = HW_URING, .depth = depth, .lanes = 1 };
    struct cost_rates r = { .threads = 2, .depth = depth, .ends = depth, .ffn_factor = 1, .io_factor = 1,
                            .stream_bw = 1e9, .stream_block = 1e6, .cold_bytes = 4096, .single_bytes = 4096, .unit_bytes = 4000,
                            .n_lengths = 1, .beside[0] = { 0, 1 }, .together = together };
    const struct cost_layer l = { .attention_ns = 500, .compute_ns = 3000, .active = 64 };
    struct cost_flow f = { .reads = 2, .lookups = 8, .at_once = 1, .mu = 0.25, .tiles = 8, .steps = steps };
    double v[TERM_VALUES];
    r.cold = (struct cost_reads){ .n = 2, .count = { 0, 1 }, .ns = { 0, 1000 }, .each_ns = 1000 };
    const struct plan_layer_figures o = cost_figures_of(&c, &r, &l, &f, v);
    CHECK(near(o.read_bytes, 2 * 4096) && near(v[V_t_missed], 2000) && near(o.io_ns, v[V_t_missed] + v[V_t_first]));
    return o.total_ns - 500;
}

/* What is missed in one step of four is waited for, where the same misses in each step are hidden. */
static void test_bursts(void)
{
    const struct replay_point_steps one = { .plain = { 2, { { 0.75f, 0, 0, 0 }, { 0.25f, 8, 0, 0 } } } };
    const struct replay_point_steps all = { .plain = { 1, { { 1, 2, 0, 0 } } } };
    CHECK(near(eight_units(&all, 0, 16), 3000) && near(eight_units(NULL, 0, 16), 3000));
    CHECK(near(eight_units(&one, 0, 16), 0.75 * 3000 + 0.25 * (8000 + 3000 / 8.)));
    /* Where all end at one moment nothing of theirs is computed before; at most as many as are in flight. */
    CHECK(near(eight_units(&one, 1, 16), 0.75 * 3000 + 0.25 * (8000 + 3000)) && near(eight_units(&all, 1, 16), 3000));
    CHECK(near(eight_units(&one, 1, 2), 0.75 * 3000 + 0.25 * (8000 + 3000 / 4.)));
}

int main(void)
{
    test_ahead();
    test_slowed();
    test_bursts();
    test_prompt();
    test_prompt_heights();
    test_products();
    kernels_init(0);
    test_paper();
    test_measured();
    test_layer();
    test_work();
    test_forms();
    return test_done();
}
