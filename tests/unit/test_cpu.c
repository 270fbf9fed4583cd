#include "common/base/cpu.h"
#include "tests/test.h"

#include <string.h>

int main(void)
{
    struct err e = { 0 };
    unsigned have = cpu_detect(), mask = 0;
    CHECK(have & 1u << CPU_SCALAR);
    CHECK(cpu_parse("auto", &mask, &e) == 0 && mask == have);
    CHECK(cpu_parse("scalar", &mask, &e) == 0 && mask == 1u << CPU_SCALAR);
    int bad = 0;
    for (int t = 0; t < CPU_TIERS; t++) {
        mask = 77;
        int r = cpu_parse(cpu_tier_name(t), &mask, &e);
        if (have & 1u << t)
            bad += r != 0 || !(mask & 1u << t) || !(mask & 1) || mask >> (t + 1) || (mask & ~have);
        else
            bad += r != ERR_USAGE || mask != 77 || !strstr(e.msg, cpu_tier_name(t));
    }
    CHECK(bad == 0);
    CHECK(cpu_parse("sse9", &mask, &e) == ERR_USAGE && strstr(e.msg, "sse9") && strstr(e.msg, "avx2"));
    CHECK(cpu_parse("", &mask, &e) == ERR_USAGE);
#if defined(__x86_64__)
    CHECK(!(have & (1u << CPU_NEON | 1u << CPU_DOTPROD)));
    CHECK(!(have & 1u << CPU_AVX512) || have & 1u << CPU_AVX2);
#elif defined(__aarch64__)
    CHECK(have & 1u << CPU_NEON);
#endif

    char name[64] = "";
    cpu_model_name(name, sizeof name);
    CHECK(name[0] && !strchr(name, '\n'));
    cpu_model_name(name, 4);
    CHECK(strlen(name) <= 3);

    int cpus[1024], one[1] = { -1 };
    int n = cpu_allowed(cpus, 1024);
    CHECK(n >= 1);
    bad = 0;
    for (int i = 1; i < n; i++)
        bad += cpus[i] <= cpus[i - 1];
    CHECK(bad == 0 && cpus[0] >= 0);
    CHECK(cpu_allowed(one, 1) == 1 && one[0] == cpus[0]);

    int class_of[1024];
    uint64_t hz[CPU_MAX_CLASSES];
    int classes = cpu_classes(cpus, n, class_of, hz);
    CHECK(classes >= 1 && classes <= n);
    bad = 0;
    for (int i = 0; i < n; i++)
        bad += class_of[i] < 0 || class_of[i] >= classes;
    CHECK(bad == 0);
    return test_done();
}
